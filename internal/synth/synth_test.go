package synth

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func nodeOf(life Life, seed uint64, step time.Duration) *Node {
	return New(Config{Seed: seed, Name: "synth-test", Start: monday, Step: step, Life: life})
}

// digest is of all numbers and names that detectors see.
func digest(n *Node, steps int) uint64 {
	h := fnv.New64a()
	for range steps {
		s := n.Next()
		if s == nil {
			fmt.Fprintln(h, "dark")
			continue
		}
		fmt.Fprintln(h, s.Time, s.Boot, s.Node.Versions, s.Node.Vector(), s.Events, s.Inventory.Runtimes)
		for i := range s.GPUs {
			fmt.Fprintln(h, s.GPUs[i].UUID, s.GPUs[i].Owners, s.GPUs[i].Vector())
		}
		for i := range s.Endpoints {
			fmt.Fprintln(h, s.Endpoints[i].Key(), s.Endpoints[i].Vector(), s.Endpoints[i].Histograms)
		}
		for i := range s.Workloads {
			fmt.Fprintln(h, s.Workloads[i].Owner, s.Workloads[i].Vector())
		}
		for i := range s.Processes {
			fmt.Fprintln(h, s.Processes[i].PID, s.Processes[i].Start, s.Processes[i].Vector())
		}
	}
	return h.Sum64()
}

func TestANodeIsAFunctionOfItsConfig(t *testing.T) {
	for _, life := range []Life{Training, Serving, Mixed, LabStage} {
		const steps = 200
		a, b := digest(nodeOf(life, 1, time.Minute), steps), digest(nodeOf(life, 1, time.Minute), steps)
		if a != b {
			t.Errorf("life %d: two nodes of one configuration differ", life)
		}
		if c := digest(nodeOf(life, 2, time.Minute), steps); c == a {
			t.Errorf("life %d: the seed changes nothing", life)
		}
	}
}

func TestASnapshotDoesNotChange(t *testing.T) {
	n := nodeOf(ChatStage, 3, time.Minute)
	for range 30 {
		n.Next()
	}
	s := n.Next()
	gpu, work, end, node := s.GPUs[1].Clone(), s.Workloads[0].Clone(), s.Endpoints[0].Clone(), s.Node.Readings.Clone()
	for range 30 {
		n.Next()
	}
	for name, pair := range map[string][2]collector.Readings{"a GPU's": {gpu, s.GPUs[1].Readings}, "a workload's": {work, s.Workloads[0].Readings},
		"an endpoint's": {end, s.Endpoints[0].Readings}, "the node's": {node, s.Node.Readings}} {
		same := slices.EqualFunc(pair[0].Vector(), pair[1].Vector(), func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })
		if !same {
			t.Errorf("%s readings changed after the snapshot was handed out", name)
		}
	}
}

// TestReadingsArePlausible holds every number of every case against the catalogue.
func TestReadingsArePlausible(t *testing.T) {
	for i, c := range Cases() {
		tr := &Trial{Case: c, From: monday.Add(5 * time.Minute), To: monday.Add(35 * time.Minute)}
		n := New(Config{Seed: uint64(i), Name: "synth-test", Start: monday, Board: Board(i % 2), Life: c.Life, Trial: tr})
		for range 60 {
			s := n.Next()
			if s == nil {
				continue
			}
			for j := range s.GPUs {
				plausible(t, c, metric.GPU, s.GPUs[j].Readings)
			}
			for j := range s.Endpoints {
				plausible(t, c, metric.Endpoint, s.Endpoints[j].Readings)
			}
			for j := range s.Workloads {
				plausible(t, c, metric.Workload, s.Workloads[j].Readings)
			}
			for j := range s.Processes {
				plausible(t, c, metric.Process, s.Processes[j].Readings)
			}
			plausible(t, c, metric.Node, s.Node.Readings)
		}
	}
}

func plausible(t *testing.T, c *Case, e metric.Entity, r collector.Readings) {
	t.Helper()
	for _, d := range metric.Of(e) {
		for i := range d.Width() {
			if v := r.ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
				t.Errorf("%s: %s[%d] is %v, which no driver tells", c.Name, d, i, v)
			}
		}
	}
}

// TestCountersGrow: what only grows in a real node does so here, but for a reboot.
func TestCountersGrow(t *testing.T) {
	for _, step := range []time.Duration{15 * time.Second, time.Minute} {
		n := nodeOf(PodStage, 5, step)
		var last *collector.Snapshot
		for range 200 {
			s := n.Next()
			if last != nil {
				grows(t, metric.Node, last.Node.Readings, s.Node.Readings)
				grows(t, metric.GPU, last.GPUs[3].Readings, s.GPUs[3].Readings)
				grows(t, metric.Workload, last.Workloads[0].Readings, s.Workloads[0].Readings)
			}
			last = s
		}
	}
}

