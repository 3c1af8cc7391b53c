package alerting

import (
	"slices"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

const (
	stepBack   = 5                // failures in a row after which a message lets others try
	slowlyOnce = 10 * time.Minute // between two tries of a page that is refused
)

// pick returns the message to try next, nil if none waits. It is the first one,
// unless that has failed often and has just had its turn.
func (q *queue) pick() *record {
	if len(q.waiting) == 0 {
		return nil
	}
	first := q.waiting[0]
	if first.tries < stepBack || !q.letOther {
		return first
	}
	var other *record
	for _, r := range q.waiting[1:] {
		if other == nil || r.before(other) {
			other = r
		}
	}
	if other == nil {
		return first
	}
	return other
}

// before reports whether r, and not one that waits for longer, tries next while
// the first one lets others try: pages do before others, what has not failed
// often before what has.
func (r *record) before(other *record) bool {
	rank := func(r *record) (failed int, page bool) {
		if r.tries >= stepBack {
			failed = r.tries
		}
		return failed, r.Incident.Severity >= rules.Page
	}
	failed, page := rank(r)
	otherFailed, otherPage := rank(other)
	if (failed > 0) != (otherFailed > 0) {
		return failed == 0
	}
	if page != otherPage {
		return page
	}
	return failed < otherFailed
}

// insist puts back the refused pages whose time has come, and returns how long it
// is until the next one's.
func (q *queue) insist(now time.Time) time.Duration {
	next := time.Hour
	for _, r := range q.records {
		if !r.insists() {
			continue
		}
		if left := r.patience.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		r.Refused = nil
		q.put(r)
	}
	return next
}

// insists reports whether a refused message is tried again though nothing else
// happens.
func (r *record) insists() bool {
	return r.Refused != nil && !r.Refused.Content && r.Held == "" && r.Incident.State == detect.Firing && r.Incident.Severity >= rules.Page
}

// put adds r to the messages that wait, in the order of their places.
func (q *queue) put(r *record) {
	i, _ := slices.BinarySearchFunc(q.waiting, r.Seq, func(w *record, seq uint64) int {
		if w.Seq < seq {
			return -1
		}
		return 1
	})
	q.waiting = slices.Insert(q.waiting, i, r)
}

// remove takes r from the messages that wait.
func (q *queue) remove(r *record) {
	if i := slices.Index(q.waiting, r); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}
