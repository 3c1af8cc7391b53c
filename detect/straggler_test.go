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

// ranks is a synchronous training on the GPUs of a node: each step takes as long as the
// slowest of them computes, and the others wait for it.
type ranks struct {
	gpus     int
	who      collector.Owner
	compute  func(i int, h float64) float64 // time of GPU i for its part of a step, in that of a healthy one
	data     func(i int, h float64) float64 // time for which it waits for its data, likewise
	pause    func(h float64) bool           // no steps are done
	share    func(i int) float64            // static part of the work
	ownClock bool                           // the workload tells the time of a step by its own clock
	rates    []float64                      // of steps, in the last minutes, by snapshot
	at       []time.Time
	quiet    bool // it tells nothing of its steps
	also     func(i int, h float64, g *collector.GPU)
}

func newRanks() *ranks {
	one := func(int, float64) float64 { return 1 }
	none := func(int, float64) float64 { return 0 }
	return &ranks{gpus: 8, who: collector.Owner{Kind: "job", ID: "slurm/4711"}, compute: one, data: none,
		pause: func(float64) bool { return false }, share: func(int) float64 { return 1 }, ownClock: true}
}

func (r *ranks) set(s *collector.Snapshot) {
	s.GPUs = node(s.Time, r.gpus).GPUs
	h := hoursSince(day, s.Time)
	busy := make([]float64, r.gpus)
	step := 0.0
	for i := range busy {
		busy[i] = r.compute(i, h) * (1 + 0.003*unsteady(s.Time, i)) * r.share(i)
		step = max(step, busy[i]+r.data(i, h))
	}
	paused := r.pause(h)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		part, clock := busy[i]/step, 1.98e9/r.compute(i, h)
		wait := 1 - part - r.data(i, h)/step // spinning on the others
		work := r.share(i) / step
		if paused {
			part, wait, work = 0, 1, 0
			if i == 0 { // it writes the checkpoint, and its GPU rests
				wait = 0
			}
		}
		g.Owners = []collector.Owner{r.who}
		g.Set(metric.Utilization, min(1, part+wait))
		g.Set(metric.PowerDraw, 120+500*part/math.Sqrt(r.compute(i, h))+180*wait+3*unsteady(s.Time, 40+i))
		g.Set(metric.SMActivity, 0.9*part+0.15*wait)
		g.Set(metric.TensorActivity, 0.55*work*r.compute(i, h))
		g.SetAt(metric.Clock, smClock, clock)
		g.Set(metric.Temperature, 60+unsteady(s.Time, 60+i))
		g.Set(metric.MemoryUsed, 60*oneGiB)
		for dir := range 2 {
			g.SetAt(metric.NVLinkThroughput, dir, 2e11/step*(1+0.02*unsteady(s.Time, 80+i)))
			g.SetAt(metric.PCIeThroughput, dir, 2e9/step*(1+0.1*unsteady(s.Time, 90+i)))
		}
	}
	if r.also != nil {
		for i := range s.GPUs {
			r.also(i, h, &s.GPUs[i])
		}
	}
	r.tell(s, step, paused)
}

// tell writes what the workload says of its pace, over five minutes.
func (r *ranks) tell(s *collector.Snapshot, step float64, paused bool) {
	rate := 1 / step
	if paused {
		rate = 0
	}
	r.rates, r.at = append(r.rates, rate), append(r.at, s.Time)
	for s.Time.Sub(r.at[0]) > 5*time.Minute {
		r.rates, r.at = r.rates[1:], r.at[1:]
	}
	sum, steps := 0.0, 0.0
	for _, x := range r.rates {
		sum += x
		if x > 0 {
			steps++
		}
	}
	if r.quiet {
		return
	}
	l := workload(s, r.who)
	l.Set(metric.WorkloadSampleRate, 512*sum/float64(len(r.rates)))
	if r.ownClock && sum > 0 {
		l.Set(metric.WorkloadStepTime, steps/sum)
	}
}

// since is f from so many hours on, of one GPU.
func since(gpu int, hours, before, then float64) func(int, float64) float64 {
	return func(i int, h float64) float64 {
		if i == gpu && h >= hours {
			return then
		}
		return before
	}
}

func TestStragglerIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *ranks)
		within   time.Duration
		hardware bool
	}{
		"a GPU that is 20 % slow":                {func(r *ranks) { r.compute = since(3, 3, 1, 1.2) }, 45 * time.Minute, true},
		"a GPU that is 10 % slow":                {func(r *ranks) { r.compute = since(3, 3, 1, 1.1) }, 75 * time.Minute, true},
		"a rank that waits for its data, 20 %":   {func(r *ranks) { r.data = since(3, 3, 0, 0.2) }, 45 * time.Minute, false},
		"20 %, of a job that tells samples only": {func(r *ranks) { r.compute, r.ownClock = since(3, 3, 1, 1.2), false }, 45 * time.Minute, true},
		"20 % beside ranks with more work": {func(r *ranks) {
			r.compute = since(3, 3, 1, 1.2)
			r.share = func(i int) float64 { return 1 - 0.05*float64(i%2) }
		}, 45 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{15 * time.Second, time.Minute} {
				r := newRanks()
				c.change(r)
				st := newStage(t, DetectorConfig{}, step)
				st.set = r.set
				st.run(3 * time.Hour)
				st.silent("before anything was wrong")
				st.run(c.within)
				f := st.finding(rules.IDStraggler, "job:"+r.who.ID)
				if f == nil || f.State != Firing {
					t.Fatalf("sampled every %s: not found within %s, it is %+v", step, c.within, f)
				}
				if (f.Cause == stragglerHardware) != c.hardware || f.Severity != rules.Ticket || f.Owner != r.who {
					t.Errorf("a %s of %s by %s: %s (%s)", f.Severity, f.Owner, f.Cause, f.Evidence.Seen, f.Evidence.Why)
				}
				if !strings.Contains(f.Evidence.Seen, "of its 8 GPUs here GPU 3 is the odd one out") {
					t.Errorf("seen: %s", f.Evidence.Seen)
				}
				if f.GPUIndex != 3 {
					t.Errorf("GPU %d is named", f.GPUIndex)
				}
				if st.run(time.Hour); st.firing(rules.IDSlowTraining, "job:"+r.who.ID) {
					t.Error("that the job is slow is told beside why it is")
				}
			}
		})
	}
}