func grows(t *testing.T, e metric.Entity, a, b collector.Readings) {
	t.Helper()
	for _, d := range metric.Of(e) {
		for i := range d.Width() {
			if d.Kind == metric.Counter && b.ValueAt(d, i) < a.ValueAt(d, i) {
				t.Errorf("%s[%d] fell from %v to %v", d, i, a.ValueAt(d, i), b.ValueAt(d, i))
			}
		}
	}
}

// TestMarginals: power and utilization are where published captures have them.
func TestMarginals(t *testing.T) {
	power := func(board Board, life Life, spoil func(*Node)) (low, high float64) {
		n := New(Config{Seed: 9, Name: "synth-test", Start: monday, Board: board, Life: life})
		for range 30 {
			n.Next()
		}
		if spoil != nil {
			spoil(n)
		}
		low, high = math.Inf(1), 0
		for range 30 {
			s := n.Next()
			for i := range s.GPUs {
				if len(s.GPUs[i].Owners) > 0 && n.Now().After(monday.Add(35*time.Minute)) {
					p := s.GPUs[i].Value(metric.PowerDraw)
					low, high = math.Min(low, p), math.Max(high, p)
				}
			}
		}
		return low, high
	}
	for _, c := range []struct {
		name      string
		board     Board
		spoil     func(*Node)
		low, high float64
	}{
		{"an idle H100 with a context", H100, func(n *Node) { n.tenants[0].woes.idle = true }, 105, 134},
		{"an idle A100 with a context", A100, func(n *Node) { n.tenants[0].woes.idle = true }, 54, 68},
		{"an H100 that spins on a dead collective", H100, func(n *Node) { n.tenants[0].woes.hung = true }, 140, 165},
		{"an H100 in training", H100, nil, 560, 708},
		{"an A100 in training", A100, nil, 320, 405},
	} {
		if low, high := power(c.board, JobStage, c.spoil); low < c.low || high > c.high {
			t.Errorf("%s draws %.0f to %.0f W, published are %.0f to %.0f", c.name, low, high, c.low, c.high)
		}
	}
	if med := medianUtilization(Training); med < 0.96 || med > 1 {
		t.Errorf("the median utilization in training is %.2f, published are 0.97 to 0.99", med)
	}
}

func medianUtilization(life Life) float64 {
	n := nodeOf(life, 11, time.Minute)
	var all []float64
	for range 3 * 24 * 60 {
		if s := n.Next(); s != nil && len(s.Workloads) > 0 {
			all = append(all, s.GPUs[0].Value(metric.Utilization))
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// TestServersFollowTheDay: load has a course, and what was asked for is answered.
func TestServersFollowTheDay(t *testing.T) {
	n := nodeOf(ChatStage, 4, time.Minute)
	var night, day float64
	for range 48 * 60 {
		s := n.Next()
		e := &s.Endpoints[0]
		switch hour := s.Time.Hour(); {
		case hour >= 1 && hour < 4:
			night += e.Value(metric.RequestsRunning)
		case hour >= 13 && hour < 16:
			day += e.Value(metric.RequestsRunning)
		}
	}
	if day < 1.5*night {
		t.Errorf("at noon %.0f requests are served, at night %.0f: there is no daily course", day, night)
	}
}

func BenchmarkStep(b *testing.B) {
	for life, name := range []string{"training", "serving", "mixed"} {
		b.Run(name, func(b *testing.B) {
			n := nodeOf(Life(life), 1, time.Minute)
			b.ReportAllocs()
			for b.Loop() {
				n.Next()
			}
		})
	}
}

// TestAHealthyUpgradeIsWhole: a maintenance that replaces the driver replaces the fabric
// manager, which serves no other: the rest would be a fault.
func TestAHealthyUpgradeIsWhole(t *testing.T) {
	n := nodeOf(Training, 2, 10*time.Minute)
	upgrades, last := 0, n.version("driver")
	for range 8 * 7 * 24 * 6 {
		n.Next()
		driver, manager := n.version("driver"), n.version("fabric_manager")
		if driver != manager {
			t.Fatalf("at %s the driver of a healthy node is %s and its fabric manager %s", n.Now(), driver, manager)
		}
		if driver != last {
			upgrades++
		}
		last = driver
	}
	if upgrades == 0 {
		t.Error("in eight weeks no driver was replaced: this test proves nothing")
	}
}
