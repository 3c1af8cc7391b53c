//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// derive fills the rows of a tier that follow from others.
func (w *worker) derive(t metric.Tier, s *sample, now time.Time) {
	switch t {
	case metric.Fast:
		w.observe(s, now)
		w.load.add(s.readings)
	case metric.Slow:
		for i, rate := range w.linked.rates(s.readings, metric.NVLinkBytes, now) {
			if !math.IsNaN(rate) {
				s.put(metric.NVLinkThroughput, i, rate)
			}
		}
		w.sampleLinks(s, now)
	case metric.Inventory:
		if w.migKnown {
			for i, on := range w.migMode {
				s.readings.SetAt(metric.MIGMode, i, bit(on))
			}
		}
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// growth remembers a counter of both directions.
type growth struct {
	last [2]float64
	at   time.Time
}

// rates returns by how much the counter has grown per second since the time
// before; NaN where it has not been there twice or was reset.
func (g *growth) rates(r collector.Readings, d *metric.Def, now time.Time) (rates [2]float64) {
	for i := range rates {
		v := r.ValueAt(d, i)
		rates[i] = math.NaN()
		if seconds := now.Sub(g.at).Seconds(); !g.at.IsZero() && seconds > 0 && v >= g.last[i] {
			rates[i] = (v - g.last[i]) / seconds
		}
		g.last[i] = v
	}
	g.at = now
	return rates
}

// engines are the GPU's own readings of what processes share, in the order of
// metric.Engine.
var engines = [4]*metric.Def{metric.Utilization, metric.MemoryUtilization, metric.EncoderUtilization, metric.DecoderUtilization}

// load is how busy the GPU's engines have been since the last list of processes.
type load struct {
	sum, n [len(engines)]float64
}

func (l *load) add(r collector.Readings) {
	for i, d := range engines {
		if v := r.Value(d); !math.IsNaN(v) {
			l.sum[i] += v
			l.n[i]++
		}
	}
}

// take returns the means, NaN where nothing was told, and begins anew.
func (l *load) take() (means [len(engines)]float64) {
	for i := range means {
		means[i] = l.sum[i] / l.n[i]
	}
	*l = load{}
	return means
}
