//go:build linux && cgo

package nvml

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// device is what is asked about a GPU or a MIG instance; nvml.Device satisfies it.
// A method may be called only through a call of the tables, or after guard.has.
type device interface {
	GetUUID() (string, nvml.Return)
	GetName() (string, nvml.Return)
	GetPciInfo() (nvml.PciInfo, nvml.Return)
	GetSerial() (string, nvml.Return)
	GetVbiosVersion() (string, nvml.Return)
	GetArchitecture() (nvml.DeviceArchitecture, nvml.Return)

	GetUtilizationRates() (nvml.Utilization, nvml.Return)
	GetEncoderUtilization() (uint32, uint32, nvml.Return)
	GetDecoderUtilization() (uint32, uint32, nvml.Return)
	GetMemoryInfo() (nvml.Memory, nvml.Return)
	GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return)
	GetPowerUsage() (uint32, nvml.Return)
	GetTotalEnergyConsumption() (uint64, nvml.Return)
	GetEnforcedPowerLimit() (uint32, nvml.Return)
	GetPowerManagementDefaultLimit() (uint32, nvml.Return)
	GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return)
	GetFieldValues([]nvml.FieldValue) nvml.Return
	GetFanSpeed() (uint32, nvml.Return)
	GetClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetMaxClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetCurrentClocksEventReasons() (uint64, nvml.Return)
	GetCurrentClocksThrottleReasons() (uint64, nvml.Return)
	GetPerformanceState() (nvml.Pstates, nvml.Return)
	GetPcieReplayCounter() (int, nvml.Return)
	GetPcieThroughput(nvml.PcieUtilCounter) (uint32, nvml.Return)
	GetCurrPcieLinkGeneration() (int, nvml.Return)
	GetCurrPcieLinkWidth() (int, nvml.Return)
	GetMaxPcieLinkGeneration() (int, nvml.Return)
	GetMaxPcieLinkWidth() (int, nvml.Return)
	GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return)

	GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return)

	GetMigMode() (int, int, nvml.Return)
	GetMaxMigDeviceCount() (int, nvml.Return)
	GetMigDeviceHandleByIndex(int) (nvml.Device, nvml.Return)
	GetGpuInstanceId() (int, nvml.Return)
	GetComputeInstanceId() (int, nvml.Return)
	GetAttributes() (nvml.DeviceAttributes, nvml.Return)

	GetSupportedEventTypes() (uint64, nvml.Return)
	RegisterEvents(uint64, nvml.EventSet) nvml.Return
}

// call is one question to the driver about a device, with the rows that its
// answer fills. The rows are of one tier, which is the call's.
type call struct {
	function string
	rows     []*metric.Def
	read     func(device, *sample) nvml.Return
	instead  *call // where the library lacks the function

	missing bool // the library lacks the function
}

func (c *call) tier() metric.Tier { return c.rows[0].Tier }

// resolve returns the calls that the library allows. One that it lacks stays in
// the list, marked, so that its rows are known to be unsupported.
func resolve(g *guard, calls []call) []*call {
	var out []*call
	for _, c := range calls {
		c.missing = !g.has(c.function)
		out = append(out, &c)
		if c.missing && c.instead != nil {
			out = append(out, resolve(g, []call{*c.instead})...)
		}
	}
	return out
}

// gpuCalls are the questions about a whole GPU.
func gpuCalls() []call {
	var all []call
	for _, family := range [][]call{
		utilizationCalls(), gpuMemoryCalls(), powerCalls(), thermalCalls(), clockCalls(),
		pcieCalls(), eccCalls(), gpuProcessCalls(),
	} {
		all = append(all, family...)
	}
	return all
}

// instanceCalls are the questions about a MIG instance.
func instanceCalls() []call {
	return append(instanceMemoryCalls(), instanceProcessCalls()...)
}

// number is what go-nvml returns for a quantity.
type number interface {
	~int | ~int32 | ~uint32 | ~uint64
}

// one makes the call that fills a row from one number.
func one[T number](function string, d *metric.Def, get func(device) (T, nvml.Return)) call {
	return nth(function, d, 0, get)
}

// nth makes the call that fills the row's reading for the i-th value of its dimension.
func nth[T number](function string, d *metric.Def, i int, get func(device) (T, nvml.Return)) call {
	return call{function: function, rows: []*metric.Def{d}, read: func(dev device, s *sample) nvml.Return {
		v, ret := get(dev)
		if ret == nvml.SUCCESS {
			put(s, d, i, v)
		}
		return ret
	}}
}

// sample is what one round over a tier's calls fills.
type sample struct {
	readings collector.Readings
	dropped  []*metric.Def // one for each value that cannot be
	procs    processList
	seen     uint64 // time of the newest utilization of a process, in the driver's microseconds
}

func put[T number](s *sample, d *metric.Def, i int, raw T) {
	v := d.FromRaw(float64(raw))
	if sentinel(raw) || !d.Plausible(v) {
		s.dropped = append(s.dropped, d)
		return
	}
	s.readings.SetAt(d, i, v)
}

// sentinel reports whether the driver means "not available": all bits set, of 32
// or of 64, whatever the type is that go-nvml makes of it.
func sentinel[T number](raw T) bool {
	return uint64(raw) == math.MaxUint32 || uint64(raw) == math.MaxUint64
}
