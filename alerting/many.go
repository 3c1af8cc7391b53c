package alerting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// many is the rule of the message that tells of incidents which began faster than a
// receiver is to be told.
const many = "many"

// manyOpen is for how long further incidents join such a message: later ones are another
// storm, and an edit of an old message would not be seen.
const manyOpen = 10 * time.Minute

// part is what is remembered of an incident that is told with others.
type part struct {
	Severity rules.Severity `json:"severity"`
	Root     detect.Finding `json:"root"`
}

// merges reports whether a new incident is to be told with others, and counts it if not.
func (o *Outbox) merges(q *queue, i *detect.Incident, now time.Time) bool {
	if o.cfg.Burst <= 0 || i.Severity >= rules.Page {
		return false
	}
	q.begun = slices.DeleteFunc(q.begun, func(t time.Time) bool { return now.Sub(t) >= time.Minute || t.After(now) })
	if len(q.begun) >= o.cfg.Burst {
		return true
	}
	q.begun = append(q.begun, now)
	return false
}

// merge tells an incident in one message with others.
func (o *Outbox) merge(q *queue, r *record, i *detect.Incident, now time.Time) {
	var m *record
	for _, other := range q.records {
		if other.Parts != nil && now.Sub(other.Begun).Abs() < manyOpen && (m == nil || other.Begun.After(m.Begun)) {
			m = other
		}
	}
	if m == nil {
		id := fmt.Sprintf("%s-%d-%d", many, now.Unix(), o.seq)
		m = &record{key: q.Name + keySep + id, Begun: now, Parts: map[string]part{}}
		q.records[id] = m
		o.log.Warn("more incidents begin than a receiver is to be told in a minute: the rest is told in one message", "receiver", q.Name, "burst", o.cfg.Burst)
	}
	q.merged.Inc()
	r.Merged = m.incident()
	o.retell(q, m, r, i, now)
}

// tellMerged takes up a newer state of an incident that is told with others. It reports
// false if the incident is to be told alone from now on, because it became a page or the
// message is not known any more.
func (o *Outbox) tellMerged(q *queue, r *record, i *detect.Incident, now time.Time) bool {
	m := q.records[r.Merged]
	alone := m == nil || i.Severity >= rules.Page && i.State == detect.Firing
	if !alone {
		o.retell(q, m, r, i, now)
		return true
	}
	r.Merged, r.Said, r.SaidAs, r.Incident = "", time.Time{}, "", nil
	o.change(r, now)
	if m != nil {
		delete(m.Parts, i.ID)
		o.restate(q, m, now)
	}
	return false
}

// retell puts the state of one incident into the message that it is told in.
func (o *Outbox) retell(q *queue, m, r *record, i *detect.Incident, now time.Time) {
	p := part{Severity: i.Severity}
	if len(i.Members) > 0 {
		p.Root = i.Members[0]
		p.Root.Before = nil
	} else {
		p.Root = detect.Finding{Rule: i.Rule, Cause: i.Cause, GPUIndex: -1}
	}
	p.Root.State, p.Root.Resolved = i.State, i.Resolved
	m.Parts[i.ID] = p
	r.Incident, r.Said, r.SaidAs, r.Queued = nil, i.Updated, i.State, time.Time{}
	if r.Ended = (time.Time{}); i.State == detect.Resolved {
		r.Ended = now
	}
	o.change(r, now)
	o.restate(q, m, now)
}

// restate queues the message of many incidents as it is now.
func (o *Outbox) restate(q *queue, m *record, now time.Time) {
	waited := m.waits()
	if o.renew(m, m.sum(o.cfg.Node, o.cfg.Burst, now), now); !waited && m.waits() {
		q.put(m)
	}
}

// sum is the incident of many incidents: one finding that counts them, and the first of
// each.
func (r *record) sum(node string, burst int, now time.Time) *detect.Incident {
	i := &detect.Incident{ID: r.incident(), Rule: many, Cause: many, State: detect.Resolved, Opened: r.Begun, Updated: now, Resolved: now}
	rulesOf := map[rules.ID]int{}
	firing := 0
	for _, id := range slices.Sorted(maps.Keys(r.Parts)) {
		p := r.Parts[id]
		i.Severity = max(i.Severity, p.Severity)
		rulesOf[p.Root.Rule]++
		if p.Root.State == detect.Firing {
			i.State, i.Resolved = detect.Firing, time.Time{}
			firing++
		}
		i.Members = append(i.Members, p.Root)
	}
	slices.SortStableFunc(i.Members, func(a, b detect.Finding) int {
		return cmp.Or(cmp.Compare(a.State, b.State), a.Since.Compare(b.Since)) // those that fire come first
	})
	var clauses []string
	for _, id := range slices.SortedFunc(maps.Keys(rulesOf), func(a, b rules.ID) int {
		return cmp.Or(cmp.Compare(rulesOf[b], rulesOf[a]), cmp.Compare(a, b))
	}) {
		clauses = append(clauses, fmt.Sprintf("%s %d ×", id, rulesOf[id]))
	}
	head := detect.Finding{
		Rule: many, Cause: many, Subject: detect.Subject{Kind: "node", ID: node}, Node: node, GPUIndex: -1,
		Severity: i.Severity, State: i.State, Since: r.Begun, Resolved: i.Resolved,
		Evidence: detect.Evidence{
			Title:      fmt.Sprintf("and %d more incidents", len(r.Parts)),
			Seen:       fmt.Sprintf("%s; %d of them still fire", strings.Join(clauses, ", "), firing),
			Expected:   fmt.Sprintf("at most %d new messages in a minute", burst),
			Confidence: detect.Certain, Why: "counted",
			Action: "Look at the page or at gpuvigil status for all of them: so many at once have one cause more often than not.",
		},
	}
	i.Members = append([]detect.Finding{head}, i.Members...)
	return i
}
