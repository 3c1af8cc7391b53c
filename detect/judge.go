package detect

import (
	"fmt"
	"slices"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// judge is one detector with its rule, as set for this engine, and its findings.
type judge struct {
	detector Detector
	rule     *rules.Rule
	wait     time.Duration // rule.For
	hold     time.Duration
	severity *rules.Severity
	limit    int
	report   func(Observation)
	hiders   []*judge
	hides    bool // some rule is hidden by this one

	found      map[key]*tracked
	order      []*tracked // in the order in which they were opened
	blocked    map[Subject]struct{}
	conditions []Condition
	condition  map[Subject]int // position in conditions
	seenAt     []time.Time     // of conditions, when last judged

	seconds                   *vm.FloatCounter
	failures, capped, dropped *vm.Counter
}

func (e *Engine) newJudge(d Detector) *judge {
	r, set := d.Rule(), e.cfg.Settings[d.Rule().ID]
	j := &judge{
		detector: d, rule: r, wait: r.For, hold: r.Hold, severity: set.Severity, limit: e.cfg.MaxFindings,
		found: map[key]*tracked{}, blocked: map[Subject]struct{}{}, condition: map[Subject]int{},
		seconds:  vm.GetOrCreateFloatCounter(metric.DetectorSeconds.Series(string(r.ID))),
		failures: vm.GetOrCreateCounter(metric.DetectorPanics.Series(string(r.ID))),
		capped:   vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(r.ID))),
		dropped:  vm.GetOrCreateCounter(metric.ObservationsDropped.Series(string(r.ID))),
	}
	if set.For != nil {
		j.wait = *set.For
	}
	if set.Hold != nil {
		j.hold = *set.Hold
	}
	// One closure for the engine's life: a snapshot costs none.
	j.report = func(o Observation) { e.take(j, &o) }
	return j
}

// link finds for each rule those that hide it.
func (e *Engine) link(detectors []Detector) {
	for i, d := range detectors {
		for _, id := range d.Rule().HiddenBy {
			if slices.ContainsFunc(detectors[i:], func(d Detector) bool { return d.Rule().ID == id }) {
				panic(fmt.Sprintf("BUG: detector %s is hidden by %s and must come after it", d.Rule().ID, id))
			}
		}
	}
	for _, j := range e.judges {
		for _, h := range e.judges {
			if slices.Contains(j.rule.HiddenBy, h.rule.ID) {
				j.hiders = append(j.hiders, h)
				h.hides = true
			}
		}
	}
}

// note keeps the plain state of a rule that exports it.
func (e *Engine) note(j *judge, o *Observation) {
	i, ok := j.condition[o.Subject]
	if !ok {
		if len(j.conditions) >= j.limit {
			j.capped.Inc()
			return
		}
		i = len(j.conditions)
		j.condition[o.Subject] = i
		j.conditions = append(j.conditions, Condition{Rule: j.rule.ID, Subject: o.Subject})
		j.seenAt = append(j.seenAt, e.now)
		e.changed = true
	}
	c := &j.conditions[i]
	e.changed = e.changed || c.Active != o.State
	c.Active, c.Score = o.State, o.Score
	j.seenAt[i] = e.now
}

// expireConditions drops the state of subjects that are no longer judged.
func (e *Engine) expireConditions(j *judge) {
	limit := max(3*j.hold, minExpiry)
	for i := 0; i < len(j.conditions); i++ {
		if e.now.Sub(j.seenAt[i]) <= limit {
			continue
		}
		delete(j.condition, j.conditions[i].Subject)
		j.conditions = slices.Delete(j.conditions, i, i+1)
		j.seenAt = slices.Delete(j.seenAt, i, i+1)
		for k := i; k < len(j.conditions); k++ {
			j.condition[j.conditions[k].Subject] = k
		}
		i--
		e.changed = true
	}
}
