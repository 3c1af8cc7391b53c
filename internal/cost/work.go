package cost

import (
	"time"

	"gpuvigil/collector"
)

// Work is what an owner did, and what became of the GPU time that it held, in integers
// that add up without rounding.
type Work struct {
	Units [Units]int64 `json:"units"` // in the order of metric.WorkUnit

	Kept          int64 `json:"kept_ns"` // GPU time that a checkpoint, or progress, confirmed
	Lost          int64 `json:"lost_ns"` // GPU time that an interruption made void
	LostCost      int64 `json:"lost_nano"`
	Interruptions int64 `json:"interruptions"`
}

// Units is the number of values of metric.WorkUnit.
const Units = 4

// The positions of metric.WorkUnit.
const (
	Steps = iota
	Samples
	Tokens
	Requests
)

// Plus returns the sum.
func (w Work) Plus(v Work) Work {
	for i, n := range v.Units {
		w.Units[i] += n
	}
	w.Kept += v.Kept
	w.Lost += v.Lost
	w.LostCost += v.LostCost
	w.Interruptions += v.Interruptions
	return w
}

// Negative reports whether any of the numbers is below zero, which none can be.
func (w Work) Negative() bool {
	least := min(w.Kept, w.Lost, w.LostCost, w.Interruptions)
	for _, n := range w.Units {
		least = min(least, n)
	}
	return least < 0
}

// Goodput returns which part of the GPU time that was judged was kept, from 0 to 1; NaN
// without any.
func (w Work) Goodput() float64 { return float64(w.Kept) / float64(w.Kept+w.Lost) }

// WorkRow is what an owner did in one hour.
type WorkRow struct {
	Hour     time.Time       `json:"hour"` // its beginning, in UTC
	Owner    collector.Owner `json:"owner"`
	Currency string          `json:"currency"`
	Work
}

// OwnerWork is what an owner did since the ledger first saw it, and what that comes to.
type OwnerWork struct {
	Owner    collector.Owner
	Currency string
	Work
	Tells bool  // of its progress: else nothing is known of kept and lost
	Open  int64 // GPU time that is neither, yet

	// Cost, in units of the currency, and energy in joules for each of metric.FigureUnit,
	// over the last hour; NaN if there is none.
	UnitCost, UnitEnergy [Units]float64
}

// TeamMonth is what a team has spent on this node in the calendar month, in units of the
// currency.
type TeamMonth struct {
	Team, Currency string
	Spent          float64
	End            *Projection // nil with fewer than three whole days
}
