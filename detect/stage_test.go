package detect

import (
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// stage plays a node of GPUs to all detectors, one snapshot a step, and is
// changed between the acts.
type stage struct {
	t    *testing.T
	cfg  DetectorConfig
	e    *Engine
	now  time.Time
	step time.Duration
	set  func(s *collector.Snapshot) // makes the next snapshot what the test wants
	told []Incident

	failed uint64 // failures counted before; the counters are the process's
}

func newStage(t *testing.T, cfg DetectorConfig, step time.Duration) *stage {
	e := NewEngine(Config{Node: "n1"}, Detectors(cfg))
	return &stage{t: t, cfg: cfg, e: e, now: day, step: step, set: func(*collector.Snapshot) {}, failed: failures(e)}
}

func (st *stage) run(d time.Duration) []Incident {
	st.t.Helper()
	var told []Incident
	for end := st.now.Add(d); st.now.Before(end); {
		st.now = st.now.Add(st.step)
		s := node(st.now, 2)
		st.set(s)
		told = append(told, st.e.Observe(s)...)
	}
	for _, w := range st.e.watchers {
		if w.statistical && !w.rule.Statistical {
			st.t.Errorf("a finding of %s is told from what is usual (it has a surprise), and the book does not call the rule statistical: a promoted one would page without a clean history", w.rule.ID)
		}
	}
	if n := failures(st.e); n > st.failed {
		st.t.Fatalf("detectors failed on %d snapshots", n-st.failed)
	}
	st.told = append(st.told, told...)
	return told
}

// restart replaces the engine by one that takes up its state.
func (st *stage) restart() {
	st.t.Helper()
	data, err := st.e.Save()
	if err != nil {
		st.t.Fatal(err)
	}
	st.e = NewEngine(Config{Node: "n1"}, Detectors(st.cfg))
	if err := st.e.Restore(data); err != nil {
		st.t.Fatal(err)
	}
}

// finding returns the rule's finding on a subject, the living one first, or nil.
func (st *stage) finding(id rules.ID, subject string) *Finding {
	for _, f := range st.e.View().Findings {
		if f.Rule == id && f.Subject.String() == subject {
			return &f
		}
	}
	return nil
}

func (st *stage) firing(id rules.ID, subject string) bool {
	f := st.finding(id, subject)
	return f != nil && f.State == Firing
}

// fires fails the test unless the rule's finding on GPU 0 fires, and returns it.
func (st *stage) fires(id rules.ID) *Finding {
	st.t.Helper()
	f := st.finding(id, "gpu:GPU-0")
	if f == nil || f.State != Firing {
		st.t.Fatalf("at %s: no finding of %s fires on GPU 0, it is %+v", st.now.Format(time.TimeOnly), id, f)
	}
	return f
}

// silent fails the test if anything was ever told.
func (st *stage) silent(why string) {
	st.t.Helper()
	for _, in := range st.told {
		st.t.Errorf("%s: told %s of %s: %s", why, in.State, in.Rule, in.Members[0].Evidence.Seen)
	}
}

func (st *stage) says(f *Finding, seen, expected string) {
	st.t.Helper()
	if f.Evidence.Seen != seen {
		st.t.Errorf("seen:\n got %s\nwant %s", f.Evidence.Seen, seen)
	}
	if f.Evidence.Expected != expected {
		st.t.Errorf("expected:\n got %s\nwant %s", f.Evidence.Expected, expected)
	}
}

func endpoint(s *collector.Snapshot, gpus ...string) *collector.Endpoint {
	s.Endpoints = append(s.Endpoints, collector.Endpoint{
		URL: "http://chat-70b:8000/metrics", Engine: "vllm", Model: "chat-70b", GPUs: gpus, Readings: collector.NewReadings(metric.Endpoint),
	})
	e := &s.Endpoints[len(s.Endpoints)-1]
	e.Stamp(metric.Fast, s.Time)
	return e
}
