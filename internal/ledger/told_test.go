package ledger

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/price"
)

// Detectors know of money what the ledger tells them: what it has booked, a minute late
// at most.
func TestMoneyThatDetectorsAreTold(t *testing.T) {
	b := newBench(t, price.Config{Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "USD", Kind: price.Contracted}}})
	b.cfg.Budgets = []cost.Budget{{Team: train.Team, Currency: "USD", PerMonth: 100}, {Team: "abroad", Currency: "EUR", PerMonth: 1}}
	b.restart()
	if b.Money() != nil {
		t.Fatal("there is money before the first snapshot")
	}
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	now := first
	run := func(until time.Duration, gpus int) {
		for ; now.Sub(first) <= until; now = now.Add(10 * time.Second) {
			n := at(now, 2)
			n.Sources[0].Interval, n.Sources[1].Interval = 10*time.Second, 10*time.Second
			for g := range gpus {
				n.process(g, "", train, 1, 1)
			}
			b.Observe(n.Snapshot)
		}
	}
	team := func() *collector.TeamMoney {
		t.Helper()
		for i := range b.Money().Teams {
			if m := &b.Money().Teams[i]; m.Team == train.Team {
				return m
			}
		}
		t.Fatalf("the team is not in %+v", b.Money())
		return nil
	}
	run(12*time.Hour, 1)
	if m := team(); math.Abs(m.Spent-43.2) > 0.07 || m.Budget != 100 || !math.IsNaN(m.Overrun) || !math.IsNaN(m.ThreeDays) || !math.IsNaN(m.Expected) {
		t.Errorf("after half a day: %+v, want 43.20 USD of 100 spent and no projection before three whole days", m)
	}
	if got := b.Money().PriceOf("GPU-b"); got != 3.6 {
		t.Errorf("an hour of a GPU costs %v, want 3.6", got)
	}
	if got := b.Money().SpentBy(train); math.Abs(got-43.2) > 0.07 {
		t.Errorf("the owner has cost %v, want 43.20", got)
	}
	if got := b.Money().SpentBy(chat); !math.IsNaN(got) {
		t.Errorf("an owner who had nothing has cost %v", got)
	}
	if age := now.Sub(b.Money().At); age > toldEvery+10*time.Second || b.Money().Currency != "USD" {
		t.Errorf("what is told is %s old and in %s, want a minute at most and USD", age, b.Money().Currency)
	}
	run(4*24*time.Hour, 1)
	run(5*24*time.Hour, 2)
	if m := team(); math.Abs(m.ThreeDays-(2+2)*86.4) > 0.1 || m.Overrun < 0.99 || m.Expected < 2592 {
		t.Errorf("after five days: %+v, want 345.60 USD in the last three, the last of which had twice as much, and an overrun", m)
	}
	run(5*24*time.Hour+2*time.Hour, 0)
	if got := b.Money().SpentBy(train); !math.IsNaN(got) {
		t.Errorf("an owner who has had nothing for two hours is still told of: %v", got)
	}
}
