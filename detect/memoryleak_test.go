package detect

import (
	"encoding/json"
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

const oneGiB = 1 << 30

var chat = collector.Owner{Kind: "pod", ID: "nlp/chat", Team: "nlp"}

// process puts a process of an owner on a GPU.
func process(s *collector.Snapshot, gpu int, who collector.Owner, pid int, bytes float64) {
	p := collector.Process{PID: pid, Start: uint64(1000 + pid), Name: "python3", GPU: gpu, UUID: s.GPUs[gpu].UUID, Owner: who, Readings: collector.NewReadings(metric.Process)}
	p.Stamp(metric.Processes, s.Time)
	p.Set(metric.ProcessMemoryUsed, bytes)
	s.Processes = append(s.Processes, p)
	s.GPUs[gpu].Set(metric.ProcessCount, 1)
	s.GPUs[gpu].Set(metric.MemoryFree, max(80*oneGiB-bytes, 0))
	s.GPUs[gpu].Owners = []collector.Owner{who}
}

// workload puts what an owner tells of itself, or the kernel of it, into a snapshot.
func workload(s *collector.Snapshot, who collector.Owner) *collector.Workload {
	s.Workloads = append(s.Workloads, collector.Workload{Owner: who, Readings: collector.NewReadings(metric.Workload)})
	l := &s.Workloads[len(s.Workloads)-1]
	l.Stamp(metric.Slow, s.Time)
	return l
}

// unsteady is a noise of mean 0 and deviation 1 that is the same for the same time.
func unsteady(at time.Time, of int) float64 {
	r := rand.New(rand.NewPCG(uint64(at.Unix()), uint64(of)))
	return r.NormFloat64()
}

func hoursSince(start, now time.Time) float64 { return now.Sub(start).Hours() }

// growing is 40 GiB for eight hours, and then grows by a quarter in five.
func growing(s *collector.Snapshot) float64 {
	return oneGiB * (40 + 2*max(hoursSince(day, s.Time)-8, 0) + 0.1*unsteady(s.Time, 1))
}

func TestMemoryLeakIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		set     func(s *collector.Snapshot)
		subject string
		cause   string
		seen    []string
		ticket  bool
		within  time.Duration
	}{
		"of a pod on a GPU": {func(s *collector.Snapshot) { process(s, 0, chat, 7, growing(s)) },
			"pod:nlp/chat", gpuMemory, []string{"GPU memory of pod nlp/chat on GPU 0 grows by ", " GiB an hour since ", "(from 4", " GiB), full in "}, true, 150 * time.Minute},
		"of one of a pod's GPUs": {func(s *collector.Snapshot) {
			process(s, 0, chat, 7, 40*oneGiB)
			process(s, 1, chat, 8, growing(s))
		}, "pod:nlp/chat", gpuMemory, []string{"on GPU 1"}, true, 150 * time.Minute},
		"of nobody known": {func(s *collector.Snapshot) { process(s, 0, collector.Owner{}, 7, growing(s)) },
			"gpu:GPU-0", gpuMemory, []string{"GPU memory on GPU 0 grows"}, true, 150 * time.Minute},
		"of a GPU without a list": {func(s *collector.Snapshot) {
			s.GPUs[0].Set(metric.MemoryUsed, growing(s))
			s.GPUs[0].Set(metric.MemoryFree, 80*oneGiB-growing(s))
		}, "gpu:GPU-0", gpuMemory, []string{"GPU memory on GPU 0 grows", "full in "}, true, 150 * time.Minute},
		"in the host, with a limit": {func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.SetAt(metric.WorkloadMemory, 0, growing(s)/2)
			l.SetAt(metric.WorkloadMemory, 1, growing(s)/2)
			l.Set(metric.WorkloadMemoryLimit, 64*oneGiB)
			s.Node.Set(metric.HostMemoryAvailable, 900*oneGiB)
		}, "pod:nlp/chat", hostMemory, []string{"host memory (anon and shmem) of pod nlp/chat grows", "full in "}, true, 150 * time.Minute},
		"in a host with much room": {func(s *collector.Snapshot) {
			workload(s, chat).SetAt(metric.WorkloadMemory, 0, growing(s))
			s.Node.Set(metric.HostMemoryAvailable, 900*oneGiB)
		}, "pod:nlp/chat", hostMemory, []string{"full in 1"}, false, 6 * time.Hour},
		"in a host that does not tell what it has": {func(s *collector.Snapshot) {
			workload(s, chat).SetAt(metric.WorkloadMemory, 0, growing(s))
		}, "pod:nlp/chat", hostMemory, []string{"when it is full is not known"}, false, 6 * time.Hour},
		"of files": {func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.Set(metric.WorkloadOpenFiles, 300+math.Round(120*max(hoursSince(day, s.Time)-8, 0)+4*unsteady(s.Time, 5)))
			l.Set(metric.WorkloadOpenFilesLimit, 1024)
		}, "pod:nlp/chat", openFiles, []string{"open files of a process of pod nlp/chat grows by ", " files an hour since ", " files), at its limit of 1024 in "}, true, 150 * time.Minute},
		"of a KV cache": {func(s *collector.Snapshot) {
			e := endpoint(s, "GPU-0")
			running := 8 + 4*math.Sin(hoursSince(day, s.Time)/4)
			e.Set(metric.RequestsRunning, running)
			e.Set(metric.KVCacheUsage, 0.04+running*0.03+(growing(s)/oneGiB-40)*0.03)
		}, "endpoint:http://chat-70b:8000/metrics#vllm/chat-70b", kvCache, []string{"KV cache of chat-70b beside that of its running requests grows by "}, true, 150 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{15 * time.Second, time.Minute} {
				st := newStage(t, DetectorConfig{}, step)
				st.set = c.set
				st.run(8 * time.Hour)
				if f := st.finding(rules.IDMemoryLeak, c.subject); f != nil {
					t.Fatalf("sampled every %s: a finding before anything grew: %s", step, f.Evidence.Seen)
				}
				st.run(c.within)
				f := st.finding(rules.IDMemoryLeak, c.subject)
				if f == nil || f.State != Firing || f.Cause != c.cause {
					t.Fatalf("sampled every %s: %s into a growth by a quarter in 5 h it is %+v", step, c.within, f)
				}
				if (f.Severity == rules.Ticket) != c.ticket {
					t.Errorf("a %s, want a ticket: %t, of %s", f.Severity, c.ticket, f.Evidence.Seen)
				}
				for _, words := range c.seen {
					if !strings.Contains(f.Evidence.Seen, words) {
						t.Errorf("%q is not in: %s", words, f.Evidence.Seen)
					}
				}
			}
		})
	}
}

