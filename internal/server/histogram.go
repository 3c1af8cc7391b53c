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

// histogram keeps its place from scrape to scrape, as gauge and counter do.
type histogram struct {
	metric    dto.Metric
	histogram dto.Histogram
	count     uint64
	sum       float64
	buckets   []bucket
	list      []*dto.Bucket
}

type bucket struct {
	bucket dto.Bucket
	upper  float64
	count  uint64
}

// histogram appends one sample of the row. One whose sum is not finite has no
// sample: a mean over it would be none.
func (e *exposition) histogram(labels []*dto.LabelPair, h collector.Histogram) {
	r := &e.rows[e.slot[h.Row]]
	if math.IsNaN(h.Sum) || math.IsInf(h.Sum, 0) || !e.shows(h.Row) {
		return
	}
	if !e.full {
		h = h.Thin(maxBounds)
	}
	s := e.histograms.next()
	s.count, s.sum = h.Count(), h.Sum
	s.histogram.SampleCount, s.histogram.SampleSum = &s.count, &s.sum
	if len(s.buckets) < len(h.Bounds) {
		s.buckets = make([]bucket, len(h.Bounds))
	}
	s.list = s.list[:0]
	for i := range h.Bounds {
		b := &s.buckets[i]
		b.upper, b.count = h.Bounds[i], h.Counts[i]
		b.bucket.UpperBound, b.bucket.CumulativeCount = &b.upper, &b.count
		s.list = append(s.list, &b.bucket)
	}
	s.histogram.Bucket = s.list
	s.metric.Histogram, s.metric.Label = &s.histogram, labels
	e.samples[r.slot] = append(e.samples[r.slot], &s.metric)
}

// endpoints has the models of inference servers and the pages that tell of them.
func (e *exposition) endpoints(s *collector.Snapshot) {
	for i := range s.Endpoints {
		p := &s.Endpoints[i]
		t := e.entity(metric.Endpoint, p.URL, p.Engine, p.Model)
		if t == nil {
			continue
		}
		e.readings(metric.Endpoint, t, p.Readings)
		for _, h := range p.Histograms {
			e.histogram(t.labels, h)
		}
	}
	for i := range s.Targets {
		if t := e.entity(metric.Target, s.Targets[i].URL); t != nil {
			e.readings(metric.Target, t, s.Targets[i].Readings)
		}
	}
}
