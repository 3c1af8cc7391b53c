package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// acrossStage plays many nodes to the detectors that look at all of them.
type acrossStage struct {
	t      *testing.T
	across *Across
	engine *Engine
	now    time.Time
	step   time.Duration
	nodes  func(at time.Time) []*collector.Snapshot
}

func newAcrossStage(t *testing.T, step time.Duration, nodes func(at time.Time) []*collector.Snapshot) *acrossStage {
	a := NewAcross(FleetConfig{})
	return &acrossStage{t: t, across: a, engine: NewEngine(Config{Node: "cluster", NoHistory: true}, a.Detectors()), now: day, step: step, nodes: nodes}
}

func (a *acrossStage) run(d time.Duration) {
	for end := a.now.Add(d); a.now.Before(end); {
		a.now = a.now.Add(a.step)
		var heard []Heard
		for _, s := range a.nodes(a.now) {
			heard = append(heard, Heard{Node: s.Node.Name, Snapshot: s})
		}
		a.across.Look(a.now, heard)
		a.engine.Observe(&collector.Snapshot{Time: a.now})
	}
}

// fires returns the finding of the rule that fires, nil if none does.
func (a *acrossStage) fires(id rules.ID) *Finding {
	for _, f := range a.engine.View().Findings {
		if f.Rule == id && f.State == Firing {
			return &f
		}
	}
	return nil
}

// ranksOfTwoNodes is a stage on which a job has all GPUs of two nodes.
func ranksOfTwoNodes(t *testing.T, r *ranks) *acrossStage {
	r.gpus = 16
	return newAcrossStage(t, time.Minute, func(at time.Time) []*collector.Snapshot {
		all := &collector.Snapshot{Time: at}
		r.set(all)
		var out []*collector.Snapshot
		for n := range 2 {
			s := node(at, 0)
			s.Node.Name = nodeName(n)
			s.GPUs = all.GPUs[8*n : 8*n+8]
			for i := range s.GPUs {
				s.GPUs[i].Index, s.GPUs[i].UUID = i, fmt.Sprintf("GPU-%d-%d", n, i)
			}
			if n == 0 {
				s.Workloads = all.Workloads
			}
			out = append(out, s)
		}
		return out
	})
}

// The GPU that holds up a job is found among those of all its nodes, and named with its
// own.
func TestStragglerAmongNodes(t *testing.T) {
	r := newRanks()
	r.compute = since(11, 3, 1, 1.2)
	a := ranksOfTwoNodes(t, r)
	a.run(3 * time.Hour)
	if f := a.fires(rules.IDStraggler); f != nil {
		t.Fatalf("before anything was wrong: %s", f.Evidence.Seen)
	}
	a.run(time.Hour)
	f := a.fires(rules.IDStraggler)
	if f == nil || f.Node != "gpu-001" || f.GPUIndex != 3 || !strings.Contains(f.Evidence.Seen, "of its 16 GPUs here gpu-001/3 is the odd one out") || f.Owner != r.who {
		t.Errorf("a GPU of the second node is 20 %% slow, told is %+v", f)
	}
}

// acrossServing is a replica of a model on a node, with so many requests that wait and run.
func acrossServing(at time.Time, name string, waiting, running float64) *collector.Snapshot {
	s := node(at, 1)
	s.Node.Name = name
	e := endpoint(s, s.GPUs[0].UUID)
	e.URL = "http://" + name + ":8000/metrics"
	e.Set(metric.RequestsWaiting, waiting)
	e.Set(metric.RequestsRunning, running)
	e.Set(metric.EndpointUp, 1)
	return s
}

func TestIdleReplicaOnAnotherNode(t *testing.T) {
	idle := 0.0
	a := newAcrossStage(t, 30*time.Second, func(at time.Time) []*collector.Snapshot {
		return []*collector.Snapshot{acrossServing(at, "gpu-000", 12, 32), acrossServing(at, "gpu-001", 0, idle), acrossServing(at, "gpu-002", 0, 8)}
	})
	idle = 5
	a.run(30 * time.Minute)
	if f := a.fires(rules.IDQueueing); f != nil {
		t.Fatalf("all replicas are at work, and it is told: %s", f.Evidence.Seen)
	}
	idle = 0
	a.run(20 * time.Minute)
	f := a.fires(rules.IDQueueing)
	if f == nil || f.Cause != causeIdleSibling || f.Subject != (Subject{"service", "vllm/chat-70b"}) || !strings.Contains(f.Evidence.Seen, "12 requests wait at 1 of 3 replicas on gpu-000, while 1 replica (first http://gpu-001:8000/metrics on gpu-001)") {
		t.Errorf("requests wait beside an idle replica on another node, told is %+v", f)
	}
}

