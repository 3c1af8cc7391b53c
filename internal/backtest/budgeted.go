package backtest

import (
	"fmt"
	"math"

	"gpuvigil/detect"
)

// Rate is how many false findings a week a receiver gets, as measured.
type Rate struct {
	Found   int     // false findings in the exposure that the budget let through
	PerWeek float64 // of the whole fleet
	AtMost  float64 // the upper end of the 95 % interval
	Nats    float64 // surprise that the budget asked for
}

// String says the rate with its bound.
func (r Rate) String() string {
	return fmt.Sprintf("%.2f a week (at most %.2f; %d let through from %.1f nats on)", r.PerWeek, r.AtMost, r.Found, r.Nats)
}

// Budgeted says what the alert budget of a receiver lets through in a fleet of so many
// GPUs with so many statistical rules. surprises are those of the false findings of one
// rule in an exposure of GPU-weeks. What has not enough clean history behind it is
// no page; that cap is left out here, as it would make every figure 0.
func Budgeted(surprises []float64, exposure float64, gpus, rules int, b detect.Budget) (tickets, pages Rate) {
	rate := func(budget float64) Rate {
		r := Rate{Nats: math.Max(0, math.Log(float64(gpus*rules)/budget))}
		for _, s := range surprises {
			if s >= r.Nats {
				r.Found++
			}
		}
		r.PerWeek = float64(r.Found) / exposure * float64(gpus)
		r.AtMost = UpperBound(r.Found, exposure) * float64(gpus)
		return r
	}
	return rate(b.Tickets), rate(b.Pages)
}
