package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestScenariosFitNodes(t *testing.T) {
	seen := map[string]bool{}
	for _, sc := range Scenarios() {
		if sc.Name == "" || sc.Help == "" || seen[sc.Name] {
			t.Errorf("scenario %q: its name is not its own, or it has no help", sc.Name)
		}
		seen[sc.Name] = true
		for _, gpus := range []int{5, 8, 16} {
			p := newSim(t, sc.Name, func(c *Config) { c.GPUs = gpus }).Part(start)
			if len(p.GPUs) != gpus {
				t.Errorf("%s on %d GPUs has %d", sc.Name, gpus, len(p.GPUs))
			}
		}
	}
}

// seen is what a part shows of the things that the timelines change.
type seen struct {
	waiting, p95 float64
	driver       string
	part         *collector.Part
}

func look(s *Sim, at time.Duration) seen {
	p := s.Part(start.Add(at))
	v := seen{part: p, waiting: p.Endpoints[0].Value(metric.RequestsWaiting), p95: p.Endpoints[0].Value(metric.QueueTimeP95)}
	for _, version := range p.Node.Versions {
		if version.Component == "driver" {
			v.driver = version.Value
		}
	}
	return v
}

// given counts who was given the GPU.
func (v seen) given(gpu int) int {
	n := 0
	for _, a := range v.part.Allocations {
		if a.UUID == v.part.GPUs[gpu].UUID {
			n++
		}
	}
	return n
}

// users counts the owners of the GPU's processes that are known.
func (v seen) users(gpu int) int {
	owners := map[collector.Owner]bool{}
	for _, p := range v.part.Processes {
		for _, a := range v.part.Attributions {
			if p.GPU == gpu && a.PID == p.PID && a.Start == p.Start {
				owners[a.Owner] = true
			}
		}
	}
	return len(owners)
}

func (v seen) xids(gpu, code int) uint64 {
	for _, x := range v.part.GPUs[gpu].Xids {
		if x.Code == code {
			return x.Count
		}
	}
	return 0
}

func (v seen) thermal(gpu int) bool {
	return v.part.GPUs[gpu].ValueAt(metric.ClockEvent, reasonSoftThermal) == 1
}

