package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
)

// minutes divides time into minutes, in which detectors of slow things take means.
type minutes struct{ began time.Time }

// over reports whether the minute that was going on has ended before now. The first
// call begins one.
func (m *minutes) over(now time.Time) bool {
	if age := now.Sub(m.began); age >= 0 && age < time.Minute && !m.began.IsZero() {
		return false
	}
	first := m.began.IsZero()
	m.began = now.Truncate(time.Minute)
	return !first
}

func (m *minutes) shift(by time.Duration) { shift(by, &m.began) }

// meanOf is the mean of the samples of a minute.
type meanOf struct {
	sum float64
	n   int
}

func (m *meanOf) add(x float64) {
	if math.Abs(x) <= 1e100 {
		m.sum += x
		m.n++
	}
}

// take returns the mean, NaN of none, and begins anew.
func (m *meanOf) take() float64 {
	mean := math.NaN()
	if m.n > 0 {
		mean = m.sum / float64(m.n)
	}
	*m = meanOf{}
	return mean
}

// OwnerSubject is an owner's workload as the subject of a finding; what nobody is known
// to own is none, with an empty kind.
func OwnerSubject(o collector.Owner) Subject { return Subject{Kind: o.Kind, ID: o.ID} }

// rangeOf writes how long something is away as a range, "15 h (13 h to 16 h)", of what is
// likely, at the soonest and at the latest.
func rangeOf(soonest, likely, latest time.Duration) string {
	if latest > 365*24*time.Hour {
		return away(likely) + " (" + away(soonest) + " or more)"
	}
	return away(likely) + " (" + away(soonest) + " to " + away(latest) + ")"
}

// away writes a time to come, which is never known to the minute.
func away(d time.Duration) string {
	switch {
	case d >= 3*time.Hour:
		d = d.Round(time.Hour)
	case d >= 30*time.Minute:
		d = d.Round(10 * time.Minute)
	}
	return span(d)
}

// leastNats is the surprise of what is statistical and hardly surprises: 0 would be a fact.
const leastNats = 0.1

// nats is the surprise of an observation that rests on a rise.
func nats(r *stream.Rise, law *stream.RiseLaw) float64 { return max(r.Surprise(law), leastNats) }
