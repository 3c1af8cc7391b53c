package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestTheIntervalHoldsWhatItSays plays 20,000 months: the end lies within the interval
// in nine of ten, and an overrun of which the odds are said happens about so often.
func TestTheIntervalHoldsWhatItSays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const months = 20000
	within, odds, over := 0, 0.0, 0
	for range months {
		n := MinDays + r.IntN(20)
		left := 1 + r.IntN(25)
		mean, dev := 1000+1000*r.Float64(), 10+90*r.Float64()
		draw := func() float64 { return mean + dev*r.NormFloat64() }
		var days []float64
		spent := 0.0
		for range n {
			days = append(days, draw())
			spent += days[len(days)-1]
		}
		p, known := Project(spent, days, float64(left))
		if !known || !(p.Low <= p.Expected && p.Expected <= p.High) || p.Low < spent {
			t.Fatalf("projection of %d days: %+v", n, p)
		}
		end := spent
		for range left {
			end += draw()
		}
		if p.Low <= end && end <= p.High {
			within++
		}
		limit := float64(n+left) * mean
		odds += p.Overrun(limit)
		if end > limit {
			over++
		}
	}
	if share := float64(within) / months; math.Abs(share-Confidence) > 0.01 {
		t.Errorf("the end lies within the interval in %.1f %% of the months, want %.0f", 100*share, 100*Confidence)
	}
	if said, was := odds/months, float64(over)/months; math.Abs(said-was) > 0.02 {
		t.Errorf("overruns happen in %.1f %% of the months, the odds said %.1f", 100*was, 100*said)
	}
}

func TestWhatProjectsNothing(t *testing.T) {
	if _, known := Project(5, []float64{1, 2}, 20); known {
		t.Error("two days are enough for an interval")
	}
	p, _ := Project(30, []float64{10, 10, 10}, 2)
	if p.Expected != 50 || p.Low != 50 || p.High != 50 || p.Overrun(49) != 1 || p.Overrun(50) != 0 {
		t.Errorf("days that are all the same: %+v", p)
	}
	if p, _ := Project(30, []float64{0, 30, 0}, 0); p.Expected != 30 || p.Low != 30 || p.High != 30 {
		t.Errorf("a month that is over: %+v", p)
	}
}
