//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func pcieCalls() []call {
	calls := []call{
		one("nvmlDeviceGetPcieReplayCounter", metric.PCIeReplays, device.GetPcieReplayCounter),
		one("nvmlDeviceGetCurrPcieLinkGeneration", metric.PCIeGeneration, device.GetCurrPcieLinkGeneration),
		one("nvmlDeviceGetCurrPcieLinkWidth", metric.PCIeWidth, device.GetCurrPcieLinkWidth),
		one("nvmlDeviceGetMaxPcieLinkGeneration", metric.PCIeMaxGeneration, device.GetMaxPcieLinkGeneration),
		one("nvmlDeviceGetMaxPcieLinkWidth", metric.PCIeMaxWidth, device.GetMaxPcieLinkWidth),
	}
	// In the order of metric.Direction. Each of these blocks for 20 ms.
	for i, way := range []nvml.PcieUtilCounter{nvml.PCIE_UTIL_RX_BYTES, nvml.PCIE_UTIL_TX_BYTES} {
		calls = append(calls, nth("nvmlDeviceGetPcieThroughput", metric.PCIeThroughput, i, func(d device) (uint32, nvml.Return) {
			return d.GetPcieThroughput(way)
		}))
	}
	return calls
}
