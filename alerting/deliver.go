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
)

const (
	maxAgain     = 10               // tries of a refused message after others passed
	attemptLimit = 15 * time.Second // for one delivery, also while the agent shuts down
	longestWait  = time.Hour        // that a receiver may ask for
)

// Run delivers until the context ends, and lets the deliveries in flight end. It
// returns nil then, also if the state could not be written at last: that is
// logged, and what is in memory is delivered and written by the next Run. It
// returns an error at once if it runs already. While it runs the outbox's gauges
// are exported.
func (o *Outbox) Run(ctx context.Context) error {
	o.mu.Lock()
	if o.running {
		o.mu.Unlock()
		return errors.New("run the outbox: it runs already")
	}
	o.running = true
	queues := o.queues
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.running = false
	}()

	var g sync.WaitGroup
	for _, q := range queues {
		length, age := metric.OutboxLength.Series(q.Name), metric.OutboxAge.Series(q.Name)
		vm.GetOrCreateGauge(length, o.gauge(q, func(s Status) float64 { return float64(s.Waiting) }))
		vm.GetOrCreateGauge(age, o.gauge(q, func(s Status) float64 { return s.OldestAge.Seconds() }))
		defer vm.UnregisterMetric(length)
		defer vm.UnregisterMetric(age)
		g.Go(func() { o.serve(ctx, q) })
	}
	for mark, n := range map[string]func() float64{"acknowledged": o.count(false), "snoozed": o.count(true)} {
		name := metric.IncidentsMarked.Series(mark)
		vm.GetOrCreateGauge(name, n)
		defer vm.UnregisterMetric(name)
	}
	for origin, begun := range map[string]bool{"configuration": false, "command": true} {
		name := metric.MaintenanceWindows.Series(origin)
		vm.GetOrCreateGauge(name, o.gate.holding(begun))
		defer vm.UnregisterMetric(name)
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
	return nil
}

// serve delivers one receiver's messages, one after the other.
func (o *Outbox) serve(ctx context.Context, q *queue) {
	for ctx.Err() == nil {
		o.digest(q, time.Now())
		o.forgiveRenewed(q, time.Now())
		j, wait := o.next(q, time.Now())
		if j == nil {
			o.idle(ctx, q, wait)
			continue
		}
		q.turn <- struct{}{}
		q.secret = q.fingerprint()
		ref, err := o.attempt(ctx, q, j)
		<-q.turn
		pause := o.settle(q, j, ref, err, time.Now())
		poke(o.save)
		o.rest(ctx, q, pause, err)
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

// next returns the message to try, or how long to wait for one.
func (o *Outbox) next(q *queue, now time.Time) (*job, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := min(q.insist(now), o.sumUp(q, now), o.look(q, now))
	if _, ok := q.Notifier.(Renewable); ok && q.refusing {
		wait = min(wait, lookForSecret)
	}
	r := q.pick()
	if r == nil {
		return nil, wait
	}
	if grace := r.taken.Add(diskGrace).Sub(now); r.stored != r.gen && grace > 0 {
		return nil, grace
	}
	return o.job(q, r, now), 0
}

// settle draws the consequences of an attempt and returns how long to leave the
// receiver alone.
func (o *Outbox) settle(q *queue, j *job, ref string, err error, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && ref != "" && ref != j.r.Ref {
		j.r.Ref = ref
		o.change(j.r, now)
	}
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
		o.refused(q, j, refusal, now)
		if j.r.insists() {
			log.Error("page refused, it is tried again later", "reason", refusal.Reason, "hint", refusal.Hint, "next_try_in", slowlyOnce)
		} else {
			log.Error("message refused, it is not tried again for now", "reason", refusal.Reason, "hint", refusal.Hint)
		}
		return o.cfg.Pause
	}
	limited := errors.As(err, &wait)
	q.retried.Inc()
	q.failures++
	if q.lastErr != err.Error() || limited {
		log.Warn("message not taken, it is tried again", "err", err)
	}
	q.lastErr = err.Error()
	if limited {
		return min(max(wait.For, o.cfg.Pause), longestWait)
	}
	j.r.doubt = true
	j.r.tries++
	q.letOther = len(q.waiting) > 0 && q.waiting[0] == j.r
	if j.r.tries == stepBack && q.letOther && len(q.waiting) > 1 {
		log.Warn("a message has failed several times in a row: others are tried between its tries", "err", err)
	}
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
	q.letOther = false
	r := j.r
	r.tries = 0
	r.Ref, r.doubt, r.Said, r.SaidAs, r.Ended = ref, false, j.incident.Updated, j.incident.State, time.Time{}
	if j.incident.State == detect.Resolved {
		r.Ended = now
	}
	if j.first || j.ring != "" {
		r.Rang = now
	}
	r.Rung = j.rung
	if j.first || j.ring != "" || r.RangAs == nil {
		r.RangAs = &j.incident.Severity
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
	q.lastErr, q.letOther = refusal.Error(), false
	q.refusing = q.refusing || !refusal.Content
	if r := j.r; r.Incident == j.incident {
		r.Refused, r.RefusedAt, r.patience = refusal, now, now.Add(slowlyOnce)
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
