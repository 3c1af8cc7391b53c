package detect

import (
	"fmt"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

const batch = "queue:slurm/batch"

// queueStage plays a cluster's queues to the detectors of the cluster role.
func queueStage(t *testing.T, cfg WaitingConfig, step time.Duration, set func(*collector.Queue)) *stage {
	e := NewEngine(Config{Node: "cluster"}, FleetDetectors(FleetConfig{Waiting: cfg}))
	st := &stage{t: t, e: e, now: day, step: step, failed: failures(e)}
	st.playQueue(set)
	return st
}

func (st *stage) playQueue(set func(*collector.Queue)) {
	st.set = func(s *collector.Snapshot) {
		*s = collector.Snapshot{Time: s.Time, Queues: []collector.Queue{{Scheduler: "slurm", Name: "batch", At: s.Time}}}
		set(&s.Queues[0])
	}
}

// stuck are the jobs of acceptance's example: three that wait for 8 H100 each beside 44
// free ones.
func stuck(q *collector.Queue) {
	since := day.Add(-3*time.Hour - 10*time.Minute)
	q.Jobs, q.P90, q.Longest = 3, q.At.Sub(since), q.At.Sub(since)
	q.Waiting = []collector.Waiting{{
		Jobs: 3, GPUs: 8, PerNode: 8, Model: "H100", Since: since,
		Free:  []collector.Free{{Cause: "fragmented", GPUs: 31, Nodes: 6, Node: "gpu-12"}, {Cause: "tainted", GPUs: 8, Nodes: 1, Node: "gpu-40"}, {Cause: "cpu", GPUs: 5, Nodes: 2, Node: "gpu-7"}},
		Other: []collector.Free{{Cause: "wrong_model", GPUs: 16, Nodes: 2, Node: "a100-1"}},
	}}
}

func TestJobsThatWaitBesideFreeGPUs(t *testing.T) {
	for _, step := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			st := queueStage(t, WaitingConfig{}, step, stuck)
			st.run(14 * time.Minute)
			st.silent("before the GPUs were free for a quarter of an hour")
			st.run(3 * time.Minute)
			f := st.finding(rules.IDWaitingJobs, batch)
			if f == nil || f.State != Firing || f.Cause != causeFreeGPUs || f.Severity != rules.Ticket || f.Evidence.Confidence != Certain {
				t.Fatalf("after 17 min the finding is %+v, want a ticket of free_gpus, certain", f)
			}
			st.run(3 * time.Minute)
			f = st.finding(rules.IDWaitingJobs, batch)
			st.says(f, "3 jobs wait in queue batch for 8×H100, 44 free: 31 on 6 nodes with fewer than 8, 8 on 1 tainted node, 5 on 2 nodes without CPUs left; longest 3 h 30 min; not for them: 16 of another model",
				"no job waits while enough GPUs that are right for it are free")
			if f.Title() != "3 jobs wait for 8×H100 while 44 are free" || f.Action() != "Move small jobs together so that whole nodes become free, most of all on gpu-12." {
				t.Errorf("title %q, to do %q", f.Title(), f.Action())
			}
			st.playQueue(func(q *collector.Queue) {})
			st.run(7 * time.Minute)
			if f := st.finding(rules.IDWaitingJobs, batch); f.State != Resolved || f.Ended != "cleared" {
				t.Errorf("seven minutes after nobody waits it is %s %s, want resolved, cleared", f.State, f.Ended)
			}
		})
	}
}

func TestWaitingLookAlikes(t *testing.T) {
	for name, set := range map[string]func(*collector.Queue){
		"a backlog of a full cluster": func(q *collector.Queue) { q.Jobs, q.P90, q.Longest = 400, 40*time.Hour, 90*time.Hour },
		"Kueue's quota":               func(q *collector.Queue) { q.Scheduler = "kueue" },
		"too few are free": func(q *collector.Queue) {
			stuck(q)
			q.Waiting[0].Free = []collector.Free{{Cause: "fragmented", GPUs: 7, Nodes: 3, Node: "gpu-12"}}
		},
		"free ones are of another model": func(q *collector.Queue) {
			stuck(q)
			q.Waiting[0].Free = nil
		},
		"another job is first each time": func(q *collector.Queue) {
			stuck(q)
			q.Waiting[0].Since = q.At.Truncate(10 * time.Minute).Add(-time.Hour)
		},
		"free GPUs that are used up each time": func(q *collector.Queue) {
			stuck(q)
			if q.At.Minute()%10 == 0 {
				q.Waiting[0].Free = nil
			}
		},
		"the scheduler said so an hour ago": func(q *collector.Queue) {
			stuck(q)
			q.At = q.At.Add(-time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := queueStage(t, WaitingConfig{}, 30*time.Second, set)
			st.run(6 * time.Hour)
			st.silent(name)
		})
	}
}

