package detect

import (
	"cmp"
	"slices"
	"time"

	"gpuvigil/rules"
)

const (
	maxFinished = 256
	refresh     = 15 * time.Second // of scores in the view while nothing changes
)

// View is what the engine knows at one instant. It is never changed: readers may
// keep it and share it.
type View struct {
	Time       time.Time   // of the newest snapshot; zero before the first
	Findings   []Finding   // firing, then pending that nothing hides, then resolved in the last day; the worst first
	Incidents  []Incident  // open, then resolved in the last day; the newest first
	Standings  []Standing  // of all rules, in the order of the detectors
	Conditions []Condition // of rules with Rule.State, by rule in the order of the detectors
	Verdicts   []Verdict   // one for each GPU of the newest snapshot, in its order

	// VersionChanges counts for each component how often its version has changed
	// since the state began: the value of metric.VersionChanges. A component that
	// never changed may be missing. It must not be modified.
	VersionChanges map[string]uint64
}

// Condition is the plain state of a rule on one subject.
type Condition struct {
	Rule    rules.ID
	Subject Subject
	Active  bool
	Score   float64
}

// Worst returns the highest severity of the findings that fire, and whether any
// does.
func (v *View) Worst() (rules.Severity, bool) { return worst(v.Findings) }

// View returns the newest view; it is never nil.
func (e *Engine) View() *View { return e.view.Load() }

// publish makes the view of this snapshot. Only what changed is built anew.
func (e *Engine) publish() {
	v := &View{Time: e.now}
	if old := e.view.Load(); old != nil && !e.changed && e.now.Sub(e.published) < refresh {
		v.Findings, v.Incidents, v.Standings, v.Conditions, v.Verdicts = old.Findings, old.Incidents, old.Standings, old.Conditions, old.Verdicts
		v.VersionChanges = old.VersionChanges
	} else {
		e.build(v)
		e.changed, e.published = false, e.now
	}
	if e.versions != nil {
		v.VersionChanges = e.versions.VersionChanges()
	}
	e.view.Store(v)
}

func (e *Engine) build(v *View) {
	drop := max(len(e.finished)-maxFinished, 0)
	for drop < len(e.finished) && e.now.Sub(e.finished[drop].Resolved) >= keepResolved {
		drop++
	}
	e.finished = slices.Delete(e.finished, 0, drop)
	for _, w := range e.watchers {
		for _, t := range w.order {
			if t.State == Resolved || t.State == Pending && w.hidden(t, e.now) {
				continue
			}
			v.Findings = append(v.Findings, t.Finding)
			if t.State == Firing && t.incident != nil {
				t.incident.Members[t.member] = t.Finding
			}
		}
		v.Conditions = append(v.Conditions, w.conditions...)
	}
	if e.judge != nil {
		v.Verdicts = slices.Clone(e.judge.Verdicts())
	}
	v.Findings = append(v.Findings, e.finished...)
	v.Standings = e.standings()
	slices.SortStableFunc(v.Findings, byUrgency)
	for _, in := range slices.Backward(e.incidents.all) {
		v.Incidents = append(v.Incidents, in.export())
	}
	slices.SortStableFunc(v.Incidents, func(a, b Incident) int { return cmp.Compare(rank(a.State), rank(b.State)) })
}

func byUrgency(a, b Finding) int {
	if c := cmp.Compare(rank(a.State), rank(b.State)); c != 0 {
		return c
	}
	if a.State == Resolved {
		return b.Resolved.Compare(a.Resolved)
	}
	return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since), cmp.Compare(a.GPUIndex, b.GPUIndex))
}

func rank(s State) int {
	switch s {
	case Firing:
		return 0
	case Pending:
		return 1
	default:
		return 2
	}
}
