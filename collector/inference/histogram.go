package inference

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// buckets is a cumulative histogram: count[i] observations were at most upper[i].
// The last bound is +Inf.
type buckets struct {
	upper []float64
	count []float64
}

// plus adds a histogram of the same server. Parts of one server have the same
// bounds; one that has others is left out rather than mixed in.
func (b buckets) plus(h *dto.Histogram) buckets {
	var o buckets
	for _, x := range h.GetBucket() {
		o.upper = append(o.upper, x.GetUpperBound())
		o.count = append(o.count, float64(x.GetCumulativeCount()))
	}
	if n := len(o.upper); n == 0 || !math.IsInf(o.upper[n-1], 1) {
		o.upper = append(o.upper, math.Inf(1))
		o.count = append(o.count, float64(h.GetSampleCount()))
	}
	if b.upper == nil {
		return o
	}
	if !slices.Equal(b.upper, o.upper) {
		return b
	}
	for i := range o.count {
		o.count[i] += b.count[i]
	}
	return o
}

// since returns what was observed after old. ok is false when the server has
// restarted or changed its bounds in between.
func (b buckets) since(old buckets) (d buckets, ok bool) {
	if !slices.Equal(b.upper, old.upper) || len(b.count) == 0 {
		return buckets{}, false
	}
	d = buckets{upper: b.upper, count: make([]float64, len(b.count))}
	for i := range b.count {
		if d.count[i] = b.count[i] - old.count[i]; d.count[i] < 0 {
			return buckets{}, false
		}
	}
	return d, true
}

// quantile returns the q-th quantile by linear interpolation inside the bucket, as
// PromQL's histogram_quantile does; NaN if nothing was observed. In the last
// bucket it is that bucket's lower bound.
func (b buckets) quantile(q float64) float64 {
	n := len(b.count)
	if n == 0 || b.count[n-1] == 0 {
		return math.NaN()
	}
	rank := q * b.count[n-1]
	i := 0
	for i < n-1 && b.count[i] < rank {
		i++
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = b.upper[i-1], b.count[i-1]
	}
	if i == n-1 || b.count[i] == below {
		return lower
	}
	return lower + (b.upper[i]-lower)*(rank-below)/(b.count[i]-below)
}

// window keeps the histograms of the last while, so that a quantile is over
// requests of now and not over all since the server started.
type window struct {
	length time.Duration
	kept   []kept
}

type kept struct {
	at time.Time
	b  buckets
}

// add takes in the newest histogram and returns what was observed within the
// window; empty as long as there is only one.
func (w *window) add(at time.Time, b buckets) buckets {
	for len(w.kept) > 1 && at.Sub(w.kept[1].at) >= w.length {
		w.kept = w.kept[1:]
	}
	w.kept = append(w.kept, kept{at, b})
	d, ok := b.since(w.kept[0].b)
	if !ok {
		w.kept = []kept{{at, b}} // the server restarted: begin anew
		return buckets{}
	}
	return d
}
