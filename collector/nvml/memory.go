//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func gpuMemoryCalls() []call {
	return append(memoryCalls(metric.MemoryCapacity, metric.MemoryUsed, metric.MemoryFree, metric.MemoryReserved), call{
		function: "nvmlDeviceGetConfComputeProtectedMemoryUsage",
		rows:     []*metric.Def{metric.ProtectedCapacity, metric.ProtectedUsed},
		read: func(d device, s *sample) nvml.Return {
			m, ret := d.GetConfComputeProtectedMemoryUsage()
			if ret == nvml.SUCCESS {
				put(s, metric.ProtectedCapacity, 0, m.Total)
				put(s, metric.ProtectedUsed, 0, m.Used)
			}
			return ret
		},
	}, call{
		function: "nvmlDeviceGetBAR1MemoryInfo",
		rows:     []*metric.Def{metric.BAR1Capacity, metric.BAR1Used},
		read: func(d device, s *sample) nvml.Return {
			m, ret := d.GetBAR1MemoryInfo()
			if ret == nvml.SUCCESS {
				put(s, metric.BAR1Capacity, 0, m.Bar1Total)
				put(s, metric.BAR1Used, 0, m.Bar1Used)
			}
			return ret
		},
	})
}

func instanceMemoryCalls() []call {
	return memoryCalls(metric.MIGMemoryCapacity, metric.MIGMemoryUsed, metric.MIGMemoryFree, metric.MIGMemoryReserved)
}

// memoryCalls asks drivers before R510 the older question, whose answer counts
// what the driver keeps for itself as used and does not tell it apart.
func memoryCalls(capacity, used, free, reserved *metric.Def) []call {
	older := call{
		function: "nvmlDeviceGetMemoryInfo",
		rows:     []*metric.Def{capacity, used, free},
		read: func(d device, s *sample) nvml.Return {
			m, ret := d.GetMemoryInfo()
			if ret == nvml.SUCCESS {
				put(s, capacity, 0, m.Total)
				put(s, used, 0, m.Used)
				put(s, free, 0, m.Free)
			}
			return ret
		},
	}
	newer := call{
		function: "nvmlDeviceGetMemoryInfo_v2",
		rows:     []*metric.Def{reserved, capacity, used, free},
		instead:  &older,
		read: func(d device, s *sample) nvml.Return {
			m, ret := d.GetMemoryInfo_v2()
			if ret == nvml.SUCCESS {
				put(s, capacity, 0, m.Total)
				put(s, used, 0, m.Used)
				put(s, free, 0, m.Free)
				put(s, reserved, 0, m.Reserved)
			}
			return ret
		},
	}
	return []call{newer}
}
