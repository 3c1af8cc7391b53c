package server

import (
	"strconv"
	"strings"

	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// maxCharts is how many readings are drawn beside a finding.
const maxCharts = 3

// chart is the last hour of a reading that shows a finding's condition.
type chart struct {
	Name, Last string
	Spark      *spark
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
				drawn = append(drawn, chart{readingName(d), reading(d, h.Points[len(h.Points)-1].Mean), s})
			}
		}
	}
	return drawn
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
	return strconv.FormatFloat(v, 'f', -1, 64)
}
