package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// spinning is what a dead collective looks like: fully used, at the power of idleness,
// without traffic.
func spinning(c scene, watts, limit float64) scene {
	c.util, c.sm, c.tensor, c.dram, c.watts, c.limit, c.nvlink, c.pcie = 1, 0.15, 0, 0.01, watts, limit, 0, 1e5
	return c
}

// quietRank makes one GPU of the scene the odd one: without use, its process there.
func quietRank(index int) func(*collector.Snapshot) {
	return func(s *collector.Snapshot) {
		g := &s.GPUs[index]
		g.Set(metric.Utilization, 0)
		g.Set(metric.SMActivity, 0)
		g.Set(metric.PowerDraw, 0.16*g.Value(metric.PowerLimit))
	}
}

var jobSubject = "job:slurm/4711"

var paces = []time.Duration{time.Second, 15 * time.Second, time.Minute}

func TestHungJob(t *testing.T) {
	for name, c := range map[string]struct {
		watts, limit float64
		profiled     bool
	}{
		"H100 SXM":                   {152, 700, true},
		"H100 PCIe":                  {72, 350, true},
		"GB200 at its lowest":        {232, 1000, true},
		"GB200 at its highest":       {280, 1000, true},
		"without profiling readings": {152, 700, false},
	} {
		for _, step := range paces {
			t.Run(name+" at "+step.String(), func(t *testing.T) {
				st := newStage(t, DetectorConfig{}, step)
				work := atWork()
				work.limit, work.board, work.watts = c.limit, c.limit, 0.95*c.limit
				hang := spinning(work, c.watts, c.limit)
				if !c.profiled {
					work.sm, work.tensor, work.dram = nan, nan, nan
					hang.sm, hang.tensor, hang.dram = nan, nan, nan
				}
				hang.also = quietRank(5)
				st.play(&work, 15*time.Minute)
				st.play(&hang, 4*time.Minute)
				st.silent("before it has spun for five minutes")
				st.play(&hang, 3*time.Minute)
				f := st.finding(rules.IDJobHung, jobSubject)
				if f == nil || f.State != Firing {
					t.Fatalf("a job that has spun for seven minutes is no finding: %+v", f)
				}
				if f.Severity != rules.Page || f.Evidence.Confidence != VerySure || f.Owner != job {
					t.Errorf("told as %s, %s, of %s; want a page, very sure, of the job", f.Severity, f.Evidence.Confidence, f.Owner)
				}
				for _, want := range []string{"7 of 8 GPUs at 100 %", "suspect: GPU 5, 0 % utilization, process 105", "(at work "} {
					if !strings.Contains(f.Evidence.Seen, want) {
						t.Errorf("the evidence lacks %q: %s", want, f.Evidence.Seen)
					}
				}
				st.mustBe(VerdictHung, "7 of 8 GPUs")
				st.play(&work, 12*time.Minute)
				if f := st.finding(rules.IDJobHung, jobSubject); f.State != Resolved {
					t.Errorf("twelve minutes after the job went on, its finding is %s", f.State)
				}
				st.mustBe(VerdictComputeBound)
			})
		}
	}
}

// Where nobody tells what the links move, the rest must do, and that is said.
func TestHungJobWithoutLinkCounters(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	blind := func(s *collector.Snapshot) {
		for i := range s.GPUs {
			for _, d := range []*metric.Def{metric.NVLinkBytes, metric.PCIeBytes} {
				s.GPUs[i].SetAt(d, 0, nan)
				s.GPUs[i].SetAt(d, 1, nan)
			}
		}
	}
	work := atWork()
	work.also = blind
	hang := spinning(work, 152, 700)
	st.play(&work, 15*time.Minute)
	st.play(&hang, 7*time.Minute)
	f := st.finding(rules.IDJobHung, jobSubject)
	if f == nil || f.State != Firing || f.Evidence.Confidence != Likely || !strings.Contains(f.Evidence.Why, "links is not told") {
		t.Errorf("finding %+v, want one that fires, likely, and says that the links are not told", f)
	}
}

