package stream

import (
	"math"
	"time"
)

const (
	priorSamples = 200 // of a peer's history that count for a member that has none
	priorAhead   = 30  // samples that a member with a prior is ahead of one without
	priorVisits  = 3   // of a time of day or week
	unbegun      = math.MinInt64
)

// StartFrom makes the detector begin with what a peer, another member of the same class
// of series, has learned, at the weight of some samples: it judges after half as many
// samples, and its own soon count for more. Open alarms are the peer's own. The peer is
// not changed. It is called before the first Add; a peer that judges nothing yet leaves
// the detector as it is.
func (l *Level) StartFrom(peer *Level) {
	if peer.Young() {
		return
	}
	n := *peer
	if peer.season.week != nil {
		week := *peer.season.week
		n.season.week = &week
	}
	n.season.rest()
	n.samples, n.last = levelYoung-priorAhead, unbegun
	n.silentUntil, n.raised, n.open, n.evidence, n.alarms = 0, 0, false, 0, 0
	n.windows, n.still, n.burst, n.repeats = [2]extremes{}, 0, 0, [2]float64{}
	for k := range n.tails {
		n.tails[k].thin(priorSamples * n.unit)
	}
	n.now.thin(priorSamples * n.unit)
	n.lately.thin(priorSamples * n.unit)
	*l = n
}

// Young tells whether there are too few samples for any alarm.
func (l *Level) Young() bool { return l.samples <= levelYoung }

// join takes the first sample of a member that started from a peer. Its means are drawn
// to its own level within some samples.
func (l *Level) join(at time.Time, x float64) {
	l.first, l.last, l.x, l.fast = at.UnixNano(), at.UnixNano(), x, x
	l.season.visit = floorDiv(at.Unix(), 1800)
	l.samples++
}

// thin lets a history count for no more than so many units.
func (t *Tail) thin(units float64) {
	for float64(uint64(t.total)<<t.shift) > units {
		t.halve()
	}
	t.settle()
}

// rest keeps what is usual at each time and forgets how often it was seen.
func (s *season) rest() {
	s.samples, s.sum, s.off, s.dayGain, s.weekGain = 0, 0, 0, 0, 0
	for i := range s.day {
		s.day[i].visits = min(s.day[i].visits, priorVisits)
	}
	if s.week != nil {
		for i := range s.week {
			s.week[i].visits = min(s.week[i].visits, priorVisits)
		}
	}
}
