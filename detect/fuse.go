package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
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

	fusedLimit = 3.5 // fused nats that make a finding
	fusedRare  = 2.2 // nats of rarity there: a healthy GPU comes to it in less than one of nine weeks
	fusedSlope = 0.6 // nats of rarity for each fused nat above that
	fusedLeast = 0.5 // fused nats of a second kind: one reading alone is no finding

	latelyMinutes = 10 // odd minutes that what a reading is lately is the mean of
	usualMinutes  = 60 // minutes that what it usually is is the mean of
)

// kind is what a reading tells of. Readings of one kind change together, as all that more
// work makes more of does, so the strongest of them counts and the others do not.
type kind uint8

const (
	ofLoad kind = iota
	ofMemory
	ofOwner
	ofWaiting
	ofEfficiency
	kinds
)

// fusedReading is what is unusual about one reading lately: the nats above the floor, as a
// mean over the window. A single odd minute is thinned by the usual ones around it.
type fusedReading struct {
	kind    kind
	effect  *effect
	habit   *habit
	odd     *stream.Mean
	nats    float64   // over the window, as of the newest minute
	since   time.Time // since when there has been some, without a break of ten minutes
	last    time.Time // when there last was
	minutes int       // odd ones since then, as far as they count
	lately  float64   // mean of the odd minutes
	large   bool      // it is far enough from the usual to matter
	usual   float64   // what the reading was before
	settled int       // minutes that usual is made of, as far as they count
}

// effect is by how much a reading must have changed for a person to care. All that is set
// must hold.
type effect struct {
	least float64 // difference, in the reading's unit
	times float64 // factor, up or down
	part  float64 // difference, as a part of the most that there can be
	most  func(*collector.GPU) float64
}

// matters reports whether a change of a reading of a GPU is large enough. Where nobody
// knows the most that there can be, what is usual stands for it.
func (e *effect) matters(usual, now float64, g *collector.GPU) bool {
	change, most := math.Abs(now-usual), usual
	if e.most != nil {
		if m := e.most(g); !math.IsNaN(m) {
			most = m
		}
	}
	low, high := min(usual, now), max(usual, now)
	return change >= e.least && change >= float64(e.part*most) && high >= float64(e.times*low)
}

func newFusedReading(k kind, e *effect, h *habit) fusedReading {
	w := fusedReading{kind: k, effect: e, habit: h, lately: math.NaN(), usual: math.NaN(), odd: stream.NewMean(fuseWindow, fuseSteps, 2*rateGap)}
	if h.judges() {
		w.usual, w.settled = h.level.Usual(), usualMinutes
	}
	return w
}

// takesPart reports whether the reading is evidence: odd for long enough, and by as much
// as matters to a person.
func (w *fusedReading) takesPart() bool { return w.nats >= fusedLeast && w.large }

// add takes up a reading of a GPU, and reports whether a minute of it is now whole.
func (w *fusedReading) add(at time.Time, x float64, g *collector.GPU) bool {
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
			w.since, w.minutes = at, 0
		}
		w.last = at
		follow(&w.lately, &w.minutes, w.habit.mean, latelyMinutes)
	}
	w.large = w.effect.matters(w.usual, w.lately, g)
	if !w.takesPart() {
		follow(&w.usual, &w.settled, before, usualMinutes)
	}
	return true
}

// follow moves a mean to a minute's, over so many of them.
func follow(mean *float64, minutes *int, x float64, most int) {
	if math.IsNaN(x) {
		return
	}
	if *minutes == 0 {
		*mean = x
	}
	*minutes = min(*minutes+1, most)
	*mean += float64((x - *mean) / float64(*minutes))
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

// fuse sums the strongest reading of each kind, over the strongest kinds. Readings that
// changed by less than matters are no evidence.
func fuse(readings []fusedReading) fused {
	var most [kinds]float64
	for i := range readings {
		if r := &readings[i]; r.large {
			most[r.kind] = max(most[r.kind], r.nats)
		}
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

// score is 1 where evidence is enough for a finding, if more than one kind of reading
// takes part.
func (f fused) score() float64 {
	if f.second < fusedLeast {
		return min(f.nats/fusedLimit, 0.99)
	}
	return f.nats / fusedLimit
}

// surprise is minus the logarithm of how often a week a healthy GPU comes so far. It is
// never 0, which would say that nothing is statistical about it.
func (f fused) surprise() float64 {
	return max(leastSurprise, fusedRare+float64(fusedSlope*(f.nats-fusedLimit)))
}
