package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// hold gives GPU 0 to an owner with one process that does so much.
func hold(s *collector.Snapshot, owner collector.Owner, name string, util, watts float64) *collector.GPU {
	g := &s.GPUs[0]
	if owner.Kind != "" {
		g.Owners = []collector.Owner{owner}
	}
	g.Set(metric.Utilization, util)
	g.Set(metric.PowerDraw, watts)
	if name != "" {
		s.Processes = append(s.Processes, collector.Process{PID: 10, Name: name, UUID: g.UUID, Owner: owner})
		g.Set(metric.ProcessCount, 1)
		g.Set(metric.ProcessMemory, 61.2*(1<<30))
	} else {
		g.Set(metric.ProcessCount, 0)
	}
	return g
}

var (
	job  = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	pod  = collector.Owner{Kind: "pod", ID: "vision/loader-0"}
	user = collector.Owner{Kind: "user", ID: "1000"}
)

func TestIdleGPUByKindOfHolder(t *testing.T) {
	for name, c := range map[string]struct {
		owner   collector.Owner
		process string
		after   time.Duration
		cause   string
	}{
		"training":                {job, "python3", 20 * time.Minute, "idle_with_context"},
		"service":                 {pod, "python3", 30 * time.Minute, "idle_with_context"},
		"notebook by its process": {user, "ipykernel_launcher", 2 * time.Hour, "idle_with_context"},
		"notebook by its owner":   {collector.Owner{Kind: "pod", ID: "research/jupyter-ann"}, "python3", 2 * time.Hour, "idle_with_context"},
		"nobody known":            {collector.Owner{}, "python3", 30 * time.Minute, "idle_with_context"},
		"allocated, no process":   {job, "", 20 * time.Minute, "held_without_process"},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			st.set = func(s *collector.Snapshot) { hold(s, c.owner, c.process, 0.01, 118) }
			st.run(c.after - time.Minute)
			st.silent("before its time")
			st.run(2 * time.Minute)
			f := st.fires(rules.IDIdleGPU)
			if f.Cause != c.cause || f.Severity != rules.Info || f.Owner != c.owner {
				t.Errorf("cause %s, severity %s, owner %s; want %s, info, %s", f.Cause, f.Severity, f.Owner, c.cause, c.owner)
			}
			if got := f.Since.Sub(day); got > time.Minute {
				t.Errorf("it is idle since %s after the start, want since the start", got)
			}
			if strings.Contains(f.Evidence.Seen, c.owner.ID) && c.owner.ID != "" {
				t.Errorf("the evidence names the holder, which chat channels must not see by default: %s", f.Evidence.Seen)
			}
		})
	}
}

func TestIdleGPUInWords(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) { hold(s, pod, "python3", 0.005, 118) }
	st.run(41*time.Minute + 30*time.Second)
	st.says(st.fires(rules.IDIdleGPU),
		"GPU under 5 % busy for 41 min, 118 W (at rest with a context open about 117 W), held by 1 process with 61.2 GiB; its holder left 0.68 GPU-hours idle in 24 h",
		"at work within 30 min, or released; a ticket from 8 idle GPU-hours a day")
	if f := st.fires(rules.IDIdleGPU); *f.Evidence.Want != 1800 || f.Evidence.Observed < 2400 || f.Evidence.Confidence != Certain {
		t.Errorf("observed %v of %v s, %s; want some 2460 of 1800 s, certain", f.Evidence.Observed, *f.Evidence.Want, f.Evidence.Confidence)
	}
}

func TestIdleGPUBecomesATicketByTheHour(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	st.set = func(s *collector.Snapshot) {
		hold(s, pod, "python3", 0, 118)
		s.GPUs[1].Owners = []collector.Owner{pod}
		s.GPUs[1].Set(metric.Utilization, 0)
		s.GPUs[1].Set(metric.PowerDraw, 110)
	}
	st.run(3*time.Hour + 50*time.Minute) // two GPUs: seven and a half GPU-hours
	if f := st.fires(rules.IDIdleGPU); f.Severity != rules.Info {
		t.Fatalf("severity is %s before eight GPU-hours", f.Severity)
	}
	st.restart() // what has added up survives
	st.run(20 * time.Minute)
	if f := st.fires(rules.IDIdleGPU); f.Severity != rules.Ticket {
		t.Errorf("severity is %s after more than eight GPU-hours, want ticket: %s", f.Severity, f.Evidence.Seen)
	}
	st.run(48 * time.Hour)
	if f := st.fires(rules.IDIdleGPU); f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Seen, "48 GPU-hours idle in 24 h") {
		t.Errorf("after two days: %s, %s; want a ticket, never a page, over the 48 GPU-hours of one day", f.Severity, f.Evidence.Seen)
	}
}

