package alerting

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	maxAgain     = 10               // tries of a refused message after others passed
	attemptLimit = 15 * time.Second // for one delivery, also while the agent shuts down
	longestWait  = time.Hour        // that a receiver may ask for
	diskGrace    = 2 * time.Second  // for the disk to take a message before it is sent from memory
	saveInterval = time.Second      // between looks for what is not on disk
	sweepEvery   = time.Hour
)

// Run delivers until the context ends, and lets the deliveries in flight end. The
// error says that the state could not be written at last. While it runs the
// outbox's gauges are exported.
func (o *Outbox) Run(ctx context.Context) error {
	var g sync.WaitGroup
	for _, q := range o.queues {
		length, age := metric.OutboxLength.Series(q.Name), metric.OutboxAge.Series(q.Name)
		vm.GetOrCreateGauge(length, func() float64 { return float64(o.status(q, time.Now()).Waiting) })
		vm.GetOrCreateGauge(age, func() float64 { return o.status(q, time.Now()).OldestAge.Seconds() })
		defer vm.UnregisterMetric(length)
		defer vm.UnregisterMetric(age)
		g.Go(func() { o.serve(ctx, q) })
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		o.keep(keeping)
	}()
	g.Wait()
	<-ctx.Done()
	stop()
	<-kept
	return o.flush()
}

// job is one delivery.
type job struct {
	r        *record
	incident *detect.Incident
	ref      string
	doubt    bool
}

// serve delivers one receiver's messages, one after the other.
func (o *Outbox) serve(ctx context.Context, q *queue) {
	for ctx.Err() == nil {
		j, wait := o.next(q, time.Now())
		if j == nil {
			o.idle(ctx, q, wait)
			continue
		}
		ref, err := o.attempt(ctx, q, j)
		pause := o.settle(q, j, ref, err, time.Now())
		poke(o.save)
		sleep(ctx, pause)
	}
}

// idle waits until the queue is worth another look.
func (o *Outbox) idle(ctx context.Context, q *queue, wait time.Duration) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-q.wake:
	case <-t.C:
	}
}

// sleep waits, whatever the wall clock does.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// next returns the receiver's first message, or how long to wait for one.
func (o *Outbox) next(q *queue, now time.Time) (*job, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil, time.Hour
	}
	r := q.waiting[0]
	if grace := r.at.Add(diskGrace).Sub(now); r.stored != r.gen && grace > 0 {
		return nil, grace
	}
	return &job{r, r.Incident, r.Ref, r.doubt}, 0
}

// attempt delivers one message. It does not end with ctx: a message that was cut
// off would leave it open whether it arrived.
func (o *Outbox) attempt(ctx context.Context, q *queue, j *job) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptLimit)
	defer cancel()
	m := Message{Incident: *j.incident, Rule: rules.Get(j.incident.Rule), Node: o.cfg.Node, Doubt: j.doubt}
	if len(m.Incident.Members) > 0 && m.Incident.Members[0].Node != "" {
		m.Node = m.Incident.Members[0].Node
	}
	if o.cfg.Links != nil {
		m.Links = o.cfg.Links(j.incident)
	}
	return q.Notifier.Notify(ctx, m, j.ref)
}

// settle draws the consequences of an attempt and returns how long to leave the
// receiver alone.
func (o *Outbox) settle(q *queue, j *job, ref string, err error, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	log := o.log.With("receiver", q.Name, "incident", j.incident.ID, "rule", string(j.incident.Rule))
	var (
		refusal *Refusal
		wait    *Wait
	)
	switch {
	case err == nil:
		o.delivered(q, j, ref, now)
		return o.cfg.Pause
	case errors.As(err, &refusal):
		log.Error("message refused, it is not tried again", "reason", refusal.Reason, "hint", refusal.Hint)
		o.refused(q, j, refusal, now)
		return o.cfg.Pause
	}
	limited := errors.As(err, &wait)
	q.retried.Inc()
	q.failures++
	if q.lastErr == "" || limited {
		log.Warn("message not taken, it is tried again", "err", err)
	}
	q.lastErr = err.Error()
	if limited {
		return min(max(wait.For, o.cfg.Pause), longestWait)
	}
	j.r.doubt = j.r.Ref == ""
	return o.backoff(q.failures)
}

// backoff returns the pause after the n-th failure in a row, a little scattered
// so that many agents do not come back at once.
func (o *Outbox) backoff(n int) time.Duration {
	d := o.cfg.Backoff
	for ; n > 1 && d < o.cfg.MaxBackoff; n-- {
		d *= 2
	}
	return time.Duration(float64(min(d, o.cfg.MaxBackoff)) * (0.8 + 0.4*rand.Float64()))
}

// delivered notes that the receiver has the job's state. A newer one keeps the
// place in the queue.
func (o *Outbox) delivered(q *queue, j *job, ref string, now time.Time) {
	q.sent.Inc()
	if q.failures > 0 {
		o.log.Info("messages are taken again", "receiver", q.Name, "failures", q.failures)
	}
	q.failures, q.lastErr, q.lastSent = 0, "", now
	r := j.r
	r.Ref, r.doubt, r.Said, r.SaidAs, r.Ended = ref, false, j.incident.Updated, j.incident.State, time.Time{}
	if j.incident.State == detect.Resolved {
		r.Ended = now
	}
	if r.Incident == j.incident {
		r.Incident, r.Queued = nil, time.Time{}
		q.remove(r)
	}
	o.change(r, now)
	if q.refusing {
		q.refusing = false
		o.retryRefused(q, now)
	}
}

// refused keeps the message as one that the receiver does not take, unless there
// is a newer state of the incident to try.
func (o *Outbox) refused(q *queue, j *job, refusal *Refusal, now time.Time) {
	q.refused.Inc()
	q.lastErr = refusal.Error()
	q.refusing = q.refusing || !refusal.Content
	if r := j.r; r.Incident == j.incident {
		r.Refused, r.RefusedAt = refusal, now
		q.remove(r)
		o.change(r, now)
	}
}

// retryRefused puts back what was refused while the receiver took nothing: a
// success shows that the cause is gone.
func (o *Outbox) retryRefused(q *queue, now time.Time) {
	for _, r := range q.records {
		if r.Refused == nil {
			continue
		}
		if o.forgive(r, now); r.waits() {
			q.put(r)
		}
	}
}

// keep writes what the agent's own transactions did not: what was delivered, and
// what a full disk did not take. It also forgets what is old.
func (o *Outbox) keep(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	pause, failing := saveInterval, false
	for ctx.Err() == nil {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-o.save:
			if failing {
				// The disk is not asked more often because there is more to write.
				select {
				case <-ctx.Done():
				case <-t.C:
				}
			}
		case <-sweep.C:
			o.sweep(time.Now())
		case <-t.C:
		}
		t.Stop()
		err := o.flush()
		switch {
		case err != nil && !failing:
			o.log.Error("what was sent is not stored: after a restart it may be sent again", "err", err)
		case err == nil && failing:
			o.log.Info("the state is stored again")
		}
		pause = saveInterval
		if failing = err != nil; failing {
			pause = o.cfg.MaxBackoff / 4
		}
	}
}
