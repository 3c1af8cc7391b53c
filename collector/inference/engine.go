package inference

import (
	"math"
	"slices"
	"strings"

	"gpuvigil/collector/exposition"
	"gpuvigil/internal/metric"
)

// engine is one inference server's way to say the canonical signals. A further
// server is a further entry in the table and a recorded page in testdata.
type engine struct {
	name string

	// prefixes stand before the names of the table on the page: releases and
	// pipelines rename. None: the names stand as they are.
	prefixes []string

	// told is set for a server whose names are so plain that only the configuration
	// can say that a page is its own.
	told bool

	// models are the labels that name the model, tried in this order; several
	// together are joined by "/". None: the server does not tell.
	models [][]string

	// repeated are labels of which each value repeats the same facts, as the ranks
	// of one model do. Samples that differ in them only count once, the largest.
	repeated []string

	gauges     []gauge
	counters   []counter
	sums       []sum
	histograms []histogram

	// approximate are signals that the server tells something near to; notes say how
	// near.
	approximate []*metric.Def
	notes       []string // what a reader of the numbers should know
}

// origin is where a number stands on the page. The first origin of a list that has
// a sample for the model counts: for a while releases serve the old and the new
// name.
type origin struct {
	name string

	// only has the label values that a sample must have, of several separated by
	// "|"; a label that is not there is empty. A value that begins with "!" must not be.
	only map[string]string

	scale float64 // to base units; 0 means 1
}

// gauge is a number that goes up and down. Over the parts of one server (engines,
// replicas, handles) it is added up, or the largest counts.
type gauge struct {
	row     *metric.Def
	from    []origin
	more    []origin // each is added where it is told
	less    []origin // is subtracted
	over    []origin // divides
	largest bool
}

// counter only grows, but for restarts. For a row with a dimension, by names the
// label and to its values; a value that is not in to is otherwise, and of none if
// that is empty.
type counter struct {
	row       *metric.Def
	from      []origin
	by        string
	to        map[string]string
	otherwise string
}

// sum is a time that a server adds up, with how often, where it tells no more.
type sum struct {
	of      *metric.Def // the mean of it
	seconds []origin
	count   []origin
}

// histogram's names are those of families, without _bucket.
type histogram struct {
	row  *metric.Def
	from []origin
}

// named makes origins of names alone.
func named(names ...string) []origin {
	out := make([]origin, len(names))
	for i, n := range names {
		out[i].name = n
	}
	return out
}

// where makes an origin with one label that a sample must have.
func where(name, label, value string) []origin {
	return []origin{{name: name, only: map[string]string{label: value}}}
}

// scaled makes an origin of a name whose unit is not the base unit.
func scaled(name string, scale float64) []origin { return []origin{{name: name, scale: scale}} }

// kind is what a sample on a page is for.
type kind uint8

const (
	ofGauge   kind = iota
	ofMore         // what a gauge is more by
	ofLess         // what a gauge is less by
	ofOver         // what a gauge is divided by
	ofCounter      //
	ofSeconds      // of a sum
	ofCount        // of a sum
	ofBucket       //
	ofTotal        // sum of a histogram
	ofHowMany      // count of a histogram
	ofStart        // when the process began
)

// use is one purpose of a sample name.
type use struct {
	engine *engine
	kind   kind
	signal int // index in the engine's list of that kind
	rank   int // smaller is better, among the origins of one signal
	origin *origin
}

// index has the uses of each sample name, and of each family in a TYPE line.
type index struct {
	samples  map[string][]use
	families map[string][]*engine
}

const startTime = "process_start_time_seconds"

// newIndex compiles the table for the engines.
func newIndex(engines []*engine) *index {
	x := &index{samples: map[string][]use{startTime: {{kind: ofStart}}}, families: map[string][]*engine{}}
	for _, e := range engines {
		for i := range e.gauges {
			x.add(e, ofGauge, i, e.gauges[i].from, "")
			x.add(e, ofMore, i, e.gauges[i].more, "")
			x.add(e, ofLess, i, e.gauges[i].less, "")
			x.add(e, ofOver, i, e.gauges[i].over, "")
		}
		for i := range e.counters {
			x.add(e, ofCounter, i, e.counters[i].from, "")
		}
		for i := range e.sums {
			x.add(e, ofSeconds, i, e.sums[i].seconds, "")
			x.add(e, ofCount, i, e.sums[i].count, "")
		}
		for i := range e.histograms {
			x.add(e, ofBucket, i, e.histograms[i].from, "_bucket")
			x.add(e, ofTotal, i, e.histograms[i].from, "_sum")
			x.add(e, ofHowMany, i, e.histograms[i].from, "_count")
		}
	}
	return x
}

func (x *index) add(e *engine, k kind, signal int, origins []origin, suffix string) {
	prefixes := e.prefixes
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	for i := range origins {
		for j, p := range prefixes {
			family := p + origins[i].name
			name := family + suffix
			x.samples[name] = append(x.samples[name], use{e, k, signal, i*len(prefixes) + j, &origins[i]})
			x.known(family, e)
			x.known(strings.TrimSuffix(family, "_sum"), e)   // the family of a histogram of which the sum is used
			x.known(strings.TrimSuffix(family, "_total"), e) // and of a counter in OpenMetrics
		}
	}
}

func (x *index) known(family string, e *engine) {
	if !slices.Contains(x.families[family], e) {
		x.families[family] = append(x.families[family], e)
	}
}

// matches reports whether a sample has the label values that the origin wants.
func (o *origin) matches(labels []exposition.Label) bool {
	for name, want := range o.only {
		got := string(valueOf(labels, name))
		if except, not := strings.CutPrefix(want, "!"); not {
			if got == except {
				return false
			}
		} else if got != want && !slices.Contains(strings.Split(want, "|"), got) {
			return false
		}
	}
	return true
}

func (o *origin) scaled(v float64) float64 {
	if o.scale == 0 {
		return v
	}
	return v * o.scale
}

// valueOf returns a label's value, nil if it is not there.
func valueOf(labels []exposition.Label, name string) []byte {
	for i := range labels {
		if string(labels[i].Name) == name {
			return labels[i].Value
		}
	}
	return nil
}

// column returns which of the row's columns the sample counts for, -1 for none.
func (c *counter) column(labels []exposition.Label) int {
	if c.row.Dim == nil {
		return 0
	}
	value := c.otherwise
	if c.by != "" {
		got := string(valueOf(labels, c.by))
		if to, ok := c.to[got]; ok {
			value = to
		} else if to, ok := c.to[firstOf(got)+"xx"]; ok {
			value = to
		}
	}
	return c.row.Dim.Index(value)
}

func firstOf(s string) string {
	if s == "" {
		return ""
	}
	return s[:1]
}

// combine joins the parts of one server's gauge.
func (g *gauge) combine(a, b float64) float64 {
	if g.largest {
		return math.Max(a, b)
	}
	return a + b
}
