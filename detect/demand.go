package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

const (
	queueHalfLife = 7 * 24 * time.Hour
	youngBefore   = 24 * time.Hour   // of history, an endpoint's habit is called young
	blindBefore   = 30 * time.Minute // of history, it is not used at all
	block         = 5 * time.Minute  // readings within it are not independent of each other

	leastQueueTime = 0.1              // seconds: nobody minds to wait for less, however unusual
	queueTimeKept  = time.Minute      // for so long a queue time stands when no request finishes
	newHabit       = 24 * time.Hour   // of waiting too long are accepted as usual
	slowLearning   = 0.05             // until then, what was seen counts for so much
	demandWindow   = time.Minute      // in the larger part of which requests must wait too long
	evidenceEvery  = 15 * time.Second // evidence is put into words anew
)

// demand is what is kept of one inference endpoint: whether anybody waits for it
// longer than they should.
type demand struct {
	model string
	at    time.Time // of the newest reading
	moved time.Time // when its counters last moved

	tokens, waiting, running, kv float64

	p95   float64 // newest queue time, NaN if unknown
	p95At time.Time
	limit float64 // above which it is too long, NaN if unknown
	slo   bool    // the limit is an objective, not a habit

	long waitedLong // as requests last did

	queue   *stream.Histogram // of queue-time p95
	waiters *stream.Mean      // share of time in which requests waited too long
	since   time.Time         // since when they do for most of the time; zero: they do not
}

// waitedLong is a reading at which requests waited too long. The newest one may be of a
// queue that has just emptied.
type waitedLong struct {
	at               time.Time
	waiting, p95, kv float64
}

func newDemand(cfg SaturatedConfig) *demand {
	return &demand{
		p95: math.NaN(), limit: math.NaN(), kv: -1,
		queue:   stream.NewHistogram(queueHalfLife),
		waiters: stream.NewMean(min(demandWindow, cfg.Window), 12, sampleGap),
	}
}

// update takes up an endpoint's reading, if it is a new one.
func (w *demand) update(e *collector.Endpoint, cfg SaturatedConfig) {
	at := e.SampledAt(metric.Fast)
	if at.IsZero() || at.Equal(w.at) {
		return
	}
	dt := min(at.Sub(w.at), sampleGap).Seconds()
	if w.at.IsZero() {
		dt = 0
	}
	w.model = e.Model
	w.move(e, at)
	w.at = at

	fresh := e.Value(metric.QueueTimeP95)
	if !math.IsNaN(fresh) {
		w.p95, w.p95At = fresh, at
	} else if at.Sub(w.p95At) > queueTimeKept {
		w.p95 = math.NaN()
	}
	if !w.suspect(at) {
		w.setLimit(cfg)
	}

	tooLong := w.waiting > 0 && w.p95 > w.limit && !w.stale(cfg)
	if tooLong {
		w.long = waitedLong{at, w.waiting, w.p95, w.kv}
	}
	w.waiters.Add(at, indicator(tooLong))
	window := min(demandWindow, cfg.Window)
	share, covered := w.waiters.Over(at, window)
	switch {
	case covered < window/2 || share < 0.5:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = at.Add(-time.Duration(share * float64(covered)))
	}

	if w.suspect(at) {
		dt *= slowLearning
	}
	w.queue.Add(at, fresh, dt)
}

// move notes when the endpoint last did something. Where it does not count tokens,
// any change of its gauges is a sign of life.
func (w *demand) move(e *collector.Endpoint, at time.Time) {
	tokens, waiting := e.Value(metric.GeneratedTokens), e.Value(metric.RequestsWaiting)
	running, kv := e.Value(metric.RequestsRunning), e.Value(metric.KVCacheUsage)
	if math.IsNaN(kv) {
		kv = -1
	}
	var moved bool
	if math.IsNaN(tokens) {
		moved = waiting != w.waiting || running != w.running || kv != w.kv
	} else {
		moved = tokens != w.tokens
	}
	if moved || w.moved.IsZero() || at.Before(w.moved) {
		w.moved = at
	}
	w.tokens, w.waiting, w.running, w.kv = tokens, waiting, running, kv
}

// stale reports whether the endpoint's queue is a relic: servers have shown a full
// queue for ever after all its requests were cancelled.
func (w *demand) stale(cfg SaturatedConfig) bool {
	patience := cfg.StaleAfter
	if math.IsNaN(w.tokens) {
		patience *= 5 // gauges alone may stand still for a while
	}
	return w.at.Sub(w.moved) >= patience
}

// suspect reports whether requests wait too long, and have not done so for so
// long that it must be taken for a new habit: until then the limit stands still.
func (w *demand) suspect(at time.Time) bool {
	return !w.since.IsZero() && at.Sub(w.since) < newHabit
}

func (w *demand) setLimit(cfg SaturatedConfig) {
	w.slo = cfg.QueueTimeSLO > 0
	switch {
	case w.slo:
		w.limit = cfg.QueueTimeSLO.Seconds()
	case w.queue.Weight() < blindBefore.Seconds():
		w.limit = math.NaN()
	default:
		w.limit = max(w.queue.Quantile(0.99), leastQueueTime)
	}
}

// ratio is how far the queue time is above its limit; at least 1, as it is asked
// only while it was above for most of the last minute.
func (w *demand) ratio() float64 {
	r := w.p95 / w.limit
	if !(r > 1) {
		return 1
	}
	return min(r, 1000)
}

// sure says how sure it is that requests wait too long. Readings of the same five
// minutes count once.
func (w *demand) sure() (Confidence, string) {
	switch {
	case w.slo:
		return Certain, "measured by the server against its SLO"
	case w.queue.Weight() < youngBefore.Seconds():
		return Young, "only " + span(time.Duration(w.queue.Weight())*time.Second) + " of history"
	}
	blocks := w.queue.Weight() / block.Seconds()
	p := max(w.queue.Above(w.p95), 1/(blocks+1))
	why := "waited as long in " + significant(100*p, 1) + " % of the time before"
	if p < 0.001 {
		return VerySure, why
	}
	return Likely, why
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
