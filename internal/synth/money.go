package synth

import (
	"math"
	"time"

	"gpuvigil/collector"
)

const (
	priceOfGPU = 2.5 // USD an hour
	unlikeness = 0.1 // of the days to come to those of the month: the spread of their mean
)

// account is what the first tenant's team spends, as a ledger keeps it.
type account struct {
	budget float64 // of a month; 0: nobody keeps account
	spent  float64 // in the month
	days   []float64
	day    int // of the month
}

// book adds dt seconds of the tenant's GPUs.
func (a *account) book(n *Node, dt float64) {
	if a.budget == 0 || len(n.tenants) == 0 {
		return
	}
	if d := n.now.Day(); d != a.day || len(a.days) == 0 {
		a.day, a.days = d, append(a.days, 0)
	}
	cost := priceOfGPU * float64(len(n.tenants[0].gpus)) * dt / 3600
	a.spent += cost
	a.days[len(a.days)-1] += cost
}

// money is as of now. The month's end is expected as the days before were.
func (a *account) money(n *Node) *collector.Money {
	if a.budget == 0 || a.spent == 0 {
		return nil
	}
	t := collector.TeamMoney{Team: n.tenants[0].owner.Team, Spent: a.spent, Budget: a.budget, ThreeDays: math.NaN(), Expected: math.NaN(), Overrun: math.NaN()}
	if whole := len(a.days) - 1; whole > 3 { // the first was not whole
		t.ThreeDays = a.days[whole-1] + a.days[whole-2] + a.days[whole-3]
		end := time.Date(n.now.Year(), n.now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		rest := t.ThreeDays / 3 * end.Sub(n.now).Hours() / 24
		t.Expected = a.spent + rest
		t.Overrun = 0.5 * math.Erfc((a.budget-t.Expected)/(unlikeness*rest*math.Sqrt2))
	}
	m := &collector.Money{At: n.now, Currency: "USD", Teams: []collector.TeamMoney{t}}
	for _, g := range n.gpus {
		m.Prices = append(m.Prices, collector.GPUPrice{UUID: g.uuid, PerHour: priceOfGPU})
	}
	return m
}
