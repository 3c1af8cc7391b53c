package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule slow_training.
const (
	stepTimeUp = "step_time"
	wholeNode  = "whole_node"
)

// SlowTraining watches how long a unit of training takes, against what it took the
// same workload before. If all that is measured on the node slows down at once, that is the
// node's, and one finding.
type SlowTraining struct {
	minute minutes
	jobs   paceBook
	served paceBook // of endpoints, by an owner that stands for their key
	capped *vm.Counter
}

// NewSlowTraining returns the detector of rule slow_training.
func NewSlowTraining() *SlowTraining {
	return &SlowTraining{jobs: newPaceBook(), served: newPaceBook(), capped: vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(rules.IDSlowTraining)))}
}

// Rule returns slow_training.
func (d *SlowTraining) Rule() *rules.Rule { return rules.Get(rules.IDSlowTraining) }

// Observe takes up what workloads tell of their pace, and judges each minute.
func (d *SlowTraining) Observe(s *collector.Snapshot, report func(Observation)) {
	if d.minute.over(s.Time) {
		d.judge(s, report)
	}
	for i := range s.Workloads {
		if l := &s.Workloads[i]; l.Owner.Kind != "" && tellsPace(l) {
			if p := d.jobs.get(l.Owner, s.Time); p != nil {
				p.add(l)
			} else {
				d.capped.Inc()
			}
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if p := d.served.get(endpointOwner(e), s.Time); p != nil {
			p.serve(e)
		} else {
			d.capped.Inc()
		}
	}
}

func tellsPace(l *collector.Workload) bool {
	for _, sig := range paceSignals {
		if l.Value(sig.row) > 0 {
			return true
		}
	}
	return false
}

func endpointOwner(e *collector.Endpoint) collector.Owner {
	return collector.Owner{Kind: e.Engine, ID: e.URL, Team: e.Model}
}

func (d *SlowTraining) judge(s *collector.Snapshot, report func(Observation)) {
	judged, slow := 0, 0
	least, rare := math.Inf(1), math.Inf(1)
	for _, ps := range [...]*paceBook{&d.jobs, &d.served} {
		for _, o := range ps.order {
			p := ps.of[o]
			if !p.end(s.Time) {
				continue
			}
			judged++
			if p.score() >= 1 {
				slow++
				least, rare = min(least, p.slower()), min(rare, nats(&p.Rise, &paceLaw))
			}
		}
	}
	all := judged >= 2 && slow == judged
	for _, o := range d.jobs.order {
		if p := d.jobs.of[o]; p.Seen.Equal(s.Time) {
			d.tell(s, o, p, all, report)
		}
	}
	if judged >= 2 {
		o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: wholeNode, Severity: rules.Ticket, Score: min(float64(slow)/float64(judged), 0.99)}
		if all {
			o.Score, o.Evidence = 1+least, nodeSlowWords(judged, least, rare)
			o.At, o.Surprise = d.began(s.Time), rare
		}
		report(o)
	}
}

// began is since when the last of them has been slow.
func (d *SlowTraining) began(now time.Time) (at time.Time) {
	for _, ps := range [...]*paceBook{&d.jobs, &d.served} {
		for _, o := range ps.order {
			if p := ps.of[o]; p.Seen.Equal(now) {
				at = later(at, p.Began)
			}
		}
	}
	return at
}

func (d *SlowTraining) tell(s *collector.Snapshot, who collector.Owner, p *pace, all bool, report func(Observation)) {
	o := Observation{Subject: OwnerSubject(who), Cause: stepTimeUp, Severity: rules.Ticket, Owner: who}
	if o.Score = p.score(); all {
		o.Score = 0
	}
	if o.Score >= 1 {
		o.At, o.Surprise = p.Began, nats(&p.Rise, &paceLaw)
		o.Evidence = slowWords(s.WorkloadOf(who), who, p, s.Time)
	}
	report(o)
}

func slowWords(l *collector.Workload, who collector.Owner, p *pace, now time.Time) Evidence {
	want := p.usual()
	seen := fmt.Sprintf("a %s of %s %s takes %s, %s more than usual, since %s (for %s)",
		p.unit(), who.Kind, who.ID, seconds(p.now), percentOf(p.slower()), timeOf(p.Began, now), span(now.Sub(p.Began)))
	if l != nil {
		if wait := l.Value(metric.WorkloadLoaderWait); wait > 0.05 {
			seen += fmt.Sprintf("; %s of the time it waits for data", percentOf(wait))
		}
	}
	return Evidence{
		Title: "Training of " + who.ID + " has become slower", Seen: seen,
		Expected: "about " + seconds(want) + ", as in its own last hours", Observed: p.now, Want: &want,
		Confidence: sureOf(nats(&p.Rise, &paceLaw)),
		Why:        "told by the workload, means of a minute against its own past",
	}
}

func nodeSlowWords(judged int, least, rare float64) Evidence {
	want := 0.0
	return Evidence{
		Title:    "All work on the node has become slower",
		Seen:     fmt.Sprintf("all %d workloads and endpoints whose pace is known take %s or more longer than usual, each against its own past", judged, percentOf(least)),
		Expected: "no common slow-down", Observed: least, Want: &want, Confidence: sureOf(rare),
		Why:    "what slows all of them at once is the node's, or what they share",
		Action: "Look at what changed on the node before it, then at power, heat, the network and the storage that they share.",
	}
}

// Shift moves when workloads were seen.
func (d *SlowTraining) Shift(by time.Duration) {
	d.minute.shift(by)
	for _, ps := range [...]*paceBook{&d.jobs, &d.served} {
		for _, p := range ps.of {
			p.shift(by)
		}
	}
}

type slowState struct {
	Version int      `json:"version"`
	Jobs    []paceOf `json:"jobs"`
	Served  []paceOf `json:"served,omitempty"`
}

// Save returns the usual pace of each workload and endpoint, 0.4 KiB each.
func (d *SlowTraining) Save() ([]byte, error) {
	return json.Marshal(slowState{1, d.jobs.save(), d.served.save()})
}

// Restore takes up what Save returned.
func (d *SlowTraining) Restore(data []byte) error {
	var m slowState
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	d.jobs.restore(m.Jobs)
	d.served.restore(m.Served)
	return nil
}