// The rank that the others wait for may have died.
func TestHungJobWhoseFirstRankDied(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	work := atWork()
	hang := spinning(work, 152, 700)
	hang.also = func(s *collector.Snapshot) {
		quietRank(0)(s)
		s.GPUs[0].Set(metric.ProcessCount, 0)
		s.Processes = s.Processes[1:]
	}
	st.play(&work, 15*time.Minute)
	st.play(&hang, 8*time.Minute)
	if f := st.finding(rules.IDJobHung, jobSubject); f == nil || f.State != Firing || !strings.Contains(f.Evidence.Seen, "suspect: GPU 0, 0 % utilization, no process") {
		t.Errorf("finding %+v, want one that names GPU 0, which has no process", f)
	}
}

// What looks like a hang and is none.
func TestHungLookAlikes(t *testing.T) {
	with := func(f func(work, then *scene)) func() (scene, scene) {
		return func() (scene, scene) {
			work := atWork()
			then := spinning(work, 152, 700)
			f(&work, &then)
			return work, then
		}
	}
	for name, c := range map[string]struct {
		scenes func() (scene, scene)
		worked time.Duration
	}{
		"tensor-parallel server without requests": {with(func(work, then *scene) {
			work.owner, work.served, work.running, work.waiting, work.kv = pod, true, 60, 0, 0.5
			*then = spinning(*work, 121, 700)
			then.running, then.waiting = 0, 0
		}), time.Hour},
		"server whose page is not read, by its processes": {with(func(work, then *scene) {
			work.owner, work.process = pod, "VLLM::Worker_TP0"
			*then = spinning(*work, 134, 700)
		}), time.Hour},
		"job that has hardly begun":        {with(func(_, _ *scene) {}), 6 * time.Minute},
		"power that is not flat":           {with(func(_, then *scene) { then.also = shaky(40) }), time.Hour},
		"links that still carry something": {with(func(_, then *scene) { then.nvlink = 4e9 }), time.Hour},
		"ranks that wait for one that works": {with(func(_, then *scene) {
			then.also = func(s *collector.Snapshot) {
				s.GPUs[0].Set(metric.PowerDraw, 500)
				s.GPUs[0].Set(metric.SMActivity, 0.8)
			}
		}), time.Hour},
		"ranks that wait for the one that writes a checkpoint": {with(func(_, then *scene) { then.write = 7e8 }), time.Hour},
		"two of eight that do something else": {with(func(_, then *scene) {
			then.also = func(s *collector.Snapshot) {
				quietRank(1)(s)
				quietRank(2)(s)
			}
		}), time.Hour},
		"light work that computes": {with(func(_, then *scene) { then.tensor, then.dram, then.watts = 0.1, 0.35, 200 }), time.Hour},
		"work at more power":       {with(func(_, then *scene) { then.watts = 230 }), time.Hour},
		"not fully used":           {with(func(_, then *scene) { then.util = 0.97 }), time.Hour},
	} {
		for _, step := range paces[1:] {
			t.Run(name+" at "+step.String(), func(t *testing.T) {
				st := newStage(t, DetectorConfig{}, step)
				work, then := c.scenes()
				st.play(&work, c.worked)
				st.play(&then, 20*time.Minute)
				for _, in := range st.told {
					if in.Rule == rules.IDJobHung {
						t.Errorf("told %s", in.Members[0].Evidence.Seen)
					}
				}
			})
		}
	}
}

// shaky makes power move by so many watts from one reading to the next.
func shaky(watts float64) func(*collector.Snapshot) {
	up := false
	return func(s *collector.Snapshot) {
		up = !up
		for i := range s.GPUs {
			g := &s.GPUs[i]
			if w := g.Value(metric.PowerDraw); up {
				g.Set(metric.PowerDraw, w+watts)
			}
		}
	}
}

// A barrier that the job comes back from by itself, each time, is how it works.
func TestBarrierThatIsHabitual(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	work := atWork()
	wait := spinning(work, 152, 700)
	for range 3 {
		st.play(&work, 20*time.Minute)
		st.play(&wait, 7*time.Minute)
	}
	pages := 0
	for _, in := range st.told {
		if in.Rule == rules.IDJobHung && in.State == Firing {
			pages++
		}
	}
	if pages != 1 {
		t.Errorf("told %d times, want once: the job came back by itself", pages)
	}
}