// What is open follows the traffic: what grows slowly is told once a day of it is known.
func TestFilesThatLeakSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		limit float64
		seen  string
	}{"far from their limit": {1 << 20, "at its limit of 1048576 in "}, "without a limit": {math.NaN(), "; it has no limit"}} {
		st := newStage(t, DetectorConfig{}, time.Minute)
		st.set = func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.Set(metric.WorkloadOpenFiles, 4000+math.Round(500*max(hoursSince(day, s.Time)-8, 0)))
			l.Set(metric.WorkloadOpenFilesLimit, c.limit)
		}
		st.run(20 * time.Hour)
		st.silent("a growth of files in the first day")
		st.run(50 * time.Hour)
		f := st.finding(rules.IDMemoryLeak, "pod:nlp/chat")
		if f == nil || f.Cause != openFiles || f.Severity != rules.Info || !strings.Contains(f.Evidence.Seen, c.seen) {
			t.Errorf("%s: two days into a growth of 500 files an hour it is %+v", name, f)
		}
	}
}

func TestMemoryLeakSaysWhenItIsFull(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) { process(s, 0, chat, 7, growing(s)) }
	st.run(13 * time.Hour) // 50 of 80 GiB, 2 GiB an hour
	f := st.finding(rules.IDMemoryLeak, "pod:nlp/chat")
	var soonest, likely, latest int
	at := strings.Index(f.Evidence.Seen, "full in ")
	if _, err := fmt.Sscanf(f.Evidence.Seen[at:], "full in %d h", &likely); err != nil || likely < 13 || likely > 16 {
		t.Errorf("full in %d h, want about 15: %s (%v)", likely, f.Evidence.Seen, err)
	}
	_, of, _ := strings.Cut(f.Evidence.Seen[at:], "(")
	if _, err := fmt.Sscanf(of, "%d h", &soonest); err != nil || soonest > likely {
		t.Errorf("at the soonest in %d h, later than is likely: %s (%v)", soonest, f.Evidence.Seen, err)
	}
	_, of, _ = strings.Cut(of, "to ")
	if _, err := fmt.Sscanf(of, "%d h", &latest); err != nil || latest < likely {
		t.Errorf("at the latest in %d h, sooner than is likely: %s (%v)", latest, f.Evidence.Seen, err)
	}
	if f.Owner != chat || f.GPUIndex != 0 || f.Evidence.Confidence != VerySure && f.Evidence.Confidence != Likely {
		t.Errorf("the finding is of %s on GPU %d, %s", f.Owner, f.GPUIndex, f.Evidence.Confidence)
	}
	if began := f.Since.Sub(day).Hours(); began < 7 || began > 10 {
		t.Errorf("it is said to have begun %.1f h in, want about 8", began)
	}
}

