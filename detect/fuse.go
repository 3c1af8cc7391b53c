package detect

import (
	"math"
	"time"

	"gpuvigil/detect/stream"
)

// How evidence is fused, and what that has been measured to mean on clean series; see
// docs/backtest.md.
const (
	fuseWindow = 30 * time.Minute
	fuseSteps  = 30
	fuseFloor  = 5.0 // nats of one reading that are nothing unusual
	fuseKinds  = 4   // the strongest kinds of readings that count

	warmTime     = time.Hour
	restartShare = 0.5 // of the usual memory of the holder: below, it has started again

	fusedOnce  = 4.7 // fused nats that a healthy GPU reaches once a week
	fusedSlope = 0.6 // nats of rarity for each fused nat above that
	fusedLeast = 0.5 // fused nats of a second kind: one reading alone is no finding
)

// kind is what a reading tells of. Readings of one kind measure the same thing, so the
// strongest of them counts and the others do not.
type kind uint8

const (
	ofCompute kind = iota
	ofMemory
	ofTraffic
	ofOwner
	ofDemand
	ofEfficiency
	kinds
)

// fusedReading is what is unusual about one reading lately: the nats above the floor, as a
// mean over the window. A single odd minute is thinned by the usual ones around it.
type fusedReading struct {
	kind  kind
	habit *habit
	odd   *stream.Mean
	nats  float64   // over the window, as of the newest minute
	since time.Time // since when there has been some, without a break of ten minutes
	last  time.Time // when there last was
	usual float64   // what the reading was before
}

func newFusedReading(k kind, h *habit) fusedReading {
	return fusedReading{kind: k, habit: h, usual: math.NaN(), odd: stream.NewMean(fuseWindow, fuseSteps, 2*rateGap)}
}

// add takes up a reading, and reports whether a minute of it is now whole.
func (w *fusedReading) add(at time.Time, x float64) bool {
	before := w.habit.mean
	if _, whole := w.habit.add(at, x); !whole {
		return false
	}
	odd := 0.0
	if w.habit.judges() {
		odd = max(0, w.habit.evidence()-fuseFloor)
	}
	w.odd.Add(at, odd)
	w.nats = 0
	if mean, covered := w.odd.Over(at, fuseWindow); covered > 0 {
		w.nats = float64(mean * covered.Seconds() / fuseWindow.Seconds())
	}
	if odd > 0 {
		if at.Sub(w.last) > groupWindow {
			w.since = at
		}
		w.last = at
	}
	if w.nats < fusedLeast {
		w.settle(before)
	}
	return true
}

// settle follows what is usual while nothing is odd, slowly, for the evidence in words.
func (w *fusedReading) settle(x float64) {
	const part = 1.0 / 60
	switch {
	case math.IsNaN(x):
	case math.IsNaN(w.usual):
		w.usual = x
	default:
		w.usual += float64(part * (x - w.usual))
	}
}

func (w *fusedReading) shift(by time.Duration) {
	shift(by, &w.since, &w.last)
	w.odd.Shift(by)
}

// fused is what all readings of a subject say together.
type fused struct {
	nats   float64 // sum over the strongest kinds
	second float64 // what the second of them adds
}

// fuse sums the strongest reading of each kind, over the strongest kinds.
func fuse(readings []fusedReading) fused {
	var most [kinds]float64
	for i := range readings {
		most[readings[i].kind] = max(most[readings[i].kind], readings[i].nats)
	}
	var f fused
	for n := range fuseKinds {
		best := 0
		for k := range most {
			if most[k] > most[best] {
				best = k
			}
		}
		f.nats += most[best]
		if n == 1 {
			f.second = most[best]
		}
		most[best] = 0
	}
	return f
}

// score is 1 where a healthy GPU comes once a week, if more than one kind of reading
// takes part.
func (f fused) score() float64 {
	if f.second < fusedLeast {
		return min(f.nats/fusedOnce, 0.99)
	}
	return f.nats / fusedOnce
}

// surprise is minus the logarithm of how often a week a healthy GPU comes so far. It is
// never 0, which would say that nothing is statistical about it.
func (f fused) surprise() float64 { return max(0.01, float64(fusedSlope*(f.nats-fusedOnce))) }
