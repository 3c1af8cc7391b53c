package demand

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	// Span is the time over which a workload's rates and means are taken: steps can take
	// a minute each.
	Span = 5 * time.Minute

	// waitSlack is by how much more than all of the time a workload can have waited for
	// data before it counts something else: files are written a little early or late.
	waitSlack = 1.05
)

// Signals is what a workload tells of its own work at one instant. What it does not
// tell is NaN: begin with NoSignals.
type Signals struct {
	At                     time.Time // when it was written
	Steps, Samples, Tokens float64   // done
	Epoch, Loss            float64
	StepTime               Sum     // of the steps' durations
	LoaderWait             float64 // seconds for which it waited for data
	Checkpoint             float64 // when the last one was complete, in seconds since 1970
	Finished               float64 // 1: it has done its work
}

// NoSignals is what a workload tells that tells nothing.
func NoSignals(at time.Time) Signals {
	nan := math.NaN()
	return Signals{At: at, Steps: nan, Samples: nan, Tokens: nan, Epoch: nan, Loss: nan,
		StepTime: Unknown(), LoaderWait: nan, Checkpoint: nan, Finished: nan}
}

func (s *Signals) counts() [3]float64 { return [3]float64{s.Steps, s.Samples, s.Tokens} }

// Progress follows one workload. The zero Progress knows nothing.
type Progress struct {
	window []Signals
	done   [3]float64 // steps, samples, tokens that it was seen to do
	told   [3]bool
	moved  time.Time // when it was last seen to have done something
}

// Add takes up the newest signals. Older ones than the last begin anew: somebody else
// has written them.
func (p *Progress) Add(s Signals) {
	n := len(p.window)
	if n > 0 && s.At.Equal(p.window[n-1].At) {
		return
	}
	var last Signals
	if n > 0 {
		last = p.window[n-1]
	} else {
		last = NoSignals(s.At)
	}
	before, now := last.counts(), s.counts()
	back := s.At.Before(last.At)
	fell := false
	for i, v := range now {
		switch p.told[i] = p.told[i] || !math.IsNaN(v); {
		case back:
		case v > before[i]:
			p.done[i] += v - before[i]
			p.moved = s.At
		case v < before[i]:
			fell = true // back to a checkpoint, or another run
		case n == 0 && v > 0:
			p.moved = s.At
		}
	}
	if back || fell || s.At.Sub(last.At) > Span {
		p.window = p.window[:0]
	}
	drop := 0
	for drop+1 < len(p.window) && s.At.Sub(p.window[drop+1].At) >= Span {
		drop++
	}
	p.window = append(append(p.window[:0], p.window[drop:]...), s)
}

// Set writes what follows into a workload's readings. Of signals that are not fresh
// there is only what was counted, and when.
func (p *Progress) Set(r collector.Readings, fresh bool) {
	put := func(d *metric.Def, v float64) {
		if d.Plausible(v) {
			r.Set(d, v)
		}
	}
	for i, d := range []*metric.Def{metric.WorkloadSteps, metric.WorkloadSamples, metric.WorkloadTokens} {
		if p.told[i] {
			put(d, p.done[i])
		}
	}
	if !p.moved.IsZero() {
		put(metric.WorkloadProgress, float64(p.moved.UnixNano())/1e9)
	}
	if len(p.window) == 0 {
		return
	}
	first, last := &p.window[0], &p.window[len(p.window)-1]
	put(metric.WorkloadStep, last.Steps)
	put(metric.WorkloadCheckpoint, last.Checkpoint)
	put(metric.WorkloadFinished, last.Finished)
	if !fresh {
		return
	}
	put(metric.WorkloadEpoch, last.Epoch)
	put(metric.WorkloadLoss, last.Loss)
	seconds := last.At.Sub(first.At).Seconds()
	if seconds <= 0 {
		return
	}
	from, to := first.counts(), last.counts()
	for i, d := range []*metric.Def{metric.WorkloadStepRate, metric.WorkloadSampleRate, metric.WorkloadTokenRate} {
		put(d, (to[i]-from[i])/seconds)
	}
	if own := mean(first.StepTime, last.StepTime); own >= 0 {
		put(metric.WorkloadStepTime, own)
	} else {
		put(metric.WorkloadStepTime, seconds/(last.Steps-first.Steps))
	}
	if share := (last.LoaderWait - first.LoaderWait) / seconds; share <= waitSlack {
		put(metric.WorkloadLoaderWait, math.Min(1, share))
	}
}
