//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func eccCalls() []call {
	var calls []call
	// In the order of metric.ECCType.
	for i, kind := range []nvml.MemoryErrorType{nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.MEMORY_ERROR_TYPE_UNCORRECTED} {
		calls = append(calls,
			nth("nvmlDeviceGetTotalEccErrors", metric.ECCErrors, i, func(d device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
			}),
			nth("nvmlDeviceGetTotalEccErrors", metric.ECCLifetimeErrors, i, func(d device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(kind, nvml.AGGREGATE_ECC)
			}))
	}
	return calls
}
