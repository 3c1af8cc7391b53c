package stream

import "math"

const (
	levelStart    = 5  // samples of which a wild one may be the first
	levelMisbegun = 64 // times as far is the first one away as the last two are from each other
)

// trusted returns what a sample may teach: itself, or the nearest value that can be
// believed. One wild value, of a counter that was read wrongly or of a single request that
// hung, would else move means and ends so far that nothing real could be told from
// them for days. What is still so after some samples is true, and the ends widen to it.
func (l *Level) trusted(x float64) float64 {
	if l.samples < levelStart {
		return x
	}
	span := l.high - l.low
	if far := float64(law.far * span); x >= l.low-far && x <= l.high+far {
		l.strange = 0
		return x
	}
	reach := 0.0
	switch {
	case l.strange < law.held:
		l.strange++
	case span == 0:
		return x
	default:
		reach = float64(law.wider * span)
	}
	return max(l.low-reach, min(x, l.high+reach))
}

// misbegun tells whether the series began with a wild value, as the two samples that
// agree now are far from it: what was learned until then is of no use.
func (l *Level) misbegun(x float64) bool {
	return l.samples < levelStart && float64(levelMisbegun*math.Abs(x-l.x)) < l.high-l.low
}