// idling is a job that does nothing while its processes are there.
func idling(c scene) scene {
	c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink, c.pcie = 0, 0, 0, 0, 118, 0, 1e5
	return c
}

func TestStalledJob(t *testing.T) {
	for _, step := range paces {
		t.Run(step.String(), func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, step)
			work := atWork()
			stall := idling(work)
			st.play(&work, 35*time.Minute)
			st.play(&stall, 9*time.Minute)
			st.silent("before it has stood still for ten minutes")
			st.play(&stall, 5*time.Minute)
			f := st.finding(rules.IDJobStalled, jobSubject)
			if f == nil || f.State != Firing || f.Severity != rules.Page || f.Evidence.Confidence != VerySure {
				t.Fatalf("after fourteen minutes: %+v, want a page, very sure", f)
			}
			if want := "all 8 GPUs that worked are under a tenth of their usual activity"; !strings.Contains(f.Evidence.Seen, want) {
				t.Errorf("the evidence lacks %q: %s", want, f.Evidence.Seen)
			}
			st.mustBe(VerdictStalled, "all 8 GPUs")
			// The idle GPUs are the job's, which somebody has been woken for.
			st.play(&stall, 30*time.Minute)
			for _, f := range st.e.View().Findings {
				if f.Rule == rules.IDIdleGPU {
					t.Errorf("GPU %d has a finding of its own beside that of its job: %s", f.GPUIndex, f.Evidence.Seen)
				}
			}
			st.play(&work, 15*time.Minute)
			if f := st.finding(rules.IDJobStalled, jobSubject); f.State != Resolved {
				t.Errorf("a quarter of an hour after the job went on, its finding is %s", f.State)
			}
			st.mustBe(VerdictComputeBound)
		})
	}
}

