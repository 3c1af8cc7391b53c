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
		names = append(names, q.Name)
		if receiver != "" && receiver != q.Name {
			continue
		}
		failure, err := o.try(ctx, q)
		if err != nil {
			return sent, err
		}
		s := Sent{q.Name, "was delivered", failure == ""}
		if failure != "" {
			s.What = failure
		}
		sent = append(sent, s)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("send a test message: no receiver is configured under alerting")
	case len(sent) == 0:
		return nil, fmt.Errorf("send a test message: no receiver is called %q, there are: %q", receiver, names)
	}
	return sent, nil
}

// try sends a test message to one receiver and returns why that failed, if it did.
func (o *Outbox) try(ctx context.Context, q *queue) (string, error) {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("send a test message to %s: another message to it has not ended yet: try again", q.Name)
	}
	defer func() { <-q.turn }()
	now := time.Now()
	i := detect.Incident{ID: fmt.Sprintf("%s-%d", testRule, now.UnixNano()), Rule: testRule, Severity: rules.Info, State: detect.Firing, Opened: now, Updated: now}
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	_, err := q.Notifier.Notify(ctx, Message{Incident: i, Node: o.cfg.Node, Words: &Text{
		Headline: "TEST " + o.cfg.Node + ": gpuvigil can reach this place, " + now.UTC().Format("15:04 MST"),
		Lines:    []Line{{"Seen", "a test message that somebody asked for with gpuvigil notify test"}, {"First", "Nothing is to be done."}},
	}}, "")
	var (
		refusal *Refusal
		wait    *Wait
	)
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &refusal):
		return "was " + refusal.Error(), nil
	case errors.As(err, &wait):
		return "was not delivered: the receiver wants no message for " + text.Span(wait.For), nil
	}
	return "was not delivered: " + err.Error(), nil
}
