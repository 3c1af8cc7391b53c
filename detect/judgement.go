package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// The limits between verdicts. Who has a verdict keeps it until the reading is clear of
// the limit: see figures.reaches.
const (
	busyActivity = 0.05 // of the SMs: at or above, the GPU works
	spinUtil     = 0.99 // utilization of a GPU that spins
	lowPower     = 0.3  // of the limit: at or below, a GPU that is fully used does no work
	goodPower    = 0.6  // of the limit: at or above, it does
	fullSM       = 0.7
	fullTensor   = 0.4
	fullDRAM     = 0.6
	fullMemory   = 0.75 // NVML's memory utilization, where the bandwidth is not told
	fullCodec    = 0.9
	fullKV       = 0.95
	fullPCIe     = 0.7 // of what the link can do
	fullNVLink   = 0.3 // of what the links can do, on average over steps
	fullPort     = 0.6
	partSM       = 0.5 // below, the SMs have time to wait for links
	fullDuty     = 0.8 // of the time a kernel runs: below, something else is waited for
	fullCPU      = 0.9
	fullQuota    = 0.9
	heldByQuota  = 0.1  // seconds a second
	waitsForCPU  = 0.5  // share of the time in which a task of the workload waits for one
	waitsForIO   = 0.2  // in which it, or one of the host, waits for block devices
	waitsForData = 0.2  // in which training waits for its loader
	readsMuch    = 10e6 // bytes a second: enough to be what is waited for
	rxMuch       = 100e6
	clearOf      = 0.85 // of a limit: below, a verdict that stands is given up
	noRequests   = 0.05 // on average
)

// figures are what a verdict is made of: means over the last minutes, NaN where
// nothing is told.
type figures struct {
	now  VerdictName // that stands
	span string      // of the readings, in words
	told string      // what the job's detector says, if it says something

	util, sm, tensor, dram, memory, codec float64
	recent                                float64 // activity of the last minute
	power, watts, rest, clock, capped     float64 // power as a share of the limit
	lowered                               float64 // the limit as a share of the board's default
	nvlink, nvlinkShare, pcie, pcieShare  float64
	port, cpu, core, io, read             float64 // of the host

	inside, waiting, kv, pushed                               float64 // of its endpoints
	held, quota, workRead, remote, rx, loader, waitCPU, ioOwn float64 // of its workload

	answers, tells, opened                                                         bool
	known, young, cut, open, listed, given, allocations, notebook, served, several bool
	hung, stalled                                                                  bool
	slow                                                                           int // of slowdownReasons, -1: none
	slowShare                                                                      float64
	owner                                                                          collector.Owner
}

// figures gathers what is known of a GPU, from the means over a window.
func (j *Judge) figures(s *collector.Snapshot, g *collector.GPU, st *judged, window time.Duration) figures {
	now := s.Time
	mean := func(i int) float64 { return over(st.mean[i], now, window, window/3) }
	f := figures{
		now: st.Name, span: "over the last 3 min", answers: g.Answers(), tells: g.Has(metric.Utilization) || g.Has(metric.SMActivity), opened: st.opened, cut: g.MIG, known: st.covered(now) >= verdictKnown, young: now.Sub(st.begun) <= 2*verdictWindow,
		util: mean(meanUtil), sm: mean(meanSM), tensor: mean(meanTensor), dram: mean(meanDRAM), memory: mean(meanMemory), codec: mean(meanCodec),
		power: mean(meanPower), clock: mean(meanClock), capped: mean(meanCapped), nvlink: mean(meanNVLink), pcie: mean(meanPCIe),
		lowered: g.Value(metric.PowerLimit) / g.Value(metric.PowerDefaultLimit), rest: math.NaN(),
		port: j.host.mean.of(hostPort, now, window), cpu: j.host.mean.of(hostCPU, now, window), core: j.host.mean.of(hostCore, now, window),
		io: j.host.mean.of(hostIO, now, window), read: j.host.mean.of(hostRead, now, window),
		open: st.open > 0, listed: st.listed, given: len(g.Owners) > 0, allocations: s.Node.Value(metric.AllocationsKnown) != 0,
		notebook: st.notebook || isNotebook(holder(g).ID), slow: -1, owner: holder(g),
	}
	if window == recentWindow {
		f.span = "over the last minute"
	}
	f.recent = st.recently(now)
	limit := g.Value(metric.PowerLimit)
	f.watts = f.power * limit
	if st.Rest.Weight() >= powerKnown.Seconds() {
		f.rest = st.Rest.Typical(idleShare) / limit
	}
	f.nvlinkShare, f.pcieShare = f.nvlink/nvlinkSpeed(g), f.pcie/pcieSpeed(g)
	for i := range slowdownReasons {
		if f.slow < 0 && st.slow.recent(i, now) {
			f.slow, f.slowShare = i, st.slow.share(i, now)
		}
	}
	j.ofServers(s, g, &f, window)
	j.ofWork(&f, now, window)
	if job := j.jobs[f.owner]; job != nil && f.owner.Kind != "" {
		f.several, f.hung, f.stalled, f.told = len(job.members) > 1, job.hung.holds, job.stalled.holds, job.told()
	}
	return f
}

