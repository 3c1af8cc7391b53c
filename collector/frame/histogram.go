package frame

import (
	"fmt"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func (e *encoder) target(t *collector.Target) {
	e.str(t.URL)
	e.uvarint(bit(t.Discovered, flagFound))
	e.readings(t.Readings, metric.Target)
}

func (d *decoder) target(t *collector.Target, v vector) {
	t.URL = d.str()
	t.Discovered = d.uvarint()&flagFound != 0
	t.Readings = d.readings(v)
}

func (e *encoder) histograms(list []collector.Histogram) {
	e.list(len(list))
	for _, h := range list {
		if len(h.Counts) != len(h.Bounds)+1 {
			e.fail(fmt.Errorf("histogram %s has %d bounds and %d counts", h.Row, len(h.Bounds), len(h.Counts)))
		}
		e.row(h.Row)
		e.float(h.Sum)
		e.list(len(h.Bounds))
		for _, b := range h.Bounds {
			e.float(b)
		}
		e.list(len(h.Counts))
		last := uint64(0)
		for _, n := range h.Counts {
			e.varint(int64(n - last)) // cumulative, so the differences are small
			last = n
		}
	}
}

// histograms leaves out those that this release does not have. A record of an
// earlier release has none.
func (d *decoder) histograms() []collector.Histogram {
	if d.done() {
		return nil
	}
	var out []collector.Histogram
	for range d.list(maxPerEntity) {
		h := collector.Histogram{Row: d.row(), Sum: d.float()}
		h.Bounds = list(d, func(b *float64) { *b = d.float() })
		last := uint64(0)
		h.Counts = list(d, func(n *uint64) { last += uint64(d.varint()); *n = last })
		if len(h.Counts) != len(h.Bounds)+1 {
			d.fail("a histogram has %d bounds and %d counts", len(h.Bounds), len(h.Counts))
			return nil
		}
		if h.Row != nil && h.Row.Kind == metric.Histogram {
			out = append(out, h)
		}
	}
	return out
}
