package detect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"gpuvigil/detect/stream"
)

const (
	maxHabits    = 1024               // of one detector; at 4 KiB each
	habitsKept   = 7 * 24 * time.Hour // of what has not been seen since
	habitMature  = 24 * time.Hour     // of history, before which a habit is young
	habitLeast   = 30 * time.Minute   // before which nothing is judged
	habitStep    = time.Minute        // readings are judged as means over it
	habitVersion = 1
)

// habits are what is usual of readings. A subject has one habit for each reading and
// class of workload. Its readings are judged as means over a minute, or one by one where
// they come less often.
type habits struct {
	of  map[habitKey]*habit
	now time.Time
}

// habitKey names a habit. Subject is zero for what all members of a class share.
type habitKey struct {
	Subject Subject `json:"subject,omitzero"`
	Reading string  `json:"reading"` // a metric's name, or what was made of several
	Class   class   `json:"class,omitzero"`
}

// habit is what is usual of one reading.
type habit struct {
	level  stream.Level
	first  time.Time // of the readings
	seen   time.Time // the newest reading
	minute int64     // of the mean that is being made, since the epoch
	sum    float64
	count  int
	mean   float64 // of the newest whole minute
}

func newHabits() *habits { return &habits{of: map[habitKey]*habit{}} }

// get returns the habit of a key, and makes it if there is room; else nil.
func (h *habits) get(k habitKey, now time.Time) *habit {
	h.now = now
	if v := h.of[k]; v != nil {
		return v
	}
	if !room(h.of, maxHabits, habitsKept, func(v *habit) time.Time { return v.seen }, now) {
		return nil
	}
	v := &habit{mean: math.NaN()}
	if peer := h.peer(k, now); peer != nil {
		v.level.StartFrom(&peer.level)
	}
	h.of[k] = v
	return v
}

// peer returns the habit that another subject of the same class has of the same reading,
// for one that has none yet: the one with the longest history, if that is mature.
func (h *habits) peer(k habitKey, now time.Time) *habit {
	if k.Class == (class{}) {
		return nil // nobody is like nobody
	}
	var best *habit
	var bestKey habitKey
	for key, v := range h.of {
		if key.Reading != k.Reading || key.Class != k.Class || v.young() || now.Sub(v.seen) > habitsKept {
			continue
		}
		if best == nil || v.first.Before(best.first) || v.first.Equal(best.first) && key.compare(bestKey) < 0 {
			best, bestKey = v, key
		}
	}
	return best
}

// judges reports whether there is history enough to judge a reading at all: half an
// hour, and an hour where no peer's helps.
func (v *habit) judges() bool { return !v.level.Young() && v.seen.Sub(v.first) >= habitLeast }

// add takes up a reading. When that completes a minute it returns true and how unusual
// the minute's mean was: 1 and above is an alarm by the statistic's own threshold.
func (v *habit) add(at time.Time, x float64) (score float64, whole bool) {
	if math.IsNaN(x) || math.IsInf(x, 0) || !at.After(v.seen) {
		return 0, false
	}
	minute := at.Unix() / int64(habitStep.Seconds())
	if v.first.IsZero() {
		v.first, v.minute = at, minute
	}
	v.seen = at
	if minute != v.minute {
		score, whole = v.close()
		v.minute = minute
	}
	v.sum += x
	v.count++
	return score, whole
}

func (v *habit) close() (float64, bool) {
	if v.count == 0 {
		return 0, false
	}
	v.mean = v.sum / float64(v.count)
	v.sum, v.count = 0, 0
	return v.level.Add(time.Unix(v.minute*int64(habitStep.Seconds()), 0), v.mean), true
}

// evidence is how unlikely the newest whole minute was, in nats.
func (v *habit) evidence() float64 { return v.level.Evidence() }

// young reports whether there is too little history to be sure of what is usual.
func (v *habit) young() bool { return v.seen.Sub(v.first) < habitMature }

func (h *habits) shift(by time.Duration) {
	shift(by, &h.now)
	for _, v := range h.of {
		shift(by, &v.first, &v.seen)
		v.minute += int64(math.Round(by.Minutes()))
	}
}

type habitState struct {
	habitKey
	First time.Time `json:"first"`
	Seen  time.Time `json:"seen"`
	Level []byte    `json:"level"`
}

// MarshalJSON writes the habits in the order of their keys. The minute that is being made
// is not in it.
func (h *habits) MarshalJSON() ([]byte, error) {
	states := []habitState{}
	for k, v := range h.of {
		if v.first.IsZero() {
			continue // there was never a reading
		}
		level, err := v.level.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("write what is usual of %s of %s: %w", k.Reading, k.Subject, err)
		}
		states = append(states, habitState{k, v.first, v.seen, level})
	}
	slices.SortFunc(states, func(a, b habitState) int { return a.compare(b.habitKey) })
	return json.Marshal(struct {
		Version int          `json:"version"`
		Habits  []habitState `json:"habits"`
	}{habitVersion, states})
}

func (k habitKey) compare(o habitKey) int {
	return cmp.Or(cmp.Compare(k.Subject.Kind, o.Subject.Kind), cmp.Compare(k.Subject.ID, o.Subject.ID), cmp.Compare(k.Reading, o.Reading),
		cmp.Compare(k.Class.Kind, o.Class.Kind), cmp.Compare(k.Class.Name, o.Class.Name), cmp.Compare(k.Class.Stage, o.Class.Stage))
}

// UnmarshalJSON reads what MarshalJSON writes. A habit that is damaged is an error.
func (h *habits) UnmarshalJSON(data []byte) error {
	var s struct {
		Habits []habitState `json:"habits"`
	}
	if err := decodeState(data, &s, habitVersion); err != nil {
		return err
	}
	h.of = map[habitKey]*habit{}
	for _, state := range s.Habits {
		v := &habit{first: state.First, seen: state.Seen, mean: math.NaN()}
		if err := v.level.UnmarshalBinary(state.Level); err != nil {
			return fmt.Errorf("what is usual of %s of %s: %w", state.Reading, state.Subject, err)
		}
		h.of[state.habitKey] = v
	}
	return nil
}
