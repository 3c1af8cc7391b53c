package ledger

import (
	"math"
	"time"

	"gpuvigil/internal/cost"
)

const (
	unitSpan  = time.Hour       // over which a unit's cost is taken
	unitKnown = 5 * time.Minute // before it is known
	million   = 1e6
)

// window is what an owner's GPU time came to and what it did, by minutes of the last
// hour. It begins anew with the agent.
type window []minute

type minute struct {
	at     time.Time
	amount cost.Amounts
	work   cost.Work
}

func (w *window) now(at time.Time) *minute {
	at = at.Truncate(time.Minute)
	if n := len(*w); n > 0 && (*w)[n-1].at.Equal(at) {
		return &(*w)[n-1]
	}
	drop := 0
	for drop < len(*w) && (at.Sub((*w)[drop].at) >= unitSpan || (*w)[drop].at.After(at)) {
		drop++
	}
	*w = append(append((*w)[:0], (*w)[drop:]...), minute{at: at})
	return &(*w)[len(*w)-1]
}

func (w *window) cost(at time.Time, a cost.Amounts) {
	m := w.now(at)
	m.amount = m.amount.Plus(a)
}

func (w *window) work(at time.Time, done cost.Work) {
	m := w.now(at)
	m.work = m.work.Plus(done)
}

func (w *window) shift(by time.Duration) {
	for i := range *w {
		(*w)[i].at = (*w)[i].at.Add(by)
	}
}

// units returns what one of each unit has cost, and its energy in joules; NaN where that
// is not known.
func (w *window) units(now time.Time) (money, energy [cost.Units]float64) {
	for i := range money {
		money[i], energy[i] = math.NaN(), math.NaN()
	}
	var a cost.Amounts
	var done cost.Work
	var first time.Time
	for _, m := range *w {
		if now.Sub(m.at) >= unitSpan+time.Minute {
			continue
		}
		if first.IsZero() {
			first = m.at
		}
		a, done = a.Plus(m.amount), done.Plus(m.work)
	}
	if first.IsZero() || now.Sub(first) < unitKnown {
		return money, energy
	}
	for i, n := range done.Units {
		if n == 0 {
			continue
		}
		number := float64(n)
		if i == cost.Tokens {
			number /= million
		}
		if a.Time > 0 && a.Unpriced == 0 {
			money[i] = float64(a.Effective) / 1e9 / number
		}
		if a.Energy > 0 {
			energy[i] = float64(a.Energy) / 1e6 / number
		}
	}
	return money, energy
}
