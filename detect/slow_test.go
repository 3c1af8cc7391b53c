package detect

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// slowing makes the step of all GPUs of a job longer, from some hour on.
func slowing(hours, by float64) *ranks {
	r := newRanks()
	r.compute = func(_ int, h float64) float64 {
		if h >= hours {
			return by
		}
		return 1
	}
	return r
}

func TestSlowTrainingIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		by       float64
		ownClock bool
		within   time.Duration
	}{
		"20 % slower":                       {1.2, true, 40 * time.Minute},
		"10 % slower":                       {1.1, true, 75 * time.Minute},
		"20 % slower, by the samples' rate": {1.2, false, 40 * time.Minute},
		"half as fast":                      {1.9, true, 40 * time.Minute},
		"a quarter as fast":                 {4, true, 55 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{15 * time.Second, time.Minute} {
				r := slowing(4, c.by)
				r.ownClock = c.ownClock
				st := newStage(t, DetectorConfig{}, step)
				st.set = func(s *collector.Snapshot) {
					if r.set(s); len(r.at) > 0 && hoursSince(day, s.Time) >= 4 && hoursSince(day, s.Time.Add(-step)) < 4 {
						s.Events = []collector.Event{{Time: s.Time.Add(-time.Minute), Kind: collector.InventoryEvent, Owner: r.who, Component: "torch", From: "2.8", To: "2.9"}}
					}
				}
				st.run(4 * time.Hour)
				st.silent("before anything was wrong")
				st.run(c.within)
				f := st.finding(rules.IDSlowTraining, "job:slurm/4711")
				if f == nil || f.State != Firing || f.Cause != stepTimeUp || f.Severity != rules.Ticket {
					t.Fatalf("sampled every %s: not found within %s, it is %+v", step, c.within, f)
				}
				if len(f.Before) != 1 {
					t.Errorf("what changed just before is %+v, want the new version; it is said to have begun %s", f.Before, f.Since)
				}
				if !strings.Contains(f.Evidence.Seen, "of job slurm/4711 takes ") {
					t.Errorf("seen: %s", f.Evidence.Seen)
				}
			}
		})
	}
}

func TestSlowTrainingLookAlikes(t *testing.T) {
	for name, change := range map[string]func(r *ranks){
		"checkpoints every hour": func(r *ranks) { r.pause = func(h float64) bool { return math.Mod(h, 1) > 0.92 } },
		"the same, of a job that tells samples only": func(r *ranks) {
			r.pause, r.ownClock = func(h float64) bool { return math.Mod(h, 1) > 0.92 }, false
		},
		"steps of any length": func(r *ranks) {
			r.compute = func(_ int, h float64) float64 { return 1 + 0.3*math.Abs(math.Sin(h*37)) }
		},
		"an evaluation of a quarter of an hour": func(r *ranks) {
			r.compute = func(_ int, h float64) float64 { return 1 + math.Floor(math.Mod(h, 3)/2.75)*0.4 }
		},
		"it becomes faster": func(r *ranks) { r.compute = func(_ int, h float64) float64 { return 1 - 0.3*math.Floor(min(h/3, 1)) } },
		"a long pause":      func(r *ranks) { r.pause = func(h float64) bool { return h > 3 && h < 5 } },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRanks()
			change(r)
			st := newStage(t, DetectorConfig{}, time.Minute)
			st.set = r.set
			st.run(10 * time.Hour)
			for _, in := range st.told {
				if in.Rule == rules.IDSlowTraining {
					t.Errorf("told %s: %s", in.State, in.Members[0].Evidence.Seen)
				}
			}
		})
	}
}

// A job hangs just after a checkpoint, the time of its last step stays on its page, and
// somebody starts it again: it stood still, and was never slow.
func TestHangIsNoSlowTraining(t *testing.T) {
	r := newRanks()
	r.pause = func(h float64) bool { return math.Mod(h, 1) > 0.95 || h > 4 && h < 4.8 }
	st := newStage(t, DetectorConfig{}, time.Minute)
	var last, moved float64
	st.set = func(s *collector.Snapshot) {
		r.set(s)
		l := s.WorkloadOf(r.who)
		if !r.pause(hoursSince(day, s.Time)) {
			moved = float64(s.Time.Unix())
		}
		if x := 1.5 * l.Value(metric.WorkloadStepTime); hoursSince(day, s.Time) > 3.9 && hoursSince(day, s.Time) < 4.82 {
			if x > last {
				last = x
			}
			l.Set(metric.WorkloadStepTime, last)
		}
		l.Set(metric.WorkloadProgress, moved)
	}
	st.run(8 * time.Hour)
	for _, in := range st.told {
		if in.Rule == rules.IDSlowTraining || in.Rule == rules.IDStraggler {
			t.Errorf("told %s: %s", in.State, in.Members[0].Evidence.Seen)
		}
	}
}