func TestMemoryLeakLookAlikes(t *testing.T) {
	gpu := func(bytes func(hours float64, at time.Time) float64) func(*collector.Snapshot) {
		return func(s *collector.Snapshot) {
			process(s, 0, chat, 7, oneGiB*(bytes(hoursSince(day, s.Time), s.Time)+0.05*unsteady(s.Time, 1)))
		}
	}
	for name, set := range map[string]func(*collector.Snapshot){
		"memory that is taken at once and kept": gpu(func(float64, time.Time) float64 { return 72 }),
		"a model that loads":                    gpu(func(h float64, _ time.Time) float64 { return min(2+300*h, 60) }),
		"warming up for an hour":                gpu(func(h float64, _ time.Time) float64 { return 40 + 10*min(h, 1) }),
		"a cache that fills and stops":          gpu(func(h float64, _ time.Time) float64 { return 60 - 30*math.Exp(-2*h) }),
		"checkpoint buffers every hour": gpu(func(h float64, _ time.Time) float64 {
			if h-math.Floor(h) < 0.1 {
				return 60
			}
			return 44
		}),
		"autoscaling": func(s *collector.Snapshot) {
			h := hoursSince(day, s.Time)
			for i := range 2 {
				if h > float64(3*i) {
					process(s, i, collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/chat-%d", int(h/7)*2+i)}, 100*i+int(h/7), 60*oneGiB)
				}
			}
		},
		"a new job every three hours": func(s *collector.Snapshot) {
			n := int(hoursSince(day, s.Time) / 3)
			process(s, 0, collector.Owner{Kind: "job", ID: fmt.Sprintf("slurm/%d", n)}, n, oneGiB*float64(20+7*(n%5)))
		},
		"a KV cache that follows the traffic of the day": func(s *collector.Snapshot) {
			h := hoursSince(day, s.Time)
			e := endpoint(s, "GPU-0")
			running := math.Round(20 * (1 + math.Sin(h*math.Pi/12)))
			e.Set(metric.RequestsRunning, running)
			e.Set(metric.KVCacheUsage, min(1, running*0.02*(1+0.1*unsteady(s.Time, 3))))
		},
		"a process of little that grows by a tenth in a day": gpu(func(h float64, _ time.Time) float64 { return 4 + 0.4*min(h, 24)/24 }),
		"requests that take ever more of a KV cache, a little": func(s *collector.Snapshot) {
			h := hoursSince(day, s.Time)
			e := endpoint(s, "GPU-0")
			running := 12 + math.Round(4*unsteady(s.Time, 4))
			e.Set(metric.RequestsRunning, max(running, 1))
			e.Set(metric.KVCacheUsage, min(1, max(running, 1)*(0.032+0.002*min(h/12, 1))))
		},
		"connections that follow the traffic of the day": func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.Set(metric.WorkloadOpenFiles, math.Round(400+250*math.Sin(hoursSince(day, s.Time)*math.Pi/12)+15*unsteady(s.Time, 6)))
			l.Set(metric.WorkloadOpenFilesLimit, 1024)
		},
		"a pool of connections that fills": func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.Set(metric.WorkloadOpenFiles, math.Round(100+min(hoursSince(day, s.Time)*100, 200)))
			l.Set(metric.WorkloadOpenFilesLimit, 1024)
		},
		"some files more each hour, of many": func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.Set(metric.WorkloadOpenFiles, math.Round(60+hoursSince(day, s.Time)))
			l.Set(metric.WorkloadOpenFilesLimit, 1<<20)
		},
		"the page cache beside memory that does not grow": func(s *collector.Snapshot) {
			l := workload(s, chat)
			l.SetAt(metric.WorkloadMemory, 0, 20*oneGiB)
			l.SetAt(metric.WorkloadMemory, 1, 2*oneGiB)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{Idle: IdleConfig{Other: 1000 * time.Hour, Training: 1000 * time.Hour}}, time.Minute)
			st.set = set
			st.run(26 * time.Hour)
			st.silent(name)
		})
	}
}

