package bands

import (
	"math"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// counts is a native histogram with a place for each bucket that there can be, so
// that its memory is bounded and it never has to be made coarser or begun anew.
type counts struct {
	sum     float64
	zero    uint64
	buckets [metric.HistogramLast - metric.HistogramFirst + 1]uint64
}

func (c *counts) add(v float64) {
	c.sum += v
	if v <= metric.HistogramZero {
		c.zero++
		return
	}
	i := int(math.Ceil(math.Log2(v) * (1 << metric.HistogramSchema)))
	c.buckets[min(max(i, metric.HistogramFirst), metric.HistogramLast)-metric.HistogramFirst]++
}

func (c *counts) distribution(row *metric.Def) collector.Distribution {
	used := func(n uint64) bool { return n > 0 }
	first := slices.IndexFunc(c.buckets[:], used)
	d := collector.Distribution{Row: row, Sum: c.sum, Zero: c.zero}
	if first < 0 {
		return d
	}
	last := len(c.buckets) - 1
	for c.buckets[last] == 0 {
		last--
	}
	d.First, d.Buckets = metric.HistogramFirst+first, slices.Clone(c.buckets[first:last+1])
	return d
}
