package sim

import (
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// unsupported is what this board or its driver cannot tell: it has no fan of its
// own, no encoder, no NVLink 5, no CPU on the same module and no licence.
var unsupported = []*metric.Def{
	metric.FanSpeed, metric.EncoderSessions, metric.EncoderFrames, metric.EncoderLatency,
	metric.RetiredPages, metric.RetiredPending, metric.RemapInactive, metric.BankRemapPending, metric.RepairPending,
	metric.NVLink5Errors, metric.NVLink5Drops, metric.NVLinkBER, metric.NVLinkFEC, metric.C2CLinks, metric.C2CErrors,
	metric.C2CMode, metric.CaptureSessions, metric.CaptureFrames, metric.CaptureLatency, metric.ProtectedCapacity, metric.ProtectedUsed,
	metric.EDPPMultiplier, metric.NUMANode, metric.VGPULicensed, metric.VGPUs,
}

// observe samples the tiers whose time has come.
func (s *Sim) observe() {
	for tier, interval := range s.cfg.Tiers {
		if s.now.Sub(s.begin)%interval != 0 {
			continue
		}
		for _, g := range s.gpus {
			s.observeTier(g, metric.Tier(tier))
		}
		switch metric.Tier(tier) {
		case metric.Fast:
			s.observeHost()
		case metric.Slow:
			s.observeMovement()
		case metric.Inventory:
			s.observeNode()
		}
	}
}

// observeGPU samples all of a GPU that answers again.
func (s *Sim) observeGPU(g *gpu) {
	for tier := range metric.Tiers {
		s.observeTier(g, tier)
	}
}

// observeTier samples one tier of a GPU. One that is lost has no readings; those of
// one that hangs stay and grow old.
func (s *Sim) observeTier(g *gpu, tier metric.Tier) {
	switch {
	case g.lost:
		g.readings, g.processes = collector.Readings{}, nil
		s.attribute(g, nil)
		return
	case g.hung:
		return
	case g.readings.Vector() == nil:
		g.readings = collector.NewReadings(metric.GPU)
	}
	switch tier {
	case metric.Fast:
		g.observeFast(s.now)
	case metric.Slow:
		g.observeSlow()
		g.observeLinks(s.now)
		g.observeHealth()
	case metric.Processes:
		g.observeProcesses(s)
	case metric.Inventory:
		g.observeInventory()
	}
	g.readings.Stamp(tier, s.now)
}

func (g *gpu) observeFast(now time.Time) {
	r := g.readings
	setAll(r, metric.GPUSlowdown, []float64{1, 1, 1, 1})
	r.Set(metric.Utilization, percent(g.work.duty))
	r.Set(metric.MemoryUtilization, percent(g.work.memory))
	r.Set(metric.EncoderUtilization, 0)
	r.Set(metric.DecoderUtilization, 0)
	used := g.memoryUsed()
	r.Set(metric.MemoryCapacity, memoryCapacity)
	r.Set(metric.MemoryReserved, memoryReserved)
	r.Set(metric.MemoryUsed, used)
	r.Set(metric.MemoryFree, memoryCapacity-memoryReserved-used)
	r.Set(metric.PowerDraw, g.power)
	r.Set(metric.Energy, g.energy)
	r.Set(metric.Temperature, math.Round(g.core))
	r.Set(metric.MemoryTemperature, math.Round(g.memoryTemp))
	setAll(r, metric.Clock, []float64{g.clock, g.clock, memoryClock, math.Floor(g.clock*videoClockMax/smClockMax/clockStep) * clockStep})
	for i, active := range g.reasons {
		r.SetAt(metric.ClockEvent, i, bit(active))
	}
	r.Set(metric.PerformanceState, 0)
	g.observeActivity()
	g.observeMore()
	g.bands.ObserveAll(r, now)
	g.bands.Fill(r, now)
}

func (g *gpu) observeSlow() {
	r := g.readings
	r.Set(metric.PCIeReplays, g.replays)
	setAll(r, metric.PCIeThroughput, []float64{kilobytes(g.work.rx), kilobytes(g.work.tx)})
	r.Set(metric.PCIeGeneration, 5)
	r.Set(metric.PCIeWidth, 16)
	setAll(r, metric.ECCErrors, g.volatileECC[:])
	setAll(r, metric.ECCLifetimeErrors, g.lifeECC[:])
}

func (g *gpu) observeProcesses(s *Sim) {
	all := g.all()
	g.readings.Set(metric.ProcessCount, float64(len(all)))
	g.readings.Set(metric.ProcessMemory, g.memoryUsed())
	g.readings.Set(metric.MPSClients, 0)
	g.readings.Set(metric.UnattributedMemory, 0)
	setAll(g.readings, metric.UnattributedUtilization, make([]float64, metric.UnattributedUtilization.Width()))
	g.processes = make([]collector.Process, 0, len(all))
	attributions := make([]collector.Attribution, 0, len(all))
	for _, p := range all {
		r := collector.NewReadings(metric.Process)
		r.Set(metric.ProcessMemoryUsed, p.mem)
		r.Set(metric.ProcessUtilization, percent(g.work.duty*p.share))
		r.Set(metric.ProcessMemoryUtilization, percent(g.work.memory*p.share))
		r.Set(metric.ProcessEncoder, 0)
		r.Set(metric.ProcessDecoder, 0)
		r.Set(metric.ProcessMPS, 0)
		r.Stamp(metric.Processes, s.now)
		g.processes = append(g.processes, collector.Process{PID: p.pid, Start: p.start, Name: p.name, UID: p.uid,
			GPU: g.index, UUID: g.uuid, Readings: r})
		if p.owner != (collector.Owner{}) {
			attributions = append(attributions, collector.Attribution{PID: p.pid, Start: p.start, Owner: p.owner, Container: s.containerOf(p.owner)})
		}
	}
	s.attribute(g, attributions)
}

func (g *gpu) observeInventory() {
	r := g.readings
	r.Set(metric.PowerLimit, powerLimit)
	r.Set(metric.PowerDefaultLimit, powerLimit)
	setAll(r, metric.MaxClock, []float64{smClockMax, smClockMax, memoryClock, videoClockMax})
	r.Set(metric.PCIeMaxGeneration, 5)
	r.Set(metric.PCIeMaxWidth, 16)
	g.observeSettings()
}

// part returns what is seen now and hands over the events.
func (s *Sim) part() *collector.Part {
	p := &collector.Part{Time: s.now, Boot: s.boot, Simulated: true, Events: s.events,
		Node: collector.Node{Name: s.cfg.Node, Versions: s.versions, Readings: s.host.readings.Clone()},
		GPUs: make([]collector.GPU, 0, len(s.gpus))}
	s.events = nil
	processes := 0
	for _, g := range s.gpus {
		processes += len(g.processes)
	}
	p.Processes = make([]collector.Process, 0, processes)
	p.Inventory = s.inventory()
	for _, g := range s.gpus {
		gpu := collector.GPU{Index: g.index, UUID: g.uuid, Model: model, PCIBusID: g.bus, Serial: g.serial, VBIOS: s.version("vbios"), BoardPart: boardPart,
			Architecture: architecture, Present: !g.lost, Hung: g.hung, Unsupported: unsupported, Xids: g.xids, Readings: g.readings.Clone()}
		if s.cfg.Histograms {
			gpu.Distributions = g.bands.Distributions()
		}
		p.GPUs = append(p.GPUs, gpu)
		p.Processes = append(p.Processes, g.processes...)
	}
	p.Attributions, p.Allocations, p.Workloads = s.owners()
	for _, w := range s.workloads {
		for _, v := range w.servers {
			p.Endpoints = append(p.Endpoints, w.endpoint(v, s.now))
			p.Targets = append(p.Targets, v.target(s.now, len(w.gpus)))
		}
	}
	s.addMovement(p)
	slices.SortFunc(p.Endpoints, func(a, b collector.Endpoint) int { return strings.Compare(a.URL, b.URL) })
	slices.SortFunc(p.Targets, func(a, b collector.Target) int { return strings.Compare(a.URL, b.URL) })
	return p
}

func (w *workload) endpoint(v *server, now time.Time) collector.Endpoint {
	e := collector.Endpoint{URL: v.URL, Engine: v.Engine, Model: v.Model}
	e.Readings, e.Histograms = v.observe(now)
	for _, g := range w.gpus {
		e.GPUs = append(e.GPUs, g.uuid)
	}
	return e
}

func percent(ratio float64) float64 { return math.Round(100*math.Min(1, ratio)) / 100 }

func kilobytes(b float64) float64 { return math.Round(b/1e3) * 1e3 }

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
