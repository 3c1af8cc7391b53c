package demand

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func atStep(after time.Duration, steps float64) Signals {
	s := NoSignals(noon.Add(after))
	s.Steps = steps
	return s
}

func progressed(fresh bool, signals ...Signals) collector.Readings {
	var p Progress
	for _, s := range signals {
		p.Add(s)
	}
	r := collector.NewReadings(metric.Workload)
	p.Set(r, fresh)
	return r
}

// In 120 s 60 steps were done, of 512 samples each, which took 90 s by the workload's
// own clock; for 12 s of the time it waited for data.
func TestProgressByHand(t *testing.T) {
	page := func(after time.Duration, steps, took, waited float64) Signals {
		s := atStep(after, steps)
		s.Samples, s.Tokens, s.StepTime, s.LoaderWait = 512*steps, 1e6*steps, Sum{took, steps}, waited
		s.Loss, s.Epoch, s.Checkpoint, s.Finished = 2.5, 0.75, 1.79e9, 0
		return s
	}
	r := progressed(true, page(0, 1000, 1500, 40), page(time.Minute, 1030, 1545, 46), page(2*time.Minute, 1060, 1590, 52))
	check(t, r, map[*metric.Def]float64{
		metric.WorkloadSteps: 60, metric.WorkloadSamples: 30720, metric.WorkloadTokens: 6e7, metric.WorkloadStep: 1060,
		metric.WorkloadStepRate: 0.5, metric.WorkloadSampleRate: 256, metric.WorkloadTokenRate: 5e5,
		metric.WorkloadStepTime: 1.5, metric.WorkloadLoaderWait: 0.1, metric.WorkloadLoss: 2.5, metric.WorkloadEpoch: 0.75,
		metric.WorkloadProgress: float64(noon.Add(2 * time.Minute).Unix()), metric.WorkloadCheckpoint: 1.79e9, metric.WorkloadFinished: 0,
	})
}

func TestProgressIsAbsentWhereItIsNotTold(t *testing.T) {
	nan := math.NaN()
	for name, r := range map[string]collector.Readings{
		"nothing":        progressed(true),
		"one page":       progressed(true, atStep(0, 7)),
		"the same page":  progressed(true, atStep(0, 7), atStep(0, 7)),
		"a pause":        progressed(true, atStep(0, 7), atStep(Span+time.Second, 9)),
		"an older page":  progressed(true, atStep(time.Minute, 7), atStep(0, 9)),
		"back to a step": progressed(true, atStep(0, 90), atStep(time.Minute, 70)),
		"old signals":    progressed(false, atStep(0, 7), atStep(time.Minute, 9)),
	} {
		for _, d := range []*metric.Def{metric.WorkloadStepRate, metric.WorkloadStepTime, metric.WorkloadSampleRate, metric.WorkloadLoaderWait, metric.WorkloadLoss} {
			if r.Has(d) {
				t.Errorf("%s: %s = %v, which nobody can know", name, d, r.Value(d))
			}
		}
	}
	check(t, progressed(true, atStep(0, 5), atStep(time.Minute, 5)), map[*metric.Def]float64{
		metric.WorkloadStepRate: 0, metric.WorkloadStepTime: nan, metric.WorkloadProgress: float64(noon.Unix()),
	})
	hungry := func(after time.Duration, waited float64) Signals {
		s := atStep(after, 1)
		s.LoaderWait = waited
		return s
	}
	check(t, progressed(true, hungry(0, 0), hungry(time.Minute, 61)), map[*metric.Def]float64{metric.WorkloadLoaderWait: 1})
	check(t, progressed(true, hungry(0, 0), hungry(time.Minute, 480)), map[*metric.Def]float64{metric.WorkloadLoaderWait: nan})
}

// From step 90 back to 70, and on to 80: 10 + 10 steps were done since it was first
// seen at 80.
func TestWorkThatIsDoneAgainCounts(t *testing.T) {
	r := progressed(true, atStep(0, 80), atStep(time.Minute, 90), atStep(2*time.Minute, 70), atStep(3*time.Minute, 80))
	check(t, r, map[*metric.Def]float64{metric.WorkloadSteps: 20, metric.WorkloadStep: 80, metric.WorkloadStepRate: 1.0 / 6})
}
