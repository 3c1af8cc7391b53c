package server

import (
	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// distributions adds the native histograms of a GPU, whose thing is t.
func (e *exposition) distributions(t *thing, g *collector.GPU) {
	for i := range g.Distributions {
		d := &g.Distributions[i]
		slot := e.slot[d.Row]
		e.samples[slot] = append(e.samples[slot], sample{labels: &t.labels, histogram: native(d)})
	}
}

// native returns the distribution as a native histogram without classic buckets.
func native(d *collector.Distribution) *dto.Histogram {
	schema, zero, count, sum, first := int32(metric.HistogramSchema), metric.HistogramZero, d.Zero, d.Sum, int32(d.First)
	h := &dto.Histogram{SampleSum: &sum, Schema: &schema, ZeroThreshold: &zero, ZeroCount: &d.Zero, SampleCount: &count}
	var before uint64
	for _, n := range d.Buckets {
		h.PositiveDelta = append(h.PositiveDelta, int64(n-before))
		before = n
		count += n
	}
	if n := uint32(len(d.Buckets)); n > 0 {
		h.PositiveSpan = []*dto.BucketSpan{{Offset: &first, Length: &n}}
	}
	return h
}
