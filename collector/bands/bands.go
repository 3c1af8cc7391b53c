// Package bands keeps what happens to a fast signal between two scrapes: how many
// seconds it has spent in each of five bands, and how high and how low it was in
// the last minute. It is fed with every sample that there is, in order of time.
package bands

import (
	"math"
	"time"
)

// Count is the number of bands. They are those of metric.Bands.
const Count = 5

// edges are where one band ends and the next begins.
var edges = [Count - 1]float64{0.05, 0.25, 0.5, 0.9}

// Of returns the band of a share of 1.
func Of(share float64) int {
	for i, edge := range edges {
		if share < edge {
			return i
		}
	}
	return Count - 1
}

const (
	window = 60 // seconds that the highest and the lowest value are of

	// DefaultGap is how long a sample may speak for at most.
	DefaultGap = 3 * time.Second
)

// Tracker follows one signal. The zero Tracker has seen nothing. It allocates
// nothing and is not safe for use from several goroutines.
type Tracker struct {
	Gap time.Duration // zero: DefaultGap

	seconds [Count]float64
	counted bool
	last    time.Time
	slots   [window]slot
	counts  counts
}

// slot is one second of the window.
type slot struct {
	second    int64
	low, high float64
	used      bool
}

// Add takes a sample: the value that the signal had in the time up to at, and
// what share of its greatest value that is. The time since the sample before
// counts for the band of share; after a gap that is longer than a sample may speak
// for, nobody knows what was in it, and it counts for none. Neither does a share
// that is NaN. A sample that is not newer than the last one is left out.
func (t *Tracker) Add(at time.Time, value, share float64) {
	if math.IsNaN(value) || !at.After(t.last) {
		return
	}
	gap := t.Gap
	if gap == 0 {
		gap = DefaultGap
	}
	if d := at.Sub(t.last); !math.IsNaN(share) {
		t.counted = true
		if !t.last.IsZero() && d <= gap {
			t.seconds[Of(share)] += d.Seconds()
		}
	}
	t.last = at
	t.counts.add(value)
	second := at.Unix()
	s := &t.slots[((second%window)+window)%window]
	if !s.used || s.second != second {
		*s = slot{second: second, low: value, high: value, used: true}
		return
	}
	s.low, s.high = min(s.low, value), max(s.high, value)
}

// Last returns the time of the newest sample; zero before the first.
func (t *Tracker) Last() time.Time { return t.last }

// Seconds returns the time spent in each band so far, and false if no sample has
// told its share yet.
func (t *Tracker) Seconds() ([Count]float64, bool) { return t.seconds, t.counted }

// Extremes returns the lowest and the highest value of the 60 s up to now, and
// false if there is none.
func (t *Tracker) Extremes(now time.Time) (low, high float64, ok bool) {
	until := now.Unix()
	for i := range t.slots {
		s := &t.slots[i]
		if !s.used || s.second <= until-window || s.second > until {
			continue
		}
		if !ok {
			low, high, ok = s.low, s.high, true
			continue
		}
		low, high = min(low, s.low), max(high, s.high)
	}
	return low, high, ok
}
