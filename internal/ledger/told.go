package ledger

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
)

// toldEvery is how old the money may be that detectors are told of: adding it up goes
// over all accounts.
const toldEvery = time.Minute

// Money returns what was booked until the newest snapshot or a little earlier, for the
// next one; nil before the first. It does not change.
func (l *Ledger) Money() *collector.Money {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

func (l *Ledger) toldAt() time.Time {
	if l.told == nil {
		return time.Time{}
	}
	return l.told.At
}

// tell adds up what detectors are told of.
func (l *Ledger) tell() {
	m := &collector.Money{At: l.now, Currency: l.currency, Owners: l.ownersMoney()}
	budgets := map[string]float64{}
	for _, b := range l.cfg.Budgets {
		if b.Currency == l.currency {
			budgets[b.Team] = b.PerMonth
		}
	}
	for _, month := range l.months() {
		m.Teams = append(m.Teams, l.teamMoney(month, budgets))
	}
	for _, p := range l.prices() {
		if p.Nano > 0 {
			m.Prices = append(m.Prices, collector.GPUPrice{UUID: p.UUID, PerHour: float64(p.Nano) / 1e9})
		}
	}
	l.told = m
}

func (l *Ledger) teamMoney(month cost.TeamMonth, budgets map[string]float64) collector.TeamMoney {
	nan := math.NaN()
	t := collector.TeamMoney{Team: month.Team, Spent: month.Spent, ThreeDays: nan, Expected: nan, Budget: nan, Overrun: nan}
	budget, has := budgets[month.Team]
	if has {
		t.Budget = budget
	}
	if month.End != nil { // three whole days are known
		t.Expected, t.ThreeDays = month.End.Expected, l.lastDays(month.Team, cost.MinDays)
		if has {
			t.Overrun = month.End.Overrun(budget)
		}
	}
	return t
}

// lastDays returns what a team spent on so many days before today.
func (l *Ledger) lastDays(team string, days int) float64 {
	today, sum := l.now.UTC().Truncate(day), int64(0)
	for back := 1; back <= days; back++ {
		sum += l.daily[teamDay{team, today.Add(time.Duration(-back) * day), l.currency}]
	}
	return float64(sum) / 1e9
}

// ownersMoney returns what those have cost who had something within the hour.
func (l *Ledger) ownersMoney() []collector.OwnerMoney {
	spent, recent := map[collector.Owner]int64{}, map[collector.Owner]bool{}
	for k, a := range l.accounts {
		if k.Owner.Kind == "" || k.Owner == Other {
			continue
		}
		spent[k.Owner] += a.Effective
		recent[k.Owner] = recent[k.Owner] || l.now.Sub(a.at) <= shownFor
	}
	var out []collector.OwnerMoney
	for o, nano := range spent {
		if recent[o] {
			out = append(out, collector.OwnerMoney{Owner: o, Spent: float64(nano) / 1e9})
		}
	}
	slices.SortFunc(out, func(a, b collector.OwnerMoney) int { return compareOwners(a.Owner, b.Owner) })
	return out
}
