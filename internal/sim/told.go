package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

const (
	readEvery    = 5 * time.Second // how often collectors read a metrics page
	promptLength = 620             // tokens of a prompt, on average
	tokenRate    = 45.0            // tokens a second of an answer that is alone
	prefillTime  = 0.12            // seconds
	fullCache    = 0.95            // share of the KV cache from which requests are preempted
	pageBytes    = 27 << 10
)

// told is what an inference server counts for its metrics page, and what a collector
// of the pages makes of it.
type told struct {
	ended, cancelled, failed    float64 // requests; all of them, and those that did not succeed
	prompt, generated, preempts float64
	hist                        [4]Histogram // see latencies
	window                      demand.Window
	work                        demand.Work
}

// latencies are the rows of the histograms that a server counts, by name.
var latencies = [4]*metric.Def{metric.InterTokenLatency, metric.QueueTime, metric.RequestDuration, metric.TimeToFirstToken}

// Their places.
const (
	betweenTokens = iota
	inQueue
	inAll
	toFirstToken
)

func newTold() told {
	seconds := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60}
	return told{hist: [4]Histogram{
		betweenTokens: newHistogram([]float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5}),
		inQueue:       newHistogram(seconds),
		inAll:         newHistogram(seconds),
		toFirstToken:  newHistogram([]float64{0.02, 0.06, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20}),
	}}
}

// second counts what a second of the queue has brought.
func (t *told) second(q *queue, finished, wait float64) {
	rate := tokenRate * (1 - 0.35*q.running/slots)
	tokens := math.Round(q.running * rate)
	t.ended += finished
	// One in 40 hangs up; one in 2000 fails.
	t.cancelled, t.failed = math.Floor(t.ended/40), math.Floor(t.ended/2000)
	t.prompt += promptLength * q.admitted
	t.generated += tokens
	if q.kv() > fullCache {
		t.preempts += math.Floor(q.admitted / 8)
	}
	t.hist[inQueue].observe(wait, q.admitted)
	t.hist[toFirstToken].observe(wait+prefillTime, q.admitted)
	t.hist[betweenTokens].observe(1/rate, tokens)
	t.hist[inAll].observe(wait+serviceTime, finished)
}

// server is a Server at one instant.
type server struct {
	Server
	queue *queue
	read  time.Time // when its page was read last
}

func newServer(s Server, rng *rand.Rand) *server { return &server{Server: s, queue: &queue{rng: rng}} }

// serve lives through one second of arrivals at the given rate.
func (w *server) serve(now time.Time, rate float64, gpus []*gpu) {
	w.queue.ready = true
	w.queue.step(rate)
	if now.Sub(w.read) >= readEvery {
		w.read = now
		w.collect(now, gpus)
	}
}

// collect reads the page as a collector does.
func (w *server) collect(now time.Time, gpus []*gpu) {
	q, t := w.queue, &w.queue.told
	t.window.Add(demand.Page{At: now, Running: q.running, Waiting: q.waiting, KV: q.kv(), Ended: t.ended, Generated: t.generated,
		Queue: t.hist[inQueue].total(), Duration: t.hist[inAll].total()})
	o := demand.Output{At: now, Tokens: t.generated, Drawn: now}
	for _, g := range gpus {
		o.Joules += g.energy
	}
	t.work.Add(o)
}

// observe returns what the server's metrics page shows.
func (w *server) observe(now time.Time) (collector.Readings, []collector.Histogram) {
	q, t := w.queue, &w.queue.told
	r := collector.NewReadings(metric.Endpoint)
	r.Stamp(metric.Fast, now)
	r.Set(metric.EndpointUp, bit(q.ready))
	if !q.ready {
		return r, nil
	}
	r.Set(metric.RequestsRunning, q.running)
	r.Set(metric.RequestsWaiting, q.waiting)
	r.Set(metric.QueueTimeP95, q.p95())
	r.Set(metric.KVCacheUsage, q.kv())
	r.SetAt(metric.Requests, metric.Outcomes.Index("success"), t.ended-t.cancelled-t.failed)
	r.SetAt(metric.Requests, metric.Outcomes.Index("cancelled"), t.cancelled)
	r.SetAt(metric.Requests, metric.Outcomes.Index("error"), t.failed)
	r.Set(metric.PromptTokens, t.prompt)
	r.Set(metric.GeneratedTokens, t.generated)
	r.Set(metric.Preemptions, t.preempts)
	t.window.Set(r)
	return r, t.histograms()
}

// histograms returns them in whole observations, by name.
func (t *told) histograms() []collector.Histogram {
	n := 0
	for i := range t.hist {
		n += len(t.hist[i].Counts)
	}
	counts := make([]uint64, 0, n)
	out := make([]collector.Histogram, 0, len(t.hist))
	for i, row := range latencies {
		h := &t.hist[i]
		start := len(counts)
		for _, c := range h.Counts {
			counts = append(counts, uint64(math.Round(c)))
		}
		out = append(out, collector.Histogram{Row: row, Bounds: h.Bounds, Counts: counts[start:len(counts):len(counts)], Sum: h.Sum})
	}
	return out
}

// target returns how well the server's page can be read.
func (w *server) target(now time.Time, gpus int) collector.Target {
	r := collector.NewReadings(metric.Target)
	r.Stamp(metric.Fast, now)
	r.Set(metric.TargetUp, bit(w.queue.ready))
	r.Set(metric.TargetDuration, 0.004)
	if w.queue.ready {
		r.Set(metric.TargetAge, 0)
		r.Set(metric.TargetBytes, pageBytes)
		w.queue.told.work.Set(r, gpus)
	} else {
		r.SetAt(metric.TargetFailing, metric.TargetReasons.Index("unreachable"), 1)
	}
	return collector.Target{URL: w.URL, Readings: r}
}

// Histogram is a Prometheus histogram in seconds. Parts of observations make its
// counts fractions.
type Histogram struct {
	Bounds []float64 // upper, ascending, without +Inf
	Counts []float64 // cumulative, one for each bound and one for +Inf
	Sum    float64
}

func newHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]float64, len(bounds)+1)}
}

// observe adds n log-normal times with the given median.
func (h *Histogram) observe(median, n float64) {
	if n == 0 {
		return
	}
	for i, bound := range h.Bounds {
		h.Counts[i] += n * belowShare(bound, median)
	}
	h.Counts[len(h.Bounds)] += n
	h.Sum += n * median * math.Exp(waitSpread*waitSpread/2)
}

func (h *Histogram) total() demand.Sum {
	return demand.Sum{Seconds: h.Sum, Count: h.Counts[len(h.Bounds)]}
}
