package stream

import (
	"math"
	"time"
)

const (
	halfHours = 48
	weekHours = 168

	seasonVisits = 2.2  // visits that a slot needs to be used
	daySpeed     = 0.07 // part of a visit that a slot of the day learns, at least
	weekSpeed    = 0.25
	seasonMemory = 200 // samples, of the gains
)

// season knows what a reading usually is at each half hour of the day (UTC) and, from
// its eighth day on, at each hour of the week. The mean of a visit counts, not each
// sample, so a slot is as old as the number of days or weeks it has seen.
type season struct {
	day  [halfHours]usualTime
	week *[weekHours]usualTime

	visit   int64   // half hours since the epoch
	samples float64 // in this visit
	sum     float64
	off     float64 // sum of what samples were away from what was usual

	// How much nearer to the reading the slots have lately been than its recent mean;
	// negative where they were.
	dayGain, weekGain float64
}

// usualTime is what is usual in one slot, and how far samples are from it.
type usualTime struct {
	mean, deviation float32
	visits          uint32
}

// expected returns what is usual at this time, and how far a sample usually is from it. It
// is not ok while no slot is known, or the recent mean of the reading tells better.
func (s *season) expected(at time.Time, x, recent, fresh float64) (usual, deviation float64, ok bool) {
	half := floorDiv(at.Unix(), 1800)
	if half != s.visit {
		s.endVisit()
		s.visit = half
	}
	plain := math.Abs(x - recent)
	var best *usualTime
	if slot := &s.day[floorMod(half, halfHours)]; float64(slot.visits) >= seasonVisits {
		smooth(&s.dayGain, math.Abs(x-float64(slot.mean))-plain, seasonMemory, fresh)
		best = slot
	}
	if s.week != nil {
		if slot := &s.week[floorMod(floorDiv(half, 2), weekHours)]; float64(slot.visits) >= seasonVisits {
			smooth(&s.weekGain, math.Abs(x-float64(slot.mean))-plain, seasonMemory, fresh)
			if s.weekGain < s.dayGain {
				best = slot
			}
		}
	}
	off := plain
	if best != nil {
		usual, deviation = float64(best.mean), float64(float64(best.deviation)*math.Sqrt(1+2/float64(best.visits)))
		off = math.Abs(x - usual)
		ok = min(s.dayGain, s.weekGain) < 0
	}
	s.samples++
	s.sum += x
	s.off += off
	return usual, deviation, ok
}

// endVisit lets the slots of the half hour that ends learn what it was.
func (s *season) endVisit() {
	if s.samples == 0 {
		return
	}
	mean, off := float32(s.sum/s.samples), float32(s.off/s.samples)
	s.samples, s.sum, s.off = 0, 0, 0
	s.day[floorMod(s.visit, halfHours)].learn(mean, off, daySpeed)
	if s.week != nil {
		s.week[floorMod(floorDiv(s.visit, 2), weekHours)].learn(mean, off, weekSpeed)
	}
}

func (u *usualTime) learn(mean, off, least float32) {
	part := max(1/float32(u.visits+1), least)
	u.mean += float32(part * (mean - u.mean))
	u.deviation += float32(part * (off - u.deviation))
	u.visits++
}

// growWeek begins to learn the hours of the week.
func (s *season) growWeek() {
	if s.week == nil {
		s.week = new([weekHours]usualTime)
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

// smooth moves an exponentially weighted mean towards x. fresh is the reciprocal of the
// number of samples: a young mean is the plain one of what there is.
func smooth(mean *float64, x, memory, fresh float64) { approach(mean, x, 1/memory, fresh) }

// approach does so by the reciprocal of the memory.
func approach(mean *float64, x, part, fresh float64) {
	if part < fresh {
		part = fresh
	}
	if part > 1 {
		part = 1
	}
	*mean += float64(part * (x - *mean))
}
