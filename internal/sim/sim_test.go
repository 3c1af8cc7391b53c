package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

var start = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

func newSim(t testing.TB, scenario string, change ...func(*Config)) *Sim {
	t.Helper()
	sc, err := ScenarioByName(scenario)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Seed: 1, Start: start, Scenario: sc}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fingerprint writes a part with six digits of each number, which is what all
// processors agree on.
func fingerprint(p *collector.Part) string {
	var b strings.Builder
	vector := func(name string, e metric.Entity, r collector.Readings) {
		fmt.Fprintf(&b, "%s %s", name, r.SampledAt(metric.Fast).Format(time.RFC3339))
		for _, d := range metric.Of(e) {
			for i := range d.Width() {
				if v := r.ValueAt(d, i); !math.IsNaN(v) {
					fmt.Fprintf(&b, " %s/%d=%.6g", d, i, v)
				}
			}
		}
		b.WriteByte('\n')
	}
	vector(fmt.Sprint(p.Time.Format(time.RFC3339), p.Node.Name, p.Node.Versions), metric.Node, p.Node.Readings)
	for _, g := range p.GPUs {
		vector(fmt.Sprint(g.UUID, g.Serial, g.Owners, g.Xids, g.Present, g.Hung), metric.GPU, g.Readings)
	}
	for _, pr := range p.Processes {
		vector(fmt.Sprint(pr.PID, pr.Start, pr.Name, pr.GPU), metric.Process, pr.Readings)
	}
	for _, e := range p.Endpoints {
		vector(e.URL, metric.Endpoint, e.Readings)
		for _, h := range e.Histograms {
			fmt.Fprintf(&b, "%s %v %.6g\n", h.Row, h.Counts, h.Sum)
		}
	}
	for _, t := range p.Targets {
		vector(t.URL, metric.Target, t.Readings)
	}
	for _, w := range p.Workloads {
		vector(fmt.Sprint(w.Owner, w.Caveats), metric.Workload, w.Readings)
	}
	for _, i := range p.Interfaces {
		vector(fmt.Sprint(i.Device, i.Port, i.State), metric.Interface, i.Readings)
	}
	return b.String()
}

func TestSameSeedAndTimeAreTheSameNode(t *testing.T) {
	often, seldom := newSim(t, "demo"), newSim(t, "demo")
	for at := -10 * time.Minute; at < 20*time.Minute; at += 700 * time.Millisecond {
		often.Part(start.Add(at))
	}
	at := start.Add(20*time.Minute + 300*time.Millisecond)
	if diff := cmp.Diff(fingerprint(seldom.Part(at)), fingerprint(often.Part(at))); diff != "" {
		t.Errorf("how often somebody looks changes what is seen (-seldom +often):\n%s", diff)
	}
	other := newSim(t, "demo", func(c *Config) { c.Seed = 2 })
	if fingerprint(other.Part(at)) == fingerprint(often.Part(at)) {
		t.Error("another seed is the same node")
	}
	neighbour := newSim(t, "demo", func(c *Config) { c.Node = "demo-gpu-02" })
	if neighbour.Part(at).GPUs[0].UUID == often.Part(at).GPUs[0].UUID {
		t.Error("two nodes of one fleet have a GPU in common")
	}
}

func TestGolden(t *testing.T) {
	hashes := map[string]string{}
	for _, sc := range Scenarios() {
		s := newSim(t, sc.Name)
		h := fnv.New64a()
		for p := range s.Prelude(time.Minute) {
			h.Write([]byte(fingerprint(p)))
		}
		for at := time.Duration(0); at < 3*time.Minute; at += 2 * time.Second {
			h.Write([]byte(fingerprint(s.Part(start.Add(at)))))
		}
		hashes[sc.Name] = fmt.Sprintf("%016x", h.Sum64())
	}
	path := filepath.Join("testdata", "golden.json")
	text, err := json.MarshalIndent(hashes, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, path, string(text)+"\n", "the scenarios are no longer what they were")
}

func TestPrelude(t *testing.T) {
	s := newSim(t, "demo")
	var first, last *collector.Part
	n := 0
	for p := range s.Prelude(5 * time.Second) {
		if first == nil {
			first = p
		}
		last = p
		n++
	}
	if !first.Time.Equal(s.Begin()) || !last.Time.Equal(start) || n != 150*60/5+1 {
		t.Errorf("%d parts from %v to %v, want one every 5 s from %v to %v", n, first.Time, last.Time, s.Begin(), start)
	}
	for range newSim(t, "demo").Prelude(time.Second) {
		break
	}
}

func TestPartCost(t *testing.T) {
	s := newSim(t, "demo")
	at := start
	allocs := testing.AllocsPerRun(300, func() {
		s.Part(at)
		at = at.Add(time.Second)
	})
	if allocs > 60 {
		t.Errorf("a second of eight GPUs allocates %.0f times, want at most 60", allocs)
	}
}