// The agent is restarted, nothing is seen for a while, the clock is set: the growth is
// still found, and its evidence names the times of the clock as it is.
func TestMemoryLeakThroughRestartGapAndClock(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	real := day
	st.set = func(s *collector.Snapshot) {
		process(s, 0, chat, 7, oneGiB*(40+2*max(hoursSince(day, real)-8, 0)+0.1*unsteady(real, 1)))
		real = real.Add(time.Minute)
	}
	st.run(9 * time.Hour)
	st.restart()
	st.now, real = st.now.Add(20*time.Minute), real.Add(20*time.Minute)
	st.run(30 * time.Minute)
	by := 37*time.Minute + 11*time.Second
	set := st.set
	st.set = func(s *collector.Snapshot) { set(s); s.Step = by; by = 0 }
	st.now = st.now.Add(by)
	st.run(time.Hour)
	st.restart()
	st.run(time.Hour)
	f := st.finding(rules.IDMemoryLeak, "pod:nlp/chat")
	if f == nil || f.State != Firing {
		t.Fatalf("after restarts, a gap and a step of the clock it is %+v", f)
	}
	if age := st.now.Sub(f.Since); age < time.Hour || age > 5*time.Hour {
		t.Errorf("it is said to have begun %s ago, %s", age, f.Evidence.Seen)
	}
}

// A process that starts anew grows as all do; what an owner's other process did
// before says nothing.
func TestMemoryLeakEndsWithItsProcess(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	pid, grown := 7, func(s *collector.Snapshot) float64 { return growing(s) }
	st.set = func(s *collector.Snapshot) { process(s, 0, chat, pid, grown(s)) }
	st.run(11 * time.Hour)
	if !st.firing(rules.IDMemoryLeak, "pod:nlp/chat") {
		t.Fatal("no leak to begin with")
	}
	pid, grown = 8, func(s *collector.Snapshot) float64 { return 40 * oneGiB }
	st.run(70 * time.Minute)
	if f := st.finding(rules.IDMemoryLeak, "pod:nlp/chat"); f.State != Resolved {
		t.Errorf("70 min after another process took its place it is %s: %s", f.State, f.Evidence.Seen)
	}
}

