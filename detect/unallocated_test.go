package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// scheduled makes a node of two GPUs on which a scheduler gave GPU 1 away.
func scheduled(s *collector.Snapshot) *collector.GPU {
	s.Node.Set(metric.AllocationsKnown, 1)
	s.GPUs[1].Allocations = []collector.Allocation{{UUID: s.GPUs[1].UUID, Owner: pod, Source: "kubelet"}}
	return &s.GPUs[0]
}

func compute(g *collector.GPU, sm, watts, memory float64) {
	g.Set(metric.Utilization, min(1, sm+0.05))
	g.Set(metric.SMActivity, sm)
	g.Set(metric.PowerDraw, watts)
	g.Set(metric.MemoryUtilization, memory)
}

func TestUnallocatedCompute(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		for name, without := range map[string]*metric.Def{"all signals": nil, "no SM activity": metric.SMActivity, "no memory traffic": metric.MemoryUtilization} {
			t.Run(fmt.Sprint(step, " ", name), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 1))
				st := only(t, step, NewUnallocated(UnallocatedConfig{}))
				st.set = func(s *collector.Snapshot) {
					g := scheduled(s)
					compute(g, 0.35+0.02*rng.NormFloat64(), 290+rng.NormFloat64(), 0.2+0.01*rng.NormFloat64())
					if without != nil {
						g.Set(without, math.NaN())
					}
					g.Owners = []collector.Owner{user}
					s.Processes = []collector.Process{{PID: 1, Name: "xmr", UUID: g.UUID, Owner: user}}
				}
				st.run(20 * time.Minute)
				st.again(NewUnallocated(UnallocatedConfig{}))
				st.run(10 * time.Minute)
				st.silent("half an hour is not over")
				st.run(4 * time.Minute)
				f := st.ticketed(rules.IDUnallocated, "gpu:GPU-0", "unallocated")
				if f.Title() != "Unallocated sustained compute" || f.Owner != user || f.Evidence.Confidence != Certain || f.Since.Before(day) || f.Since.After(day.Add(4*time.Minute)) {
					t.Errorf("%s of %s, %s, since %s", f.Title(), f.Owner, f.Evidence.Confidence, f.Since)
				}
				if without == nil {
					st.says(f, fmt.Sprintf("given to nobody, and computes steadily for %s, at 35 %% and 290 W, its memory busy 20 %% of the time, by 1 process", span(time.Duration(f.Evidence.Observed)*time.Second)),
						"no compute on a GPU that the scheduler has given to nobody")
				}
				if f := st.finding(rules.IDUnallocated, "gpu:GPU-1"); f != nil {
					t.Errorf("GPU 1 was given away, and there is a finding: %s", f.Evidence.Seen)
				}
			})
		}
	}
}

func TestUnallocatedLookAlikes(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	steady := func(s *collector.Snapshot) *collector.GPU {
		g := scheduled(s)
		compute(g, 0.9, 600, 0.4)
		g.Owners = []collector.Owner{user}
		return g
	}
	for name, set := range map[string]func(s *collector.Snapshot){
		"a node without a scheduler": func(s *collector.Snapshot) {
			steady(s)
			s.GPUs[1].Allocations = nil
		},
		"allocations are not known": func(s *collector.Snapshot) {
			steady(s)
			s.Node.Set(metric.AllocationsKnown, 0)
		},
		"nobody says whether they are known": func(s *collector.Snapshot) {
			steady(s)
			s.Node.Set(metric.AllocationsKnown, math.NaN())
		},
		"an allocation whose device is not known": func(s *collector.Snapshot) {
			steady(s)
			s.Node.Set(metric.AllocationsUnresolved, 1)
		},
		"given to somebody": func(s *collector.Snapshot) {
			g := steady(s)
			g.Allocations = []collector.Allocation{{UUID: g.UUID, Owner: job, Source: "slurm"}}
		},
		"an instance of it was given away": func(s *collector.Snapshot) {
			g := steady(s)
			s.Instances = []collector.Instance{{UUID: g.UUID, GI: 1, Allocations: []collector.Allocation{{UUID: g.UUID, MIG: "1/0", Owner: job}}}}
		},
		"free and idle": func(s *collector.Snapshot) { compute(scheduled(s), 0, 70, 0) },
		"a notebook that is used now and then": func(s *collector.Snapshot) {
			g := steady(s)
			if s.Time.Minute()%10 > 3 {
				compute(g, 0, 120, 0)
			}
		},
		"bursts": func(s *collector.Snapshot) {
			g := steady(s)
			compute(g, 0.3+0.7*rng.Float64(), 200+500*rng.Float64(), rng.Float64())
			if s.Time.Minute()%3 == 0 {
				compute(g, 0.1, 150, 0)
			}
		},
		"given away again each twenty minutes": func(s *collector.Snapshot) {
			g := steady(s)
			if s.Time.Minute()%20 < 2 {
				g.Allocations = []collector.Allocation{{UUID: g.UUID, Owner: job, Source: "slurm"}}
			}
		},
		"lost": func(s *collector.Snapshot) { steady(s).Present = false },
	} {
		t.Run(name, func(t *testing.T) {
			st := only(t, 15*time.Second, NewUnallocated(UnallocatedConfig{}))
			st.set = set
			st.run(3 * time.Hour)
			st.silent(name)
		})
	}
}

