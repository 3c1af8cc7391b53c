package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	cpusPerGPU   = 24
	memoryPerGPU = 256 << 30
	diskSpeed    = 12e9 // bytes per second that the node's disks do together
	nvmlCallTime = 180e-6
	callsPerGPU  = 14 // of NVML, in a second
)

// cpuShares splits the busy time of all CPUs into metric.CPUMode.
var cpuShares = map[string]float64{"user": 0.79, "nice": 0.005, "system": 0.17, "irq": 0.005, "softirq": 0.03}

// host is the machine around the GPUs.
type host struct {
	rng             *rand.Rand
	cpus            float64
	memory          float64
	cpuSeconds      []float64 // by mode
	busy, busiest   float64
	load            [3]float64
	available       float64
	some            [3]float64 // pressure, seconds by resource
	full            [4]float64 // interrupts among them
	read, write, io float64
	rx, tx          float64
	calls, failed   float64
	readings        collector.Readings
}

func newHost(rng *rand.Rand, gpus int, up time.Duration) host {
	h := host{rng: rng, cpus: float64(gpus * cpusPerGPU), memory: float64(gpus) * memoryPerGPU, readings: collector.NewReadings(metric.Node),
		cpuSeconds: make([]float64, len(metric.CPUMode.Values))}
	for i := range h.load {
		h.load[i] = h.cpus * 0.1
	}
	h.addCPU(0.1*h.cpus*up.Seconds(), 0.002*h.cpus*up.Seconds(), up.Seconds())
	h.read, h.write, h.io = 4.1e14, 1.7e14, 0.2*up.Seconds()
	h.rx, h.tx = 1.9e13, 6.2e12
	h.some = [3]float64{0.001 * up.Seconds(), 0, 0.02 * up.Seconds()}
	h.full = [4]float64{0, 0, 0.006 * up.Seconds(), 1e-5 * up.Seconds()}
	return h
}

// addCPU adds time of all CPUs, so that the modes sum to what passed.
func (h *host) addCPU(busy, wait, seconds float64) {
	for i, mode := range metric.CPUMode.Values {
		switch mode {
		case "idle":
			h.cpuSeconds[i] += h.cpus*seconds - busy - wait
		case "iowait":
			h.cpuSeconds[i] += wait
		default:
			h.cpuSeconds[i] += cpuShares[mode] * busy
		}
	}
}

// step lives through one second of what the workloads ask.
func (h *host) step(w hostWork, gpus []*gpu) {
	cores := math.Min(0.97*h.cpus, w.cores+noise(h.rng, 0.006*h.cpus, 0.1))
	read, write := w.read, w.write+noise(h.rng, 3e5, 1e5)
	disk := math.Min(1, (read+write)/diskSpeed)
	h.busy = cores / h.cpus
	h.busiest = math.Min(1, math.Max(h.busy, math.Max(w.busiest, noise(h.rng, 0.12, 0.03))))
	h.addCPU(cores, 0.02*disk*(h.cpus-cores), 1)
	for i, minutes := range []float64{1, 5, 15} {
		h.load[i] += (cores - h.load[i]) * (1 - math.Exp(-1/(60*minutes)))
	}
	processes := 0.0
	for _, g := range gpus {
		processes += float64(len(g.procs))
		h.calls += callsPerGPU
		if g.lost {
			h.failed += callsPerGPU
		}
	}
	h.available = h.memory*0.93 - processes*(60<<30) - noise(h.rng, 2<<30, 1<<28)
	h.some[0] += math.Min(1, 0.001+0.3*math.Max(0, h.busy-0.8))
	h.some[2] += 0.6 * disk
	h.full[3] += 1e-5
	h.full[2] += 0.2 * disk
	h.read += math.Round(read)
	h.write += math.Round(write)
	h.io += disk
	h.rx += math.Round(w.rx + noise(h.rng, 2e5, 4e4))
	h.tx += math.Round(w.tx + noise(h.rng, 1e5, 2e4))
}

// observeHost writes the readings that change.
func (s *Sim) observeHost() {
	h, r := &s.host, s.host.readings
	setAll(r, metric.CPUSeconds, h.cpuSeconds)
	r.Set(metric.CPUBusy, h.busy)
	r.Set(metric.CPUBusiest, h.busiest)
	setAll(r, metric.Load, h.load[:])
	r.Set(metric.HostMemoryCapacity, h.memory)
	r.Set(metric.HostMemoryAvailable, math.Round(h.available))
	r.Set(metric.HostSwapUsed, 0)
	setAll(r, metric.PressureSome, h.some[:])
	setAll(r, metric.PressureFull, h.full[:])
	setAll(r, metric.DiskBytes, []float64{h.read, h.write})
	r.Set(metric.DiskIOTime, h.io)
	setAll(r, metric.NetworkBytes, []float64{h.rx, h.tx})

	// A healthy kernel says something every few seconds.
	r.Set(metric.KernelLogRecords, math.Floor(s.now.Sub(s.boot).Seconds()/4))
	r.Set(metric.KernelLogLost, 0)
	r.Set(metric.FabricManagerErrors, 0)

	hung := 0.0
	for _, g := range s.gpus {
		if g.hung {
			hung++
		}
	}
	r.Set(metric.GPUsSeen, float64(len(s.gpus)))
	r.Set(metric.NVMLCalls, h.calls)
	r.Set(metric.NVMLErrors, h.failed)
	r.Set(metric.NVMLSeconds, h.calls*nvmlCallTime)
	r.Set(metric.NVMLHung, hung)
	r.Set(metric.NVMLEventSets, 0)
	r.Set(metric.NVMLHostPIDs, 1)
	for _, f := range functions {
		at := metric.NVMLFunction.Index(f.name)
		r.SetAt(metric.FunctionCalls, at, math.Floor(h.calls*f.calls))
		r.SetAt(metric.FunctionErrors, at, math.Floor(h.failed*f.calls))
		r.SetAt(metric.FunctionSeconds, at, h.calls*nvmlCallTime*f.time)
	}
	setAll(r, metric.TierSlowdown, []float64{1, 1, 1, 1})
	h.readings.Stamp(metric.Fast, s.now)
}

// functions are those of NVML that take the most, with their shares of all calls
// and of the calls' time.
var functions = []struct {
	name        string
	calls, time float64
}{
	{"nvmlDeviceGetFieldValues", 0.1, 0.5},
	{"nvmlDeviceGetSamples", 0.2, 0.2},
	{"nvmlDeviceGetUtilizationRates", 0.1, 0.05},
}

// observeNode writes the readings that hardly ever change.
func (s *Sim) observeNode() {
	s.host.readings.Set(metric.CPUCount, s.host.cpus)
	s.host.readings.Set(metric.ConfidentialComputing, 0)
	observeUnread(s.host.readings)
	setAll(s.host.readings, metric.PCIGPUs, []float64{float64(len(s.gpus)), 0, 0, 0})
	s.host.readings.Stamp(metric.Inventory, s.now)
}

func setAll(r collector.Readings, d *metric.Def, values []float64) {
	for i, v := range values {
		r.SetAt(d, i, v)
	}
}
