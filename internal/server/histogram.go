package server

import (
	"math"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxBounds is how many bounds a histogram has on the page of the default profile.
// Servers have up to 40, of which neighbours tell little more.
const maxBounds = 14

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

// classic adds a histogram with its buckets. One whose sum is not finite is
// none: a mean over it would be none.
func (e *exposition) classic(l *labels, h collector.Histogram) {
	if math.IsNaN(h.Sum) || math.IsInf(h.Sum, 0) || !e.shows(h.Row) {
		return
	}
	if !e.full {
		h = h.Thin(maxBounds)
	}
	count, endless := h.Count(), math.Inf(1)
	shown := &dto.Histogram{SampleCount: &count, SampleSum: &h.Sum, Bucket: make([]*dto.Bucket, len(h.Counts))}
	buckets := make([]dto.Bucket, len(h.Counts))
	for i := range buckets {
		buckets[i].UpperBound, buckets[i].CumulativeCount = &endless, &h.Counts[i]
		if i < len(h.Bounds) {
			buckets[i].UpperBound = &h.Bounds[i]
		}
		shown.Bucket[i] = &buckets[i]
	}
	slot := e.slot[h.Row]
	e.samples[slot] = append(e.samples[slot], sample{labels: l, histogram: shown})
}