// A roll-out that goes on raises nothing, one that is stuck does.
func TestVersionsOfAPool(t *testing.T) {
	const nodes = 20
	begin, stuck := day.Add(time.Hour), false
	a := newAcrossStage(t, time.Minute, func(at time.Time) []*collector.Snapshot {
		var out []*collector.Snapshot
		for i := range nodes {
			s := node(at, 1)
			s.Node.Name = nodeName(i)
			moved := at.After(begin.Add(time.Duration(i) * 5 * time.Minute))
			if stuck {
				moved = i < 12
			}
			if moved {
				s.Node.Versions = []collector.Version{{Component: "driver", Value: "580.95"}}
			}
			out = append(out, s)
		}
		return out
	})
	a.run(6 * time.Hour)
	if f := a.fires(rules.IDVersionMismatch); f != nil {
		t.Fatalf("a roll-out of 100 minutes is told: %s", f.Evidence.Seen)
	}
	stuck = true
	a.run(4 * time.Hour)
	if f := a.fires(rules.IDVersionMismatch); f == nil || f.Subject.Kind != "pool" || !strings.Contains(f.Evidence.Seen, "12 nodes") {
		t.Errorf("12 of 20 nodes have another driver for hours, told is %+v", f)
	}
	state, err := a.engine.Save()
	if err != nil {
		t.Fatal(err)
	}
	next := newAcrossStage(t, time.Minute, a.nodes)
	next.now = a.now
	if err := next.engine.Restore(state); err != nil {
		t.Fatal(err)
	}
	if next.run(5 * time.Minute); next.fires(rules.IDVersionMismatch) == nil {
		t.Error("after a restart nothing is known of the roll-out that is stuck")
	}
}

// Ranks of one job that have loaded different libraries on different nodes.
func TestRanksThatDifferOverNodes(t *testing.T) {
	version := "2.27.5"
	job := collector.Owner{Kind: "job", ID: "slurm/4711"}
	a := newAcrossStage(t, time.Minute, func(at time.Time) []*collector.Snapshot {
		var out []*collector.Snapshot
		for i := range 4 {
			s := node(at, 8)
			s.Node.Name = nodeName(i)
			s.Inventory = &collector.Inventory{At: at, Runtimes: []collector.Runtime{{Owner: job, Component: "nccl", Version: "2.27.5", Processes: 8}}}
			if i == 3 {
				s.Inventory.Runtimes[0].Version = version
			}
			out = append(out, s)
		}
		return out
	})
	a.run(30 * time.Minute)
	if f := a.fires(rules.IDVersionMismatch); f != nil {
		t.Fatalf("all ranks have one version, and it is told: %s", f.Evidence.Seen)
	}
	version = "2.21.5"
	a.run(30 * time.Minute)
	if f := a.fires(rules.IDVersionMismatch); f == nil || f.Cause != ranksDiffer || f.Subject != (Subject{"job", "slurm/4711"}) || !strings.Contains(f.Evidence.Seen, "nccl 2.21.5 in 8 ranks, 2.27.5 in 24 ranks") {
		t.Errorf("8 of 32 ranks have another nccl, told is %+v", f)
	}
}

// What an agent exports is another process's: what makes no sense is left out.
func FuzzToldFindings(f *testing.F) {
	f.Add("gpu_lost", "page", "gpu:GPU-1", "gone")
	f.Add("../x", "fatal", "gpu:", "")
	f.Add("xid", "ticket", "node:\n", "xid_79")
	f.Fuzz(func(t *testing.T, rule, severity, subject, cause string) {
		s := node(day, 2)
		s.Agent = &collector.Agent{Findings: []collector.Told{{Rule: rule, Severity: severity, Subject: subject, Cause: cause, Since: day.Add(time.Hour)}}}
		findings, left := ToldFindings(s)
		if len(findings)+left != 1 {
			t.Fatalf("of one finding %d were taken and %d left out", len(findings), left)
		}
		for _, x := range findings {
			if x.Subject.String() != subject || x.Severity.String() != severity || !plainID.MatchString(string(x.Rule)) || x.Since.After(day) || x.Fired.After(day) {
				t.Errorf("%+v is made of %q %q %q %q", x, rule, severity, subject, cause)
			}
		}
	})
}
