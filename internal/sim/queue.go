package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// The inference server: so many requests at once, each for some seconds. Half of
// its capacity is in use on a usual afternoon. Clients give up as the queue
// grows, so that it ends somewhere.
const (
	slots        = 64.0
	serviceTime  = 3.6 // seconds
	capacity     = slots / serviceTime
	patience     = 60.0 // waiting requests at which every second client goes away
	emptyWait    = 0.13 // seconds; median queue time when nobody waits
	waitSpread   = 0.5  // sigma of the log-normal queue time
	loadingModel = 30 * time.Second
	smallShare   = 0.3 // of the usual arrivals, at a server beside the first
)

// window is over how many seconds the queue time's percentile is taken, as
// collectors of metrics pages do.
const window = 60

// admission is one second's requests that left the queue.
type admission struct {
	n      float64
	median float64 // queue time
}

// queue is the inference server's state.
type queue struct {
	rng              *rand.Rand
	running, waiting float64
	admitted         float64 // in the last second
	recent           [window]admission
	second           int
	ready            bool
	told             told // since the server started
}

func (q *queue) open() {
	q.running, q.waiting, q.admitted = 0, 0, 0
	q.recent = [window]admission{}
	q.told = newTold()
	q.ready = false
}

func (q *queue) close() { q.ready = false }

// step lives through one second of arrivals at the given rate.
func (q *queue) step(rate float64) {
	rate /= 1 + q.waiting/patience
	arrivals := poisson(q.rng, rate)
	finished := math.Min(q.running, math.Floor(q.running/serviceTime+q.rng.Float64()))
	q.running -= finished
	q.waiting += arrivals
	q.admitted = math.Min(q.waiting, slots-q.running)
	q.waiting -= q.admitted
	q.running += q.admitted

	median := noise(q.rng, emptyWait, emptyWait*0.06) + q.waiting/capacity
	q.told.second(q, finished, median)
	q.second = (q.second + 1) % window
	q.recent[q.second] = admission{q.admitted, median}
}

// p95 returns the 95th percentile of the queue times in the window, or NaN if
// nobody was served.
func (q *queue) p95() float64 {
	total := 0.0
	for _, a := range q.recent {
		total += a.n
	}
	if total == 0 {
		return math.NaN()
	}
	low, high := emptyWait/10, 1e4
	for high/low > 1.001 {
		middle := math.Sqrt(low * high)
		below := 0.0
		for _, a := range q.recent {
			if a.n > 0 {
				below += a.n * belowShare(middle, a.median)
			}
		}
		if below < 0.95*total {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// belowShare is the distribution of queue times around their median.
func belowShare(t, median float64) float64 {
	return 0.5 * (1 + math.Erf(math.Log(t/median)/(waitSpread*math.Sqrt2)))
}

// usual is the share of the capacity that is asked for at that hour of the day (UTC).
func usual(now time.Time) float64 {
	now = now.UTC()
	hour := float64(now.Hour()) + float64(now.Minute())/60
	return 0.44 - 0.16*math.Cos(2*math.Pi*(hour-3)/24)
}

func (w *workload) serve(now time.Time) hostWork {
	q := w.servers[0].queue
	if now.Sub(w.since) < loadingModel {
		w.each(func(g *gpu) work {
			return work{duty: 0.03, intensity: 0.2, memory: 0.02, rx: noise(g.rng, 8e9, 8e8), tx: 1e7}
		})
		return hostWork{cores: 2, busiest: 0.6, read: noise(w.rng, 2.4e9, 1e8)}
	}
	rate := usual(now) * capacity
	for _, small := range w.servers[1:] {
		small.serve(now, smallShare*rate, w.gpus)
	}
	if w.on {
		rate = math.Max(rate, w.level*capacity)
	}
	w.servers[0].serve(now, rate, w.gpus)
	fill := q.running / slots
	w.each(func(g *gpu) work {
		duty := 0.0
		if q.running > 0 {
			duty = min(1, max(0.2, noise(g.rng, 0.45+0.54*fill, 0.006)))
		}
		return work{duty: duty, intensity: 0.55 + 0.15*fill, memory: 0.7 * duty, rx: noise(g.rng, 4e7+4e7*fill, 4e6), tx: noise(g.rng, 3e7+3e7*fill, 3e6)}
	})
	return hostWork{cores: noise(w.rng, 2+6*fill, 0.2), busiest: noise(w.rng, 0.45+0.2*fill, 0.03),
		rx: 4e4 * q.admitted, tx: 9e3 * q.running}
}

// kv is the share of the server's KV cache in use.
func (q *queue) kv() float64 { return math.Min(0.99, 0.04+0.93*q.running/slots) }