// TestDemo looks at the demo where its timeline says that something happens.
func TestDemo(t *testing.T) {
	const lost, chatGPU, notebookGPU, sweep = 0, 4, 6, 7
	s := newSim(t, "demo")
	for _, tc := range []struct {
		at   time.Duration
		what string
		ok   func(seen) bool
	}{
		{-149 * time.Minute, "the driver that the node came with", func(v seen) bool { return v.driver == "570.124.06" }},
		{-145 * time.Minute, "a new driver", func(v seen) bool { return v.driver == "570.133.20" }},
		{-60 * time.Minute, "an idle queue before the saturation", func(v seen) bool { return v.waiting < 5 && v.p95 < 1 }},
		{-60 * time.Minute, "a process of which nobody knows whose it is", func(v seen) bool { return v.users(1) == 1 && v.part.GPUs[1].Value(metric.ProcessCount) == 2 }},
		{-7 * time.Minute, "the sweep at work", func(v seen) bool { return v.given(sweep) == 1 && v.xids(sweep, 31) == 0 }},
		{-5*time.Minute - 30*time.Second, "the sweep dead of Xid 31", func(v seen) bool {
			return v.xids(sweep, 31) == 1 && v.part.GPUs[sweep].Value(metric.MemoryUsed) == 0
		}},
		{-5 * time.Minute, "packets sent again before the GPU is lost", func(v seen) bool {
			return v.part.GPUs[lost].Value(metric.PCIeReplays) > 40*max(1, v.part.GPUs[1].Value(metric.PCIeReplays))
		}},
		{-3*time.Minute - 45*time.Second, "a free GPU after the sweep", func(v seen) bool { return v.given(sweep) == 0 }},
		{-3*time.Minute - 30*time.Second, "a lost GPU and its peers spinning", func(v seen) bool {
			g, peer := v.part.GPUs[lost], v.part.GPUs[1]
			return v.xids(lost, 79) == 1 && !g.Present && !g.Has(metric.PowerDraw) && g.SampledAt(metric.Fast).IsZero() &&
				peer.Value(metric.Utilization) == 1 && peer.Value(metric.PowerDraw) < 0.3*powerLimit
		}},
		{0, "saturation with demand beside an idle CPU", func(v seen) bool {
			return v.waiting > 15 && v.p95 > 2 && v.part.GPUs[chatGPU].Value(metric.Utilization) > 0.95 && v.part.Node.Value(metric.CPUBusy) < 0.15
		}},
		{0, "a notebook that holds memory and does nothing", func(v seen) bool {
			g := v.part.GPUs[notebookGPU]
			return g.Value(metric.Utilization) == 0 && g.Value(metric.MemoryUsed) > 0 && v.given(notebookGPU) == 2
		}},
		{0, "two teams on one GPU", func(v seen) bool { return v.users(chatGPU) == 2 && v.given(chatGPU) == 2 }},
		{3 * time.Minute, "a GPU that is given and not used", func(v seen) bool { return v.given(sweep) == 1 && v.users(sweep) == 0 }},
		{6 * time.Minute, "the lost GPU back, with everything reset", func(v seen) bool {
			g := v.part.GPUs[lost]
			return g.Present && g.Value(metric.Energy) < 1e6 && g.Value(metric.PCIeReplays) == 0 && v.waiting < 5
		}},
		{7 * time.Minute, "a GPU whose calls hang", func(v seen) bool {
			g := v.part.GPUs[sweep]
			age := v.part.Time.Sub(g.SampledAt(metric.Fast))
			return g.Hung && g.Present && g.Has(metric.Utilization) && age > 10*time.Second && v.part.Node.Value(metric.NVMLHung) == 1
		}},
		{8*time.Minute + 30*time.Second, "the hung GPU answering", func(v seen) bool {
			return !v.part.GPUs[sweep].Hung && v.part.GPUs[sweep].Has(metric.PowerLimit)
		}},
		{15 * time.Minute, "the next saturation", func(v seen) bool { return v.waiting > 15 }},
		{19 * time.Minute, "a thermal slowdown", func(v seen) bool { return v.thermal(chatGPU) && !v.thermal(1) }},
		{26 * time.Minute, "a cool GPU and an empty queue", func(v seen) bool { return !v.thermal(chatGPU) && v.waiting < 5 }},
		{37 * time.Minute, "somebody in the notebook", func(v seen) bool { return v.part.GPUs[notebookGPU].Value(metric.Utilization) > 0.2 }},
	} {
		if v := look(s, tc.at); !tc.ok(v) {
			t.Errorf("at %v: want %s; got %d GPUs, waiting %.0f, p95 %.2f s, driver %s, CPU %.2f", tc.at, tc.what,
				len(v.part.GPUs), v.waiting, v.p95, v.driver, v.part.Node.Value(metric.CPUBusy))
		}
	}
}

func TestVersionFlaps(t *testing.T) {
	s := newSim(t, "quiet", func(c *Config) {
		c.Scenario.Timeline = []Entry{{Kind: Version, Component: "driver", To: "580.1", At: time.Minute, For: 5 * time.Minute, Every: 10 * time.Minute}}
	})
	for i, want := range []string{"570.124.06", "580.1", "570.124.06", "580.1"} {
		at := time.Duration(i)*5*time.Minute - 210*time.Second
		v := look(s, at)
		if v.driver != want {
			t.Errorf("at %v the driver is %s, want %s", at, v.driver, want)
		}
		if energy := v.part.GPUs[0].Value(metric.Energy); i > 0 && energy > 60*powerLimit {
			t.Errorf("half a minute after the driver was loaded a GPU has used %.0f J", energy)
		}
	}
}

// TestNotebookIsIdleForTwoHours is what the demo's idle finding stands on.
func TestNotebookIsIdleForTwoHours(t *testing.T) {
	s := newSim(t, "demo")
	for at := -130 * time.Minute; at <= 0; at += 10 * time.Second {
		g := look(s, at).part.GPUs[6]
		if g.Value(metric.Utilization) != 0 || g.Value(metric.MemoryUsed) == 0 || g.Value(metric.PowerDraw) < 100 {
			t.Fatalf("at %v the notebook's GPU is %.0f %% busy at %.0f W", at, 100*g.Value(metric.Utilization), g.Value(metric.PowerDraw))
		}
	}
}

