package collector

import (
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

var (
	noon      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	testTiers = [metric.Tiers]time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute}
)

func testComposer(t testing.TB) *composer {
	c := newComposer(SamplerConfig{Node: "gpu-01", Tiers: testTiers, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	return &c
}

// held is a source's view that has just come, with its part's events.
func held(p *Part) view {
	return view{part: p, interval: time.Second, events: p.Events, state: SourceState{Interval: time.Second}}
}

// old is the same view later on: nothing new has come.
func old(p *Part, age time.Duration) view { return view{part: p, interval: time.Second, age: age} }

// testGPU is a GPU whose tiers were all sampled at the given time.
func testGPU(index int, uuid string, at time.Time) GPU {
	g := GPU{Index: index, UUID: uuid, Model: "NVIDIA H200", Present: true, Readings: NewReadings(metric.GPU)}
	g.Set(metric.PowerDraw, 700)
	g.Set(metric.FanSpeed, 0.5)
	g.Set(metric.PowerLimit, 750)
	for t := range metric.Tiers {
		g.Stamp(t, at)
	}
	return g
}

func TestReadingsExpireWithTheirTier(t *testing.T) {
	c := testComposer(t)
	part := &Part{Time: noon, GPUs: []GPU{testGPU(0, "GPU-a", noon)}}
	part.GPUs[0].Distributions = []Distribution{{Row: metric.PowerSampled, Zero: 1}}
	c.snapshot(noon, []view{held(part)})
	for _, tc := range []struct {
		age               time.Duration
		fast, slow, stock bool
	}{
		{3 * time.Second, true, true, true},
		{3*time.Second + 1, false, true, true},
		{45 * time.Second, false, true, true},
		{45*time.Second + 1, false, false, true},
		{3 * time.Minute, false, false, true},
		{3*time.Minute + 1, false, false, false},
	} {
		g := c.snapshot(noon.Add(tc.age), []view{old(part, tc.age)}).GPUs[0]
		for d, want := range map[*metric.Def]bool{metric.PowerDraw: tc.fast, metric.FanSpeed: tc.slow, metric.PowerLimit: tc.stock} {
			if g.Has(d) != want {
				t.Errorf("%s at the age of %v: shown is %v, want %v", d, tc.age, g.Has(d), want)
			}
		}
		if shown := len(g.Distributions) > 0; shown != tc.fast {
			t.Errorf("a distribution at the age of %v: shown is %v, want %v", tc.age, shown, tc.fast)
		}
	}
	if part.GPUs[0].Value(metric.PowerDraw) != 700 {
		t.Error("composing changed the source's part")
	}
}

func TestSlowSourceIsHeldForItsOwnInterval(t *testing.T) {
	c := testComposer(t)
	part := &Part{Time: noon, Node: Node{Readings: NewReadings(metric.Node)}}
	part.Node.Set(metric.CPUBusy, 0.25)
	part.Node.Stamp(metric.Fast, noon)
	slow := view{part: part, interval: 10 * time.Second, age: 30 * time.Second}
	if s := c.snapshot(noon, []view{slow}); !s.Node.Has(metric.CPUBusy) {
		t.Error("a source with an interval of 10 s lost its reading within 30 s")
	}
	slow.age++
	if s := c.snapshot(noon, []view{slow}); s.Node.Has(metric.CPUBusy) {
		t.Error("a source with an interval of 10 s kept its reading beyond 30 s")
	}
}

func TestGPUOfASilentSourceIsNotDeclaredGone(t *testing.T) {
	c := testComposer(t)
	part := &Part{Time: noon, GPUs: []GPU{testGPU(0, "GPU-a", noon)}, Processes: []Process{{PID: 1, UUID: "GPU-a"}}}
	g := c.snapshot(noon, []view{held(part)}).GPUs[0]
	if g.Value(metric.GPUPresent) != 1 || g.Value(metric.GPUSampleAge) != 0 {
		t.Errorf("a fresh GPU is present %v with age %v, want 1 and 0", g.Value(metric.GPUPresent), g.Value(metric.GPUSampleAge))
	}
	s := c.snapshot(noon.Add(time.Hour), []view{old(part, time.Hour)})
	g = s.GPUs[0]
	if !g.Present || g.Has(metric.GPUPresent) || g.Value(metric.GPUSampleAge) != 3600 {
		t.Errorf("a GPU that nobody has asked for an hour: Present %v, reading %v, age %v; want true, none, 3600",
			g.Present, g.Value(metric.GPUPresent), g.Value(metric.GPUSampleAge))
	}
	if len(s.Processes) != 0 {
		t.Error("a process list of an hour ago is still shown")
	}
	if len(s.Events) != 0 {
		t.Errorf("a silent source made events: %v", s.Events)
	}
	if s.Node.Value(metric.GPUsExpected) != 1 {
		t.Errorf("%v GPUs are expected, want 1", s.Node.Value(metric.GPUsExpected))
	}
}

func TestGPUGoneAndBack(t *testing.T) {
	c := testComposer(t)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	both := &Part{Time: at(0), GPUs: []GPU{testGPU(0, "GPU-a", at(0)), testGPU(1, "GPU-b", at(0))}}
	if s := c.snapshot(at(0), []view{held(both)}); len(s.Events) != 0 || len(s.GPUs) != 2 {
		t.Fatalf("the GPUs of the start: %d with events %v, want 2 and none", len(s.GPUs), s.Events)
	}
	one := &Part{Time: at(1), GPUs: []GPU{testGPU(0, "GPU-b", at(1))}}
	s := c.snapshot(at(1), []view{held(one)})
	if diff := cmp.Diff([]Event{{Time: at(1), Kind: GPUGone, UUID: "GPU-a"}}, s.Events); diff != "" {
		t.Errorf("events when a GPU is no longer listed (-want +got):\n%s", diff)
	}
	gone, left := s.GPUs[0], s.GPUs[1]
	if gone.UUID != "GPU-a" || gone.Present || gone.Value(metric.GPUPresent) != 0 || gone.Has(metric.PowerDraw) || gone.Model == "" || gone.Value(metric.GPUSampleAge) != 1 {
		t.Errorf("the lost GPU is shown as %+v", gone)
	}
	if left.UUID != "GPU-b" || left.Index != 1 {
		t.Errorf("the GPU that is left is %s with index %d, want GPU-b with the index that it had", left.UUID, left.Index)
	}
	if s := c.snapshot(at(2), []view{old(one, time.Second)}); len(s.Events) != 0 {
		t.Errorf("a GPU is reported gone twice: %v", s.Events)
	}
	back := &Part{Time: at(3), GPUs: []GPU{testGPU(0, "GPU-a", at(3)), testGPU(1, "GPU-b", at(3)), testGPU(1, "GPU-c", at(3))}}
	s = c.snapshot(at(3), []view{held(back)})
	want := []Event{{Time: at(3), Kind: GPUAppeared, UUID: "GPU-a"}, {Time: at(3), Kind: GPUAppeared, UUID: "GPU-c"}}
	if diff := cmp.Diff(want, s.Events); diff != "" {
		t.Errorf("events when GPUs come (-want +got):\n%s", diff)
	}
	if s.GPUs[2].UUID != "GPU-c" || s.GPUs[2].Index != 2 {
		t.Errorf("a new GPU at a taken index got %d (%s), want the free one 2", s.GPUs[2].Index, s.GPUs[2].UUID)
	}
}

func TestGoneEventOfTheSourceIsNotDoubled(t *testing.T) {
	c := testComposer(t)
	c.snapshot(noon, []view{held(&Part{Time: noon, GPUs: []GPU{testGPU(0, "GPU-a", noon)}})})
	lost := testGPU(0, "GPU-a", noon)
	lost.Present = false
	ev := Event{Time: noon.Add(time.Second), Kind: GPUGone, UUID: "GPU-a", Text: "fell off the bus"}
	s := c.snapshot(noon.Add(time.Second), []view{held(&Part{Time: noon.Add(time.Second), GPUs: []GPU{lost}, Events: []Event{ev}})})
	if diff := cmp.Diff([]Event{ev}, s.Events); diff != "" {
		t.Errorf("a GPU whose source tells that it is gone (-want +got):\n%s", diff)
	}
}

func TestXidsAreCountedAcrossRestartsOfTheSource(t *testing.T) {
	c := testComposer(t)
	at := noon
	step := func(xids ...XidCount) []XidCount {
		at = at.Add(time.Second)
		g := testGPU(0, "GPU-a", at)
		g.Xids = xids
		return c.snapshot(at, []view{held(&Part{Time: at, GPUs: []GPU{g}})}).GPUs[0].Xids
	}
	step(XidCount{Code: 31, Count: 2, Last: noon})
	step(XidCount{Code: 31, Count: 3, Last: noon})
	if got := step(); len(got) != 1 || got[0].Count != 3 {
		t.Errorf("after a restart of the source the Xids are %v, want 3 of code 31", got)
	}
	later := noon.Add(time.Minute)
	got := step(XidCount{Code: 31, Count: 1, Last: later}, XidCount{Code: 13, Count: 1, Last: later})
	want := []XidCount{{Code: 13, Count: 1, Last: later}, {Code: 31, Count: 4, Last: later}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Xids since the agent started (-want +got):\n%s", diff)
	}
	at = at.Add(time.Second)
	s := c.snapshot(at, []view{held(&Part{Time: at, GPUs: []GPU{testGPU(1, "GPU-b", at)}})})
	if diff := cmp.Diff(want, s.GPUs[0].Xids); diff != "" {
		t.Errorf("Xids of a GPU that is gone (-want +got):\n%s", diff)
	}
}

func TestSourcesAreMergedByIdentity(t *testing.T) {
	c := testComposer(t)
	owner := Owner{Kind: "pod", ID: "ml/train-0"}
	driver := &Part{Time: noon, Node: Node{Name: "ignored", Versions: []Version{{"driver", "570"}}, Readings: NewReadings(metric.Node)},
		GPUs:      []GPU{testGPU(1, "GPU-b", noon), testGPU(0, "GPU-a", noon)},
		Processes: []Process{{PID: 9, UUID: "GPU-b", UID: -1, Readings: NewReadings(metric.Process)}, {PID: 7, UUID: "GPU-a", UID: 1000}},
		Instances: []Instance{{UUID: "GPU-b", GI: 2}, {UUID: "GPU-a", GI: 1, CI: 1}, {UUID: "GPU-a", GI: 1}}}
	driver.Node.Set(metric.GPUsSeen, 2)
	driver.Processes[0].Set(metric.ProcessMemoryUsed, 1e9)
	host := &Part{Time: noon, Boot: noon.Add(-time.Hour), Simulated: true,
		Node:      Node{Versions: []Version{{"kernel", "6.8"}, {"driver", "580"}}, Readings: NewReadings(metric.Node)},
		GPUs:      []GPU{{UUID: "GPU-a", Owners: []Owner{owner}}, {UUID: "GPU-unknown", Owners: []Owner{owner}}},
		Processes: []Process{{PID: 9, UUID: "GPU-b", UID: 33, Name: "python", Owner: owner}}}
	host.Node.Set(metric.CPUBusy, 0.5)

	s := c.snapshot(noon, []view{held(driver), held(host)})
	if s.Node.Name != "gpu-01" || s.Node.Value(metric.GPUsSeen) != 2 || s.Node.Value(metric.CPUBusy) != 0.5 || s.Boot.IsZero() || !s.Simulated {
		t.Errorf("the node is %+v booted %v simulated %v", s.Node, s.Boot, s.Simulated)
	}
	if diff := cmp.Diff([]Version{{"driver", "580"}, {"kernel", "6.8"}}, s.Node.Versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if len(s.GPUs) != 2 || s.GPUs[0].UUID != "GPU-a" || s.GPUs[0].Owners[0] != owner || s.GPUs[0].Value(metric.PowerDraw) != 700 {
		t.Errorf("the GPUs are %+v", s.GPUs)
	}
	if p := s.Processes; len(p) != 2 || p[0].PID != 7 || p[1].GPU != 1 || p[1].UID != 33 || p[1].Owner != owner || p[1].Value(metric.ProcessMemoryUsed) != 1e9 {
		t.Errorf("the processes are %+v", p)
	}
	if i := s.Instances; len(i) != 3 || i[0].CI != 0 || i[1].CI != 1 || i[2].GPU != 1 {
		t.Errorf("the MIG instances are %+v, want them by GPU, GI and CI", i)
	}
	if driver.Processes[0].UID != -1 || driver.Node.Has(metric.CPUBusy) {
		t.Error("merging changed a source's part")
	}
}

func TestEventsAreSortedAndDated(t *testing.T) {
	c := testComposer(t)
	a := &Part{Time: noon, Events: []Event{{Time: noon.Add(2), Text: "third"}, {Text: "undated"}}}
	b := &Part{Time: noon, Events: []Event{{Time: noon.Add(1), Text: "second"}, {Time: noon.Add(-1), Text: "first"}}}
	var got []string
	for _, e := range c.snapshot(noon, []view{held(a), held(b)}).Events {
		if e.Time.IsZero() {
			t.Errorf("event %q has no time", e.Text)
		}
		got = append(got, e.Text)
	}
	if diff := cmp.Diff([]string{"first", "undated", "second", "third"}, got); diff != "" {
		t.Errorf("order of events (-want +got):\n%s", diff)
	}
}

func BenchmarkCompose(b *testing.B) {
	c := testComposer(b)
	driver := &Part{Time: noon}
	for i := range 8 {
		driver.GPUs = append(driver.GPUs, testGPU(i, string(rune('a'+i)), noon))
	}
	host := &Part{Time: noon, Node: Node{Readings: NewReadings(metric.Node)}}
	views := []view{held(driver), held(host), held(host)}
	b.ReportAllocs()
	for b.Loop() {
		if s := c.snapshot(noon, views); math.IsNaN(s.GPUs[7].Value(metric.PowerDraw)) {
			b.Fatal("a reading was lost")
		}
	}
}

func TestReadingsOfASlowedTierAreHeldUntilTheNext(t *testing.T) {
	gpu, quick := testGPU(0, "GPU-a", noon), testGPU(1, "GPU-b", noon)
	gpu.Set(metric.PowerDraw, 300)
	gpu.SetAt(metric.GPUSlowdown, int(metric.Fast), 8)
	quick.Set(metric.PowerDraw, 300)
	quick.SetAt(metric.GPUSlowdown, int(metric.Fast), 1)
	instance := Instance{UUID: "GPU-a", GI: 1, Readings: NewReadings(metric.Instance)}
	instance.Set(metric.MIGMemoryUsed, 1)
	instance.Stamp(metric.Fast, noon)
	part := &Part{Time: noon, GPUs: []GPU{gpu, quick}, Instances: []Instance{instance}}
	for _, c := range []struct {
		age               time.Duration
		slow, quick, part bool
	}{
		{3 * time.Second, true, true, true},
		{20 * time.Second, true, false, true},
		{25 * time.Second, false, false, false},
	} {
		s := testComposer(t).snapshot(noon.Add(c.age), []view{old(part, c.age)})
		got := []bool{s.GPUs[0].Has(metric.PowerDraw), s.GPUs[1].Has(metric.PowerDraw), len(s.Instances) == 1 && s.Instances[0].Has(metric.MIGMemoryUsed)}
		if want := []bool{c.slow, c.quick, c.part}; !slices.Equal(got, want) {
			t.Errorf("%v after the sample the slowed GPU, the quick one and the slowed one's instance have readings: %v, want %v", c.age, got, want)
		}
	}
}
