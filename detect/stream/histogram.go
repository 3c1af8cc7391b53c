package stream

import (
	"encoding/json"
	"math"
	"time"
)

const (
	perOctave = 4
	lowest    = -20 // the first octave begins at 2^-20
	octaves   = 40
	bins      = 1 + perOctave*octaves // the first is for everything below, zero and negatives
)

// Upper ends of the quarters of an octave that ends at 1.
var quarters = [perOctave]float64{0.5946035575013605, 0.7071067811865476, 0.8408964152537145, 1}

// halfBin leads from the upper end of a bin to its middle: the eighth root of a half.
const halfBin = 0.9170040432046712

// Histogram learns what values of a reading are usual: bins of a quarter octave
// between 1e-6 and 1e6, weighted by seconds, with a half-life after which a
// second counts half. It forgets in steps of the half-life, so that no rounding
// of an exponential differs between architectures.
type Histogram struct {
	halfLife time.Duration
	halved   time.Time
	total    float64
	counts   [bins]float64
}

// NewHistogram returns an empty histogram.
func NewHistogram(halfLife time.Duration) *Histogram { return &Histogram{halfLife: halfLife} }

// Add lets a value that stood for the given seconds count. What is not a number
// and what weighs nothing is ignored.
func (h *Histogram) Add(at time.Time, x, seconds float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) || !(seconds > 0) || math.IsInf(seconds, 0) {
		return
	}
	h.forget(at)
	h.counts[bin(x)] += seconds
	h.total += seconds
}

// Weight returns the seconds that the histogram has seen and not yet forgotten.
func (h *Histogram) Weight() float64 { return h.total }

// Quantile returns a value that at least the share p of the time was not
// exceeded: the upper end of the bin, at most a fifth too high. It is NaN for an
// empty histogram.
func (h *Histogram) Quantile(p float64) float64 {
	if h.total == 0 {
		return math.NaN()
	}
	sum := 0.0
	for i, c := range h.counts {
		sum += c
		if sum >= float64(p*h.total) && c > 0 {
			return upper(i)
		}
	}
	return upper(bins - 1)
}

// Typical returns the middle of the bin that Quantile returns the upper end of: a
// tenth too high or low at most, for people to read.
func (h *Histogram) Typical(p float64) float64 { return h.Quantile(p) * halfBin }

// Above returns the share of the time in which the reading was in x's bin or
// above it; 1 for an empty histogram.
func (h *Histogram) Above(x float64) float64 {
	if h.total == 0 {
		return 1
	}
	sum := 0.0
	for _, c := range h.counts[bin(x):] {
		sum += c
	}
	return min(sum/h.total, 1)
}

// Shift moves the histogram's memory with the clock that values are dated by.
func (h *Histogram) Shift(by time.Duration) {
	if !h.halved.IsZero() {
		h.halved = h.halved.Add(by)
	}
}

func (h *Histogram) forget(at time.Time) {
	switch age := at.Sub(h.halved); {
	case h.halved.IsZero() || age < 0:
		h.halved = at
	case h.halfLife <= 0:
	case age >= 64*h.halfLife:
		h.counts, h.total, h.halved = [bins]float64{}, 0, at
	default:
		for ; age >= h.halfLife; age -= h.halfLife {
			h.halve()
		}
	}
}

func (h *Histogram) halve() {
	h.halved = h.halved.Add(h.halfLife)
	h.total = 0
	for i := range h.counts {
		h.counts[i] /= 2
		h.total += h.counts[i]
	}
}

func bin(x float64) int {
	if !(x > 0) {
		return 0
	}
	frac, exp := math.Frexp(x) // frac in [0.5, 1)
	octave := exp - 1 - lowest
	switch {
	case octave < 0:
		return 0
	case octave >= octaves:
		return bins - 1
	}
	q := 0
	for frac > quarters[q] {
		q++
	}
	return 1 + octave*perOctave + q
}

// upper returns the highest value of a bin.
func upper(i int) float64 {
	if i == 0 {
		return math.Ldexp(1, lowest)
	}
	i--
	return math.Ldexp(quarters[i%perOctave], i/perOctave+1+lowest)
}

type histogramState struct {
	HalfLife time.Duration   `json:"half_life"`
	Halved   time.Time       `json:"halved"`
	Counts   map[int]float64 `json:"counts"`
}

// MarshalJSON writes the bins that hold something.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	s := histogramState{HalfLife: h.halfLife, Halved: h.halved, Counts: map[int]float64{}}
	for i, c := range h.counts {
		if c > 0 {
			s.Counts[i] = c
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON takes up what MarshalJSON wrote; a histogram that has a half-life
// keeps its own.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var s histogramState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if h.halfLife == 0 {
		h.halfLife = s.HalfLife
	}
	h.counts, h.total, h.halved = [bins]float64{}, 0, s.Halved
	for i := range bins {
		if c := s.Counts[i]; c > 0 {
			h.counts[i] = c
			h.total += c
		}
	}
	return nil
}
