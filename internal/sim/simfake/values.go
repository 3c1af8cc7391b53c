// Package simfake lets a simulated node appear as files and pages, as the real
// one does: the values that the fake NVML library serves, a procfs with the
// processes on the GPUs, and the metrics page of the inference server. It is for
// tests; nothing in the product imports it.
package simfake

import (
	"math"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// What nvml.h calls these; importing go-nvml for them would need a C compiler.
const (
	gpuIsLost    = 15
	xidEvents    = 8
	archHopper   = 9
	deviceID     = "0x233010DE"
	subsystemID  = "0x16C110DE"
	samplePeriod = 167000 // of encoder and decoder utilization, in microseconds
)

// reading is a number of a key's answer: a row and the position in its dimension.
type reading struct {
	row *metric.Def
	at  int
}

// answers are the keys that answer with numbers of the catalogue, in NVML's order.
var answers = func() map[string][]reading {
	keys := map[string][]reading{
		"nvmlDeviceGetUtilizationRates":             {{metric.Utilization, 0}, {metric.MemoryUtilization, 0}},
		"nvmlDeviceGetMemoryInfo_v2":                {{metric.MemoryCapacity, 0}, {metric.MemoryReserved, 0}, {metric.MemoryFree, 0}, {metric.MemoryUsed, 0}},
		"nvmlDeviceGetPowerUsage":                   {{metric.PowerDraw, 0}},
		"nvmlDeviceGetTotalEnergyConsumption":       {{metric.Energy, 0}},
		"nvmlDeviceGetEnforcedPowerLimit":           {{metric.PowerLimit, 0}},
		"nvmlDeviceGetPowerManagementDefaultLimit":  {{metric.PowerDefaultLimit, 0}},
		fakenvml.Key("nvmlDeviceGetTemperature", 0): {{metric.Temperature, 0}},
		"nvmlDeviceGetFanSpeed":                     {{metric.FanSpeed, 0}},
		"nvmlDeviceGetPerformanceState":             {{metric.PerformanceState, 0}},
		"nvmlDeviceGetPcieReplayCounter":            {{metric.PCIeReplays, 0}},
		"nvmlDeviceGetCurrPcieLinkGeneration":       {{metric.PCIeGeneration, 0}},
		"nvmlDeviceGetCurrPcieLinkWidth":            {{metric.PCIeWidth, 0}},
		"nvmlDeviceGetMaxPcieLinkGeneration":        {{metric.PCIeMaxGeneration, 0}},
		"nvmlDeviceGetMaxPcieLinkWidth":             {{metric.PCIeMaxWidth, 0}},
	}
	// Clocks and kinds of errors have NVML's numbers as positions in the catalogue.
	for i := range metric.Clocks.Values {
		keys[fakenvml.Key("nvmlDeviceGetClockInfo", i)] = []reading{{metric.Clock, i}}
		keys[fakenvml.Key("nvmlDeviceGetMaxClockInfo", i)] = []reading{{metric.MaxClock, i}}
	}
	for i := range metric.ECCType.Values {
		keys[fakenvml.Key("nvmlDeviceGetTotalEccErrors", i, 0)] = []reading{{metric.ECCErrors, i}}
		keys[fakenvml.Key("nvmlDeviceGetTotalEccErrors", i, 1)] = []reading{{metric.ECCLifetimeErrors, i}}
	}
	// NVML counts what the GPU sends as 0 and what it receives as 1.
	for i := range metric.Direction.Values {
		keys[fakenvml.Key("nvmlDeviceGetPcieThroughput", 1-i)] = []reading{{metric.PCIeThroughput, i}}
	}
	return keys
}()

// Apply makes the file tell what an NVIDIA driver would tell of the part. It is
// called with each part, in order, because events are kept: the library gives
// each to those who have registered before. A GPU that was lost or hangs keeps
// its values, and its calls fail or do not return.
func Apply(f *fakenvml.File, p *collector.Part) {
	f.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", len(p.GPUs))
	for _, v := range p.Node.Versions {
		switch v.Component {
		case "driver":
			f.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", v.Value)
		case "nvml":
			f.Set(fakenvml.Sys, "nvmlSystemGetNVMLVersion", v.Value)
		case "cuda":
			f.Set(fakenvml.Sys, "nvmlSystemGetCudaDriverVersion_v2", cudaNumber(v.Value))
		}
	}
	for i := range p.GPUs {
		applyGPU(f, &p.GPUs[i], p.Processes)
	}
	for _, e := range p.Events {
		if e.Kind != collector.XidEvent {
			continue
		}
		for _, g := range p.GPUs {
			if g.UUID == e.UUID {
				f.Event(fakenvml.GPU(g.Index), xidEvents, uint64(e.Code))
			}
		}
	}
}

// cudaNumber writes 12.8 as NVML does: 12080.
func cudaNumber(version string) int {
	major, minor, _ := strings.Cut(version, ".")
	a, errMajor := strconv.Atoi(major)
	b, errMinor := strconv.Atoi(minor)
	if errMajor != nil || errMinor != nil {
		panic("BUG: simulated CUDA version " + version)
	}
	return 1000*a + 10*b
}

func applyGPU(f *fakenvml.File, g *collector.GPU, processes []collector.Process) {
	gpu := fakenvml.GPU(g.Index)
	f.Set(gpu, "nvmlDeviceGetUUID", g.UUID)
	f.Set(gpu, "nvmlDeviceGetName", g.Model)
	f.Set(gpu, "nvmlDeviceGetSerial", g.Serial)
	f.Set(gpu, "nvmlDeviceGetVbiosVersion", g.VBIOS)
	f.Set(gpu, "nvmlDeviceGetPciInfo_v3", g.PCIBusID, deviceID, subsystemID)
	f.Set(gpu, "nvmlDeviceGetArchitecture", archHopper)
	f.Set(gpu, "nvmlDeviceGetMinorNumber", g.Index)
	f.Set(gpu, "nvmlDeviceGetMigMode", 0, 0)
	f.Set(gpu, "nvmlDeviceGetMaxMigDeviceCount", 7)
	f.Set(gpu, "nvmlDeviceGetSupportedEventTypes", xidEvents)

	switch {
	case g.Hung:
		f.Fault(gpu, fakenvml.Every, fakenvml.Hang)
		return
	case !g.Present:
		f.Fault(gpu, fakenvml.Every, fakenvml.Error(gpuIsLost))
		return
	}
	f.Clear(gpu, fakenvml.Every)
	for key, readings := range answers {
		applyNumbers(f, gpu, key, g.Readings, readings)
	}
	applyNumbers(f, gpu, "nvmlDeviceGetEncoderUtilization", g.Readings, []reading{{metric.EncoderUtilization, 0}}, samplePeriod)
	applyNumbers(f, gpu, "nvmlDeviceGetDecoderUtilization", g.Readings, []reading{{metric.DecoderUtilization, 0}}, samplePeriod)
	applyNumbers(f, gpu, fakenvml.Field(82, 0), g.Readings, []reading{{metric.MemoryTemperature, 0}})
	applyReasons(f, gpu, g.Readings)
	applyProcesses(f, gpu, g, processes)
}

// applyNumbers sets a key in NVML's units. A reading that is not there makes the
// call not supported.
func applyNumbers(f *fakenvml.File, gpu, key string, from collector.Readings, readings []reading, more ...any) {
	var values []any
	if strings.HasPrefix(key, "field/") {
		values = append(values, "uint")
	}
	for _, r := range readings {
		v := from.ValueAt(r.row, r.at)
		if math.IsNaN(v) {
			f.Unset(gpu, key)
			return
		}
		values = append(values, int64(math.Round(v/r.row.FromRaw(1))))
	}
	f.Set(gpu, key, append(values, more...)...)
}

func applyReasons(f *fakenvml.File, gpu string, from collector.Readings) {
	bits := uint64(0)
	for i := range metric.ClockReason.Values {
		if from.ValueAt(metric.ClockEvent, i) == 1 {
			bits |= 1 << i
		}
	}
	f.Set(gpu, "nvmlDeviceGetCurrentClocksEventReasons", bits)
}

func applyProcesses(f *fakenvml.File, gpu string, g *collector.GPU, processes []collector.Process) {
	const list, usage = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessUtilization"
	for _, key := range []string{list, usage, "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"} {
		f.Set(gpu, key)
	}
	for _, p := range processes {
		if p.UUID != g.UUID {
			continue
		}
		f.Add(gpu, list, p.PID, int64(p.Value(metric.ProcessMemoryUsed)))
		f.Add(gpu, usage, p.PID, int64(math.Round(100*p.Value(metric.ProcessUtilization))), 0, 0, 0, "now")
	}
}
