package alertmanager

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/alerting"
	"gpuvigil/alerting/post"
	"gpuvigil/internal/metric"
)

const (
	firstBackoff = time.Second
	longestWait  = 5 * time.Minute // that a server may ask for: what fires would end meanwhile
	maxSkew      = 30 * time.Second
)

// target is one Alertmanager and what it was told.
type target struct {
	*Sender
	name   string
	base   *url.URL
	client *post.Client
	log    *slog.Logger
	wake   chan struct{} // something has changed

	sent, retried, refused *vm.Counter

	// Of the goroutine that sends.
	book      map[string]*entry // by fingerprint
	inherited bool              // what was there before us is in the book
	skewed    bool              // that its clock is another was said

	mu       sync.Mutex // guards what follows
	waiting  int        // changes that it has not taken
	oldest   time.Time  // since when the first of them waits
	failures int
	lastErr  string
	lastSent time.Time
}

// entry is what is known of one alert at one Alertmanager.
type entry struct {
	*one
	ended  time.Time // zero while it fires
	change time.Time // when what it has not taken came up; zero: it has taken all
}

func newTarget(s *Sender, name string, base *url.URL, client *post.Client) *target {
	counter := func(result string) *vm.Counter {
		return vm.GetOrCreateCounter(metric.NotificationsSent.Series(name, result))
	}
	return &target{
		Sender: s, name: name, base: base, client: client, log: s.cfg.Log.With("receiver", name), wake: make(chan struct{}, 1),
		book: map[string]*entry{}, sent: counter("sent"), retried: counter("retried"), refused: counter("refused"),
	}
}

// run repeats until ctx ends. A failure is followed by a pause that no change cuts
// short.
func (t *target) run(ctx context.Context) {
	length, age := metric.OutboxLength.Series(t.name), metric.OutboxAge.Series(t.name)
	vm.GetOrCreateGauge(length, func() float64 { return float64(t.status(time.Now()).Waiting) })
	vm.GetOrCreateGauge(age, func() float64 { return t.status(time.Now()).OldestAge.Seconds() })
	defer vm.UnregisterMetric(length)
	defer vm.UnregisterMetric(age)
	for ctx.Err() == nil {
		t.update(time.Now())
		err := t.tell(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		pause, failed := t.settle(err, time.Now())
		timer := time.NewTimer(pause)
		wake := t.wake
		if failed {
			wake = nil
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// update brings the book in line with what is so now.
func (t *target) update(now time.Time) {
	firing, ended := t.current(now)
	told := map[string]bool{} // incidents that fire here
	there := t.inherit()
	for _, e := range t.book {
		told[e.incident] = told[e.incident] || e.ended.IsZero()
	}
	for id, o := range firing {
		if !o.allowed && !told[o.incident] && !there[identityOf(o.Alert)] {
			delete(firing, id)
			continue
		}
		if e := t.book[id]; e != nil && e.ended.IsZero() && e.updated.Equal(o.updated) {
			e.one = o
		} else {
			t.book[id] = &entry{one: o, change: now}
		}
	}
	for id, o := range ended {
		if firing[id] != nil {
			continue
		}
		e := t.book[id]
		// Of what ended before us, or soon after, whoever was here before may have told.
		if e != nil && e.ended.IsZero() || e == nil && (o.allowed && o.StartsAt.Before(t.began) || there[identityOf(o.Alert)]) {
			t.book[id] = &entry{one: o, ended: o.EndsAt, change: now}
		}
	}
	for id, e := range t.book {
		switch {
		case e.ended.IsZero() && firing[id] == nil:
			e.ended, e.change = now, now // it got worse and is another alert now, or is forgotten
		case !e.ended.IsZero() && now.Sub(e.ended) >= repeatEnded:
			delete(t.book, id)
		}
	}
	t.count(nil, now)
}

// settle draws the consequences of a round, and returns how long to wait for the next
// and whether this one failed.
func (t *target) settle(err error, now time.Time) (pause time.Duration, failed bool) {
	var (
		wait    *alerting.Wait
		refusal *alerting.Refusal
	)
	if err == nil {
		t.count(nil, now)
		return t.cfg.Resend, false
	}
	t.count(err, now)
	switch {
	case errors.As(err, &wait):
		return min(wait.For, longestWait), true
	case errors.As(err, &refusal):
		return t.cfg.Resend, true
	}
	pause = firstBackoff
	for n := t.status(now).Failures; n > 1 && pause < t.cfg.Resend; n-- {
		pause *= 2
	}
	return time.Duration(float64(min(pause, t.cfg.Resend)) * (0.8 + 0.4*rand.Float64())), true
}

// count notes how things stand after a round, or before the first if err is nil.
func (t *target) count(err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting, t.oldest = 0, time.Time{}
	for _, e := range t.book {
		if e.change.IsZero() {
			continue
		}
		t.waiting++
		if t.oldest.IsZero() || e.change.Before(t.oldest) {
			t.oldest = e.change
		}
	}
	if err == nil {
		return
	}
	t.failures++
	var refusal *alerting.Refusal
	if errors.As(err, &refusal) {
		t.refused.Inc()
	} else {
		t.retried.Inc()
	}
	if t.lastErr != err.Error() {
		t.log.Warn("Alertmanager has not taken the alerts, they are sent again", "err", err)
	}
	t.lastErr = err.Error()
}

// taken notes that Alertmanager has these alerts as they are.
func (t *target) taken(batch []*entry, now time.Time) {
	for _, e := range batch {
		if !e.change.IsZero() {
			t.sent.Inc()
		}
		e.change = time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures > 0 {
		t.log.Info("Alertmanager takes the alerts again", "failures", t.failures)
	}
	t.failures, t.lastErr, t.lastSent = 0, "", now
}

// status tells how the target stands.
func (t *target) status(now time.Time) alerting.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := alerting.Status{Receiver: t.name, Waiting: t.waiting, LastSent: t.lastSent, LastError: t.lastErr, Failures: t.failures}
	if t.waiting > 0 {
		s.OldestAge = max(now.Sub(t.oldest), 0)
	}
	return s
}

// Status returns how each of the Alertmanagers stands.
func (s *Sender) Status() []alerting.Status {
	all := make([]alerting.Status, len(s.targets))
	for k, t := range s.targets {
		all[k] = t.status(time.Now())
	}
	return all
}
