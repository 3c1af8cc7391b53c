//go:build linux && cgo

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func thermalCalls() []call {
	return []call{
		one("nvmlDeviceGetTemperature", metric.Temperature, func(d device) (uint32, nvml.Return) {
			return d.GetTemperature(nvml.TEMPERATURE_GPU)
		}),
		one("nvmlDeviceGetFieldValues", metric.MemoryTemperature, func(d device) (uint32, nvml.Return) {
			return field32(d, nvml.FI_DEV_MEMORY_TEMP)
		}),
		one("nvmlDeviceGetFanSpeed", metric.FanSpeed, device.GetFanSpeed),
	}
}

// field32 reads a field as an unsigned integer whatever type the driver says that
// it is: R545 says double and stores an integer.
func field32(d device, id uint32) (uint32, nvml.Return) {
	fields := []nvml.FieldValue{{FieldId: id}}
	if ret := d.GetFieldValues(fields); ret != nvml.SUCCESS {
		return 0, ret
	}
	return binary.NativeEndian.Uint32(fields[0].Value[:]), nvml.Return(fields[0].NvmlReturn)
}
