package alerting

import (
	"context"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// job is one delivery.
type job struct {
	r        *record
	incident *detect.Incident
	context  *Context
	ref      string
	doubt    bool
	first    bool // no state of the incident was delivered as a whole yet
	ring     string
	rung     int
	mentions []string
	words    *Text
}

// job is what is to be said for a record now.
func (o *Outbox) job(q *queue, r *record, now time.Time) *job {
	j := &job{r: r, incident: r.Incident, context: r.Context, ref: r.Ref, doubt: r.doubt, first: r.Said.IsZero(), words: r.Words}
	d := o.gate.judge(q.Name, q.MinSeverity, r.Incident, now)
	if !j.first {
		j.ring = o.ring(r, r.Incident, d, now)
	}
	if j.rung = r.Rung; j.ring != "" {
		j.rung++
	}
	if j.first || j.ring != "" {
		j.mentions = q.calls(r.Incident, d)
	}
	return j
}

// attempt delivers one message. It does not end with ctx: a message that was cut
// off would leave it open whether it arrived.
func (o *Outbox) attempt(ctx context.Context, q *queue, j *job) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptLimit)
	defer cancel()
	m := Message{Incident: *j.incident, Rule: rules.Get(j.incident.Rule), Node: o.cfg.Node, Doubt: j.doubt,
		Mark: o.gate.standing(j.incident, time.Now()), Ring: j.ring, Rung: j.rung, Mentions: j.mentions, Words: j.words}
	if len(m.Incident.Members) > 0 && m.Incident.Members[0].Node != "" {
		m.Node = m.Incident.Members[0].Node
	}
	if o.cfg.Links != nil {
		m.Links = o.cfg.Links(j.incident)
	}
	if j.context != nil {
		m.Context = *j.context
	}
	if o.cfg.Chart != nil {
		m.Chart = func() *Chart { return o.cfg.Chart(j.incident) }
	}
	return q.Notifier.Notify(ctx, m, j.ref)
}
