//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func thermalCalls() []call {
	calls := []call{
		temperatureCall(),
		// R545 says that this is a double and stores an integer.
		fieldAs(metric.MemoryTemperature, 0, nvml.FI_DEV_MEMORY_TEMP, 0, asUint32),
		one("nvmlDeviceGetMarginTemperature", metric.TemperatureMargin, func(d device) (int32, nvml.Return) {
			m, ret := d.GetMarginTemperature()
			return m.MarginTemperature, ret
		}),
		one("nvmlDeviceGetFanSpeed", metric.FanSpeed, device.GetFanSpeed),
	}
	// In the order of metric.ThermalLimit.
	for i, limit := range []nvml.TemperatureThresholds{
		nvml.TEMPERATURE_THRESHOLD_SHUTDOWN, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN,
		nvml.TEMPERATURE_THRESHOLD_MEM_MAX, nvml.TEMPERATURE_THRESHOLD_GPU_MAX,
	} {
		calls = append(calls,
			nth("nvmlDeviceGetTemperatureThreshold", metric.TemperatureLimit, i, func(d device) (uint32, nvml.Return) {
				return d.GetTemperatureThreshold(limit)
			}),
			// From the shutdown's on, in the same order. They are signed, whatever type the driver says.
			fieldAs(metric.TemperatureLimitMargin, i, uint32(nvml.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT+i), 0, asInt32))
	}
	return calls
}

// temperatureCall asks drivers that lack the newer question, or refuse it, the older
// one.
func temperatureCall() call {
	older := one("nvmlDeviceGetTemperature", metric.Temperature, func(d device) (uint32, nvml.Return) {
		return d.GetTemperature(nvml.TEMPERATURE_GPU)
	})
	newer := one("nvmlDeviceGetTemperatureV", metric.Temperature, func(d device) (int32, nvml.Return) {
		t, ret := d.GetTemperatureV().V1()
		return t.Temperature, ret
	})
	newer.second = &older
	return newer
}
