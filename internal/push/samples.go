package push

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// Label is a label that all samples get.
type Label struct{ Name, Value string }

// flat is a sample of a family, as a scrape stores it.
type flat struct {
	labels []Label // by name; __name__ is among them
	value  float64
}

// flattener makes samples of families. Labels that are added win over a series' own, which
// then gets the prefix exported_, as in a scrape.
type flattener struct {
	extra []Label
	one   flat
}

// each calls do for every sample of the families. The sample is good until do returns.
func (f *flattener) each(families []*dto.MetricFamily, do func(*flat)) {
	for _, family := range families {
		name := family.GetName()
		for _, m := range family.GetMetric() {
			emit := func(suffix string, v float64, more ...Label) {
				f.fill(name+suffix, m.GetLabel(), more)
				f.one.value = v
				do(&f.one)
			}
			switch {
			case m.Gauge != nil:
				emit("", m.Gauge.GetValue())
			case m.Counter != nil:
				emit("", m.Counter.GetValue())
			case m.Untyped != nil:
				emit("", m.Untyped.GetValue())
			case m.Histogram != nil:
				histogram(m.Histogram, emit)
			case m.Summary != nil:
				for _, q := range m.Summary.GetQuantile() {
					emit("", q.GetValue(), Label{"quantile", number(q.GetQuantile())})
				}
				emit("_sum", m.Summary.GetSampleSum())
				emit("_count", float64(m.Summary.GetSampleCount()))
			}
		}
	}
}

// histogram has the classic buckets. One that has only native ones is its sum and count.
func histogram(h *dto.Histogram, emit func(string, float64, ...Label)) {
	end := false
	for _, b := range h.GetBucket() {
		end = end || math.IsInf(b.GetUpperBound(), 1)
		emit("_bucket", float64(b.GetCumulativeCount()), Label{"le", number(b.GetUpperBound())})
	}
	if len(h.GetBucket()) > 0 && !end {
		emit("_bucket", float64(h.GetSampleCount()), Label{"le", "+Inf"})
	}
	emit("_sum", h.GetSampleSum())
	emit("_count", float64(h.GetSampleCount()))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

const nameLabel = "__name__"

func (f *flattener) fill(name string, own []*dto.LabelPair, more []Label) {
	l := append(f.one.labels[:0], Label{nameLabel, name})
	l = append(append(l, f.extra...), more...)
	fixed := len(l)
	for _, p := range own {
		name := p.GetName()
		for slices.ContainsFunc(l[:fixed], func(x Label) bool { return x.Name == name }) {
			name = "exported_" + name
		}
		if p.GetValue() != "" {
			l = append(l, Label{name, p.GetValue()})
		}
	}
	slices.SortFunc(l, func(a, b Label) int { return cmp.Compare(a.Name, b.Name) })
	f.one.labels = l
}
