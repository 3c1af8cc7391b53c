// Package stream holds the statistics that detectors keep of a reading: one pass,
// constant memory, no look-ahead, no random numbers and no clock but the sample's.
//
// All weights are seconds, so the figures do not depend on how often a reading is
// taken. Products are rounded before they are added, so that every architecture
// gives the same bits.
package stream

import (
	"encoding/json"
	"math"
	"time"
)

// Mean is the time-weighted mean of a reading over a sliding window. Fed with 0
// and 1 it is the share of time in which something was true.
//
// A sample stands for the time since the one before it. Time that no sample
// covers, because it is longer than the gap, counts neither way. A sample that is a
// little older than the last is ignored; one that is older by more than the gap
// begins another time, and empties the window.
type Mean struct {
	step   time.Duration // of one slot
	gap    time.Duration
	last   time.Time
	newest int64  // number of the newest slot, counted from the epoch
	slots  []slot // a ring; slot n is at n modulo its length
}

type slot struct{ seconds, sum float64 }

// NewMean returns an empty mean over at most window, which slides in the given
// number of steps. A sample stands for at most gap.
func NewMean(window time.Duration, steps int, gap time.Duration) *Mean {
	step := max(window/time.Duration(steps), 1)
	// One more, as the newest slot is not full yet.
	return &Mean{step: step, gap: gap, slots: make([]slot, steps+1)}
}

// Add takes a sample. One that is not a number ends what came before without
// counting itself; one of the same instant as the last is ignored.
func (m *Mean) Add(at time.Time, x float64) {
	dt := at.Sub(m.last)
	switch {
	case m.last.IsZero():
		dt = 0
	case dt <= 0 && dt >= -m.gap:
		return
	case dt < 0:
		m.Reset()
		dt = 0
	case dt > m.gap:
		dt = 0
	}
	m.last = at
	m.slideTo(m.number(at))
	if !(math.Abs(x) <= 1e300) { // larger ones would make the sum infinite
		return
	}
	s := &m.slots[m.newest%int64(len(m.slots))]
	s.seconds += dt.Seconds()
	s.sum += float64(x * dt.Seconds())
}

// Over returns the mean over the last d before now, to the precision of a step,
// and how much of that time samples cover. The mean is NaN if none do.
func (m *Mean) Over(now time.Time, d time.Duration) (mean float64, covered time.Duration) {
	to := m.number(now)
	from := max(to-int64(d/m.step), m.newest-int64(len(m.slots))+1)
	var seconds, sum float64
	for n := from; n <= min(to, m.newest); n++ {
		if n < 0 {
			continue
		}
		s := m.slots[n%int64(len(m.slots))]
		seconds += s.seconds
		sum += s.sum
	}
	if seconds == 0 {
		return math.NaN(), 0
	}
	return sum / seconds, min(time.Duration(seconds*float64(time.Second)), d)
}

// Shift moves the window with the clock that samples are dated by, to the precision
// of a step.
func (m *Mean) Shift(by time.Duration) {
	if m.last.IsZero() {
		return
	}
	m.last = m.last.Add(by)
	newest, n := m.number(m.last), int64(len(m.slots))
	moved := make([]slot, n)
	for back := range min(n, newest+1, m.newest+1) {
		moved[(newest-back)%n] = m.slots[(m.newest-back)%n]
	}
	m.newest, m.slots = newest, moved
}

// Reset empties the window.
func (m *Mean) Reset() {
	clear(m.slots)
	m.last, m.newest = time.Time{}, 0
}

func (m *Mean) number(at time.Time) int64 { return max(at.UnixNano()/int64(m.step), 0) }

func (m *Mean) slideTo(n int64) {
	if n-m.newest >= int64(len(m.slots)) {
		clear(m.slots)
	} else {
		for i := m.newest + 1; i <= n; i++ {
			m.slots[i%int64(len(m.slots))] = slot{}
		}
	}
	m.newest = n
}

type meanState struct {
	Step   time.Duration `json:"step"`
	Last   time.Time     `json:"last"`
	Newest int64         `json:"newest"`
	Slots  [][3]float64  `json:"slots"` // slots before the newest, seconds, sum
}

// MarshalJSON writes the slots that hold something.
func (m *Mean) MarshalJSON() ([]byte, error) {
	s := meanState{Step: m.step, Last: m.last, Newest: m.newest, Slots: [][3]float64{}}
	for back := range int64(len(m.slots)) {
		if n := m.newest - back; n >= 0 {
			if v := m.slots[n%int64(len(m.slots))]; v.seconds > 0 {
				s.Slots = append(s.Slots, [3]float64{float64(back), v.seconds, v.sum})
			}
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON takes up what MarshalJSON wrote. If the window has been given
// another width since, it starts empty.
func (m *Mean) UnmarshalJSON(data []byte) error {
	var s meanState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	m.Reset()
	if s.Step != m.step || s.Newest < 0 {
		return nil
	}
	m.last, m.newest = s.Last, s.Newest
	for _, v := range s.Slots {
		if n := s.Newest - int64(v[0]); v[0] >= 0 && v[0] < float64(len(m.slots)) && n >= 0 && v[1] >= 0 {
			m.slots[n%int64(len(m.slots))] = slot{v[1], v[2]}
		}
	}
	return nil
}