// A GPU that lay idle for a day computes since half an hour, and not since a day.
func TestUnallocatedSinceItComputes(t *testing.T) {
	st := only(t, time.Minute, NewUnallocated(UnallocatedConfig{}))
	began := day.Add(24 * time.Hour)
	st.set = func(s *collector.Snapshot) {
		g := scheduled(s)
		compute(g, 0, 70, 0)
		if s.Time.After(began) {
			compute(g, 0.9, 600, 0.4)
		}
	}
	st.run(25 * time.Hour)
	if f := st.ticketed(rules.IDUnallocated, "gpu:GPU-0", "unallocated"); f.Since.Sub(began).Abs() > 2*time.Minute {
		t.Errorf("it computes since %s, and the finding says since %s", began, f.Since)
	}
}

func TestUnallocatedOwnersThatAreAllowed(t *testing.T) {
	st := only(t, 15*time.Second, NewUnallocated(UnallocatedConfig{Allowed: []string{"service:dcgm.service", user.String()}}))
	other := collector.Owner{Kind: "user", ID: "10001"}
	owners := []collector.Owner{user}
	st.set = func(s *collector.Snapshot) {
		g := scheduled(s)
		compute(g, 0.9, 600, 0.4)
		g.Owners = owners
	}
	st.run(2 * time.Hour)
	st.silent("an owner who may")
	owners = []collector.Owner{user, other}
	st.run(40 * time.Minute)
	st.ticketed(rules.IDUnallocated, "gpu:GPU-0", "unallocated")
}

func TestUnallocatedOverGapsAndAClockThatIsSet(t *testing.T) {
	st := only(t, 15*time.Second, NewUnallocated(UnallocatedConfig{}))
	set := func(s *collector.Snapshot) { compute(scheduled(s), 0.9, 600, 0.4) }
	st.set = set
	st.run(20 * time.Minute)
	st.now = st.now.Add(20 * time.Minute) // nobody looked
	st.run(15 * time.Minute)
	st.silent("what was in a gap is not known to have been steady")
	st.set = func(s *collector.Snapshot) {
		s.Step = 5 * time.Hour
		set(s)
		st.set = set
	}
	st.now = st.now.Add(5 * time.Hour)
	st.run(10 * time.Minute)
	st.silent("the clock was set by five hours")
	st.run(10 * time.Minute)
	st.ticketed(rules.IDUnallocated, "gpu:GPU-0", "unallocated")
}

func TestUnallocatedAllocatesNothing(t *testing.T) {
	d := NewUnallocated(UnallocatedConfig{Allowed: []string{"user:7"}})
	var ring []*collector.Snapshot
	for i := range 1200 {
		s := node(day.Add(time.Duration(i)*time.Second), 8)
		scheduled(s)
		ring = append(ring, s)
	}
	next, report := 0, func(Observation) {}
	observe := func() { d.Observe(ring[next], report); next++ }
	observe()
	if got := testing.AllocsPerRun(1000, observe); got > 0.01 {
		t.Errorf("a snapshot costs %.2f allocations, want none", got)
	}
}
