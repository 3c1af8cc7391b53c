package detect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// DrainedOccupied watches for work on the GPUs of a node that is drained.
type DrainedOccupied struct {
	told   Evidence
	toldAt time.Time
}

// NewDrainedOccupied returns the detector of rule drained_occupied.
func NewDrainedOccupied() *DrainedOccupied { return &DrainedOccupied{} }

// Rule returns drained_occupied.
func (d *DrainedOccupied) Rule() *rules.Rule { return rules.Get(rules.IDDrainedOccupied) }

// Observe judges the node, where anybody says whether it is drained and what runs on it.
func (d *DrainedOccupied) Observe(s *collector.Snapshot, report func(Observation)) {
	drained := s.Node.Value(metric.Drained)
	used, known := occupied(s)
	if !known || !(drained >= 0) || s.Node.Name == "" {
		return
	}
	o := Observation{Subject: Subject{Kind: "node", ID: s.Node.Name}, Cause: "occupied", Severity: rules.Ticket}
	if drained > 0 && used {
		if o.Score = 1; s.Time.Sub(d.toldAt).Abs() >= time.Minute {
			d.told, d.toldAt = occupants(s), s.Time
		}
		o.Evidence = d.told
	}
	report(o)
}

// Shift moves when the evidence was put into words.
func (d *DrainedOccupied) Shift(by time.Duration) { shift(by, &d.toldAt) }

// occupants says who is still on the node.
func occupants(s *collector.Snapshot) Evidence {
	var gpus, who []string
	for i := range s.GPUs {
		g := &s.GPUs[i]
		mine := slices.ContainsFunc(s.Processes, func(p collector.Process) bool { return p.UUID == g.UUID && !p.Service() })
		if !mine && !(g.Value(metric.ProcessCount) > 0) {
			continue
		}
		gpus = append(gpus, fmt.Sprint(g.Index))
		for _, o := range g.Owners {
			if name := o.String(); !slices.Contains(who, name) {
				who = append(who, name)
			}
		}
	}
	const most = 5
	if more := len(who) - most; more > 0 {
		who = append(who[:most], fmt.Sprintf("%d more", more))
	}
	seen := "the node is drained, and work runs on GPU " + strings.Join(gpus, ", ")
	if len(who) > 0 {
		seen += ": " + strings.Join(who, ", ")
	}
	want := 0.0
	return Evidence{
		Seen: seen, Expected: "nothing runs on a drained node", Observed: float64(len(gpus)), Want: &want,
		Confidence: Certain, Why: "the drain and the processes are facts",
	}
}
