package alerting

import (
	"slices"
	"time"

	"gpuvigil/detect"
)

// Told returns up to which state of things each receiver has been told all, if up to before
// it has been: a replica that takes over needs to tell only what came later.
func (o *Outbox) Told(before time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	told := before
	if o.newest.After(told) {
		told = o.newest
	}
	for _, q := range o.queues {
		for _, r := range q.waiting {
			// What is ours alone, as a sign of life is, says nothing of the state of things.
			if at := r.Incident.Updated; r.incident() != Watchdog && r.incident() != firstWeek && !at.After(told) {
				told = at.Add(-1)
			}
		}
	}
	return told
}

// Heard notes that another replica has told each receiver all up to a state of things. What
// waits here and is later may be told by it still: it is in doubt, so that a notifier that can
// look does so first.
func (o *Outbox) Heard(until time.Time) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		for _, r := range slices.Clone(q.waiting) {
			r.doubt = true
			if !r.Incident.Updated.After(until) {
				o.heard(q, r, now)
			}
		}
		if end := o.first.Add(o.cfg.Shadow); o.cfg.Shadow > 0 && until.After(end) && q.records[firstWeek] == nil {
			r := &record{key: q.Name + keySep + firstWeek, Said: end, SaidAs: detect.Firing, doubt: true}
			q.records[firstWeek] = r
			o.change(r, now)
		}
	}
}

// heard makes of a message that waits one that was delivered, whose place is not known. The
// caller holds o.mu.
func (o *Outbox) heard(q *queue, r *record, now time.Time) {
	i := r.Incident
	r.Said, r.SaidAs, r.Ended = i.Updated, i.State, time.Time{}
	if i.State == detect.Resolved {
		r.Ended = now
	}
	if r.Rang.IsZero() { // when it really rang is not known, and nobody is called twice for that
		r.Rang, r.RangAs = now, &i.Severity
	}
	r.Incident, r.Queued = nil, time.Time{}
	q.remove(r)
	o.change(r, now)
}