// ofServers adds what the endpoints on the GPU say.
func (j *Judge) ofServers(s *collector.Snapshot, g *collector.GPU, f *figures, window time.Duration) {
	f.inside, f.waiting, f.kv, f.pushed = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		k := j.servers[e.Key()]
		if k == nil || !covers(e, g) {
			continue
		}
		f.served = true
		f.inside = sumKnown(f.inside, k.mean.of(serverInside, s.Time, window))
		f.waiting = sumKnown(f.waiting, k.mean.of(serverWaiting, s.Time, window))
		f.kv = largerKnown(f.kv, k.mean.of(serverKV, s.Time, window))
		f.pushed = largerKnown(f.pushed, k.mean.of(serverPushed, s.Time, window))
	}
}

// ofWork adds what its holder's workload does on the host.
func (j *Judge) ofWork(f *figures, now time.Time, window time.Duration) {
	value := func(int) float64 { return math.NaN() }
	if k := j.work[f.owner]; k != nil {
		value = func(i int) float64 { return k.mean.of(i, now, window) }
	}
	f.held, f.quota, f.workRead, f.remote, f.rx = value(workHeld), value(workQuota), value(workRead), value(workRemote), value(workRx)
	f.loader, f.waitCPU, f.ioOwn = value(workLoader), value(workCPU), value(workIO)
}

// recently is the activity of the last minute: of the SMs if they tell it, else of the
// GPU.
func (st *judged) recently(now time.Time) float64 {
	if sm := over(st.mean[meanSM], now, time.Minute, time.Second); !math.IsNaN(sm) {
		return sm
	}
	return over(st.mean[meanUtil], now, time.Minute, time.Second)
}

// covered is how much of the window readings cover that say whether the GPU works.
func (st *judged) covered(now time.Time) (most time.Duration) {
	for _, i := range [...]int{meanUtil, meanSM, meanPower} {
		_, covered := st.mean[i].Over(now, verdictWindow)
		most = max(most, covered)
	}
	return most
}

// nvlinkSpeed is what a GPU's NVLinks can do in each direction, bytes a second; NaN if
// that is not known.
func nvlinkSpeed(g *collector.GPU) float64 {
	links := g.Value(metric.NVLinksUp)
	if math.IsNaN(links) {
		links = g.Value(metric.NVLinks)
	}
	if !(links > 0) {
		return math.NaN()
	}
	if g.Architecture == "Blackwell" {
		return links * 50e9
	}
	return links * 25e9 // NVLink 2 to 4
}

// pcieLane is what one lane can do, bytes a second, by generation.
var pcieLane = [...]float64{0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9}

// pcieSpeed is what a GPU's PCIe link can do in each direction as it is now, bytes a
// second; NaN if that is not known.
func pcieSpeed(g *collector.GPU) float64 {
	generation, lanes := g.Value(metric.PCIeGeneration), g.Value(metric.PCIeWidth)
	if !(generation >= 1 && generation < float64(len(pcieLane)) && lanes > 0) {
		return math.NaN()
	}
	return pcieLane[int(generation)] * lanes
}
