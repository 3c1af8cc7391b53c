package detect

import (
	"fmt"
	"slices"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// watcher is one detector with its rule, as set for this engine, and its findings.
type watcher struct {
	detector Detector
	rule     *rules.Rule
	wait     time.Duration // rule.For
	hold     time.Duration
	severity *rules.Severity
	pages    bool // it may wake somebody
	promoted bool

	statistical bool // its rule is, or what it has reported
	limit       int
	report      func(Observation)
	hiders      []*watcher
	hides       bool // some rule is hidden by this one

	found      map[key]*tracked
	order      []*tracked                 // in the order in which they were opened
	blocked    map[Subject]rules.Severity // subjects of findings that fire
	victims    map[Subject]rules.Severity // and their owners
	conditions []Condition
	condition  map[Subject]int // position in conditions
	seenAt     []time.Time     // of conditions, when last judged
	record     record
	judged     bool // it has judged something in this snapshot

	seconds                   *vm.FloatCounter
	failures, capped, dropped *vm.Counter
	suppressed                *vm.Counter
}

func (e *Engine) newWatcher(d Detector) *watcher {
	r, set := d.Rule(), e.cfg.Settings[d.Rule().ID]
	w := &watcher{
		detector: d, rule: r, wait: r.For, hold: r.Hold, severity: set.Severity,
		pages: r.Pages || set.Promoted, promoted: set.Promoted, limit: e.cfg.MaxFindings,
		found: map[key]*tracked{}, blocked: map[Subject]rules.Severity{}, victims: map[Subject]rules.Severity{}, condition: map[Subject]int{},
		seconds:  vm.GetOrCreateFloatCounter(metric.DetectorSeconds.Series(string(r.ID))),
		failures: vm.GetOrCreateCounter(metric.DetectorPanics.Series(string(r.ID))),
		capped:   vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(r.ID))),
		dropped:  vm.GetOrCreateCounter(metric.ObservationsDropped.Series(string(r.ID))),

		suppressed: vm.GetOrCreateCounter(metric.FindingsSuppressed.Series(string(r.ID), drainedReason)),
	}
	if set.For != nil {
		w.wait = *set.For
	}
	if set.Hold != nil {
		w.hold = *set.Hold
	}
	if r.Statistical {
		e.divide(w)
	}
	// One closure for the engine's life: a snapshot costs none.
	w.report = func(o Observation) { e.take(w, &o) }
	return w
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
	for _, w := range e.watchers {
		for _, h := range e.watchers {
			if slices.Contains(w.rule.HiddenBy, h.rule.ID) {
				w.hiders = append(w.hiders, h)
				h.hides = true
			}
		}
	}
}

// note keeps the plain state of a rule that exports it.
func (e *Engine) note(w *watcher, o *Observation) {
	i, ok := w.condition[o.Subject]
	if !ok {
		if len(w.conditions) >= w.limit {
			w.capped.Inc()
			return
		}
		i = len(w.conditions)
		w.condition[o.Subject] = i
		w.conditions = append(w.conditions, Condition{Rule: w.rule.ID, Subject: o.Subject})
		w.seenAt = append(w.seenAt, e.now)
		e.changed = true
	}
	c := &w.conditions[i]
	e.changed = e.changed || c.Active != o.State
	c.Active, c.Score = o.State, o.Score
	w.seenAt[i] = e.now
}

// expireConditions drops the state of subjects that are no longer judged.
func (e *Engine) expireConditions(w *watcher) {
	limit := max(3*w.hold, minExpiry)
	for i := 0; i < len(w.conditions); i++ {
		if e.now.Sub(w.seenAt[i]) <= limit {
			continue
		}
		delete(w.condition, w.conditions[i].Subject)
		w.conditions = slices.Delete(w.conditions, i, i+1)
		w.seenAt = slices.Delete(w.seenAt, i, i+1)
		for k := i; k < len(w.conditions); k++ {
			w.condition[w.conditions[k].Subject] = k
		}
		i--
		e.changed = true
	}
}