func TestStalledLookAlikes(t *testing.T) {
	for name, c := range map[string]struct {
		worked time.Duration
		scene  func(work, then *scene)
	}{
		"job that ended": {time.Hour, func(_, then *scene) { then.process = "" }},
		"job that starts anew": {time.Hour, func(_, then *scene) {
			then.also = func(s *collector.Snapshot) {
				for i := range s.Processes {
					s.Processes[i].PID += 5000
				}
			}
		}},
		"job that is young": {20 * time.Minute, func(_, _ *scene) {}},
		"notebook":          {time.Hour, func(work, then *scene) { work.process, then.process = "ipykernel_launcher", "ipykernel_launcher" }},
		"notebook, by its owner": {time.Hour, func(work, then *scene) {
			work.owner = collector.Owner{Kind: "pod", ID: "research/jupyter-ann"}
			then.owner = work.owner
		}},
		"endpoint without requests": {time.Hour, func(work, then *scene) {
			work.owner, work.served, work.running, work.waiting = pod, true, 60, 0
			then.owner, then.served, then.running, then.waiting = pod, true, 0, 0
		}},
		"long checkpoint": {time.Hour, func(_, then *scene) { then.write = 7e8 }},
		"job that says it gets on": {time.Hour, func(_, then *scene) {
			then.also = func(s *collector.Snapshot) {
				s.Workloads[0].Set(metric.WorkloadProgress, float64(s.Time.Unix()-60))
			}
		}},
		"job that says it is done": {time.Hour, func(_, then *scene) {
			then.also = func(s *collector.Snapshot) { s.Workloads[0].Set(metric.WorkloadFinished, 1) }
		}},
		"one rank that goes on": {time.Hour, func(_, then *scene) {
			then.also = func(s *collector.Snapshot) { s.GPUs[3].Set(metric.SMActivity, 0.5) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			work := atWork()
			then := idling(work)
			c.scene(&work, &then)
			st.play(&work, c.worked)
			st.play(&then, 18*time.Minute)
			for _, in := range st.told {
				if in.Rule == rules.IDJobStalled {
					t.Errorf("told %s", in.Members[0].Evidence.Seen)
				}
			}
		})
	}
}

// A checkpoint every hour, during which all ranks rest and data is written, is silent
// whether or not the writing can be seen.
func TestCheckpointEveryHour(t *testing.T) {
	for _, seen := range []bool{true, false} {
		st := newStage(t, DetectorConfig{}, 15*time.Second)
		work := atWork()
		work.blind = !seen
		pause := idling(work)
		if seen {
			pause.write = 1e9
		}
		for range 6 {
			st.play(&work, 52*time.Minute)
			st.play(&pause, 8*time.Minute)
		}
		st.silent("checkpoints")
	}
}

func TestStallThatMayBeACheckpointNobodySees(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	work := atWork()
	work.blind = true
	stall := idling(work)
	st.play(&work, time.Hour)
	st.play(&stall, 18*time.Minute)
	if st.firing(rules.IDJobStalled, jobSubject) {
		t.Error("told after 18 minutes, though nobody sees whether it writes a checkpoint")
	}
	st.play(&stall, 5*time.Minute)
	if f := st.finding(rules.IDJobStalled, jobSubject); f == nil || f.State != Firing || f.Evidence.Confidence != Likely {
		t.Errorf("after 23 minutes: %+v, want a finding that is likely", f)
	}
}

// Work that nobody says is a training may come when it comes.
func TestStalledPodIsATicket(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	work := atWork()
	work.owner = pod
	stall := idling(work)
	st.play(&work, time.Hour)
	st.play(&stall, 15*time.Minute)
	if f := st.finding(rules.IDJobStalled, pod.String()); f == nil || f.State != Firing || f.Severity != rules.Ticket {
		t.Errorf("finding %+v, want a ticket", f)
	}
}

// What is known of a job survives a restart of the agent and a clock that is set.
func TestJobsAcrossRestartAndClock(t *testing.T) {
	for name, disturb := range map[string]func(*stage){
		"restart": (*stage).restart,
		"clock set": func(st *stage) {
			st.now = st.now.Add(3 * time.Hour)
			set := st.set
			first := true
			st.set = func(s *collector.Snapshot) {
				set(s)
				if first {
					s.Step, first = 3*time.Hour, false
				}
			}
			st.run(st.step)
			st.set = set
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			work := atWork()
			hang, stall := spinning(work, 152, 700), idling(work)
			st.play(&work, 40*time.Minute)
			since := st.verdict().Since
			disturb(st)
			st.run(time.Minute)
			if v := st.verdict(); v.Name != VerdictComputeBound {
				t.Errorf("after it the verdict is %s (%s), want what it was", v.Name, v.Evidence)
			} else if moved := v.Since.Sub(since); moved != 0 && name == "restart" {
				t.Errorf("the verdict's beginning moved by %s", moved)
			}
			st.silent("a job at work")
			st.play(&stall, 6*time.Minute)
			disturb(st)
			st.play(&stall, 8*time.Minute)
			if !st.firing(rules.IDJobStalled, jobSubject) {
				t.Errorf("a stall that began before it is not told: %+v", st.finding(rules.IDJobStalled, jobSubject))
			}
			st.play(&work, 20*time.Minute)
			st.play(&hang, 3*time.Minute)
			disturb(st)
			st.play(&hang, 7*time.Minute)
			if !st.firing(rules.IDJobHung, jobSubject) {
				t.Errorf("a hang that began before it is not told: %+v", st.finding(rules.IDJobHung, jobSubject))
			}
		})
	}
}

// A GPU that was lost explains why the others spin.
func TestHangAfterALostGPUIsTheLosss(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	work := atWork()
	hang := spinning(work, 152, 700)
	lost := func(s *collector.Snapshot) {
		s.Node.Set(metric.GPUsSeen, 8)
	}
	work.also = lost
	hang.also = func(s *collector.Snapshot) {
		lost(s)
		s.GPUs[5].Present = false
		s.Node.Set(metric.GPUsSeen, 7)
	}
	st.play(&work, 20*time.Minute)
	st.play(&hang, 12*time.Minute)
	if !st.firing(rules.IDGPULost, "gpu:GPU-5") {
		t.Fatal("the lost GPU is not told")
	}
	if st.firing(rules.IDJobHung, jobSubject) {
		t.Error("the job that spins since it lost a GPU is a second page")
	}
}
