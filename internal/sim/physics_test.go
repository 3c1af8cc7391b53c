package sim

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// notOurs are rows of node and GPU that other parts of the agent fill, or that
// this board does not have. Of the functions of NVML only some are simulated.
var notOurs = func() map[*metric.Def]bool {
	rows := map[*metric.Def]bool{
		metric.GPUPresent: true, metric.GPUHung: true, metric.GPUSampleAge: true, metric.FanSpeed: true, metric.GPUsExpected: true, metric.VersionChanges: true,
		metric.AgentCPU: true, metric.AgentRSS: true, metric.AgentPSS: true,
		metric.FunctionSeconds: true, metric.FunctionCalls: true, metric.FunctionErrors: true,
		// Absent while nothing waits, or the cache does not fill.
		metric.ServerUtilization: true, metric.QueueConsistency: true, metric.KVCacheTimeToFull: true,
		metric.EndpointApproximate:  true, // of other servers
		metric.EndpointNotAvailable: true, // the server says it of each
		metric.TargetFailing:        true, // while the page can be read
		metric.AgentOpenFiles:       true, metric.AgentGoroutines: true, metric.Drained: true, metric.PriceMissing: true,
		metric.KubeletAge: true, metric.AllocationsKnown: true, metric.AllocationsUnresolved: true, metric.StaleJobs: true,
	}
	for _, d := range unsupported {
		rows[d] = true
	}
	return rows
}()

// firstOnly are rows of which this board and its driver tell the first values only.
var firstOnly = map[*metric.Def]int{
	metric.Requests:     3, // as vLLM does
	metric.PressureSome: 3, // the kernel does not tell it of interrupts
	metric.ClockHeld:    3, metric.ECCCorrected: 2, metric.ECCUncorrected: 2, metric.ECCLifetimeCorrected: 2, metric.ECCLifetimeUncorrected: 2,
}

// everyReading calls f for each value that an entity of the part should have.
func everyReading(p *collector.Part, f func(what string, d *metric.Def, v float64)) {
	visit := func(what string, e metric.Entity, r collector.Readings) {
		for _, d := range metric.Of(e) {
			if d.Labels != nil || notOurs[d] {
				continue
			}
			width := d.Width()
			if first, ok := firstOnly[d]; ok {
				width = first
			}
			for i := range width {
				f(what, d, r.ValueAt(d, i))
			}
		}
	}
	visit("node "+p.Node.Name, metric.Node, p.Node.Readings)
	for _, g := range p.GPUs {
		visit("GPU "+g.UUID, metric.GPU, g.Readings)
	}
	for _, pr := range p.Processes {
		visit("process "+pr.Name, metric.Process, pr.Readings)
	}
	for _, e := range p.Endpoints {
		visit("endpoint "+e.URL, metric.Endpoint, e.Readings)
	}
	for _, t := range p.Targets {
		visit("target "+t.URL, metric.Target, t.Readings)
	}
}

func TestEveryReadingIsThere(t *testing.T) {
	for _, name := range []string{"quiet", "saturate", "e2e"} {
		everyReading(newSim(t, name).Part(start), func(what string, d *metric.Def, v float64) {
			if math.IsNaN(v) {
				t.Errorf("%s: %s has no %s: simulate it, or say in notOurs that it comes from elsewhere", name, what, d)
			}
		})
	}
}

func TestEveryReadingIsPlausible(t *testing.T) {
	for _, sc := range Scenarios() {
		s := newSim(t, sc.Name)
		for at := -min(sc.Past, 15*time.Minute); at < 20*time.Minute; at += 7 * time.Second {
			everyReading(s.Part(start.Add(at)), func(what string, d *metric.Def, v float64) {
				if !math.IsNaN(v) && !d.Plausible(v) {
					t.Errorf("%s at %v: %s has %s = %v", sc.Name, at, what, d, v)
				}
			})
		}
	}
}

// TestConservation lives through an hour and a half of the demo and adds up.
func TestConservation(t *testing.T) {
	s := newSim(t, "demo")
	begin := s.Part(start.Add(-30 * time.Minute))
	joules := make([]float64, len(begin.GPUs))
	cpu := sum(begin.Node.Readings, metric.CPUSeconds)
	before := begin
	for at := -30*time.Minute + time.Second; at <= time.Hour; at += time.Second {
		p := s.Part(start.Add(at))
		for i, g := range p.GPUs {
			if g.Present {
				joules[i] += g.Value(metric.PowerDraw)
			}
			if restarted := g.Value(metric.Energy) < before.GPUs[i].Value(metric.Energy); restarted {
				t.Errorf("at %v GPU %d's energy goes back although it was there all the time", at, i)
			}
			checkMemory(t, at, p, g)
		}
		busy := (1 - (diff(before, p, "idle")+diff(before, p, "iowait"))/p.Node.Value(metric.CPUCount))
		if got := p.Node.Value(metric.CPUBusy); math.Abs(got-busy) > 1e-6 {
			t.Fatalf("at %v the CPUs are %.4f busy by the ratio and %.4f by the counters", at, got, busy)
		}
		before = p
	}
	passed := before.Time.Sub(begin.Time).Seconds()
	if got, want := sum(before.Node.Readings, metric.CPUSeconds)-cpu, passed*before.Node.Value(metric.CPUCount); math.Abs(got-want) > 1e-3*want {
		t.Errorf("the CPUs' modes sum to %.0f s in %.0f s of all CPUs", got, want)
	}
	for i, g := range before.GPUs {
		got, want := g.Value(metric.Energy)-begin.GPUs[i].Value(metric.Energy), joules[i]
		wasReset := i == 0 || i == 7 // lost, and hung: nobody saw its power
		if !wasReset && math.Abs(got-want) > 0.01*want {
			t.Errorf("GPU %d used %.0f J and drew power that sums to %.0f J", i, got, want)
		}
	}
}

