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

// digestRule is the rule of the messages that sum up a day or a week.
const digestRule = "digest"

// DigestConfig is when what happened is summed up, and how.
type DigestConfig struct {
	Receivers     []string
	Daily, Weekly bool
	Hour, Minute  int
	Weekday       time.Weekday // of the weekly one
	Location      *time.Location

	// Write says what happened between two times. It may take its time, and its lines
	// may hold names that anybody chose.
	Write func(from, to time.Time) []Line
}

// period is the time that one digest sums up.
type period struct {
	name     string // daily, weekly
	from, to time.Time
}

// periods returns the last ones that are over.
func (c *DigestConfig) periods(now time.Time) []period {
	now = now.In(c.Location)
	at := func(back int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()-back, c.Hour, c.Minute, 0, 0, c.Location)
	}
	var out []period
	if c.Daily {
		back := 0
		if at(0).After(now) {
			back = 1
		}
		out = append(out, period{"daily", at(back + 1), at(back)})
	}
	if c.Weekly {
		back := int(now.Weekday()-c.Weekday+7) % 7
		if at(back).After(now) {
			back += 7
		}
		out = append(out, period{"weekly", at(back + 7), at(back)})
	}
	return out
}

// digest queues what is due for a receiver: each period once, also over restarts, and the
// last one late if nobody was there at its end.
func (o *Outbox) digest(q *queue, now time.Time) {
	o.mu.Lock()
	c := o.cfg.Digest
	if c == nil || !slices.Contains(c.Receivers, cmp.Or(q.DigestOf, q.Name)) {
		o.mu.Unlock()
		return
	}
	var due []period
	for _, p := range c.periods(now) {
		if q.records[p.id()] == nil && p.to.After(o.first) {
			due = append(due, p)
		}
	}
	o.mu.Unlock()
	for _, p := range due {
		o.sendDigest(q, p, c.Write(p.from, p.to), now)
	}
}

func (p period) id() string { return digestRule + "-" + p.name + "-" + p.to.Format("2006-01-02") }

func (o *Outbox) sendDigest(q *queue, p period, lines []Line, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if line := q.keptBack(p); line != "" {
		lines = append(lines, Line{"Not sent", line})
	}
	if len(lines) == 0 {
		lines = []Line{{"Seen", "nothing worth telling"}}
	}
	const form = "Mon 2 Jan 15:04"
	place := o.cfg.Node
	if o.cfg.Cluster != "" {
		place = o.cfg.Cluster + " " + place
	}
	r := &record{key: q.Name + keySep + p.id(), Words: &Text{
		Severity: rules.Info, Lines: lines,
		Headline: fmt.Sprintf("%s digest of %s: %s to %s", strings.ToUpper(p.name[:1])+p.name[1:], strings.TrimSpace(place), p.from.Format(form), p.to.Format(form+" MST")),
	}}
	q.records[p.id()] = r
	o.renew(r, &detect.Incident{ID: p.id(), Rule: digestRule, Cause: p.name, Severity: rules.Info, State: detect.Firing, Opened: p.to, Updated: p.to}, now)
	q.put(r)
}

// keptBack counts what the receiver was not sent in a period though it was severe enough.
func (q *queue) keptBack(p period) string {
	count := map[rules.ID]int{}
	for _, r := range q.records {
		if r.Kept != nil && (r.Shadowed || r.Missed) && !r.Kept.At.Before(p.from) && r.Kept.At.Before(p.to) {
			count[r.Kept.Rule]++
		}
	}
	var said []string
	for _, id := range slices.SortedFunc(maps.Keys(count), func(a, b rules.ID) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	}) {
		said = append(said, fmt.Sprintf("%s %d ×", id, count[id]))
	}
	more := max(len(said)-shownMembers, 0)
	if line := list(said[:len(said)-more], more); line != "" {
		return line + ": kept back in the first days, or over before they were to be sent"
	}
	return ""
}