// What only looks idle must not be a finding.
func TestIdleLookAlikes(t *testing.T) {
	every := func(d, of time.Duration, at time.Time) bool { return at.Sub(day)%of < d }
	for name, set := range map[string]func(s *collector.Snapshot){
		"checkpoint pauses": func(s *collector.Snapshot) {
			util := 0.98
			if every(10*time.Minute, time.Hour, s.Time) {
				util = 0.01
			}
			hold(s, job, "python3", util, 500)
		},
		"bursts of work": func(s *collector.Snapshot) {
			util := 0.0
			if every(time.Minute, 15*time.Minute, s.Time) {
				util = 0.9
			}
			hold(s, pod, "python3", util, 200)
		},
		"free GPU": func(s *collector.Snapshot) { hold(s, collector.Owner{}, "", 0, 70) },
		"a service's context": func(s *collector.Snapshot) {
			hold(s, collector.Owner{}, "nvidia-cuda-mps-server", 0, 90)
		},
		"reserve replica": func(s *collector.Snapshot) {
			hold(s, pod, "python3", 0, 118)
			e := endpoint(s, "GPU-0")
			e.Set(metric.GeneratedTokens, 1000)
			if s.Time.Sub(day) > time.Minute && every(time.Minute, 5*time.Hour, s.Time) {
				e.Set(metric.GeneratedTokens, float64(s.Time.Unix()))
			}
		},
		"utilization is not told": func(s *collector.Snapshot) { hold(s, job, "python3", math.NaN(), 118) },
		"power says that it works": func(s *collector.Snapshot) {
			watts, util := 400.0, 0.02
			if s.Time.Sub(day) < 15*time.Minute {
				watts, util = 118, 0
			}
			hold(s, job, "python3", util, watts)
		},
		"holders that change": func(s *collector.Snapshot) {
			owner := job
			if every(15*time.Minute, 30*time.Minute, s.Time) {
				owner = pod
			}
			hold(s, owner, "python3", 0, 118)
		},
		"just given away": func(s *collector.Snapshot) {
			if s.Time.Sub(day) < 5*time.Hour+45*time.Minute {
				hold(s, collector.Owner{}, "", 0, 70)
			} else {
				hold(s, job, "python3", 0, 118)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			st.set = set
			st.run(6 * time.Hour)
			st.silent(name)
		})
	}
}

func TestReserveEndsADayAfterTheLastTraffic(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	st.set = func(s *collector.Snapshot) {
		hold(s, pod, "python3", 0, 118)
		endpoint(s, "GPU-0").Set(metric.GeneratedTokens, 1000)
	}
	st.run(23 * time.Hour)
	st.silent("while the replica is a reserve")
	st.restart()
	st.run(2 * time.Hour)
	st.fires(rules.IDIdleGPU)
}

func TestIdleEndsWithWork(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) { hold(s, user, "jupyter-lab", 0, 118) }
	st.run(3 * time.Hour)
	st.fires(rules.IDIdleGPU)
	st.set = func(s *collector.Snapshot) { hold(s, user, "jupyter-lab", 0.7, 400) }
	st.run(4 * time.Minute) // a small part of the two hours, but work
	st.set = func(s *collector.Snapshot) { hold(s, user, "jupyter-lab", 0, 118) }
	st.run(5 * time.Minute)
	if st.firing(rules.IDIdleGPU, "gpu:GPU-0") {
		t.Fatal("it still counts as idle after four minutes of work")
	}
	told := len(st.told)
	st.run(time.Hour + 50*time.Minute)
	if len(st.told) != told {
		t.Error("it is idle again before another two hours have passed")
	}
}

// The windows are long: a restart must not cost two hours of knowledge.
func TestIdleSurvivesARestart(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) { hold(s, user, "jupyter-lab", 0, 118) }
	st.run(time.Hour + 55*time.Minute)
	st.restart()
	st.run(10 * time.Minute)
	f := st.fires(rules.IDIdleGPU)
	st.restart()
	st.run(30 * time.Minute)
	if again := st.fires(rules.IDIdleGPU); !again.Since.Equal(f.Since) {
		t.Errorf("after the restart it is idle since %s, want since %s", again.Since, f.Since)
	}
}