func checkMemory(t *testing.T, at time.Duration, p *collector.Part, g collector.GPU) {
	t.Helper()
	if !g.Present {
		return
	}
	if total := g.Value(metric.MemoryUsed) + g.Value(metric.MemoryFree) + g.Value(metric.MemoryReserved); total != g.Value(metric.MemoryCapacity) {
		t.Errorf("at %v GPU %d's used, free and reserved memory sum to %v", at, g.Index, total)
	}
	if g.SampledAt(metric.Processes) != p.Time {
		return
	}
	count, used := 0.0, 0.0
	for _, pr := range p.Processes {
		if pr.UUID == g.UUID {
			count++
			used += pr.Value(metric.ProcessMemoryUsed)
		}
	}
	if used != g.Value(metric.MemoryUsed) || used != g.Value(metric.ProcessMemory) || count != g.Value(metric.ProcessCount) {
		t.Errorf("at %v GPU %d's processes use %v, the GPU says %v", at, g.Index, used, g.Value(metric.MemoryUsed))
	}
}

func sum(r collector.Readings, d *metric.Def) float64 {
	total := 0.0
	for i := range d.Width() {
		total += r.ValueAt(d, i)
	}
	return total
}

func diff(a, b *collector.Part, mode string) float64 {
	i := metric.CPUMode.Index(mode)
	return b.Node.ValueAt(metric.CPUSeconds, i) - a.Node.ValueAt(metric.CPUSeconds, i)
}

// TestCounters finds no counter that goes back on a node where nothing is reset.
func TestCounters(t *testing.T) {
	s := newSim(t, "quiet")
	last := map[string]float64{}
	for at := -time.Hour; at < 0; at += 7 * time.Second {
		column := map[string]int{}
		everyReading(s.Part(start.Add(at)), func(what string, d *metric.Def, v float64) {
			if d.Kind != metric.Counter {
				return
			}
			key := what + d.Name
			column[key]++
			key += string(rune('0' + column[key]))
			if v < last[key] {
				t.Errorf("at %v %s's %s goes from %v to %v", at, what, d, last[key], v)
			}
			last[key] = v
		})
	}
}

func TestTiersKeepTheirTime(t *testing.T) {
	s := newSim(t, "quiet")
	p := s.Part(start.Add(59 * time.Second))
	for tier, want := range map[metric.Tier]time.Duration{
		metric.Fast: 59 * time.Second, metric.Slow: 45 * time.Second, metric.Processes: 45 * time.Second, metric.Inventory: 0,
	} {
		if got := p.GPUs[0].SampledAt(tier).Sub(start); got != want {
			t.Errorf("59 s after a full minute tier %s is of %v, want %v", tier, got, want)
		}
	}
}

// TestDemandFollowsFromTheQueue saturates a server and looks at what follows from
// its numbers: more arrives than is served, Little's law holds, the cache is full.
func TestDemandFollowsFromTheQueue(t *testing.T) {
	s := newSim(t, "saturate")
	calm := s.Part(start).Endpoints[0]
	full := s.Part(start.Add(38 * time.Minute)).Endpoints[0]
	if v := full.Value(metric.ServerUtilization); !(v > 0.9 && v < 1.6) {
		t.Errorf("a saturated server is used to %v of what it can", v)
	}
	if v := full.Value(metric.QueueConsistency); !(v > 0.7 && v < 1.4) {
		t.Errorf("by Little's law %v times as many wait as should", v)
	}
	if a, b := full.Value(metric.ServiceRate), calm.Value(metric.ServiceRate); !(a > b) {
		t.Errorf("%v requests end each second at the limit, %v before", a, b)
	}
	if a, b := full.Value(metric.QueueTimeMean), calm.Value(metric.QueueTimeMean); !(a > 4*b) {
		t.Errorf("requests wait for %v s at the limit, %v s before", a, b)
	}
	if full.Value(metric.EndpointStale) != 0 {
		t.Error("a server that works is stale")
	}
	work := s.Part(start.Add(39 * time.Minute)).Targets[0]
	if perGPU, perJoule := work.Value(metric.TokensPerGPU), work.Value(metric.TokensPerJoule); !(perGPU > 300 && perGPU < 3000 && perJoule > 0.3 && perJoule < 10) {
		t.Errorf("%v tokens a second on each GPU, %v a joule", perGPU, perJoule)
	}
}

// TestQueueHistogramAgrees computes the quantile from the histogram of the
// server's metrics page and finds the one that the model claims.
func TestQueueHistogramAgrees(t *testing.T) {
	s := newSim(t, "saturate")
	const from, to = 40 * time.Minute, 42 * time.Minute
	queueTimes := func(at time.Duration) collector.Histogram {
		for _, h := range s.Part(start.Add(at)).Endpoints[0].Histograms {
			if h.Row == metric.QueueTime {
				return h
			}
		}
		t.Fatal("the endpoint has no histogram of its queue")
		return collector.Histogram{}
	}
	before := queueTimes(from)
	mean := 0.0
	for at := from + time.Second; at <= to; at += time.Second {
		mean += s.Part(start.Add(at)).Endpoints[0].Value(metric.QueueTimeP95) / (to - from).Seconds()
	}
	served, ok := queueTimes(to).Since(before)
	if !ok {
		t.Fatal("the histogram begins anew while the server runs")
	}
	if got := served.Quantile(0.95); !(got > 0.6*mean && got < 1.8*mean) {
		t.Errorf("the histogram's 95th percentile is %.1f s, the model's %.1f s", got, mean)
	}
}
