package series

import (
	"math"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// money returns what the agent's ledger says. An account in another currency than the
// first is left out: there is one.
func (r *agentReader) money(at identity) *collector.Money {
	currency := at.text("currency")
	if r.said.money == nil {
		r.said.money = &collector.Money{At: r.part.Time, Currency: currency}
	}
	if r.said.money.Currency != currency {
		return nil
	}
	return r.said.money
}

func (r *agentReader) team(at identity, v float64) {
	m := r.money(at)
	if m == nil {
		return
	}
	t, isNew := find(r, at, &m.Teams, metric.Account, "team")
	if t == nil {
		return
	}
	if isNew {
		nan := math.NaN()
		*t = collector.TeamMoney{Team: at.text("team"), Spent: nan, ThreeDays: nan, Expected: nan, Budget: nan, Overrun: nan}
	}
	switch {
	case at.row == metric.TeamSpent:
		t.Spent = v
	case at.row == metric.TeamBudget:
		t.Budget = v
	case string(at.raw("bound")) == "expected":
		t.Expected = v
	}
}

func (r *agentReader) price(at identity, v float64) {
	if m := r.money(at); m != nil && len(m.Prices) < maxThings {
		m.Prices = append(m.Prices, collector.GPUPrice{UUID: at.text("uuid"), PerHour: v})
	}
}

func (r *agentReader) ownerCost(at identity, v float64) {
	m := r.money(at)
	if m == nil || at.owner() == (collector.Owner{}) {
		return
	}
	if o, _ := find(r, at, &m.Owners, metric.Job, "owner_kind", "owner", "team"); o != nil {
		o.Owner = at.owner()
		o.Spent += v
	}
}
