package server

import (
	"fmt"
	"strings"
	"time"

	"gpuvigil/detect"
)

// The drawing area of a sparkline; CSS stretches it.
const (
	sparkWidth  = 120
	sparkHeight = 24
	sparkSpan   = time.Hour
)

// spark is a small chart of the last hour: the band between each minute's
// extremes and the line of the means, as SVG paths.
type spark struct{ Band, Line string }

// newSpark draws the points on a scale from 0 to top. It returns nil if there
// are too few to show a course. A gap in the points is a gap in the line.
func newSpark(points []detect.Point, now time.Time, top float64) *spark {
	if !finite(top) || top <= 0 {
		return nil
	}
	var s spark
	drawn := 0
	for _, run := range runs(points, now.Add(-sparkSpan)) {
		if len(run) < 2 {
			continue
		}
		drawn += len(run)
		line, upper, lower := make([]string, 0, len(run)), make([]string, 0, len(run)), make([]string, len(run))
		for i, p := range run {
			x := sparkWidth * (1 - float64(now.Sub(p.Time))/float64(sparkSpan))
			line = append(line, at(x, p.Mean, top))
			upper = append(upper, at(x, p.Max, top))
			lower[len(run)-1-i] = at(x, p.Min, top)
		}
		s.Line += "M" + strings.Join(line, "L")
		s.Band += "M" + strings.Join(append(upper, lower...), "L") + "Z"
	}
	if drawn == 0 {
		return nil
	}
	return &s
}

// runs splits the points since the given time where a minute is missing.
func runs(points []detect.Point, since time.Time) [][]detect.Point {
	var split [][]detect.Point
	var last time.Time
	for _, p := range points {
		if p.Time.Before(since) || !finite(p.Min, p.Mean, p.Max) {
			continue
		}
		if len(split) == 0 || p.Time.Sub(last) > 2*time.Minute {
			split = append(split, nil)
		}
		split[len(split)-1] = append(split[len(split)-1], p)
		last = p.Time
	}
	return split
}

// at places a value, with room for the line's width at both edges.
func at(x, v, top float64) string {
	y := 1 + (sparkHeight-2)*(1-min(max(v/top, 0), 1))
	return fmt.Sprintf("%.1f %.1f", x, y)
}