func TestStragglerLookAlikes(t *testing.T) {
	for name, change := range map[string]func(r *ranks){
		"checkpoints every hour, written by one rank": func(r *ranks) {
			r.pause = func(h float64) bool { return math.Mod(h, 1) > 0.92 }
		},
		"the same, of a job that tells samples only": func(r *ranks) {
			r.pause, r.ownClock = func(h float64) bool { return math.Mod(h, 1) > 0.92 }, false
		},
		"ranks with uneven work": func(r *ranks) { r.share = func(i int) float64 { return 1 - 0.06*float64(i%4) } },
		"experts whose load changes": func(r *ranks) {
			r.compute = func(i int, h float64) float64 { return 1 + 0.08*math.Sin(h*3+float64(i)*0.8) }
		},
		"one GPU that is odd while the job is as fast as ever": func(r *ranks) { r.compute = since(3, 3, 1, 0.85) },
		"all become slower": func(r *ranks) {
			r.compute = func(_ int, h float64) float64 { return 1 + 0.25*math.Floor(min(h/3, 1)) }
		},
		"all wait for their data, and one draws 2 % more power than before": func(r *ranks) {
			r.data = func(_ int, h float64) float64 { return 0.5 * math.Floor(min(h/3, 1)) }
			r.also = func(i int, h float64, g *collector.GPU) {
				if i == 3 && h > 3 {
					g.Set(metric.PowerDraw, 1.02*g.Value(metric.PowerDraw))
				}
			}
		},
		"all become slower, and one draws 12 % less power": func(r *ranks) {
			r.compute = func(_ int, h float64) float64 { return 1 + 0.25*math.Floor(min(h/3, 1)) }
			r.also = func(i int, h float64, g *collector.GPU) {
				if i == 3 && h > 3 {
					g.Set(metric.PowerDraw, 0.88*g.Value(metric.PowerDraw))
				}
			}
		},
		"a job of two GPUs":                  func(r *ranks) { r.compute, r.gpus = since(1, 3, 1, 1.2), 2 },
		"a job that tells nothing":           func(r *ranks) { r.compute, r.quiet = since(3, 3, 1, 1.3), true },
		"a job that pauses for half an hour": func(r *ranks) { r.pause = func(h float64) bool { return h > 3 && h < 3.5 } },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRanks()
			change(r)
			st := newStage(t, DetectorConfig{}, time.Minute)
			st.set = r.set
			st.run(10 * time.Hour)
			for _, in := range st.told {
				if in.Rule == rules.IDStraggler {
					t.Errorf("told %s: %s", in.State, in.Members[0].Evidence.Seen)
				}
			}
		})
	}
}

// The same GPU slow in two jobs speaks against it, though nothing else does.
func TestStragglerOfTwoJobs(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	for n := range 2 {
		r := newRanks()
		r.who.ID = fmt.Sprintf("slurm/%d", n)
		r.data = since(3, float64(6*n)+3, 0, 0.2)
		st.set = r.set
		st.run(4 * time.Hour)
		f := st.finding(rules.IDStraggler, "job:"+r.who.ID)
		if want := [2]string{stragglerSoftware, stragglerHardware}[n]; f == nil || f.State != Firing || f.Cause != want {
			t.Fatalf("in job %d it is %+v, want %s", n, f, want)
		}
		if n == 1 && !strings.Contains(f.Evidence.Why, "it slowed down job slurm/0, too") {
			t.Errorf("why: %s", f.Evidence.Why)
		}
		r.data = since(3, 0, 0, 0)
		st.run(2 * time.Hour)
		if f := st.finding(rules.IDStraggler, "job:"+r.who.ID); f.State != Resolved {
			t.Errorf("two hours after it was over it is %s", f.State)
		}
		st.restart()
	}
}

func TestStragglerThroughRestartGapAndClock(t *testing.T) {
	r := newRanks()
	r.compute = since(3, 4, 1, 1.2)
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = r.set
	st.run(2 * time.Hour)
	st.restart()
	st.now = st.now.Add(110 * time.Minute)
	st.run(15 * time.Minute)
	st.restart()
	by := 24 * time.Hour
	st.set = func(s *collector.Snapshot) { s.Step, by = by, 0; r.set(s) }
	st.now = st.now.Add(by)
	st.run(45 * time.Minute)
	if !st.firing(rules.IDStraggler, "job:"+r.who.ID) {
		t.Errorf("after restarts, a gap and a step of the clock it is %+v", st.finding(rules.IDStraggler, "job:"+r.who.ID))
	}
}
