package detect

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

func TestHistoryIsOnePointAMinute(t *testing.T) {
	e := NewEngine(Config{Node: "n1"}, []Detector{&script{rule: testRule("r")}})
	for i := range 8 * 3600 {
		if i > 4*3600 && i < 4*3600+600 {
			continue // ten minutes without a snapshot
		}
		now := day.Add(time.Duration(i) * time.Second)
		s := node(now, 1)
		s.GPUs[0].Set(metric.Utilization, float64(i%60)/100)
		if i%2 == 1 {
			s.GPUs[0].Stamp(metric.Fast, now.Add(-time.Second)) // held, not new
			s.GPUs[0].Set(metric.Utilization, 1)
		}
		if i%60 == 0 {
			s.Node.Set(metric.CPUBusy, math.NaN())
		}
		e.Observe(s)
	}
	histories := e.History(gpuSubject("GPU-0"))
	if len(histories) != 1 || histories[0].Reading != metric.Utilization {
		t.Fatalf("got %d histories, want only utilization: the rule watches nothing else of a GPU", len(histories))
	}
	points := histories[0].Points
	if len(points) != 6*60-9 {
		t.Errorf("%d points, want six hours of minutes without the nine that nobody looked at", len(points))
	}
	want := Point{Time: day.Add(8*time.Hour - time.Minute), Min: 0, Mean: 0.29, Max: 0.58}
	if diff := cmp.Diff(want, points[len(points)-1], closeTo); diff != "" {
		t.Errorf("newest point (-want +got):\n%s", diff)
	}
	for i := 1; i < len(points); i++ {
		if !points[i].Time.After(points[i-1].Time) {
			t.Fatalf("points are not in the order of time at %s", points[i].Time)
		}
	}
	if h := e.History(Subject{"node", "n1"}); len(h) != 1 || h[0].Reading != metric.CPUBusy {
		t.Errorf("the node's history is %+v, want its CPU", h)
	}
	if h := e.History(gpuSubject("GPU-9")); h != nil {
		t.Errorf("a GPU that was never seen has the history %+v", h)
	}
}

var closeTo = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })

// node returns a snapshot of a node with n GPUs that are half busy.
func node(at time.Time, n int) *collector.Snapshot {
	s := &collector.Snapshot{Time: at, Node: collector.Node{Name: "n1", Readings: collector.NewReadings(metric.Node)}}
	s.Node.Stamp(metric.Fast, at)
	s.Node.Set(metric.CPUBusy, 0.11)
	s.Node.Set(metric.CPUBusiest, 0.4)
	s.Node.Versions = []collector.Version{{Component: "cuda", Value: "12.8"}, {Component: "driver", Value: "570.86"}, {Component: "nvml", Value: "12.570.86"}}
	for i := range n {
		g := collector.GPU{Index: i, UUID: "GPU-" + string(rune('0'+i)), Model: "H100", VBIOS: "96.00.74", Present: true, Readings: collector.NewReadings(metric.GPU)}
		for tier := range metric.Tiers {
			g.Stamp(tier, at)
		}
		g.Set(metric.Utilization, 0.5)
		g.Set(metric.PowerDraw, 350)
		g.Set(metric.PowerLimit, 700)
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

// TestObserveCostsLittle holds the steady state to one allocation: the view's header.
func TestObserveCostsLittle(t *testing.T) {
	e, next := steady()
	if got := testing.AllocsPerRun(500, func() { e.Observe(next()) }); got > 2 {
		t.Errorf("a snapshot in which nothing happens costs %.1f allocations, want at most 2", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	e, next := steady()
	b.ReportAllocs()
	for b.Loop() {
		e.Observe(next())
	}
}

// steady returns an engine with all detectors, after an hour over a node of eight
// healthy GPUs, and the snapshots that go on from there.
func steady() (*Engine, func() *collector.Snapshot) {
	e := NewEngine(Config{}, Detectors(DetectorConfig{}))
	s := node(day, 8)
	s.Endpoints = []collector.Endpoint{{URL: "http://chat:8000/metrics", GPUs: []string{"GPU-0"}, Readings: collector.NewReadings(metric.Endpoint)}}
	now := day
	next := func() *collector.Snapshot {
		now = now.Add(time.Second)
		s.Time = now
		s.Node.Stamp(metric.Fast, now)
		s.Endpoints[0].Stamp(metric.Fast, now)
		for i := range s.GPUs {
			s.GPUs[i].Stamp(metric.Fast, now)
			s.GPUs[i].Stamp(metric.Processes, now)
		}
		return s
	}
	for range 3600 {
		e.Observe(next())
	}
	return e, next
}

func TestDetectorsAreThoseOfTheBook(t *testing.T) {
	seen := map[rules.ID]bool{}
	for _, d := range slices.Concat(Detectors(DetectorConfig{}), FleetDetectors(FleetConfig{})) {
		if d.Rule() == nil {
			t.Fatal("a detector has no rule")
		}
		seen[d.Rule().ID] = true
	}
	for _, r := range rules.All() {
		if !seen[r.ID] {
			t.Errorf("rule %q has no detector", r.ID)
		}
	}
}
