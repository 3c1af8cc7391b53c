package alerting

import (
	"fmt"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Watchdog is the rule, and the key, that a sign of life is told as.
const Watchdog = "watchdog"

// Beat tells a receiver that somebody watches, unless it was told less than the given
// time ago, also by an earlier run. It returns how long it is until the next is due.
// One that waits gives way to a newer one. A receiver that is not configured is told
// nothing.
func (o *Outbox) Beat(receiver string, every time.Duration, seen string) time.Duration {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		if q.Name == receiver {
			return o.beat(q, every, seen, now)
		}
	}
	return every
}

// beat puts a sign of life into a queue if it is due. The caller holds o.mu.
func (o *Outbox) beat(q *queue, every time.Duration, seen string, now time.Time) time.Duration {
	r := q.records[Watchdog]
	if r == nil {
		r = &record{key: q.Name + keySep + Watchdog}
		q.records[Watchdog] = r
	}
	if since := now.Sub(r.Said); since >= 0 && since < every {
		return every - since
	}
	// Each is a message of its own: an edit of the one before would reach nobody.
	r.Ref, r.doubt = "", false
	waited := r.waits()
	o.renew(r, SignOfLife(o.cfg.Node, seen, now), now)
	if !waited {
		q.put(r)
	}
	poke(q.wake)
	return every
}

// SignOfLife is that somebody watches, in the words of an incident.
func SignOfLife(node, seen string, now time.Time) *detect.Incident {
	root := detect.Finding{
		Rule: Watchdog, Cause: Watchdog, Subject: detect.Subject{Kind: "node", ID: node}, Node: node, GPUIndex: -1,
		Severity: rules.Info, State: detect.Firing, Since: now,
		Evidence: detect.Evidence{
			Title: "gpuvigil watches", Seen: seen, Confidence: detect.Certain,
			Action: "Nothing. When these messages stop coming, nobody watches.",
		},
	}
	return &detect.Incident{
		ID: fmt.Sprintf("%s-%d", Watchdog, now.Unix()), Rule: Watchdog, Cause: Watchdog, Severity: rules.Info, State: detect.Firing,
		Opened: now, Updated: now, Members: []detect.Finding{root},
	}
}
