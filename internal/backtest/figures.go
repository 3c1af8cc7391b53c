package backtest

import (
	"math"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"gpuvigil/rules"
)

const week = 7 * 24 * time.Hour

// Incidence is how often something happened, over how long.
type Incidence struct {
	Count    int     `json:"count"`
	Exposure float64 `json:"exposure"` // GPU-weeks
}

// Per returns how often it happened in a GPU-week.
func (r Incidence) Per() float64 { return float64(r.Count) / r.Exposure }

// AtMost returns the upper end of the one-sided 95 % interval of a Poisson rate, which
// is exact: with nothing seen it is 3 over the exposure.
func (r Incidence) AtMost() float64 {
	return distuv.ChiSquared{K: 2 * float64(r.Count+1)}.Quantile(0.95) / 2 / r.Exposure
}

// Figures are those of several judgements together.
type Figures struct {
	Truths, Found int
	False         [3]int // incidents by severity
	Delays        []time.Duration
	Watched       time.Duration // times GPUs
}

// Add takes up a judgement of what was watched for so long.
func (f *Figures) Add(j Judgement, watched time.Duration) {
	f.Watched += watched
	for _, found := range j.Found {
		f.Truths++
		if found.Rule != "" {
			f.Found++
			f.Delays = append(f.Delays, found.After)
		}
	}
	for _, t := range j.False {
		f.False[t.Incident.Severity]++
	}
}

// Wrong is how many people were told of something that was nothing.
func (f *Figures) Wrong() int { return f.False[rules.Ticket] + f.False[rules.Page] }

// Recall is the share of what was wrong that was found; NaN if nothing was wrong.
func (f *Figures) Recall() float64 { return share(f.Found, f.Truths) }

// Precision is the share of what was told that was right; NaN if nothing was told. A
// truth that was found counts once, however many incidents told of it.
func (f *Figures) Precision() float64 { return share(f.Found, f.Found+f.Wrong()) }

// F1 is the harmonic mean of recall and precision; NaN if nothing was wrong or told.
func (f *Figures) F1() float64 {
	return share(2*f.Found, f.Truths+f.Found+f.Wrong())
}

func share(n, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return float64(n) / float64(of)
}

// Delay returns the q-th quantile of the time from the beginning of a fault to its
// finding.
func (f *Figures) Delay(q float64) time.Duration { return quantileOf(f.Delays, q) }

// Rate returns how often people were told with that severity of what was nothing.
func (f *Figures) Rate(s rules.Severity) Incidence {
	return Incidence{f.False[s], f.Watched.Hours() / week.Hours()}
}

// Join adds the figures of others.
func (f *Figures) Join(o Figures) {
	f.Truths += o.Truths
	f.Found += o.Found
	for s := range f.False {
		f.False[s] += o.False[s]
	}
	f.Delays = append(f.Delays, o.Delays...)
	f.Watched += o.Watched
}