// A step time that is back is not told of as slow, though what was seen lasts on.
func TestSlowTrainingThatIsBackIsSaidToBeSlow(t *testing.T) {
	r := slowing(4, 1.3)
	slow := r.compute
	r.compute = func(i int, h float64) float64 {
		if h >= 5.5 {
			return 0.97
		}
		return slow(i, h)
	}
	st := newStage(t, DetectorConfig{}, time.Minute)
	st.set = r.set
	st.run(6 * time.Hour)
	f := st.finding(rules.IDSlowTraining, "job:slurm/4711")
	if f == nil || f.Evidence.Observed < 1.04*(*f.Evidence.Want) {
		t.Fatalf("it is said to be slow with %+v", f)
	}
	if f.State != Resolved {
		t.Errorf("half an hour after the step time is back it is %s", f.State)
	}
}

// Another job has another pace: that is no slow-down of the one before.
func TestNewJobIsNoSlowTraining(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	for n := range 3 {
		r := slowing(0, 1+float64(n)/2)
		r.who.ID = fmt.Sprintf("slurm/%d", n)
		st.set = r.set
		st.run(3 * time.Hour)
	}
	st.silent("three jobs, each slower than the one before")
}

// If all that runs on the node becomes slower at once, that is the node's: two
// trainings, or a training and an inference server.
func TestSlowNodeIsOneFinding(t *testing.T) {
	for name, slowServer := range map[string]bool{"two trainings and a server": true, "two trainings beside a server as fast as before": false} {
		t.Run(name, func(t *testing.T) {
			a, b := slowing(4, 1.25), slowing(4, 1.25)
			b.who.ID = "slurm/12"
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			tokens := 1e6
			st.set = func(s *collector.Snapshot) {
				a.set(s)
				first := s.GPUs
				b.set(s)
				for i := range 4 {
					s.GPUs[i] = first[i]
				}
				e := endpoint(s)
				e.Set(metric.RequestsRunning, 16)
				if tokens += 15 * 800; slowServer && hoursSince(day, s.Time) >= 4 {
					tokens -= 15 * 160
				}
				e.Set(metric.GeneratedTokens, tokens)
			}
			st.run(4 * time.Hour)
			st.silent("before anything was wrong")
			st.run(time.Hour)
			f := st.finding(rules.IDSlowTraining, "node:n1")
			if got := f != nil && f.State == Firing; got != slowServer {
				t.Errorf("the node's finding fires: %t, want %t", got, slowServer)
			}
			for _, who := range []string{"job:slurm/4711", "job:slurm/12"} {
				if got := st.firing(rules.IDSlowTraining, who); got == slowServer {
					t.Errorf("the finding of %s fires: %t, want %t", who, got, !slowServer)
				}
			}
		})
	}
}

func TestSlowTrainingThroughRestartGapAndClock(t *testing.T) {
	r := slowing(4, 1.15)
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = r.set
	st.run(2 * time.Hour)
	st.restart()
	st.now = st.now.Add(110 * time.Minute)
	st.run(15 * time.Minute)
	by := -90 * time.Minute
	r.compute = func(int, float64) float64 { return 1.15 }
	st.set = func(s *collector.Snapshot) { s.Step, by = by, 0; r.set(s) }
	st.now, r.at, r.rates = st.now.Add(by), nil, nil
	st.run(20 * time.Minute)
	st.restart()
	st.run(40 * time.Minute)
	f := st.finding(rules.IDSlowTraining, "job:slurm/4711")
	if f == nil || f.State != Firing {
		t.Fatalf("after restarts, a gap and a step of the clock it is %+v", f)
	}
	r.compute = func(int, float64) float64 { return 1 }
	st.run(90 * time.Minute)
	if f := st.finding(rules.IDSlowTraining, "job:slurm/4711"); f == nil || f.State != Resolved {
		t.Errorf("90 min after it was over it is %+v", f)
	}
}
