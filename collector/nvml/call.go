//go:build linux && cgo

package nvml

import (
	"math"
	"slices"

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
	GetCudaComputeCapability() (int, int, nvml.Return)
	GetCpuAffinity(int) ([]uint, nvml.Return)
	GetMemoryAffinity(int, nvml.AffinityScope) ([]uint, nvml.Return)
	GetTopologyCommonAncestor(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return)

	GetUtilizationRates() (nvml.Utilization, nvml.Return)
	GetEncoderUtilization() (uint32, uint32, nvml.Return)
	GetDecoderUtilization() (uint32, uint32, nvml.Return)
	GetJpgUtilization() (uint32, uint32, nvml.Return)
	GetOfaUtilization() (uint32, uint32, nvml.Return)
	GetEncoderStats() (int, uint32, uint32, nvml.Return)
	GetSamples(nvml.SamplingType, uint64) (nvml.ValueType, []nvml.Sample, nvml.Return)
	GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return)
	GpmSampleGet(nvml.GpmSample) nvml.Return
	GpmMigSampleGet(int, nvml.GpmSample) nvml.Return
	GetBAR1MemoryInfo() (nvml.BAR1Memory, nvml.Return)
	GetMemoryInfo() (nvml.Memory, nvml.Return)
	GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return)
	GetPowerUsage() (uint32, nvml.Return)
	GetTotalEnergyConsumption() (uint64, nvml.Return)
	GetEnforcedPowerLimit() (uint32, nvml.Return)
	GetPowerManagementDefaultLimit() (uint32, nvml.Return)
	GetPowerManagementLimit() (uint32, nvml.Return)
	GetPowerManagementLimitConstraints() (uint32, uint32, nvml.Return)
	GetMarginTemperature() (nvml.MarginTemperature, nvml.Return)
	GetTemperatureThreshold(nvml.TemperatureThresholds) (uint32, nvml.Return)
	GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return)
	GetTemperatureV() nvml.TemperatureHandler
	GetFieldValues([]nvml.FieldValue) nvml.Return
	GetFanSpeed() (uint32, nvml.Return)
	GetClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetMaxClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetApplicationsClock(nvml.ClockType) (uint32, nvml.Return)
	GetViolationStatus(nvml.PerfPolicyType) (nvml.ViolationTime, nvml.Return)
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
	GetMemoryErrorCounter(nvml.MemoryErrorType, nvml.EccCounterType, nvml.MemoryLocation) (uint64, nvml.Return)
	GetSramEccErrorStatus() (nvml.EccSramErrorStatus, nvml.Return)
	GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return)
	GetRowRemapperHistogram() (nvml.RowRemapperHistogramValues, nvml.Return)
	GetRepairStatus() (nvml.RepairStatus, nvml.Return)
	GetGpuFabricInfoV() nvml.GpuFabricInfoHandler

	GetPersistenceMode() (nvml.EnableState, nvml.Return)
	GetComputeMode() (nvml.ComputeMode, nvml.Return)
	GetAccountingMode() (nvml.EnableState, nvml.Return)
	GetNumaNodeId() (int, nvml.Return)
	GetC2cModeInfoV() nvml.C2cModeInfoHandler
	GetGspFirmwareMode() (bool, bool, nvml.Return)
	GetDisplayActive() (nvml.EnableState, nvml.Return)
	GetDisplayMode() (nvml.EnableState, nvml.Return)
	GetAccountingBufferSize() (int, nvml.Return)
	GetConfComputeProtectedMemoryUsage() (nvml.Memory, nvml.Return)
	GetGpuMaxPcieLinkGeneration() (int, nvml.Return)
	GetSupportedClocksEventReasons() (uint64, nvml.Return)
	GetFBCStats() (nvml.FBCStats, nvml.Return)
	GetGridLicensableFeatures() (nvml.GridLicensableFeatures, nvml.Return)
	GetActiveVgpus() ([]nvml.VgpuInstance, nvml.Return)
	GetGspFirmwareVersion() (string, nvml.Return)
	GetInforomImageVersion() (string, nvml.Return)
	GetBoardPartNumber() (string, nvml.Return)

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
	second   *call // where the driver does not support the call

	// One entry of a batch instead of a call of its own; read is then nil.
	field *fieldQuery
	gpm   *gpmQuery

	missing bool  // the library lacks the function
	unless  *call // only while that one is not supported
}

func (c *call) tier() metric.Tier { return c.rows[0].Tier }

// resolve returns the calls that the library allows. One that it lacks stays in
// the list, marked, so that its rows are known to be unsupported.
func resolve(g *guard, calls []call) []*call {
	var out []*call
	for _, c := range calls {
		c.missing = !g.has(c.function) || c.gpm != nil && !hasGPM(g)
		out = append(out, &c)
		if c.missing && c.instead != nil {
			out = append(out, resolve(g, []call{*c.instead})...)
		}
		if c.second != nil {
			for _, second := range resolve(g, []call{*c.second}) {
				second.unless = &c
				out = append(out, second)
			}
		}
	}
	return out
}

// gpuCalls are the questions about a whole GPU, as the driver numbers its fields.
func gpuCalls(driver string) []call {
	var all []call
	for _, family := range [][]call{
		utilizationCalls(), gpuActivityCalls(), gpuMemoryCalls(), powerCalls(), thermalCalls(), clockCalls(), heldCalls(driver),
		pcieCalls(), nvlinkCalls(), fabricCalls(), eccCalls(), remapCalls(), modeCalls(), gpuProcessCalls(),
	} {
		all = append(all, family...)
	}
	return all
}

// instanceCalls are the questions about a MIG instance.
func instanceCalls() []call {
	return slices.Concat(instanceMemoryCalls(), instanceActivityCalls(), instanceProcessCalls())
}

// number is what go-nvml returns for a quantity.
type number interface {
	~int | ~int32 | ~uint8 | ~uint32 | ~uint64
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
	before   collector.Readings // of the round before
	dropped  []*metric.Def      // one for each value that cannot be
	procs    processList
	seen     uint64   // time of the newest utilization of a process, in the driver's microseconds
	pcie     *traffic // what GPM last said of the device's PCIe traffic
}

func put[T number](s *sample, d *metric.Def, i int, raw T) {
	if sentinel(raw) {
		s.drop(d)
		return
	}
	s.put(d, i, d.FromRaw(float64(raw)))
}

// put stores a value in base units if it can be.
func (s *sample) put(d *metric.Def, i int, v float64) {
	if !d.Plausible(v) {
		s.drop(d)
		return
	}
	s.readings.SetAt(d, i, v)
}

func (s *sample) drop(d *metric.Def) { s.dropped = append(s.dropped, d) }

// sentinel reports whether the driver means "not available": all bits set, of 32
// or of 64, whatever the type is that go-nvml makes of it.
func sentinel[T number](raw T) bool {
	return uint64(raw) == math.MaxUint32 || uint64(raw) == math.MaxUint64
}