func TestQueueThatWaitsLongerThanItDeclares(t *testing.T) {
	long := func(q *collector.Queue) { q.Jobs, q.P90, q.Longest = 12, 5*time.Hour, 9*time.Hour }
	for name, c := range map[string]struct {
		cfg   WaitingConfig
		fires bool
	}{
		"nothing is declared":              {WaitingConfig{}, false},
		"for all queues":                   {WaitingConfig{SLO: 4 * time.Hour}, true},
		"more for this one":                {WaitingConfig{SLO: 4 * time.Hour, Queues: map[string]time.Duration{"batch": 6 * time.Hour}}, false},
		"less for this one":                {WaitingConfig{Queues: map[string]time.Duration{"slurm/batch": time.Hour}}, true},
		"this one's by its full name wins": {WaitingConfig{Queues: map[string]time.Duration{"slurm/batch": 6 * time.Hour, "batch": time.Hour}}, false},
		"nothing for this one":             {WaitingConfig{SLO: time.Hour, Queues: map[string]time.Duration{"batch": 0}}, false},
	} {
		st := queueStage(t, c.cfg, 30*time.Second, long)
		st.run(20 * time.Minute)
		f := st.finding(rules.IDWaitingJobs, batch)
		if (f != nil && f.State == Firing) != c.fires {
			t.Errorf("%s: the finding is %+v, want it to fire: %v", name, f, c.fires)
		}
		if !c.fires || f == nil {
			continue
		}
		if want := "12 jobs wait in queue batch for GPUs, one in ten for more than 5 h, the longest for 9 h"; f.Cause != causeAboveSLO || f.Evidence.Seen != want {
			t.Errorf("%s: %s: %q, want above_slo: %q", name, f.Cause, f.Evidence.Seen, want)
		}
	}
}

func TestWaitingJobsFollowTheClock(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		st := queueStage(t, WaitingConfig{}, 30*time.Second, stuck)
		st.run(10 * time.Minute)
		st.now = st.now.Add(by)
		play, first := st.set, true
		st.set = func(s *collector.Snapshot) {
			play(s)
			if first {
				s.Step, first = by, false
			}
		}
		st.run(4 * time.Minute)
		st.silent(fmt.Sprintf("14 min, the clock set by %s", by))
		st.run(3 * time.Minute)
		if !st.firing(rules.IDWaitingJobs, batch) {
			t.Errorf("17 min, the clock set by %s: no finding", by)
		}
	}
}

func TestWaitingJobsAreBounded(t *testing.T) {
	d := NewWaitingJobs(WaitingConfig{})
	s := &collector.Snapshot{Time: day}
	for i := range maxWaitingKinds + 10 {
		q := collector.Queue{Scheduler: "slurm", Name: fmt.Sprint(i), At: day}
		stuck(&q)
		s.Queues = append(s.Queues, q)
	}
	d.Observe(s, func(Observation) {})
	if len(d.kinds) != maxWaitingKinds || len(d.over) != maxWaitingKinds {
		t.Errorf("%d kinds of %d queues are kept, want at most %d", len(d.kinds), len(d.over), maxWaitingKinds)
	}
	d.Observe(&collector.Snapshot{Time: day.Add(2 * waitingKept)}, func(Observation) {})
	if len(d.kinds)+len(d.over) != 0 {
		t.Errorf("%d kinds of %d queues are kept after they were gone for %s", len(d.kinds), len(d.over), 2*waitingKept)
	}
}

func BenchmarkWaitingJobs(b *testing.B) {
	d := NewWaitingJobs(WaitingConfig{SLO: 4 * time.Hour})
	s := &collector.Snapshot{Time: day}
	for i := range 50 {
		q := collector.Queue{Scheduler: "slurm", Name: fmt.Sprint(i), At: day}
		stuck(&q)
		s.Queues = append(s.Queues, q)
	}
	report := func(Observation) {}
	d.Observe(s, report)
	b.ReportAllocs()
	for b.Loop() {
		d.Observe(s, report)
	}
}
