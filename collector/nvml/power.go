//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func powerCalls() []call {
	return []call{
		one("nvmlDeviceGetPowerUsage", metric.PowerDraw, device.GetPowerUsage),
		one("nvmlDeviceGetTotalEnergyConsumption", metric.Energy, device.GetTotalEnergyConsumption),
		one("nvmlDeviceGetEnforcedPowerLimit", metric.PowerLimit, device.GetEnforcedPowerLimit),
		one("nvmlDeviceGetPowerManagementDefaultLimit", metric.PowerDefaultLimit, device.GetPowerManagementDefaultLimit),
		one("nvmlDeviceGetPowerManagementLimit", metric.PowerRequestedLimit, device.GetPowerManagementLimit),
		{
			function: "nvmlDeviceGetPowerManagementLimitConstraints",
			rows:     []*metric.Def{metric.PowerMinLimit, metric.PowerMaxLimit},
			read: func(d device, s *sample) nvml.Return {
				low, high, ret := d.GetPowerManagementLimitConstraints()
				if ret == nvml.SUCCESS {
					put(s, metric.PowerMinLimit, 0, low)
					put(s, metric.PowerMaxLimit, 0, high)
				}
				return ret
			},
		},
		field(metric.EDPPMultiplier, 0, nvml.FI_DEV_EDPP_MULTIPLIER),
		field(metric.PowerAverage, 0, nvml.FI_DEV_POWER_AVERAGE),
		field(metric.PowerInstant, 0, nvml.FI_DEV_POWER_INSTANT),
	}
}
