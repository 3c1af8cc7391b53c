// Package demand derives from what an inference server tells, page after page, how
// much is asked of it. Sources of real pages and the simulator use the same
// formulas; docs/inference.md explains them.
package demand

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Length is the time over which rates, means and quantiles are taken.
const Length = time.Minute

const (
	staleAfter   = 2 * time.Minute
	leastWaiting = 1.0  // requests; below, the check of a queue is of noise
	leastTrend   = 0.01 // share of the KV cache by which it must have filled for a trend
	leastPages   = 3    // for a trend
)

// Sum is how many there were since the server began, and their total. Both are NaN
// if the server does not tell.
type Sum struct{ Seconds, Count float64 }

// Unknown is the Sum that a server does not tell.
func Unknown() Sum { return Sum{math.NaN(), math.NaN()} }

// Page is what a server tells of a model at one instant. What it does not tell is
// NaN. Ended, Generated and the sums only grow, also when the server begins anew.
type Page struct {
	At               time.Time
	Running, Waiting float64
	KV               float64 // share of the cache in use
	Ended            float64 // requests, without those that were rejected
	Generated        float64 // tokens
	Queue, Duration  Sum
	QueueTimes       collector.Histogram // zero: not told
}

// Window holds the pages of the last minute. The zero Window is empty.
type Window struct {
	pages []Page
	most  float64   // requests that the server worked on while others waited; 0: none has waited yet
	moved time.Time // when the newest change was seen
}

// Add takes up the newest page.
func (w *Window) Add(p Page) {
	if n := len(w.pages); n == 0 || changed(w.pages[n-1], p) || p.At.Before(w.pages[n-1].At) {
		w.moved = p.At
	}
	if n := len(w.pages); n > 0 && (!p.At.After(w.pages[n-1].At) || p.At.Sub(w.pages[n-1].At) > Length) {
		w.pages = w.pages[:0] // the clock was set, or the page was gone: nothing that follows would be of the last minute
	}
	drop := 0
	for drop+1 < len(w.pages) && p.At.Sub(w.pages[drop+1].At) >= Length {
		drop++
	}
	if drop > 0 {
		w.pages = append(w.pages[:0], w.pages[drop:]...)
	}
	w.pages = append(w.pages, p)
	if p.Waiting > 0 && p.Running > w.most {
		w.most = p.Running
	}
}

// Forget drops what was learned: the server has begun anew and may be another one.
func (w *Window) Forget() { *w = Window{pages: w.pages[:0]} }

func changed(a, b Page) bool {
	same := func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }
	return !same(a.Running, b.Running) || !same(a.Waiting, b.Waiting) || !same(a.KV, b.KV) || !same(a.Ended, b.Ended) ||
		!same(a.Generated, b.Generated) || !same(a.Queue.Count, b.Queue.Count) || !same(a.Duration.Count, b.Duration.Count)
}

// Set writes what follows from the window into an endpoint's readings. What does
// not follow, or makes no sense, stays absent.
func (w *Window) Set(r collector.Readings) {
	if len(w.pages) == 0 {
		return
	}
	first, last := &w.pages[0], &w.pages[len(w.pages)-1]
	put := func(d *metric.Def, v float64) {
		if d.Plausible(v) {
			r.Set(d, v)
		}
	}
	put(metric.KVCacheHeadroom, 1-last.KV)
	put(metric.KVCacheTimeToFull, w.timeToFull())
	if inside := known(last.Running) + known(last.Waiting); inside > 0 {
		put(metric.EndpointStale, truth(last.At.Sub(w.moved) >= staleAfter))
	} else if !math.IsNaN(last.Running) || !math.IsNaN(last.Waiting) {
		put(metric.EndpointStale, 0)
	}
	seconds := last.At.Sub(first.At).Seconds()
	if seconds <= 0 {
		return
	}
	put(metric.QueueTimeMean, mean(first.Queue, last.Queue))
	put(metric.RequestDurationMean, mean(first.Duration, last.Duration))
	if d, ok := last.QueueTimes.Since(first.QueueTimes); ok {
		put(metric.QueueTimeP95, d.Quantile(0.95))
	}
	ended := last.ended() - first.ended()
	grown := last.Running + last.Waiting - first.Running - first.Waiting
	completions, arrivals := ended/seconds, math.Max(0, ended+grown)/seconds
	put(metric.ServiceRate, completions)
	put(metric.ArrivalRate, arrivals)
	put(metric.ServerUtilization, w.utilization(arrivals, completions))
	put(metric.QueueConsistency, w.consistency((last.Queue.Seconds-first.Queue.Seconds)/seconds))
}

// ended counts the requests that ended; a server that does not count them may
// count their durations.
func (p *Page) ended() float64 {
	if math.IsNaN(p.Ended) {
		return p.Duration.Count
	}
	return p.Ended
}

// utilization is arrivals × service time / requests at once. The service time is
// that of Little's law for those that are served: how many there are on average,
// over how many are done in a second.
func (w *Window) utilization(arrivals, completions float64) float64 {
	running := w.average(func(p *Page) float64 { return p.Running })
	switch {
	case w.most == 0:
		return math.NaN()
	case running == 0 && arrivals == 0:
		return 0
	}
	return arrivals * (running / completions) / w.most
}

// consistency is how many wait, over how many should: rate × mean time in the
// queue, which is the time that all of a second's requests have waited.
func (w *Window) consistency(expected float64) float64 {
	waiting := w.average(func(p *Page) float64 { return p.Waiting })
	if math.IsNaN(expected) || math.Max(waiting, expected) < leastWaiting {
		return math.NaN()
	}
	return waiting / expected
}

// timeToFull follows the line of least squares through the window's KV usage.
func (w *Window) timeToFull() float64 {
	last := &w.pages[len(w.pages)-1]
	if last.KV >= 1 {
		return 0
	}
	var n, st, sk, stt, stk float64
	for i := range w.pages {
		p := &w.pages[i]
		if math.IsNaN(p.KV) {
			continue
		}
		t := p.At.Sub(last.At).Seconds()
		n, st, sk, stt, stk = n+1, st+t, sk+p.KV, stt+t*t, stk+t*p.KV
	}
	slope := (n*stk - st*sk) / (n*stt - st*st)
	if n < leastPages || !(slope*last.At.Sub(w.pages[0].At).Seconds() >= leastTrend) {
		return math.NaN()
	}
	return (1 - last.KV) / slope
}

// average is over time: each page stands until the next one.
func (w *Window) average(of func(*Page) float64) float64 {
	total, seconds := 0.0, 0.0
	for i := range len(w.pages) - 1 {
		dt := w.pages[i+1].At.Sub(w.pages[i].At).Seconds()
		total += dt * (of(&w.pages[i]) + of(&w.pages[i+1])) / 2
		seconds += dt
	}
	return total / seconds
}

func mean(from, to Sum) float64 {
	return (to.Seconds - from.Seconds) / (to.Count - from.Count)
}

func known(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
