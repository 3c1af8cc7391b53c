package detect

import (
	"slices"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// critical reports whether the observation is about a workload that the configuration
// calls so: the owner's, or one of those on the GPU.
func (e *Engine) critical(o *Observation) bool {
	is := func(who collector.Owner) bool {
		w := e.snapshot.WorkloadOf(who)
		return w != nil && w.Critical
	}
	return is(o.Owner) || o.GPU != nil && slices.ContainsFunc(o.GPU.Owners, is)
}

// bound limits a severity to what the rule, or the user's setting for it, allows. What
// concerns a critical workload is one higher, but a page only by a rule that may page.
func (w *watcher) bound(s rules.Severity, critical bool) rules.Severity {
	if w.severity == nil {
		s = min(s, w.rule.Severity)
		switch {
		case !critical:
		case s < rules.Ticket || w.pages && s < rules.Page:
			s++
		}
		return s
	}
	if critical && s < rules.Page {
		s++
	}
	if s >= w.rule.Severity {
		return *w.severity
	}
	return min(s, *w.severity)
}
