//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// In the orders of metric.ECCType and metric.ECCLocation.
var (
	errorTypes = []nvml.MemoryErrorType{nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.MEMORY_ERROR_TYPE_UNCORRECTED}
	locations  = []nvml.MemoryLocation{
		nvml.MEMORY_LOCATION_DRAM, nvml.MEMORY_LOCATION_SRAM, nvml.MEMORY_LOCATION_L1_CACHE, nvml.MEMORY_LOCATION_L2_CACHE,
		nvml.MEMORY_LOCATION_REGISTER_FILE, nvml.MEMORY_LOCATION_TEXTURE_MEMORY, nvml.MEMORY_LOCATION_TEXTURE_SHM, nvml.MEMORY_LOCATION_CBU,
	}
)

func eccCalls() []call {
	var calls []call
	for i, kind := range errorTypes {
		calls = append(calls,
			nth("nvmlDeviceGetTotalEccErrors", metric.ECCErrors, i, func(d device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
			}),
			nth("nvmlDeviceGetTotalEccErrors", metric.ECCLifetimeErrors, i, func(d device) (uint64, nvml.Return) {
				return d.GetTotalEccErrors(kind, nvml.AGGREGATE_ECC)
			}))
	}
	for _, of := range []struct {
		row     *metric.Def
		kind    nvml.MemoryErrorType
		counter nvml.EccCounterType
	}{
		{metric.ECCCorrected, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC},
		{metric.ECCUncorrected, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC},
		{metric.ECCLifetimeCorrected, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC},
		{metric.ECCLifetimeUncorrected, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC},
	} {
		for i, location := range locations {
			calls = append(calls, nth("nvmlDeviceGetMemoryErrorCounter", of.row, i, func(d device) (uint64, nvml.Return) {
				return d.GetMemoryErrorCounter(of.kind, of.counter, location)
			}))
		}
	}
	return append(calls, sramCall(), call{
		function: "nvmlDeviceGetEccMode",
		rows:     []*metric.Def{metric.ECCMode},
		read: func(d device, s *sample) nvml.Return {
			current, pending, ret := d.GetEccMode()
			if ret == nvml.SUCCESS {
				put(s, metric.ECCMode, 0, current)
				put(s, metric.ECCMode, 1, pending)
			}
			return ret
		},
	})
}

func sramCall() call {
	return call{
		function: "nvmlDeviceGetSramEccErrorStatus",
		rows:     []*metric.Def{metric.SRAMThreshold, metric.SRAMErrors},
		read: func(d device, s *sample) nvml.Return {
			st, ret := d.GetSramEccErrorStatus()
			if ret != nvml.SUCCESS {
				return ret
			}
			put(s, metric.SRAMThreshold, 0, st.BThresholdExceeded)
			// In the order of metric.SRAMSource.
			for i, n := range []uint64{
				st.AggregateUncParity, st.AggregateUncSecDed, st.AggregateUncBucketL2, st.AggregateUncBucketSm,
				st.AggregateUncBucketPcie, st.AggregateUncBucketMcu, st.AggregateUncBucketOther,
			} {
				put(s, metric.SRAMErrors, i, n)
			}
			return ret
		},
	}
}

// remapCalls ask what was done about memory that fails, and what is to be done.
func remapCalls() []call {
	calls := fields(metric.RetiredPages, 0, asCount, nvml.FI_DEV_RETIRED_SBE, nvml.FI_DEV_RETIRED_DBE)
	calls = append(calls, fields(metric.RemappedRows, 0, asTyped, nvml.FI_DEV_REMAPPED_COR, nvml.FI_DEV_REMAPPED_UNC)...)
	calls = append(calls, fields(metric.RemapInactive, 0, asTyped, nvml.FI_DEV_REMAPPED_ROWS_COR_INACTIVE, nvml.FI_DEV_REMAPPED_ROWS_UNC_INACTIVE)...)
	return append(calls,
		fieldAs(metric.RetiredPending, 0, nvml.FI_DEV_RETIRED_PENDING, 0, asCount),
		field(metric.RemapPending, 0, nvml.FI_DEV_REMAPPED_PENDING),
		field(metric.RemapFailed, 0, nvml.FI_DEV_REMAPPED_FAILURE),
		field(metric.BankRemapPending, 0, nvml.FI_DEV_PENDING_BANK_REMAPPING),
		field(metric.RecoveryAction, 0, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION),
		call{
			function: "nvmlDeviceGetRowRemapperHistogram",
			rows:     []*metric.Def{metric.RemapHistogram},
			read: func(d device, s *sample) nvml.Return {
				h, ret := d.GetRowRemapperHistogram()
				if ret == nvml.SUCCESS {
					for i, n := range []uint32{h.Max, h.High, h.Partial, h.Low, h.None} {
						put(s, metric.RemapHistogram, i, n)
					}
				}
				return ret
			},
		},
		call{
			function: "nvmlDeviceGetRepairStatus",
			rows:     []*metric.Def{metric.RepairPending},
			read: func(d device, s *sample) nvml.Return {
				r, ret := d.GetRepairStatus()
				if ret == nvml.SUCCESS {
					put(s, metric.RepairPending, 0, r.BChannelRepairPending)
					put(s, metric.RepairPending, 1, r.BTpcRepairPending)
				}
				return ret
			},
		})
}
