package series

import (
	"cmp"
	"math"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/internal/metric"
)

// maxBuckets is more than an agent's histogram has.
const maxBuckets = 256

type bucketKey struct {
	row      *metric.Def
	endpoint collector.EndpointKey
}

// buckets are a histogram as it comes, line by line.
type buckets struct {
	bounds, counts []float64
	sum, count     float64
}

func (r *agentReader) bucket(use agentUse, at identity, v float64) {
	e := r.endpoint(at)
	if e == nil {
		return
	}
	key := bucketKey{use.row, e.Key()}
	b := r.buckets[key]
	if b == nil {
		b = &buckets{sum: math.NaN(), count: math.NaN()}
		r.buckets[key] = b
	}
	switch use.part {
	case sumOf:
		b.sum = v
	case countOf:
		b.count = v
	default:
		if le, err := exposition.Float(at.raw("le")); err == nil && len(b.bounds) < maxBuckets {
			i, there := slices.BinarySearch(b.bounds, le)
			if !there {
				b.bounds, b.counts = slices.Insert(b.bounds, i, le), slices.Insert(b.counts, i, v)
			}
		}
	}
}

// endHistograms gives the endpoints the histograms that are whole.
func (r *agentReader) endHistograms() {
	for i := range r.part.Endpoints {
		e := &r.part.Endpoints[i]
		for _, row := range metric.Of(metric.Latency) {
			if b := r.buckets[bucketKey{row, e.Key()}]; b != nil {
				if h, ok := b.histogram(row); ok {
					e.Histograms = append(e.Histograms, h)
				}
			}
		}
		slices.SortFunc(e.Histograms, func(a, b collector.Histogram) int { return cmp.Compare(a.Row.Name, b.Row.Name) })
	}
}

// histogram returns what the lines make, false if that is none.
func (b *buckets) histogram(row *metric.Def) (collector.Histogram, bool) {
	bounds, counts := b.bounds, append(slices.Clone(b.counts), b.count)
	if n := len(bounds); n > 0 && math.IsInf(bounds[n-1], 1) {
		bounds, counts = bounds[:n-1], counts[:n]
	}
	if len(bounds) == 0 || math.IsNaN(b.sum) || math.IsInf(b.sum, 0) {
		return collector.Histogram{}, false
	}
	h := collector.Histogram{Row: row, Bounds: slices.Clone(bounds), Counts: make([]uint64, len(counts)), Sum: b.sum}
	last := 0.0
	for i, c := range counts {
		if !(c >= last) || c > 1<<53 {
			return collector.Histogram{}, false
		}
		h.Counts[i], last = uint64(c), c
	}
	return h, true
}
