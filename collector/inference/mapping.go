package inference

import (
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Mapping says where an engine's signals are on its page, for people.
type Mapping struct {
	Engine  string
	Told    bool // only the configuration can say that a page is its own
	Signals []Signal
	Notes   []string // what a reader of the numbers should know
}

// Signal is one row and the names that it is read from, the newest first.
type Signal struct {
	Row  *metric.Def
	From []string
}

// Mappings returns the table of all engines.
func Mappings() []Mapping {
	var out []Mapping
	for _, e := range engines() {
		m := Mapping{Engine: e.name, Told: e.told, Notes: e.notes}
		add := func(row *metric.Def, origins ...origin) {
			i := slices.IndexFunc(m.Signals, func(s Signal) bool { return s.Row == row })
			if i < 0 {
				i = len(m.Signals)
				m.Signals = append(m.Signals, Signal{Row: row})
			}
			for _, o := range origins {
				m.Signals[i].From = append(m.Signals[i].From, e.shown(o.name))
			}
			m.Signals[i].From = slices.Compact(m.Signals[i].From)
		}
		for _, g := range e.gauges {
			add(g.row, slices.Concat(g.from, g.more, g.less, g.over)...)
		}
		for _, c := range e.counters {
			add(c.row, c.from...)
		}
		for _, s := range e.sums {
			add(s.of, s.seconds...)
		}
		for _, h := range e.histograms {
			add(h.row, h.from...)
		}
		out = append(out, m)
	}
	return out
}

// shown writes a name with the first of the engine's prefixes.
func (e *engine) shown(name string) string {
	if len(e.prefixes) == 0 || strings.HasPrefix(name, e.prefixes[0]) {
		return name
	}
	return e.prefixes[0] + name
}
