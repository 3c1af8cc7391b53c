package detect

import (
	"math"
	"time"
)

// rateGap is the longest time between two readings of a counter over which its rate
// still says something about now.
const rateGap = 5 * time.Minute

// rate turns a counter into its growth a second. The zero rate is ready to use. Its
// exported fields survive a restart.
type rate struct {
	At    time.Time `json:"at,omitzero"` // of the newest reading
	Value float64   `json:"value"`
}

// next takes up a reading and returns the growth a second since the reading before. It
// is NaN for the first one, for one that is absent or not newer, after a gap of more
// than rateGap, and when the counter went back: it began anew, and nobody knows when.
func (r *rate) next(at time.Time, value float64) float64 {
	if math.IsNaN(value) || !at.After(r.At) {
		return math.NaN()
	}
	before := *r
	r.At, r.Value = at, value
	elapsed := at.Sub(before.At)
	if before.At.IsZero() || elapsed > rateGap || value < before.Value {
		return math.NaN()
	}
	return (value - before.Value) / elapsed.Seconds()
}

func (r *rate) shift(by time.Duration) { shift(by, &r.At) }