func BenchmarkPrelude(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		for range newSim(b, "demo").Prelude(5 * time.Second) {
		}
	}
}

func TestSourceGoesByTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "e2e", func(c *Config) { c.Start = time.Now() })
		source := s.Source()
		if source.Name() != SourceName {
			t.Errorf("the source calls itself %q", source.Name())
		}
		time.Sleep(40 * time.Second)
		p, err := source.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !p.Time.Equal(time.Now().Truncate(time.Second)) || !p.Simulated {
			t.Errorf("at %v the source tells of %v (simulated: %v)", time.Now(), p.Time, p.Simulated)
		}
		if w := p.Endpoints[0].Value(metric.RequestsWaiting); !(w > 20) {
			t.Errorf("%v requests wait 30 s into the saturation", w)
		}
		time.Sleep(time.Hour + 1234*time.Millisecond)
		if p, err = source.Sample(t.Context()); err != nil || !p.Time.Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("after an hour's sleep the source tells of %v at %v: %v", p.Time, time.Now(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := source.Sample(ctx); err == nil {
			t.Error("the source samples although nobody waits for it any more")
		}
	})
}

func TestTimeDoesNotGoBack(t *testing.T) {
	s := newSim(t, "quiet")
	later := s.Part(start.Add(time.Minute))
	again := s.Part(start)
	if !again.Time.Equal(later.Time) {
		t.Errorf("asked for an earlier time the node went from %v to %v", later.Time, again.Time)
	}
}

func TestPartsDoNotChange(t *testing.T) {
	s := newSim(t, "demo")
	p := s.Part(start.Add(-20 * time.Minute))
	before := fingerprint(p)
	s.Part(start.Add(time.Hour))
	if diff := cmp.Diff(before, fingerprint(p)); diff != "" {
		t.Errorf("a part has changed after it was handed out:\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	entry := func(e Entry) func(*Config) {
		return func(c *Config) { c.Scenario.Timeline = []Entry{e} }
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no start":         {func(c *Config) { c.Start = time.Time{} }, "Config.Start"},
		"too small a node": {func(c *Config) { c.GPUs = 3 }, "needs more than 3 GPUs"},
		"odd tier":         {func(c *Config) { c.Tiers = [metric.Tiers]time.Duration{1, 1, 1, 1} }, "no multiple"},
		"unknown workload": {entry(Entry{Kind: Saturate, Target: "train"}), "no workload of kind inference"},
		"unknown GPU":      {entry(Entry{Kind: Heat, Target: "train/4"}), "number below 4"},
		"whole workload":   {entry(Entry{Kind: Xid, Target: "train"}), "is no GPU"},
		"no free GPU":      {entry(Entry{Kind: Xid, Target: "free/0"}), "is no GPU"},
		"unknown kind":     {entry(Entry{Kind: "flood", Target: "train/0"}), "no such kind"},
		"unknown version":  {entry(Entry{Kind: Version, Component: "firmware"}), `no component "firmware"`},
		"never ends":       {entry(Entry{Kind: Heat, Target: "train/0", For: time.Hour, Every: time.Hour}), "never end"},
		"too early":        {entry(Entry{Kind: Heat, Target: "train/0", At: -200 * time.Minute}), "before the scenario begins"},
	} {
		t.Run(name, func(t *testing.T) {
			sc, err := ScenarioByName("demo")
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Start: start, Scenario: sc}
			tc.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that says %q", err, tc.want)
			}
		})
	}
	if _, err := ScenarioByName("nothing"); err == nil || !strings.Contains(err.Error(), "demo, quiet, saturate, e2e") {
		t.Errorf("an unknown scenario: %v", err)
	}
}

func TestPoisson(t *testing.T) {
	r := newRand(1, t.Name())
	for _, mean := range []float64{0, 0.3, 7, 49, 400} {
		const n = 20000
		sum, squares := 0.0, 0.0
		for range n {
			v := poisson(r, mean)
			sum += v
			squares += v * v
		}
		got := sum / n
		variance := squares/n - got*got
		if math.Abs(got-mean) > 0.03*mean || math.Abs(variance-mean) > 0.06*mean {
			t.Errorf("mean %v: got mean %v and variance %v", mean, got, variance)
		}
	}
}

func TestPartsCanBeRecorded(t *testing.T) {
	s := newSim(t, "demo")
	var recording bytes.Buffer
	w := frame.NewWriter(&recording)
	var want []*collector.Part
	for at := -6 * time.Minute; at < 0; at += time.Minute {
		p := s.Part(start.Add(at))
		want = append(want, p)
		if err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	r := frame.NewReader(&recording)
	for _, p := range want {
		got, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fingerprint(p), fingerprint(got)); diff != "" || !got.Simulated || len(got.Events) != len(p.Events) {
			t.Errorf("the recording is of another node (simulated: %v, %d events of %d):\n%s", got.Simulated, len(got.Events), len(p.Events), diff)
		}
	}
}
