package alertmanager

import (
	"context"
	"errors"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
)

// How long an alert goes on that is a message and not a state: shorter than
// Alertmanager's repeat_interval, so that it is told once.
const (
	testFires   = 5 * time.Minute
	digestFires = time.Hour
)

// Try sends each of the Alertmanagers an alert now that says that it is a test, and
// returns what became of it. Its routes decide who hears of it.
func (s *Sender) Try(ctx context.Context, node string) []alerting.Sent {
	now := time.Now()
	m := alerting.TestMessage(node, now)
	var sent []alerting.Sent
	for _, t := range s.targets {
		sent = append(sent, alerting.Tried(t.name, t.say(ctx, m, now, testFires)))
	}
	return sent
}

// say sends an alert that ends by itself.
func (t *target) say(ctx context.Context, m alerting.Message, now time.Time, fires time.Duration) error {
	e := &entry{one: &one{Alert: alert.Of(m, t.cfg.Options)}}
	_, err := t.send(ctx, []postable{e.postable(now, now.Add(fires))})
	return err
}

// Digests returns the way of digests to the Alertmanagers: each is an alert that fires for
// an hour. It is delivered when one of them has it, as those of a cluster tell each other
// what they have told.
func (s *Sender) Digests() alerting.Notifier { return digests{s} }

type digests struct{ *Sender }

// Notify sends one digest.
func (d digests) Notify(ctx context.Context, m alerting.Message, _ string) (string, error) {
	var errs []error
	for _, t := range d.targets {
		if err := t.say(ctx, m, time.Now(), digestFires); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(d.targets) {
		return "", errors.Join(errs...)
	}
	for _, err := range errs {
		d.cfg.Log.Warn("One of several Alertmanagers has not taken a digest.", "receiver", d.cfg.Name, "err", err)
	}
	return "told", nil
}