func TestEventsAreDeliveredOnce(t *testing.T) {
	s := newSim(t, "e2e")
	got := map[collector.EventKind]int{}
	for at := time.Duration(0); at < 3*time.Minute; at += 500 * time.Millisecond {
		p := s.Part(start.Add(at))
		for _, e := range p.Events {
			got[e.Kind]++
			if late := p.Time.Sub(e.Time); late < 0 || late >= time.Second {
				t.Errorf("%s of %v is in the part of %v", e.Kind, e.Time, p.Time)
			}
		}
	}
	want := map[collector.EventKind]int{collector.XidEvent: 2, collector.VersionEvent: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(s.Part(start).Events) > 0 {
		t.Error("a part at the same time repeats events")
	}
}

// TestQuietIsHealthy is the look-alikes: work that looks alarming and is not.
func TestQuietIsHealthy(t *testing.T) {
	s := newSim(t, "quiet")
	pauses, capped := 0, 0
	full := true
	for at := -time.Hour; at < 2*time.Hour; at += time.Second {
		v := look(s, at)
		g := v.part.GPUs[1]
		busy := g.Value(metric.Utilization) >= 0.95
		if full && !busy {
			pauses++
		}
		full = busy
		if busy && g.ValueAt(metric.ClockEvent, reasonPowerCap) == 1 {
			capped++
		}
		if v.waiting > 5 || v.p95 > 1 {
			t.Fatalf("at %v %.0f requests wait for %.1f s", at, v.waiting, v.p95)
		}
		if v.part.Node.Value(metric.CPUBusy) > 0.2 {
			t.Fatalf("at %v the CPUs are %.2f busy", at, v.part.Node.Value(metric.CPUBusy))
		}
		for _, e := range v.part.Events {
			if e.Kind != collector.OwnerEvent {
				t.Fatalf("at %v a quiet node tells of %+v", at, e)
			}
		}
	}
	if pauses != 9 {
		t.Errorf("training pauses %d times in three hours for its checkpoint, want 9", pauses)
	}
	if capped < 3600 {
		t.Errorf("training runs into its power cap in %d seconds of three hours", capped)
	}
}

func TestHardThermalSlowdown(t *testing.T) {
	s := newSim(t, "quiet", func(c *Config) {
		c.Scenario.Timeline = []Entry{{Kind: Heat, Target: "train/2", Level: 4, For: 5 * time.Minute}}
	})
	s.Part(start)
	hot := false
	for at := time.Second; at < 5*time.Minute; at += time.Second {
		g := look(s, at).part.GPUs[2]
		if g.ValueAt(metric.ClockEvent, reasonHardThermal) == 1 {
			hot = true
			if g.ValueAt(metric.ClockEvent, reasonHWSlowdown) != 1 || g.Value(metric.Clock) > smClockMax/2 {
				t.Errorf("the hardware slows down at %.0f MHz", g.Value(metric.Clock)/1e6)
			}
		}
	}
	if !hot {
		t.Error("a GPU that is cooled four times worse never reaches its limit")
	}
}

func TestSpinIsFlatAndCold(t *testing.T) {
	s := newSim(t, "quiet", func(c *Config) {
		c.Scenario.Timeline = []Entry{{Kind: Spin, Target: "train", For: 10 * time.Minute}}
	})
	for at := time.Second; at < 9*time.Minute; at += 10 * time.Second {
		for _, g := range look(s, at).part.GPUs[:4] {
			if g.Value(metric.Utilization) < 0.99 || g.Value(metric.PowerDraw) > 0.3*powerLimit {
				t.Fatalf("at %v a spinning GPU is at %.0f %% and %.0f W", at, 100*g.Value(metric.Utilization), g.Value(metric.PowerDraw))
			}
		}
	}
}

func TestHostileNamesAreThere(t *testing.T) {
	p := newSim(t, "demo").Part(start)
	if !slices.ContainsFunc(p.Processes, func(pr collector.Process) bool { return pr.Name == "<!channel> & <b>python3</b>" }) {
		t.Error("no process tries to write to a whole channel")
	}
}
