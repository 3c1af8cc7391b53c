package fleet

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// A GPU that an exporter says to be two teams' is a ticket, unless it is known to be
// shared, or both are ranks of one job.
func TestTwoTeamsOnOneGPU(t *testing.T) {
	nlp, vision := collector.Owner{Kind: "pod", ID: "nlp/train-0", Team: "nlp"}, collector.Owner{Kind: "pod", ID: "vision/eval-0", Team: "vision"}
	run := func(edit func(s *collector.Snapshot)) *detect.Finding {
		a := newAgents(t, 3)
		a.edit = func(node string, s *collector.Snapshot) {
			s.Agent = nil
			if node == "gpu-001" {
				g := &s.GPUs[2]
				g.Set(metric.MemoryUsed, 8<<30)
				g.Stamp(metric.Fast, a.now)
				g.Allocations = []collector.Allocation{{UUID: g.UUID, Owner: nlp}, {UUID: g.UUID, Owner: vision}}
				edit(s)
			}
		}
		a.run(12 * time.Minute)
		for _, in := range a.open() {
			if in.Rule == rules.IDHiddenSharing {
				return &in.Members[0]
			}
		}
		return nil
	}
	f := run(func(*collector.Snapshot) {})
	if f == nil || f.Severity != rules.Ticket || f.Node != "gpu-001" || f.GPUIndex != 2 || f.Title() != "GPU given to teams nlp and vision at once" || !strings.HasPrefix(f.Evidence.Seen, "GPU 2 was given to pod nlp/train-0") {
		t.Errorf("a GPU of two teams is told as %+v", f)
	}
	for name, edit := range map[string]func(*collector.Snapshot){
		"a node on which GPUs are shared": func(s *collector.Snapshot) {
			s.Where = []collector.Label{{Name: detect.LabelSharing, Value: "time-slicing"}}
		},
		"a GPU in MIG mode": func(s *collector.Snapshot) { s.GPUs[2].MIG = true },
		"two ranks of one job": func(s *collector.Snapshot) {
			job := collector.Owner{Kind: "job", ID: "jobset/x/y"}
			s.Members = []collector.Member{{Owner: nlp, Job: job}, {Owner: vision, Job: job}}
		},
		"a GPU that nobody uses": func(s *collector.Snapshot) { s.GPUs[2].Set(metric.MemoryUsed, 10<<20) },
		"a node with an agent":   func(s *collector.Snapshot) { s.Agent = &collector.Agent{Instance: "gpu-001:9836"} },
		"one team":               func(s *collector.Snapshot) { s.GPUs[2].Allocations[1].Owner.Team = "nlp" },
		"teams nobody knows":     func(s *collector.Snapshot) { s.GPUs[2].Allocations[1].Owner.Team = "" },
	} {
		if f := run(edit); f != nil {
			t.Errorf("%s is told: %s", name, f.Evidence.Seen)
		}
	}
}
