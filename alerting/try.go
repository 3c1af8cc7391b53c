package alerting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// testRule is the rule of a message that only tests the way to a receiver.
const testRule = "test"

// Receivers returns the names of those that are told incidents.
func (o *Outbox) Receivers() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for _, q := range o.queues {
		if q.DigestOf == "" {
			names = append(names, q.Name)
		}
	}
	return names
}

// Try sends a test message to a receiver now, past the queue, and returns what became of
// it; empty is every receiver. An error says that there is no such receiver, or that ctx
// has ended.
func (o *Outbox) Try(ctx context.Context, receiver string) ([]Sent, error) {
	o.mu.Lock()
	queues := o.queues
	o.mu.Unlock()
	var names []string
	var sent []Sent
	for _, q := range queues {
		if q.DigestOf != "" {
			continue
		}
		names = append(names, q.Name)
		if receiver != "" && receiver != q.Name {
			continue
		}
		failure, err := o.try(ctx, q)
		if err != nil {
			return sent, err
		}
		sent = append(sent, Tried(q.Name, failure))
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("send a test message: no receiver is configured under alerting")
	case len(sent) == 0:
		return nil, fmt.Errorf("send a test message: no receiver is called %q, there are: %q", receiver, names)
	}
	return sent, nil
}

// try sends a test message to one receiver and returns why that failed, if it did. The
// other error says that it was not its turn.
func (o *Outbox) try(ctx context.Context, q *queue) (failed, err error) {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("send a test message to %s: another message to it has not ended yet: try again", q.Name)
	}
	defer func() { <-q.turn }()
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	_, failed = q.Notifier.Notify(ctx, TestMessage(o.cfg.Node, now), "")
	return failed, nil
}

// TestMessage is what a receiver is sent by a person who wants to know whether it arrives.
func TestMessage(node string, now time.Time) Message {
	i := detect.Incident{ID: fmt.Sprintf("%s-%d", testRule, now.UnixNano()), Rule: testRule, Cause: testRule, Severity: rules.Info, State: detect.Firing, Opened: now, Updated: now}
	return Message{Incident: i, Node: node, Words: &Text{
		Headline: "TEST " + node + ": gpuvigil can reach this place, " + now.UTC().Format("15:04 MST"),
		Lines:    []Line{{"Seen", "a test message that somebody asked for with gpuvigil notify test"}, {"First", "Nothing is to be done."}},
	}}
}

// Tried says what became of a test message at a receiver.
func Tried(receiver string, err error) Sent {
	if said := failure(err); said != "" {
		return Sent{Receiver: receiver, What: said}
	}
	return Sent{receiver, "was delivered", true}
}

// failure says why a test message did not arrive, nothing if it did.
func failure(err error) string {
	var (
		refusal *Refusal
		wait    *Wait
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return "was " + refusal.Error()
	case errors.As(err, &wait):
		return "was not delivered: the receiver wants no message for " + text.Span(wait.For)
	}
	return "was not delivered: " + err.Error()
}
