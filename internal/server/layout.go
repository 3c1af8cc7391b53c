package server

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// layout is what all pages have in common: the rows in the order in which they
// are written and, for each kind of entity, the rows that are a plain column of
// its readings. It does not change after newLayout.
type layout struct {
	rows   []row // sorted by name
	slot   map[*metric.Def]int
	plain  map[metric.Entity][]*row
	values map[*metric.Dimension][]*dto.LabelPair
	full   bool // with the rows that are details
}

// row is a row of the catalogue with its place on the page.
type row struct {
	def   *metric.Def
	slot  int
	typ   dto.MetricType
	names []string // of its labels

	textHead, openHead string // what stands before its samples in the two text formats
}

// notPlain are the rows that are made from an entity's identity and state, or by
// the engine. A reading of the same name would contradict them.
var notPlain = []*metric.Def{metric.GPUPresent, metric.GPUHung, metric.GPUSampleAge, metric.VersionChanges, metric.PriceMissing}

// newLayout makes the layout of the default profile, or of the full one.
func newLayout(full bool) *layout {
	defs := slices.Clone(metric.All())
	slices.SortFunc(defs, func(a, b *metric.Def) int { return strings.Compare(a.Name, b.Name) })
	l := &layout{
		rows:   make([]row, len(defs)),
		slot:   map[*metric.Def]int{},
		plain:  map[metric.Entity][]*row{},
		values: map[*metric.Dimension][]*dto.LabelPair{},
		full:   full,
	}
	for i, d := range defs {
		l.slot[d] = i
		l.rows[i] = row{def: d, slot: i, typ: dto.MetricType_GAUGE, names: d.LabelNames(), textHead: head(d, false), openHead: head(d, true)}
		switch d.Kind {
		case metric.Counter:
			l.rows[i].typ = dto.MetricType_COUNTER
		case metric.Histogram:
			l.rows[i].typ = dto.MetricType_HISTOGRAM
		}
		if d.Dim != nil && l.values[d.Dim] == nil {
			for _, v := range d.Dim.Values {
				l.values[d.Dim] = append(l.values[d.Dim], &dto.LabelPair{Name: &d.Dim.Label, Value: &v})
			}
		}
		if len(d.Labels) == 0 && l.shows(d) && !slices.Contains(notPlain, d) {
			l.plain[d.Entity] = append(l.plain[d.Entity], &l.rows[i])
		}
	}
	return l
}

// byName returns the row with the metric's name, or nil.
func (l *layout) byName(name string) *row {
	i, ok := slices.BinarySearchFunc(l.rows, name, func(r row, name string) int { return strings.Compare(r.def.Name, name) })
	if !ok {
		return nil
	}
	return &l.rows[i]
}

// shows reports whether the row has series in the profile.
func (l *layout) shows(d *metric.Def) bool { return l.full || !d.Detail }
