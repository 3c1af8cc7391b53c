package bands

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Signal is one of the fast signals of a GPU.
type Signal int

// The signals.
const (
	Utilization Signal = iota
	Power              // as a share of the enforced limit
	SMActivity
	MemoryBandwidth
	signals
)

// rows are the rows that a signal fills, and the reading that it is sampled from
// where there is nothing finer.
var rows = [signals]struct{ reading, bands, low, high, sampled *metric.Def }{
	Utilization:     {metric.Utilization, metric.UtilizationBands, metric.UtilizationLow, metric.UtilizationPeak, metric.UtilizationSampled},
	Power:           {metric.PowerDraw, metric.PowerBands, metric.PowerLow, metric.PowerPeak, metric.PowerSampled},
	SMActivity:      {metric.SMActivity, metric.SMActivityBands, metric.SMActivityLow, metric.SMActivityPeak, metric.SMActivitySampled},
	MemoryBandwidth: {metric.DRAMActivity, metric.DRAMBands, metric.DRAMLow, metric.DRAMPeak, metric.DRAMSampled},
}

// GPU follows the fast signals of one GPU. The zero GPU has seen nothing.
type GPU struct {
	trackers [signals]Tracker
}

// SetGap says how long a sample may speak for.
func (g *GPU) SetGap(gap time.Duration) {
	for i := range g.trackers {
		g.trackers[i].Gap = gap
	}
}

// Add takes a sample of a signal in base units. limit is the power that the GPU
// may draw, which only Power asks for; without it there are no bands of power.
func (g *GPU) Add(s Signal, at time.Time, value, limit float64) {
	share := value
	if s == Power {
		share = value / limit
	}
	g.trackers[s].Add(at, value, share)
}

// Last returns the time of the newest sample of a signal.
func (g *GPU) Last(s Signal) time.Time { return g.trackers[s].Last() }

// Observe adds to a signal what the readings say, unless it has had a sample
// within the last quiet.
func (g *GPU) Observe(s Signal, r collector.Readings, now time.Time, quiet time.Duration) {
	if now.Sub(g.Last(s)) > quiet {
		g.Add(s, now, r.Value(rows[s].reading), r.Value(metric.PowerLimit))
	}
}

// Fill stores what is known into the GPU's readings.
func (g *GPU) Fill(r collector.Readings, now time.Time) {
	for i := range g.trackers {
		t, d := &g.trackers[i], &rows[i]
		if seconds, ok := t.Seconds(); ok {
			for band, s := range seconds {
				r.SetAt(d.bands, band, s)
			}
		}
		if low, high, ok := t.Extremes(now); ok {
			r.Set(d.low, low)
			r.Set(d.high, high)
		}
	}
}

// Distributions returns how the samples so far are distributed, of the signals that
// have had one. Nobody changes them any more.
func (g *GPU) Distributions() []collector.Distribution {
	var out []collector.Distribution
	for i := range g.trackers {
		if t := &g.trackers[i]; !t.last.IsZero() {
			out = append(out, t.counts.distribution(rows[i].sampled))
		}
	}
	return out
}

// ObserveAll does it for every signal: for who has no finer samples.
func (g *GPU) ObserveAll(r collector.Readings, now time.Time) {
	for s := range signals {
		g.Observe(s, r, now, 0)
	}
}
