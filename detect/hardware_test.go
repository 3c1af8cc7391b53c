package detect

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// hardware is a stage with a healthy node of eight GPUs at work and four ports, which
// tests break.
type hardware struct {
	*stage
	energy float64
	breaks []func(s *collector.Snapshot) // in order
	fall   []collector.Event
}

func newHardware(t *testing.T, step time.Duration) *hardware {
	h := &hardware{stage: newStage(t, DetectorConfig{}, step)}
	h.set = func(s *collector.Snapshot) {
		*s = *healthy(s.Time)
		h.energy += 350 * h.step.Seconds()
		for i := range s.GPUs {
			s.GPUs[i].Set(metric.Energy, h.energy)
		}
		for i := range h.fall {
			h.fall[i].Time = s.Time
		}
		s.Events, h.fall = h.fall, nil
		for _, b := range h.breaks {
			b(s)
		}
	}
	return h
}

// healthy is the node with nothing wrong.
func healthy(at time.Time) *collector.Snapshot {
	s := node(at, 8)
	s.BootID, s.Boot = "boot-1", day.Add(-30*24*time.Hour)
	s.Node.Set(metric.GPUsSeen, 8)
	s.Node.Set(metric.CPUBusy, 0.5) // the GPUs' work is none of a starved inference server's
	s.Sources = []collector.SourceState{{Name: "nvml", Interval: time.Second, Last: at, Expected: true}, {Name: "host", Interval: time.Second, Last: at, Expected: true}}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Owners = []collector.Owner{job}
		g.Set(metric.Utilization, 0.9)
		for _, d := range []*metric.Def{metric.RemapPending, metric.RemapFailed, metric.SRAMThreshold, metric.PCIeReplays, metric.BankRemapPending} {
			g.Set(d, 0)
		}
		for _, d := range []*metric.Def{metric.ECCErrors, metric.ECCUncorrected, metric.RemapHistogram, metric.NVLinkErrors, metric.NVLink5Errors} {
			for k := range d.Width() {
				g.SetAt(d, k, 0)
			}
		}
		g.SetAt(metric.RemapHistogram, 0, 640)
		g.Set(metric.PCIeWidth, 16)
		g.Set(metric.PCIeMaxWidth, 16)
		g.Set(metric.PCIeGeneration, 5)
		g.Set(metric.PCIeMaxGeneration, 5)
		g.Set(metric.NVLinks, 18)
		g.Set(metric.NVLinksUp, 18)
		g.Set(metric.FabricState, 3)
		g.Set(metric.FabricHealth, 1)
		for k := range metric.GPUSlowdown.Width() {
			g.SetAt(metric.GPUSlowdown, k, 1)
		}
	}
	for i := range 4 {
		n := collector.Interface{Device: fmt.Sprintf("mlx5_%d", i), Port: 1, LinkLayer: "InfiniBand", State: "ACTIVE", PhysicalState: "LinkUp", Readings: collector.NewReadings(metric.Interface)}
		n.Stamp(metric.Slow, at)
		n.Set(metric.InterfaceUp, 1)
		n.Set(metric.InterfaceErrors, 0)
		n.Set(metric.InterfaceLinkDowned, 0)
		s.Interfaces = append(s.Interfaces, n)
	}
	return s
}

// breakIt adds something that is wrong from now on.
func (h *hardware) breakIt(b func(s *collector.Snapshot)) { h.breaks = append(h.breaks, b) }

// mend takes away all that is wrong.
func (h *hardware) mend() { h.breaks = nil }

// healthyDay is the memory of an engine after a healthy day in large steps.
var healthyDay struct {
	once   sync.Once
	memory []byte
	end    time.Time
}

// habit goes on after a healthy day, so that counters have one.
func (h *hardware) habit() {
	h.t.Helper()
	healthyDay.once.Do(func() {
		first := newHardware(h.t, time.Minute)
		first.run(27 * time.Hour)
		first.silent("a healthy day")
		data, err := first.e.Save()
		if err != nil {
			h.t.Fatal(err)
		}
		healthyDay.memory, healthyDay.end = data, first.now
	})
	if err := h.e.Restore(healthyDay.memory); err != nil {
		h.t.Fatal(err)
	}
	h.now, h.energy = healthyDay.end, 350*healthyDay.end.Sub(day).Seconds()
	h.run(2 * time.Minute)
	h.silent("two healthy minutes")
}

// growing makes a reading of GPU 0 grow by so much a minute from now on.
func (h *hardware) growing(d *metric.Def, at int, perMinute float64, gpus ...int) func(s *collector.Snapshot) {
	began := h.now
	return func(s *collector.Snapshot) {
		for _, i := range gpus {
			v := s.GPUs[i].ValueAt(d, at)
			s.GPUs[i].SetAt(d, at, v+float64(int(s.Time.Sub(began).Minutes()*perMinute)))
		}
	}
}

// of sets a reading of some GPUs.
func of(d *metric.Def, at int, v float64, gpus ...int) func(s *collector.Snapshot) {
	return func(s *collector.Snapshot) {
		for _, i := range gpus {
			s.GPUs[i].SetAt(d, at, v)
		}
	}
}

var all8 = []int{0, 1, 2, 3, 4, 5, 6, 7}

// lostGPUs makes GPUs not answer.
func lostGPUs(gpus ...int) func(s *collector.Snapshot) {
	return func(s *collector.Snapshot) {
		for _, i := range gpus {
			g := &s.GPUs[i]
			g.Present, g.Owners, g.Readings = false, nil, collector.NewReadings(metric.GPU)
		}
		s.Node.Set(metric.GPUsSeen, float64(8-len(gpus)))
	}
}

// incidents returns the newest state of each incident that was ever told, in the order
// in which they were opened.
func (h *hardware) incidents() []Incident {
	var ids []string
	newest := map[string]Incident{}
	for _, in := range h.told {
		if _, ok := newest[in.ID]; !ok {
			ids = append(ids, in.ID)
		}
		newest[in.ID] = in
	}
	var out []Incident
	for _, id := range ids {
		out = append(out, newest[id])
	}
	return out
}

// only fails the test unless exactly one incident was ever told, about the rule and
// cause, and returns it.
func (h *hardware) only(rule rules.ID, cause string) Incident {
	h.t.Helper()
	ins := h.incidents()
	if len(ins) != 1 || ins[0].Rule != rule || ins[0].Cause != cause {
		h.t.Fatalf("told %s, want one incident of %s %s", describe(ins), rule, cause)
	}
	return ins[0]
}

func describe(ins []Incident) string {
	if len(ins) == 0 {
		return "nothing"
	}
	s := ""
	for _, in := range ins {
		s += fmt.Sprintf("[%s %s %s %s:", in.State, in.Severity, in.Rule, in.Cause)
		for _, m := range in.Members {
			s += fmt.Sprintf(" (%s %s %s %s: %s)", m.State, m.Rule, m.Cause, m.Subject, m.Evidence.Seen)
		}
		s += "] "
	}
	return s
}

// steps runs a test at the shortest and the longest time between snapshots.
func steps(t *testing.T, run func(t *testing.T, h *hardware)) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) { run(t, newHardware(t, step)) })
	}
}
