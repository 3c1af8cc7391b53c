package collector

import (
	"math"
	"time"
)

// Money is what the node's GPUs came to, as the ledger had it after an earlier snapshot:
// it books a snapshot's time once detectors have seen it. All amounts are in units of
// the one currency, and NaN where they are not known. It does not change once it is
// part of a snapshot.
type Money struct {
	At       time.Time // the snapshot that it is as of
	Currency string
	Teams    []TeamMoney  // by team
	Owners   []OwnerMoney // who had something within the hour, by owner
	Prices   []GPUPrice   // by GPU index, those that are known
}

// TeamMoney is what a team spent on this node in the calendar month (UTC).
type TeamMoney struct {
	Team      string
	Spent     float64
	ThreeDays float64 // on the last three whole days of this month
	Expected  float64 // at the month's end
	Budget    float64 // of a month, on all nodes together
	Overrun   float64 // how likely the month's end is above the budget by this node alone, 0 to 1
}

// OwnerMoney is what an owner has cost on this node since the ledger first saw him.
type OwnerMoney struct {
	Owner Owner
	Spent float64
}

// GPUPrice is what an hour of a GPU costs now.
type GPUPrice struct {
	UUID    string
	PerHour float64
}

// PriceOf returns what an hour of the GPU costs, or NaN. It is safe on nil.
func (m *Money) PriceOf(uuid string) float64 {
	if m != nil {
		for i := range m.Prices {
			if m.Prices[i].UUID == uuid {
				return m.Prices[i].PerHour
			}
		}
	}
	return math.NaN()
}

// SpentBy returns what the owner has cost, or NaN. It is safe on nil.
func (m *Money) SpentBy(o Owner) float64 {
	if m != nil {
		for i := range m.Owners {
			if m.Owners[i].Owner == o {
				return m.Owners[i].Spent
			}
		}
	}
	return math.NaN()
}
