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
	"gpuvigil/internal/fakenvml/everyrow"
	"gpuvigil/internal/metric"
)

// What nvml.h calls these; importing go-nvml for them would need a C compiler.
const (
	gpuIsLost   = 15
	xidEvents   = 8
	archHopper  = 9
	deviceID    = "0x233010DE"
	subsystemID = "0x16C110DE"
)

// reading is a number of a key's answer: a row and the position in its dimension.
// One without a row is a number that nobody asks for.
type reading struct {
	row *metric.Def
	at  int
}

// answers are the keys that answer with numbers of a GPU's rows, in NVML's order.
var answers = func() map[string][]reading {
	keys := map[string][]reading{}
	for _, d := range metric.Of(metric.GPU) {
		if everyrow.Special(d) {
			continue
		}
		places, err := everyrow.Places(d)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for i, p := range places {
			if keys[p.Key] == nil {
				keys[p.Key] = make([]reading, p.Of)
			}
			keys[p.Key][p.At] = reading{d, i}
		}
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
	f.Set(gpu, "nvmlDeviceGetBoardPartNumber", g.BoardPart)
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
	f.Set(gpu, "nvmlGpmQueryDeviceSupport", 1)
	for link := range uint32(g.Value(metric.NVLinksUp)) {
		f.Set(gpu, fakenvml.Field(165, link), "uint", 1)
	}
	applyReasons(f, gpu, g.Readings)
	applyProcesses(f, gpu, g, processes)
}

// applyNumbers sets a key in NVML's units. A reading that is not there makes the
// call not supported.
func applyNumbers(f *fakenvml.File, gpu, key string, from collector.Readings, readings []reading) {
	var values []any
	if strings.HasPrefix(key, "field/") {
		values = append(values, "ull")
	}
	for _, r := range readings {
		if r.row == nil {
			values = append(values, 0)
			continue
		}
		v := from.ValueAt(r.row, r.at)
		if math.IsNaN(v) {
			f.Unset(gpu, key)
			return
		}
		raw := v / r.row.FromRaw(1)
		if strings.HasPrefix(key, "gpm/") {
			values = append(values, raw)
		} else {
			values = append(values, int64(math.Round(raw)))
		}
	}
	f.Set(gpu, key, values...)
}

func applyReasons(f *fakenvml.File, gpu string, from collector.Readings) {
	for row, key := range map[*metric.Def]string{
		metric.ClockEvent:      "nvmlDeviceGetCurrentClocksEventReasons",
		metric.ClockEventKnown: "nvmlDeviceGetSupportedClocksEventReasons",
	} {
		bits := uint64(0)
		for i := range metric.ClockReason.Values {
			if from.ValueAt(row, i) == 1 {
				bits |= 1 << i
			}
		}
		f.Set(gpu, key, bits)
	}
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
		f.Add(gpu, usage, p.PID, int64(math.Round(100*p.Value(metric.ProcessUtilization))),
			int64(math.Round(100*p.Value(metric.ProcessMemoryUtilization))), 0, 0, "now")
	}
}
