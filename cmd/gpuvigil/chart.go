package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

const (
	minBefore = 30   // minutes before the beginning that say what is usual
	usualLow  = 0.05 // quantiles of the minutes' means that are the band
	usualHigh = 0.95
)

// chart shows, of the readings that the incident's rule watches, the one that left what
// was usual of it the farthest. It is nil if nothing was kept.
func (p *pipeline) chart(i *detect.Incident) *alerting.Chart {
	if len(i.Members) == 0 {
		return nil
	}
	root := &i.Members[0]
	of, where := drawnSubject(p.newest(), root, p.cfg.Node)
	c := chartOf(p.engine.History(of), rules.Get(i.Rule), root.Since)
	if c != nil {
		c.Title = text.Clean(c.Title+" of "+where, 80)
		c.Simulated = root.Simulated
	}
	return c
}

// drawnSubject is what readings are kept of that shows the finding: its own subject, else
// a GPU of its owner, else the node.
func drawnSubject(s *collector.Snapshot, f *detect.Finding, node string) (of detect.Subject, where string) {
	gpu := func(g *collector.GPU) (detect.Subject, string) {
		return detect.Subject{Kind: "gpu", ID: g.UUID}, fmt.Sprintf("%s/%d", node, g.Index)
	}
	switch f.Subject.Kind {
	case "gpu":
		return f.Subject, fmt.Sprintf("%s/%d", node, f.GPUIndex)
	case "endpoint":
		_, model, _ := strings.Cut(f.Subject.ID, "#")
		return f.Subject, strings.ReplaceAll(model, "/", " ")
	}
	if s != nil {
		for k := range s.GPUs {
			g := &s.GPUs[k]
			if f.GPUIndex == g.Index || f.GPUIndex < 0 && f.Owner.Kind != "" && slices.Contains(g.Owners, f.Owner) {
				return gpu(g)
			}
		}
	}
	return detect.Subject{Kind: "node", ID: node}, node
}

func chartOf(all []detect.History, rule *rules.Rule, onset time.Time) *alerting.Chart {
	var best *alerting.Chart
	farthest := -1.0
	for k := range all {
		h := &all[k]
		if rule == nil || !slices.Contains(rule.Watch, h.Reading) || len(h.Points) < 2 {
			continue
		}
		c, left := draw(h, onset)
		if left > farthest {
			best, farthest = c, left
		}
	}
	return best
}

// draw makes a chart of a reading, and says how far it left its usual band, in widths of
// that.
func draw(h *detect.History, onset time.Time) (c *alerting.Chart, left float64) {
	name, unit, scale := unitOf(h.Reading)
	c = &alerting.Chart{Title: name, Unit: unit, Onset: onset, Low: math.NaN(), High: math.NaN()}
	var before, after []float64
	for _, p := range h.Points {
		c.Points = append(c.Points, alerting.ChartPoint{Time: p.Time, Min: p.Min * scale, Mean: p.Mean * scale, Max: p.Max * scale})
		if p.Time.Before(onset.Truncate(time.Minute)) {
			before = append(before, p.Mean*scale)
		} else {
			after = append(after, p.Mean*scale)
		}
	}
	if len(before) < minBefore {
		return c, 0
	}
	slices.Sort(before)
	at := func(q float64) float64 { return before[int(q*float64(len(before)-1))] }
	c.Low, c.High, c.Band = at(usualLow), at(usualHigh), "usual before"
	width := max(c.High-c.Low, 0.02*math.Abs(c.High), 1e-9)
	for _, v := range after {
		left = max(left, (c.Low-v)/width, (v-c.High)/width)
	}
	return c, left
}

// units are the base units of rows' names, as people read them.
var units = []struct {
	suffix, unit string
	scale        float64
}{
	{"_ratio", "%", 100}, {"_watts", "W", 1}, {"_celsius", "°C", 1}, {"_hertz", "MHz", 1e-6}, {"_bytes", "GiB", 1.0 / (1 << 30)},
	{"_bytes_per_second", "MB/s", 1e-6}, {"_per_second", "per second", 1}, {"_seconds", "s", 1},
}

// unitOf returns a row's name in words, and how its values are shown.
func unitOf(d *metric.Def) (name, unit string, scale float64) {
	name = strings.TrimPrefix(d.Name, "vigil_")
	scale = 1
	for _, u := range units {
		if rest, ok := strings.CutSuffix(name, u.suffix); ok {
			name, unit, scale = rest, u.unit, u.scale
			break
		}
	}
	name = strings.ReplaceAll(name, "_", " ")
	if rest, ok := strings.CutPrefix(name, "gpu "); ok {
		name = "GPU " + rest
	}
	return name, unit, scale
}
