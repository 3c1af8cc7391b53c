package server

import (
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
	refusedDuplicate = vm.GetOrCreateCounter(metric.SeriesRefused.Series("duplicate"))
	refusedUnknown   = vm.GetOrCreateCounter(metric.SeriesRefused.Series("unknown"))
	cappedXids       = vm.GetOrCreateCounter(metric.SeriesCapped.Series("xid"))
	cappedOwners     = vm.GetOrCreateCounter(metric.SeriesCapped.Series("owner"))
	cappedVersions   = vm.GetOrCreateCounter(metric.SeriesCapped.Series("version"))
)

// layout is what all pages have in common: the families in the order in which
// they are written and, for each kind of entity, the rows that are a plain
// column of its readings. It does not change after newLayout.
type layout struct {
	families []*dto.MetricFamily // sorted by name, without samples
	slot     map[*metric.Def]int
	byName   map[string]*metric.Def
	plain    map[metric.Entity][]*metric.Def
	values   map[*metric.Dimension][]*dto.LabelPair
}

// notPlain are the rows that are made from an entity's identity and state, or by
// the engine. A reading of the same name would contradict them.
var notPlain = []*metric.Def{metric.GPUPresent, metric.GPUHung, metric.GPUSampleAge, metric.VersionChanges}

func newLayout() *layout {
	l := &layout{
		slot:   map[*metric.Def]int{},
		byName: map[string]*metric.Def{},
		plain:  map[metric.Entity][]*metric.Def{},
		values: map[*metric.Dimension][]*dto.LabelPair{},
	}
	rows := slices.Clone(metric.All())
	slices.SortFunc(rows, func(a, b *metric.Def) int { return strings.Compare(a.Name, b.Name) })
	for i, d := range rows {
		l.slot[d], l.byName[d.Name] = i, d
		typ := dto.MetricType_GAUGE
		if d.Kind == metric.Counter {
			typ = dto.MetricType_COUNTER
		}
		l.families = append(l.families, &dto.MetricFamily{Name: &d.Name, Help: &d.Help, Type: &typ})
		if d.Dim != nil && l.values[d.Dim] == nil {
			for _, v := range d.Dim.Values {
				l.values[d.Dim] = append(l.values[d.Dim], &dto.LabelPair{Name: &d.Dim.Label, Value: &v})
			}
		}
	}
	for _, d := range metric.All() {
		if len(d.Labels) == 0 && !slices.Contains(notPlain, d) {
			l.plain[d.Entity] = append(l.plain[d.Entity], d)
		}
	}
	return l
}

// exposition is one page in the making. It shares its label names, help texts
// and dimension values with the layout and owns everything else, so a page is
// never changed by the scrape after it.
type exposition struct {
	*layout
	samples [][]*dto.Metric // by slot
	seen    map[string]struct{}

	gauges   []gauge
	counters []counter
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

// slab is how many samples are allocated at once.
const slab = 256

func (l *layout) page() *exposition {
	return &exposition{
		layout:  l,
		samples: make([][]*dto.Metric, len(l.families)),
		seen:    map[string]struct{}{},
	}
}

// add appends one sample of the row. A value that is not finite is none.
func (e *exposition) add(d *metric.Def, labels []*dto.LabelPair, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	i := e.slot[d]
	e.samples[i] = append(e.samples[i], e.sample(d, labels, v))
}

func (e *exposition) sample(d *metric.Def, labels []*dto.LabelPair, v float64) *dto.Metric {
	if d.Kind == metric.Counter {
		if len(e.counters) == 0 {
			e.counters = make([]counter, slab)
		}
		c := &e.counters[0]
		e.counters = e.counters[1:]
		c.value = v
		c.counter.Value = &c.value
		c.metric.Label, c.metric.Counter = labels, &c.counter
		return &c.metric
	}
	if len(e.gauges) == 0 {
		e.gauges = make([]gauge, slab)
	}
	g := &e.gauges[0]
	e.gauges = e.gauges[1:]
	g.value = v
	g.gauge.Value = &g.value
	g.metric.Label, g.metric.Gauge = labels, &g.gauge
	return &g.metric
}

// readings appends every plain row of the entity that was reported.
func (e *exposition) readings(of metric.Entity, base []*dto.LabelPair, r collector.Readings) {
	for _, d := range e.plain[of] {
		if d.Dim == nil {
			e.add(d, base, r.Value(d))
			continue
		}
		for i, pair := range e.values[d.Dim] {
			if v := r.ValueAt(d, i); !math.IsNaN(v) {
				e.add(d, with(base, pair), v)
			}
		}
	}
}

// claim reports whether the identity, of the named kind, is not on the page yet.
// Two things with one identity would make two samples of one series, for which
// Prometheus throws away the whole page; the second one is left out and counted.
func (e *exposition) claim(kind string, identity []*dto.LabelPair) bool {
	var b strings.Builder
	b.WriteString(kind)
	for _, p := range identity {
		b.WriteByte(0xff) // is in no valid UTF-8
		b.WriteString(p.GetValue())
	}
	if _, taken := e.seen[b.String()]; taken {
		refusedDuplicate.Inc()
		return false
	}
	e.seen[b.String()] = struct{}{}
	return true
}

// one appends a sample of a row whose labels are all given here.
func (e *exposition) one(d *metric.Def, v float64, values ...string) {
	if labels := pairs(d.LabelNames(), values...); e.claim(d.Name, labels) {
		e.add(d, labels, v)
	}
}

// gathered returns the families that have samples, sorted by name.
func (e *exposition) gathered() []*dto.MetricFamily {
	page := make([]*dto.MetricFamily, 0, len(e.families))
	for i, f := range e.families {
		if len(e.samples[i]) > 0 {
			page = append(page, &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Metric: e.samples[i]})
		}
	}
	return page
}

// pairs makes labels; the values are untrusted.
func pairs(names []string, values ...string) []*dto.LabelPair {
	made := make([]dto.LabelPair, len(names))
	labels := make([]*dto.LabelPair, len(names))
	for i := range names {
		value := label(values[i])
		made[i].Name, made[i].Value = &names[i], &value
		labels[i] = &made[i]
	}
	return labels
}

// with returns base and further labels in a slice of its own.
func with(base []*dto.LabelPair, more ...*dto.LabelPair) []*dto.LabelPair {
	return append(base[:len(base):len(base)], more...)
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
