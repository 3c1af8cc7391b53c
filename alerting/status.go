package alerting

import (
	"slices"
	"time"

	"gpuvigil/rules"
)

const shownRefused = 20

// Status is how one receiver stands.
type Status struct {
	Receiver    string        `json:"receiver"`
	Waiting     int           `json:"waiting"`              // messages to be sent, also those that wait for a receiver that refuses us
	Held        int           `json:"held"`                 // messages that are kept back for now
	OldestAge   time.Duration `json:"oldest_age"`           // of the first of them, in nanoseconds
	LastSent    time.Time     `json:"last_sent,omitzero"`   // by this process
	LastError   string        `json:"last_error,omitempty"` // of the last attempt; empty after a success
	Failures    int           `json:"failures"`             // attempts since the last success
	ShadowUntil time.Time     `json:"shadow_until,omitzero"`
	Refused     []Rejected    `json:"refused,omitempty"` // the newest first, at most 20
	Unsaved     int           `json:"unsaved"`           // records that the disk has not taken yet
}

// Rejected is a message that its receiver does not take.
type Rejected struct {
	Incident string    `json:"incident"`
	Headline string    `json:"headline"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Hint     string    `json:"hint"`
}

// Status returns how each receiver stands, in the order of the configuration.
func (o *Outbox) Status() []Status {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Status, 0, len(o.queues))
	for _, q := range o.queues {
		all = append(all, o.status(q, now))
	}
	return all
}

// gauge returns a value of a queue's status, for the metrics.
func (o *Outbox) gauge(q *queue, value func(Status) float64) func() float64 {
	return func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		return value(o.status(q, time.Now()))
	}
}

// status tells how a queue stands. The caller holds o.mu.
func (o *Outbox) status(q *queue, now time.Time) Status {
	s := Status{Receiver: q.Name, Waiting: len(q.waiting), LastSent: q.lastSent, LastError: q.lastErr, Failures: q.failures, Unsaved: len(o.dirty)}
	if end := o.first.Add(o.cfg.Shadow); end.After(now) {
		s.ShadowUntil = end
	}
	for _, r := range q.waiting {
		s.OldestAge = max(s.OldestAge, now.Sub(r.Queued))
	}
	for _, r := range q.records {
		if r.Held != "" {
			s.Held++
		}
		if r.Refused != nil {
			if !r.Refused.Content { // it waits for its receiver to be mended
				s.Waiting++
				s.OldestAge = max(s.OldestAge, now.Sub(r.Queued))
			}
			s.Refused = append(s.Refused, Rejected{
				Incident: r.Incident.ID, At: r.RefusedAt, Reason: r.Refused.Reason, Hint: r.Refused.Hint,
				Headline: Render(Message{Incident: *r.Incident, Rule: rules.Get(r.Incident.Rule), Node: o.cfg.Node, Words: r.Words}).Headline,
			})
		}
	}
	slices.SortFunc(s.Refused, func(a, b Rejected) int { return b.At.Compare(a.At) })
	s.Refused = s.Refused[:min(len(s.Refused), shownRefused)]
	return s
}
