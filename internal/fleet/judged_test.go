package fleet

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/synth"
	"gpuvigil/rules"
)

// synthetic is a cluster whose nodes no agent judges.
type synthetic struct {
	nodes []*synth.Node
	now   time.Time
	edit  func(i int, s *collector.Snapshot)
}

// newSynthetic makes n nodes. A lost GPU on the third appears after 20 minutes.
func newSynthetic(n int) *synthetic {
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	f := &synthetic{now: start}
	for i := range n {
		f.nodes = append(f.nodes, synth.New(synth.Config{Seed: 7, Name: fmt.Sprintf("n%04d", i), Start: start, Step: 30 * time.Second, Board: synth.H100, Life: synth.Life(i % 4)}))
	}
	f.edit = func(i int, s *collector.Snapshot) {
		if i == 2 && s.Time.Sub(start) > 20*time.Minute {
			s.GPUs[3].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: start.Add(20 * time.Minute)}}
			if s.Time.Sub(start) <= 21*time.Minute {
				s.Events = append(s.Events, collector.Event{Time: s.Time, Kind: collector.XidEvent, UUID: s.GPUs[3].UUID, Code: 79, Source: "kernel"})
			}
			s.GPUs[3].Present = false
		}
	}
	return f
}

func (f *synthetic) next() (time.Time, []*collector.Snapshot) {
	var out []*collector.Snapshot
	for i, n := range f.nodes {
		if s := n.Next(); s != nil {
			f.edit(i, s)
			out = append(out, s)
		}
		f.now = n.Now()
	}
	return f.now, out
}

// Nodes without an agent are judged here: what only dcgm-exporter tells of becomes a page.
func TestNodesWithoutAgentsAreJudged(t *testing.T) {
	f := newSynthetic(8)
	role := clusterRole(t, Config{})
	for range 60 {
		role.Observe(f.next())
	}
	var lost *detect.Incident
	for i, in := range role.View().Incidents {
		if in.Rule == rules.IDXid {
			lost = &role.View().Incidents[i]
		}
	}
	if lost == nil || lost.Severity != rules.Page || lost.Members[0].Node != "n0002" || lost.Members[0].Evidence.Seen == "" {
		t.Errorf("a GPU that fell off the bus of a node without an agent is told as %s", namesOf(role.View().Incidents))
	}
	// Its engine's memory survives, too.
	parts, undo := role.Save(f.now)
	if len(parts[nodePrefix+"n0002"]) == 0 {
		t.Fatalf("what the engine of the faulty node remembers is not saved: %d parts", len(parts))
	}
	undo()
	again, _ := role.Save(f.now)
	if len(again[nodePrefix+"n0002"]) == 0 || len(again[gatherPart]) == 0 {
		t.Error("what could not be written is not offered again")
	}
	next := clusterRole(t, Config{})
	for part, data := range again {
		if err := next.Restore(part, data); err != nil {
			t.Fatalf("restore %s: %v", part, err)
		}
	}
	for range 20 {
		for _, in := range next.Observe(f.next()) {
			if in.Rule == rules.IDXid && in.ID != lost.ID {
				t.Errorf("after a restart the lost GPU is told again as %s", in.ID)
			}
		}
	}
}

// An engine is small: a cluster has thousands.
func TestEngineOfANodeIsSmall(t *testing.T) {
	const nodes = 12
	f := newSynthetic(nodes)
	role := clusterRole(t, Config{})
	before := inUse()
	for range 2 * 120 {
		role.Observe(f.next())
	}
	got := (inUse() - before) / nodes
	t.Logf("an engine of a node with 8 GPUs takes %d KiB after 2 hours", got>>10)
	if got > 2<<20 {
		t.Errorf("an engine takes %d KiB, want less than 2 MiB", got>>10)
	}
	runtime.KeepAlive(f)
	runtime.KeepAlive(role)
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkObserve is one look at 1,250 nodes with 8 GPUs each, which no agent judges. The
// nodes are a hundred, each under many names.
func BenchmarkObserve(b *testing.B) {
	f := newSynthetic(100)
	f.edit = func(int, *collector.Snapshot) {}
	role := clusterRole(b, Config{})
	look := func() {
		now, some := f.next()
		all := make([]*collector.Snapshot, 0, 1250)
		for i := range 1250 {
			s := *some[i%len(some)]
			s.Node.Name = fmt.Sprintf("n%04d", i)
			all = append(all, &s)
		}
		b.StartTimer()
		role.Observe(now, all)
		b.StopTimer()
	}
	b.StopTimer()
	for range 20 {
		look()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		look()
	}
}
