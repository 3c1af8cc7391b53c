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
		one("nvmlDeviceGetGpuMaxPcieLinkGeneration", metric.PCIeGPUGeneration, device.GetGpuMaxPcieLinkGeneration),
		one("nvmlDeviceGetMaxPcieLinkWidth", metric.PCIeMaxWidth, device.GetMaxPcieLinkWidth),
	}
	// In the order of metric.Direction.
	for i, way := range []nvml.PcieUtilCounter{nvml.PCIE_UTIL_RX_BYTES, nvml.PCIE_UTIL_TX_BYTES} {
		calls = append(calls, call{
			function: "nvmlDeviceGetPcieThroughput",
			rows:     []*metric.Def{metric.PCIeThroughput},
			read: func(d device, s *sample) nvml.Return {
				// The call blocks for 20 ms; GPM knows the mean of the whole second for nothing.
				if s.pcie.known() {
					s.put(metric.PCIeThroughput, i, s.pcie.rate[i])
					return nvml.SUCCESS
				}
				v, ret := d.GetPcieThroughput(way)
				if ret == nvml.SUCCESS {
					put(s, metric.PCIeThroughput, i, v)
				}
				return ret
			},
		})
	}
	calls = append(calls, fields(metric.PCIeBytes, 0, asWideCount, nvml.FI_DEV_PCIE_COUNT_RX_BYTES, nvml.FI_DEV_PCIE_COUNT_TX_BYTES)...)
	return append(calls, fields(metric.PCIeErrors, 0, asTyped,
		nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, nvml.FI_DEV_PCIE_COUNT_NAKS_RECEIVED, nvml.FI_DEV_PCIE_COUNT_RECEIVER_ERROR,
		nvml.FI_DEV_PCIE_COUNT_BAD_TLP, nvml.FI_DEV_PCIE_COUNT_NAKS_SENT, nvml.FI_DEV_PCIE_COUNT_BAD_DLLP,
		nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR, nvml.FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ,
		nvml.FI_DEV_PCIE_COUNT_LCRC_ERROR, nvml.FI_DEV_PCIE_COUNT_LANE_ERROR, nvml.FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER,
		nvml.FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER)...)
}
