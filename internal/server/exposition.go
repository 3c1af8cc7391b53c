package server

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	vm "github.com/VictoriaMetrics/metrics"
	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxLabel bounds a label value in bytes. Prometheus can be told to refuse a
// whole page over one long value; nothing that identifies a thing is longer.
const maxLabel = 200

var (
	refusedDuplicate  = vm.GetOrCreateCounter(metric.SeriesRefused.Series("duplicate"))
	refusedUnknown    = vm.GetOrCreateCounter(metric.SeriesRefused.Series("unknown"))
	cappedXids        = vm.GetOrCreateCounter(metric.SeriesCapped.Series("xid"))
	cappedSXids       = vm.GetOrCreateCounter(metric.SeriesCapped.Series("sxid"))
	cappedOwners      = vm.GetOrCreateCounter(metric.SeriesCapped.Series("owner"))
	cappedAllocations = vm.GetOrCreateCounter(metric.SeriesCapped.Series("allocation"))
	cappedHolders     = vm.GetOrCreateCounter(metric.SeriesCapped.Series("dcgm_holder"))
	cappedVersions    = vm.GetOrCreateCounter(metric.SeriesCapped.Series("version"))
)

// exposition is the page of one scrape. Its labels and its memory are used again
// for the next one: from scrape to scrape a node changes its values, hardly ever
// its things, and what is not made anew need not be collected.
type exposition struct {
	*layout
	samples [][]sample          // by slot
	dcgm    []*dto.MetricFamily // what the page has under DCGM's names
	things  map[string]*thing
	usages  []usage // of the GPUs, by owner
	scrape  uint64  // counts the page's scrapes
	key     []byte

	unattributed, others bool // whether a series speaks of these owners, who have no workload

	text bytes.Buffer // the page as text
	wire wire         // the page as messages
}

// sample is one sample of a row.
type sample struct {
	labels    *labels
	value     float64
	histogram *dto.Histogram // of a row of that kind, instead of the value
}

// thing is something that has series: a GPU, a source, a finding.
type thing struct {
	labels labels
	dims   map[*metric.Dimension][]labels // with each value of a dimension
	seen   uint64                         // the scrape that it was last part of
}

// newExposition returns an empty page.
func newExposition(l *layout) *exposition {
	return &exposition{layout: l, samples: make([][]sample, len(l.rows)), wire: wire{metrics: make([][]*dto.Metric, len(l.rows))}, things: map[string]*thing{}}
}

// reset empties the page for the next scrape and forgets the things that the
// last one did not meet.
func (e *exposition) reset() {
	for key, t := range e.things {
		if t.seen != e.scrape {
			delete(e.things, key)
		}
	}
	for i := range e.samples {
		e.samples[i] = e.samples[i][:0]
	}
	e.dcgm, e.unattributed, e.others = nil, false, false
	e.scrape++
}

// thing returns the thing of the kind with these labels, or nil if it is on the
// page already. Two things with the same labels would make two samples of one
// series, for which Prometheus throws away the whole page; the second one is left
// out and counted. The values are untrusted.
func (e *exposition) thing(kind string, names []string, values ...string) *thing {
	e.key = append(e.key[:0], kind...)
	for _, v := range values {
		e.key = append(e.key, 0xff) // is in no valid UTF-8
		e.key = append(e.key, label(v)...)
	}
	t := e.things[string(e.key)]
	if t == nil {
		t = &thing{labels: newLabels(pairs(names, values...))}
		e.things[string(e.key)] = t
	} else if t.seen == e.scrape {
		refusedDuplicate.Inc()
		return nil
	}
	t.seen = e.scrape
	return t
}

// entity returns a thing whose labels are those of the entity.
func (e *exposition) entity(of metric.Entity, values ...string) *thing {
	return e.thing(of.String(), of.Labels(), values...)
}

// one appends a sample of a row whose labels are all given here.
func (e *exposition) one(d *metric.Def, v float64, values ...string) {
	if t := e.thing(d.Name, e.rows[e.slot[d]].names, values...); t != nil {
		e.add(d, &t.labels, v)
	}
}

// add appends one sample of the row. A value that is not finite is none.
func (e *exposition) add(d *metric.Def, l *labels, v float64) {
	e.put(&e.rows[e.slot[d]], l, v)
}

func (e *exposition) put(r *row, l *labels, v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) && (v != 0 || !r.def.Sparse) {
		e.samples[r.slot] = append(e.samples[r.slot], sample{labels: l, value: v})
	}
}

// readings appends every plain row of the entity that was reported.
func (e *exposition) readings(of metric.Entity, t *thing, r collector.Readings) {
	for _, row := range e.plain[of] {
		if row.def.Dim == nil {
			e.put(row, &t.labels, r.Value(row.def))
			continue
		}
		expanded := e.expand(t, row.def.Dim)
		for i := range expanded {
			e.put(row, &expanded[i], r.ValueAt(row.def, i))
		}
	}
}

// expand returns the thing's labels with each value of the dimension.
func (e *exposition) expand(t *thing, d *metric.Dimension) []labels {
	expanded := t.dims[d]
	if expanded == nil {
		for _, pair := range e.values[d] {
			expanded = append(expanded, newLabels(append(slices.Clip(t.labels.pairs), pair)))
		}
		if t.dims == nil {
			t.dims = map[*metric.Dimension][]labels{}
		}
		t.dims[d] = expanded
	}
	return expanded
}

// pairs makes labels; the values are untrusted.
func pairs(names []string, values ...string) []*dto.LabelPair {
	labels := make([]*dto.LabelPair, len(names))
	for i := range names {
		value := label(values[i])
		labels[i] = &dto.LabelPair{Name: &names[i], Value: &value}
	}
	return labels
}

// label returns s as a label value: valid UTF-8 of bounded length.
func label(s string) string {
	if len(s) > maxLabel {
		n := maxLabel
		for n > maxLabel-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
