package alerting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// lookEvery is how often it is looked whether what was kept back may be told, and whether
// something is to be said again.
const lookEvery = time.Minute

// take puts an incident's state in the place of the one that waits, if one does,
// or at the end of the queue.
func (o *Outbox) take(q *queue, i *detect.Incident, now time.Time) {
	r := q.records[i.ID]
	if q.DigestOf != "" || r != nil && r.says(i) {
		return
	}
	if r != nil && r.Merged != "" && o.tellMerged(q, r, i, now) {
		return
	}
	waited, held := r != nil && r.waits(), r != nil && r.Held != ""
	if r == nil || !r.told() {
		if r = o.introduce(q, i, r, now); r == nil {
			return
		}
	}
	if held && r.Held == "" {
		o.enqueue(r, now) // nobody has looked since it was let go
	}
	if o.renew(r, i, now); !waited && r.waits() {
		q.put(r)
	}
}

// renew makes the incident's state what is to be said.
func (o *Outbox) renew(r *record, i *detect.Incident, now time.Time) {
	if !r.waits() {
		o.enqueue(r, now)
	}
	incident := *i
	r.Incident, r.Refused, r.again = &incident, nil, 0
	if o.cfg.Context != nil {
		known := o.cfg.Context(&incident).Following(r.Context)
		r.Context = &known
	}
	o.change(r, now)
}

// enqueue gives a record the place behind all others.
func (o *Outbox) enqueue(r *record, now time.Time) {
	o.seq++
	r.Seq, r.Queued, r.taken = o.seq, now, now
}

// introduce decides whether a receiver is to hear of an incident that it does not
// know, now or later, and returns its record if so.
func (o *Outbox) introduce(q *queue, i *detect.Incident, r *record, now time.Time) *record {
	if i.State == detect.Resolved {
		o.missed(q, r, i, now)
		return nil
	}
	d := o.gate.judge(q.Name, q.MinSeverity, i, now)
	if d.outcome == beneath || d.outcome == elsewhere || d.outcome == shadowed && r != nil && r.Shadowed {
		return nil
	}
	if r == nil {
		r = &record{key: q.Name + keySep + i.ID}
		q.records[i.ID] = r
	}
	log := o.log.With("receiver", q.Name, "incident", i.ID, "rule", i.Rule, "severity", i.Severity)
	r.Shadowed = d.outcome == shadowed
	switch d.outcome {
	case shadowed:
		r.Kept = keepBack(i)
		q.shadowed.Inc()
		o.change(r, now)
		log.Info("would have been sent: in the first days only certain faults are", "until", o.first.Add(o.cfg.Shadow))
		return nil
	case held:
		if r.Held == "" {
			q.held.Inc()
			log.Info("kept back for now, it is sent if it still fires then", "why", d.why)
		}
		r.Held = d.why
		return r
	}
	r.Held = ""
	if o.merges(q, i, now) {
		o.merge(q, r, i, now)
		return nil
	}
	return r
}

// missed notes an incident that was over before its receiver was to hear of it.
func (o *Outbox) missed(q *queue, r *record, i *detect.Incident, now time.Time) {
	if r == nil || r.Held == "" {
		return
	}
	o.log.Info("not sent: it was over before it was to be", "receiver", q.Name, "incident", i.ID, "rule", i.Rule, "why", r.Held)
	r.Kept, r.Missed = keepBack(i), true
	r.Incident, r.Held, r.Queued = nil, "", time.Time{}
	o.change(r, now)
}

// look puts what may be told now into the queue, and what is to be said again. It returns
// how long it is until the next look.
func (o *Outbox) look(q *queue, now time.Time) time.Duration {
	if left := q.looked.Add(lookEvery).Sub(now); left > 0 && left <= lookEvery {
		return left
	}
	q.looked = now
	records := slices.SortedFunc(maps.Values(q.records), func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, r := range records {
		switch {
		case r.Held != "":
			o.release(q, r, now)
		case r.Incident == nil && r.SaidAs == detect.Firing && !r.Rang.IsZero() && r.Merged == "":
			i := o.current(r.incident())
			if i == nil || i.State != detect.Firing {
				continue
			}
			if d := o.gate.judge(q.Name, q.MinSeverity, i, now); o.ring(r, i, d, now) != "" {
				o.renew(r, i, now)
				q.put(r)
			}
		}
	}
	return lookEvery
}

// release lets an incident that was kept back be told, if nothing keeps it back any more.
func (o *Outbox) release(q *queue, r *record, now time.Time) {
	i := r.Incident
	if r = o.introduce(q, i, r, now); r == nil || r.Held != "" {
		return
	}
	o.enqueue(r, now)
	o.change(r, now)
	q.put(r)
}

// ring says why a person is to be called again for an incident that the receiver knows,
// or nothing. What is kept back now is asked again later.
func (o *Outbox) ring(r *record, i *detect.Incident, d decision, now time.Time) string {
	if d.outcome != told || i.State != detect.Firing || r.Rang.IsZero() {
		return ""
	}
	m := o.gate.markOf(i.ID)
	switch {
	case r.RangAs != nil && i.Severity > *r.RangAs:
		return fmt.Sprintf("it got worse: %s, was %s", i.Severity, *r.RangAs)
	case r.SaidAs == detect.Resolved && i.Severity >= rules.Page:
		return "it is back"
	case m.over(r.Rang, now):
		return "the snooze is over and it still fires"
	case d.repeat > 0 && now.Sub(r.Rang) >= d.repeat && !m.acknowledges(i):
		return "it still fires, after " + text.Span(now.Sub(i.Opened)) + ", and nobody has acknowledged it"
	}
	return ""
}

// calls returns whom a message calls: those of the route, else of the receiver, for a page
// that rings.
func (q *queue) calls(i *detect.Incident, d decision) []string {
	if i.Severity < rules.Page || i.State != detect.Firing || d.outcome != told {
		return nil
	}
	if d.mentions != nil {
		return d.mentions
	}
	return q.Mentions
}
