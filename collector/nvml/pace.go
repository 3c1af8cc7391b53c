//go:build linux && cgo

package nvml

import (
	"time"

	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// How much of a tier's interval its calls on one GPU may take. Between the two
// limits nothing changes, so that the interval does not swing.
const (
	tooMuch = 5  // a fifth of the present interval: it doubles
	little  = 10 // a tenth of the next shorter one: that is taken
	memory  = 8  // rounds over which the mean forgets
)

// pace is how much slower than configured a tier of one GPU is sampled, because
// the driver is slow to answer. Its zero value is the configured pace.
type pace struct {
	doublings int
	mean      time.Duration // that a round spends inside NVML, moving
}

// slowdown is by how much the interval is longer.
func (p *pace) slowdown() time.Duration { return 1 << p.doublings }

// note learns what a round took and reports whether that changes the pace. No
// round counts for more than its interval: a call that hung once is no slow driver.
func (p *pace) note(took, configured time.Duration) bool {
	interval := configured * p.slowdown()
	p.mean += (min(took, interval) - p.mean) / memory
	switch {
	case p.mean > interval/tooMuch && p.slowdown() < metric.MaxSlowdown:
		p.doublings++
	case p.doublings > 0 && p.mean < interval/2/little:
		p.doublings--
	default:
		return false
	}
	return true
}

// interval is the time between two rounds of a tier on this GPU.
func (w *worker) interval(t metric.Tier) time.Duration {
	return w.cfg.Tiers[t] * w.paces[t].slowdown()
}

// adapt makes the tier slower or faster after a round that spent so long inside
// NVML, and says which pace all tiers have.
func (w *worker) adapt(t metric.Tier, took time.Duration, s *sample) {
	before := w.interval(t)
	if w.paces[t].note(took, w.cfg.Tiers[t]) {
		now, mean := w.interval(t), w.paces[t].mean
		if now > before {
			w.log.Warn("NVML is slow: the GPU is sampled less often", "gpu", w.gpu.UUID, "tier", t.String(), "round", mean, "interval", now)
		} else {
			w.log.Info("NVML is faster again: the GPU is sampled more often", "gpu", w.gpu.UUID, "tier", t.String(), "round", mean, "interval", now)
		}
		w.setGap()
	}
	for t := range metric.Tiers {
		s.readings.SetAt(metric.GPUSlowdown, int(t), float64(w.paces[t].slowdown()))
	}
}

// setGap lets a fast sample speak for as long as the fast tier's pace needs.
func (w *worker) setGap() {
	w.bands.SetGap(max(bands.DefaultGap, 3*w.interval(metric.Fast)))
}
