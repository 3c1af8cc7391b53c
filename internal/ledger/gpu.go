package ledger

import (
	"cmp"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
)

const (
	restHalfLife = 7 * 24 * time.Hour
	restKnown    = 10 * time.Minute // of rest, before the power at rest is known
	restQuantile = 0.05             // of the power that was seen at rest
	maxWatts     = 20e3             // no board draws more; a counter that says so was reset, or is wrong
)

// gpu is what is kept of one GPU between snapshots. Exported fields survive a
// restart.
type gpu struct {
	Index   int               `json:"index"`
	Model   string            `json:"model"`
	Until   time.Time         `json:"until"` // all time before it is booked
	Carry   carry             `json:"carry"`
	Counter *int64            `json:"counter,omitempty"` // energy in µJ that the GPU counted last; nil: it has no counter
	Counted time.Time         `json:"counted,omitzero"`  // when that was
	Guessed int64             `json:"guessed,omitempty"` // µJ that were booked by power since the counter was last read
	Rest    *stream.Histogram `json:"rest,omitempty"`    // power with a context open and nothing done; only without SM activity

	hour   time.Time                // that owners is of
	owners map[collector.Owner]bool // kept apart in that hour
}

// carry is what is left over of each amount that was metered.
type carry struct {
	Rates    [price.Kinds]int64 `json:"rates"`
	Electric int64              `json:"electric"`
	Carbon   int64              `json:"carbon"`
}

// money forgets what is left over of it.
func (c *carry) money() { c.Rates, c.Electric = [price.Kinds]int64{}, 0 }

func newGPU(g *collector.GPU, at time.Time) *gpu {
	st := &gpu{Index: g.Index, Model: g.Model, Until: at}
	if now, ok := counter(g); ok {
		st.Counter, st.Counted = &now, at
	}
	return st
}

// shift moves what is remembered with the clock.
func (st *gpu) shift(by time.Duration) {
	st.Until = st.Until.Add(by)
	if !st.Counted.IsZero() {
		st.Counted = st.Counted.Add(by)
	}
	if st.Rest != nil {
		st.Rest.Shift(by)
	}
}

// counter returns the GPU's energy counter in microjoules.
func counter(g *collector.GPU) (int64, bool) {
	v := g.Value(metric.Energy)
	return int64(math.Round(v * 1e6)), v >= 0 && v < 9e12
}

// spend returns the energy up to now, in microjoules, that is not booked yet: by the
// GPU's counter, which also counts while nobody looks, or, without one, by its power
// if the time since the last snapshot is known.
func (st *gpu) spend(g *collector.GPU, now time.Time, known bool) int64 {
	count, counts := counter(g)
	if !counts {
		watts := g.Value(metric.PowerDraw)
		if !known || !(watts > 0 && watts <= maxWatts) {
			return 0
		}
		by := int64(math.Round(watts * 1e6 * now.Sub(st.Until).Seconds()))
		st.Guessed += by
		return by
	}
	before, since, guessed := st.Counter, st.Counted, st.Guessed
	st.Counter, st.Counted, st.Guessed = &count, now, 0
	if before == nil {
		return 0 // it may have counted since long ago
	}
	spent := count - *before
	if spent < 0 {
		spent = count // it began anew when the driver was loaded
	}
	if most := int64(maxWatts * 1e6 * now.Sub(since).Seconds()); spent > most {
		return 0
	}
	return max(spent-guessed, 0)
}

// meter returns what a piece of the GPU's time and its energy come to.
func (st *gpu) meter(book *price.Book, at time.Time, elapsed, energy int64) cost.Amounts {
	a := cost.Amounts{Time: elapsed, Energy: energy}
	rates := book.Rates(st.Model, at)
	for k, into := range map[price.Kind]*int64{price.List: &a.List, price.Contracted: &a.Contracted, price.Effective: &a.Effective} {
		if r := rates[k]; r != nil {
			*into = cost.Meter(elapsed, r.Nano, &st.Carry.Rates[k])
		}
	}
	if rates[price.Effective] == nil {
		a.Unpriced = elapsed
	}
	electric, carbon := book.Energy(at)
	a.Electric = cost.Meter(energy, electric, &st.Carry.Electric)
	a.Carbon = cost.Meter(energy, carbon, &st.Carry.Carbon)
	return a
}

func compareGPUs(i, j int, a, b string) int { return cmp.Or(cmp.Compare(i, j), cmp.Compare(a, b)) }
