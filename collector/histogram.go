package collector

import (
	"math"
	"slices"

	"gpuvigil/internal/metric"
)

// Histogram is what has been observed since the observer began. Like Readings it
// does not change once it is published.
type Histogram struct {
	Row    *metric.Def // of kind metric.Histogram
	Bounds []float64   // upper, ascending and finite
	Counts []uint64    // observations up to each bound, then all of them: one more than Bounds
	Sum    float64     // of what was observed
}

// Count returns how many observations there are.
func (h Histogram) Count() uint64 {
	if len(h.Counts) == 0 {
		return 0
	}
	return h.Counts[len(h.Counts)-1]
}

// Since returns what was observed after old. It is false if the observer has begun
// anew, or has changed its bounds, in between.
func (h Histogram) Since(old Histogram) (Histogram, bool) {
	if len(h.Counts) != len(old.Counts) || !slices.Equal(h.Bounds, old.Bounds) {
		return Histogram{}, false
	}
	d := Histogram{Row: h.Row, Bounds: h.Bounds, Counts: make([]uint64, len(h.Counts)), Sum: h.Sum - old.Sum}
	for i, n := range h.Counts {
		if n < old.Counts[i] {
			return Histogram{}, false
		}
		d.Counts[i] = n - old.Counts[i]
	}
	return d, true
}

// Quantile returns the q-th quantile by linear interpolation inside the bucket, as
// PromQL's histogram_quantile does; NaN if nothing was observed. In the last
// bucket it is that bucket's lower bound.
func (h Histogram) Quantile(q float64) float64 {
	n := len(h.Counts)
	if h.Count() == 0 || len(h.Bounds) != n-1 {
		return math.NaN()
	}
	rank := q * float64(h.Count())
	i := 0
	for i < n-1 && float64(h.Counts[i]) < rank {
		i++
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = h.Bounds[i-1], float64(h.Counts[i-1])
	}
	if i == n-1 || float64(h.Counts[i]) == below {
		return lower
	}
	return lower + (h.Bounds[i]-lower)*(rank-below)/(float64(h.Counts[i])-below)
}

// Thin returns the histogram with at most n bounds. Those that are left out join
// the bucket above; which they are depends on the bounds alone, so that a series
// does not come and go.
func (h Histogram) Thin(n int) Histogram {
	kept := h.apart(1)
	for factor := 2.0; len(kept) > n && factor < 1<<20; factor *= 2 {
		kept = h.apart(factor)
	}
	kept = kept[:min(n, len(kept))] // bounds below zero are never far apart
	if len(kept) == len(h.Bounds) {
		return h
	}
	thin := Histogram{Row: h.Row, Sum: h.Sum}
	for _, i := range kept {
		thin.Bounds = append(thin.Bounds, h.Bounds[i])
		thin.Counts = append(thin.Counts, h.Counts[i])
	}
	thin.Counts = append(thin.Counts, h.Count())
	return thin
}

// apart returns the bounds of which each is at least the factor above the one
// before.
func (h Histogram) apart(factor float64) []int {
	var kept []int
	for i, b := range h.Bounds {
		if len(kept) == 0 {
			kept = append(kept, i)
		} else if last := h.Bounds[kept[len(kept)-1]]; b > last && b >= factor*last {
			kept = append(kept, i)
		}
	}
	return kept
}
