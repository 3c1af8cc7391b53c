package backtest

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Rate is how many false findings a week a receiver gets, as measured.
type Rate struct {
	Found   int     // false findings that the budget let through in the exposure
	PerWeek float64 // of the whole fleet
	AtMost  float64 // the upper end of the 95 % interval
	Nats    float64 // surprise that the budget asked for
}

// String says the rate with its bound.
func (r Rate) String() string {
	return fmt.Sprintf("%.2f a week (at most %.2f; %d let through from %.1f nats on)", r.PerWeek, r.AtMost, r.Found, r.Nats)
}

// Budgeted says what an alert budget of so many false findings a week lets through in a
// fleet of so many GPUs with so many statistical rules. surprises are those of the false
// findings of one rule in an exposure of GPU-weeks, in nats, each at its strongest.
func Budgeted(surprises []float64, exposure float64, gpus, rules int, budget float64) Rate {
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

// UpperBound returns the upper end of the one-sided 95 % interval of a rate, for so many
// events in an exposure: the rate at which so few come once in twenty times (Garwood 1936,
// Fiducial limits for the Poisson distribution).
func UpperBound(events int, exposure float64) float64 {
	return distuv.Gamma{Alpha: float64(events + 1), Beta: 1}.Quantile(0.95) / exposure
}
