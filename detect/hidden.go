package detect

import (
	"slices"
	"time"

	"gpuvigil/rules"
)

// explainedFor is how long an anomaly that a cause stood for may be away and still be the
// same one when it comes back.
const explainedFor = 30 * time.Minute

// hidden reports whether something else stands for the finding: a cause, or doubt about
// who looks.
func (w *watcher) hidden(t *tracked, now time.Time) bool {
	return w.explained(t, now) || slices.ContainsFunc(w.hiders, func(h *watcher) bool {
		return h.rule.Whole && slices.ContainsFunc(h.order, t.followsFrom)
	})
}

// explained reports whether a cause is known: on the same subject, on the job whose GPU
// it is about, or on a GPU of the job that it is about. Of some rules the other GPUs of
// the job count too, and what was so when the finding began.
func (w *watcher) explained(t *tracked, now time.Time) bool {
	if w.rule.Anomaly && t.accounted(now) {
		return true
	}
	owner := ownerSubject(t.Owner)
	for _, h := range w.hiders {
		for _, s := range [...]struct {
			by map[Subject]rules.Severity
			of Subject
		}{{h.blocked, t.Subject}, {h.blocked, owner}, {h.victims, t.Subject}, {h.victims, w.work(owner)}} {
			if s.of.Kind != "" && s.by[s.of] >= max(t.Severity, rules.Ticket) {
				return true
			}
		}
		if w.rule.Anomaly && !h.rule.Whole && slices.ContainsFunc(h.order, func(cause *tracked) bool { return cause.accountsFor(t, owner, now) }) {
			return true
		}
	}
	return false
}

// work is the owner whose other GPUs count for the rule; zero if they do not.
func (w *watcher) work(owner Subject) Subject {
	if w.rule.Work {
		return owner
	}
	return Subject{}
}

// followsFrom reports whether a finding may follow from one of the node that fires: it
// did not begin before it.
func (t *tracked) followsFrom(cause *tracked) bool {
	return cause.State == Firing && cause.Subject.Kind == "node" && cause.Node == t.Node &&
		cause.Severity >= max(t.Severity, rules.Ticket) && !t.Since.Before(cause.Since.Add(-together))
}

// accounted reports whether a cause stood for the finding a short time ago. While the
// finding goes on, so does this: a job that a fault has stopped stays unusual for hours
// after the fault is over.
func (t *tracked) accounted(now time.Time) bool {
	return !t.explained.IsZero() && now.Sub(t.explained) <= explainedFor
}

// accountsFor reports whether an anomaly began while the cause lasted, and on what it is
// about: the GPU, its owner, or a part of the node that all its GPUs share.
func (cause *tracked) accountsFor(t *tracked, owner Subject, now time.Time) bool {
	if cause.Fired.IsZero() || cause.Severity < max(t.Severity, rules.Ticket) || t.Since.Before(cause.Since.Add(-groupWindow)) {
		return false
	}
	end := now
	if cause.State != Firing {
		end = cause.Resolved
	}
	if t.Since.After(end) {
		return false
	}
	switch cause.Subject.Kind {
	case "node", "interface":
		return cause.Node == t.Node
	}
	return cause.Subject == t.Subject || owner.Kind != "" && (cause.Subject == owner || ownerSubject(cause.Owner) == owner)
}