func TestMemoryLeakForgetsInTime(t *testing.T) {
	d := NewMemoryLeak()
	before := d.capped.Get()
	s := node(day, 1)
	for i := range leakSeriesMost + 3 {
		process(s, 0, collector.Owner{Kind: "pod", ID: fmt.Sprint(i)}, i, oneGiB)
	}
	d.Observe(s, func(Observation) {})
	if len(d.order) != leakSeriesMost || d.capped.Get()-before != 3 {
		t.Errorf("%d readings are kept and %d counted as too many, want %d and 3", len(d.order), d.capped.Get()-before, leakSeriesMost)
	}
	s = node(day.Add(2*time.Hour), 1)
	process(s, 0, collector.Owner{Kind: "pod", ID: "late"}, 9999, oneGiB)
	d.Observe(s, func(Observation) {})
	if len(d.order) != leakSeriesMost || len(d.series) != leakSeriesMost || d.series[leakOf{Owner: collector.Owner{Kind: "pod", ID: "late"}, UUID: "GPU-0", Cause: gpuMemory}] == nil {
		t.Error("a new pod finds no room though others have been gone for two hours")
	}
	data, err := d.Save()
	if err != nil || len(data) > 2048*leakSeriesMost {
		t.Errorf("%d readings are saved in %d bytes, error %v; want 2 KiB each or less", len(d.order), len(data), err)
	}
	var m memoryLeakMemory
	if err := json.Unmarshal(data, &m); err != nil || len(m.Series) != leakSeriesMost {
		t.Errorf("saved %d readings, error %v", len(m.Series), err)
	}
	back := NewMemoryLeak()
	if err := back.Restore(data); err != nil || len(back.order) != leakSeriesMost {
		t.Errorf("%d readings come back, error %v", len(back.order), err)
	}
	again, err := back.Save()
	if err != nil || string(again) != string(data) {
		t.Error("what comes back is not what was saved")
	}
}

// A server whose KV cache begins to leak some hours after its agent, while the traffic of
// the day rises or falls, at any hour.
func TestKVLeakIsFoundWheneverItBegins(t *testing.T) {
	for _, rate := range []float64{0, 0.04, 0.08} {
		for _, warm := range []float64{4, 6, 10, 12} {
			for clock := 0; clock < 24; clock += 4 {
				found, sure := kvLeak(t, rate, warm, clock)
				what := fmt.Sprintf("a leak of %.0f %% of the KV cache an hour that begins %.0f h after the agent, which began at %d:00", 100*rate, warm, clock)
				switch {
				case rate == 0 && !math.IsNaN(found):
					t.Errorf("a server that does not leak, begun at %d:00, leaks after %.1f h", clock, warm+found)
				case rate > 0 && !(found >= 0 && found <= 5):
					t.Errorf("%s, is found after %.1f h, want 5 h", what, found)
				case rate > 0 && !(sure <= 15):
					t.Errorf("%s, is told in a fleet of 2,000 GPUs after %.1f h, want 15 h", what, sure)
				}
			}
		}
	}
}

// kvLeak returns how many hours after its beginning a leak is found, and when it is as
// sure as a fleet of 2,000 GPUs takes; NaN: never.
func kvLeak(t *testing.T, rate, warm float64, clock int) (found, sure float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(clock), uint64(warm)))
	d := NewMemoryLeak()
	begin := day.Add(time.Duration(clock) * time.Hour)
	found, sure = math.NaN(), math.NaN()
	for m := range int(60 * (warm + 15)) {
		now := begin.Add(time.Duration(m) * time.Minute)
		after := now.Sub(begin).Hours() - warm
		traffic := 0.4 + 0.3*math.Sin((hoursSince(day, now)-10)*math.Pi/12) + 0.04*rng.NormFloat64()
		running := math.Round(128 * max(0, traffic))
		s := &collector.Snapshot{Time: now}
		e := endpoint(s, "GPU-0")
		e.Set(metric.RequestsRunning, running)
		e.Set(metric.KVCacheUsage, min(0.99, 0.04+rate*max(0, after)+0.93*running/128*(1+0.05*rng.NormFloat64())))
		d.Observe(s, func(o Observation) {
			if o.Score >= 1 && math.IsNaN(found) {
				found = after
			}
			if o.Score >= 1 && o.Surprise >= 7.9 && math.IsNaN(sure) {
				sure = after
			}
		})
	}
	return found, sure
}