func TestProcessThatEndsChangesTheCause(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) { hold(s, job, "python3", 0, 118) }
	st.run(40 * time.Minute)
	st.fires(rules.IDIdleGPU)
	st.set = func(s *collector.Snapshot) { hold(s, job, "", 0, 80) }
	st.run(10 * time.Minute)
	causes := map[string]State{}
	for _, f := range st.e.View().Findings {
		causes[f.Cause] = f.State
	}
	if causes["idle_with_context"] != Resolved || causes["held_without_process"] != Firing {
		t.Errorf("causes are %v, want the first resolved and held_without_process firing", causes)
	}
}

// One second of work a minute is noise, and noise must not make hours.
func TestIdleHoursWithNoisyPower(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Second)
	st.set = func(s *collector.Snapshot) {
		watts := 118.0
		if s.Time.Second() == 30 {
			watts = 200
		}
		hold(s, pod, "python3", 0, watts)
	}
	st.run(2 * time.Hour)
	f := st.fires(rules.IDIdleGPU)
	if f.Severity != rules.Info || !strings.Contains(f.Evidence.Seen, "its holder left 2 GPU-hours idle in 24 h") {
		t.Errorf("one GPU idle for two hours is a %s: %s", f.Severity, f.Evidence.Seen)
	}
	if n := len(st.told); n != 1 {
		t.Errorf("told %d times of one GPU that is idle all the time", n)
	}
}

// A replica that was kept in reserve was not left idle meanwhile.
func TestReserveIsNotIdleTime(t *testing.T) {
	st := newStage(t, DetectorConfig{Idle: IdleConfig{ReserveFor: 5 * time.Hour}}, time.Minute)
	st.set = func(s *collector.Snapshot) {
		hold(s, pod, "python3", 0, 118)
		endpoint(s, "GPU-0").Set(metric.GeneratedTokens, 1000)
	}
	st.run(5*time.Hour + 10*time.Minute)
	if f := st.fires(rules.IDIdleGPU); !strings.Contains(f.Evidence.Seen, "left 0.6") {
		t.Errorf("ten minutes after the reserve ended: %s, want some 0.6 GPU-hours", f.Evidence.Seen)
	}
}

// TestIdleHoursNeverExceedTheTime plays random work and looks at every account: no
// GPU can be idle for longer than it was watched, whoever holds it.
func TestIdleHoursNeverExceedTheTime(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			owners := []collector.Owner{job, pod, user, {}}
			owner, load, reserve, gap := owners[rng.IntN(4)], rng.Float64()*rng.Float64(), rng.IntN(4) == 0, rng.IntN(3) == 0
			st := newStage(t, DetectorConfig{Idle: IdleConfig{ReserveFor: 40 * time.Minute}}, time.Duration(10+rng.IntN(50))*time.Second)
			st.set = func(s *collector.Snapshot) {
				util, watts := 0.0, 110+10*rng.Float64()
				if rng.Float64() < load/10 {
					util = rng.Float64()
				}
				if rng.Float64() < load/5 {
					watts += 400 * rng.Float64()
				}
				if rng.IntN(300) == 0 {
					owner = owners[rng.IntN(4)]
				}
				hold(s, owner, []string{"python3", "python3", "jupyter-lab", ""}[rng.IntN(4)*rng.IntN(2)], util, watts)
				if e := endpoint(s, "GPU-0"); reserve && rng.IntN(1000) == 0 {
					e.Set(metric.RequestsRunning, 1)
				}
			}
			var idle *Idle
			for _, w := range st.e.watchers {
				if d, ok := w.detector.(*Idle); ok {
					idle = d
				}
			}
			for held := time.Duration(0); held < 27*time.Hour; {
				held += 20 * time.Minute
				st.run(20 * time.Minute)
				if gap && rng.IntN(9) == 0 {
					st.now = st.now.Add(time.Duration(rng.IntN(7200)) * time.Second)
				}
				sum := 0.0
				for _, o := range owners {
					hours, _ := idle.ledger.idle(o, st.now)
					sum += hours
				}
				if limit := min(24, st.now.Sub(day).Hours()); sum > limit+1e-6 {
					t.Fatalf("one GPU, %.2f hours after the start: %.2f GPU-hours idle in 24 h", st.now.Sub(day).Hours(), sum)
				}
			}
		})
	}
}
