//go:build linux && cgo

package nvml

import "gpuvigil/internal/metric"

func powerCalls() []call {
	return []call{
		one("nvmlDeviceGetPowerUsage", metric.PowerDraw, device.GetPowerUsage),
		one("nvmlDeviceGetTotalEnergyConsumption", metric.Energy, device.GetTotalEnergyConsumption),
		one("nvmlDeviceGetEnforcedPowerLimit", metric.PowerLimit, device.GetEnforcedPowerLimit),
		one("nvmlDeviceGetPowerManagementDefaultLimit", metric.PowerDefaultLimit, device.GetPowerManagementDefaultLimit),
	}
}
