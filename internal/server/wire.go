package server

import (
	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// wire is a page as the messages of which client_golang makes protobuf. Their
// memory is used again for the next scrape.
type wire struct {
	metrics  [][]*dto.Metric // by slot
	families []*dto.MetricFamily
	gauges   pool[gauge]
	counters pool[counter]
}

type gauge struct {
	metric dto.Metric
	gauge  dto.Gauge
	value  float64
}

type counter struct {
	metric  dto.Metric
	counter dto.Counter
	value   float64
}

// gathered returns the families that have samples, sorted by name. They are good
// until the page is reset.
func (e *exposition) gathered() []*dto.MetricFamily {
	w := &e.wire
	w.gauges.used, w.counters.used = 0, 0
	w.families = append(w.families[:0], e.dcgm...)
	for i := range e.rows {
		if len(e.samples[i]) > 0 {
			w.families = append(w.families, w.family(&e.rows[i], e.samples[i]))
		}
	}
	return w.families
}

func (w *wire) family(r *row, samples []sample) *dto.MetricFamily {
	metrics := w.metrics[r.slot][:0]
	for _, s := range samples {
		m := w.metric(r, s)
		m.Label = s.labels.pairs
		metrics = append(metrics, m)
	}
	w.metrics[r.slot] = metrics
	return &dto.MetricFamily{Name: &r.def.Name, Help: &r.def.Help, Type: &r.typ, Metric: metrics}
}

func (w *wire) metric(r *row, s sample) *dto.Metric {
	switch r.def.Kind {
	case metric.Histogram:
		return &dto.Metric{Histogram: s.histogram}
	case metric.Counter:
		c := w.counters.next()
		c.value = s.value
		c.counter.Value = &c.value
		c.metric.Counter = &c.counter
		return &c.metric
	}
	g := w.gauges.next()
	g.value = s.value
	g.gauge.Value = &g.value
	g.metric.Gauge = &g.gauge
	return &g.metric
}

// pool hands out items that keep their place from one scrape to the next.
type pool[T any] struct {
	slabs [][]T
	used  int
}

// slab is how many items are allocated at once.
const slab = 256

func (p *pool[T]) next() *T {
	if p.used == len(p.slabs)*slab {
		p.slabs = append(p.slabs, make([]T, slab))
	}
	item := &p.slabs[p.used/slab][p.used%slab]
	p.used++
	return item
}
