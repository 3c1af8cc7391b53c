package server

import (
	"math"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// maxCharts is how many readings are drawn beside a finding.
const maxCharts = 3

// chart is the last hour of a reading that shows a finding's condition.
type chart struct {
	Name  string
	Now   string // what it is, n/a if nobody knows
	Last  string // if so, what it was last, and when
	Spark *spark
}

// charts draws the readings that the rule watches, in the rule's order.
func (l *look) charts(of detect.Subject, watch []*metric.Def) []chart {
	if l.history == nil {
		return nil
	}
	histories := l.history(of)
	var drawn []chart
	for _, d := range watch {
		for _, h := range histories {
			if h.Reading != d || len(drawn) == maxCharts {
				continue
			}
			if s := newSpark(h.Points, l.now, scale(h)); s != nil {
				c := chart{Name: readingName(d), Now: reading(d, l.current(of, d)), Spark: s}
				if c.Now == none {
					last := h.Points[len(h.Points)-1]
					c.Last = reading(d, last.Mean) + " at " + minute(last.Time, l.now)
				}
				drawn = append(drawn, c)
			}
		}
	}
	return drawn
}

// current is what the subject's reading is now, or NaN: not what it was when a GPU
// that is lost since, or a source that says no more, last told.
func (l *look) current(of detect.Subject, d *metric.Def) float64 {
	if l.snap == nil || stale(l.snap, l.now) {
		return math.NaN()
	}
	var r collector.Readings
	switch of.Kind {
	case "node":
		r = l.snap.Node.Readings
	case "gpu":
		if g := l.snap.GPUByUUID(of.ID); g != nil {
			r = g.Readings
		}
	case "endpoint":
		for i := range l.snap.Endpoints {
			if e := &l.snap.Endpoints[i]; detect.EndpointSubject(e) == of {
				r = e.Readings
			}
		}
	}
	return r.Value(d)
}

// scale is the top of the chart: all of a share, else a little above the highest.
func scale(h detect.History) float64 {
	if strings.HasSuffix(h.Reading.Name, "_ratio") {
		return 1
	}
	return 1.1 * highest(h.Points)
}

func highest(points []detect.Point) float64 {
	top := 0.0
	for _, p := range points {
		if p.Max > top {
			top = p.Max
		}
	}
	return top
}

// units are the endings of metric names and how a person reads their values.
var units = []struct {
	suffix   string
	per      float64 // how much of the metric's unit is one of the person's
	decimals int
	unit     string
}{
	{"_ratio", 0.01, 0, "%"},
	{"_bytes", 1 << 30, 1, "GiB"},
	{"_watts", 1, 0, "W"},
	{"_celsius", 1, 0, "°C"},
	{"_seconds", 1, 1, "s"},
	{"_hertz", 1e6, 0, "MHz"},
}

// readingName is a metric's name in words: vigil_gpu_power_draw_watts is power draw.
func readingName(d *metric.Def) string {
	name := d.Name
	for _, prefix := range []string{"vigil_", "gpu_", "inference_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	for _, u := range units {
		name = strings.TrimSuffix(name, u.suffix)
	}
	return strings.ReplaceAll(name, "_", " ")
}

// reading writes a metric's value with its unit.
func reading(d *metric.Def, v float64) string {
	for _, u := range units {
		if strings.HasSuffix(d.Name, u.suffix) {
			return quantity(v/u.per, u.decimals, u.unit)
		}
	}
	if !finite(v) {
		return none
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
