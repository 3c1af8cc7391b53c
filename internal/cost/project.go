package cost

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// MinDays is how many whole days a projection needs to know how days differ.
	MinDays = 3

	// Confidence is how often the month's end lies within the interval.
	Confidence = 0.9
)

// Projection is what a month will have cost at its end, in units of the currency.
type Projection struct {
	Expected float64 `json:"expected"`
	Low      float64 `json:"low"` // with High, the interval that holds the end in nine of ten months
	High     float64 `json:"high"`

	spread float64 // of the expected value; 0: days are all the same
	days   int     // that are known
}

// Project says what a month will have cost, from what was spent until now, what each
// whole day of it cost, and how many days remain, in fractions too. It is false with
// fewer than three days.
//
// Days are taken for draws from one normal distribution: with n of mean m and standard
// deviation s, the r days that remain cost m·r ± t·s·√(r + r²/n), where t is Student's
// with n−1 degrees of freedom: r times the prediction interval for the mean of r further
// observations (Hahn and Meeker, Statistical Intervals, 1991). A habit of the week, or a
// job that begins tomorrow, it does not know. What is spent stays spent: the interval
// begins no lower.
func Project(spent float64, days []float64, remaining float64) (Projection, bool) {
	n := float64(len(days))
	if len(days) < MinDays {
		return Projection{}, false
	}
	mean, squares := 0.0, 0.0
	for _, d := range days {
		mean += d / n
	}
	for _, d := range days {
		squares += (d - mean) * (d - mean)
	}
	p := Projection{Expected: spent + mean*remaining, days: len(days)}
	p.spread = math.Sqrt(squares/(n-1)) * math.Sqrt(remaining+remaining*remaining/n)
	t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(1 - (1-Confidence)/2)
	p.Low, p.High = max(spent, p.Expected-t*p.spread), p.Expected+t*p.spread
	return p, true
}

// Overrun returns how likely it is that the month costs more than the limit, from 0 to 1.
func (p Projection) Overrun(limit float64) float64 {
	if p.spread == 0 {
		if p.Expected > limit {
			return 1
		}
		return 0
	}
	return distuv.StudentsT{Sigma: 1, Nu: float64(p.days - 1)}.Survival((limit - p.Expected) / p.spread)
}
