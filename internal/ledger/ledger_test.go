package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
)

func TestGapsAreUnobservedAndPaid(t *testing.T) {
	b := newBench(t, price.Config{Provider: "Lambda"})
	for _, s := range []float64{0, 1, 2, 5, 9, 10} { // three intervals are seen, four are not
		b.Observe(at(start.Add(time.Duration(s*1e9)), 1).Snapshot)
	}
	b.write()
	b.restart()
	b.Observe(at(start.Add(3610*time.Second), 1).Snapshot) // down for an hour
	b.Observe(at(start.Add(3611*time.Second), 1).Snapshot)
	want := map[owned]float64{{state: cost.Free}: 1 + 1 + 3 + 1 + 1, {state: cost.Unobserved}: 4 + 3600}
	if diff := cmp.Diff(want, b.sums(), cmp.AllowUnexported(owned{})); diff != "" {
		t.Errorf("gaps are booked otherwise (-want +got):\n%s", diff)
	}
	sum := cost.Amounts{}
	for _, r := range b.costs().Rows {
		sum = sum.Plus(r.Amounts)
	}
	if want := exact(times(3611e9, 3.99e9)); sum.Effective != want || sum.List != want {
		t.Errorf("an hour and 11 s at 3.99 USD cost %d billionths, want %d", sum.Effective, want)
	}
}

func TestAClockThatIsSetIsNoTime(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -5 * time.Hour} {
		b := newBench(t, price.Config{})
		b.Observe(at(start, 1).Snapshot)
		b.Observe(at(start.Add(time.Second), 1).Snapshot)
		n := at(start.Add(2*time.Second+step), 1)
		n.Step = step
		b.Observe(n.Snapshot)
		b.Observe(at(start.Add(3*time.Second+step), 1).Snapshot)
		want := map[owned]float64{{state: cost.Free}: 2, {state: cost.Unobserved}: 1}
		if diff := cmp.Diff(want, b.sums(), cmp.AllowUnexported(owned{})); diff != "" {
			t.Errorf("after the clock was set %s, 3 s are booked as (-want +got):\n%s", name, diff)
		}
	}
}

func TestAClockThatRanAheadBeforeTheRestart(t *testing.T) {
	b := newBench(t, price.Config{})
	b.Observe(at(start.Add(time.Hour), 1).Snapshot)
	b.Observe(at(start.Add(time.Hour+time.Second), 1).Snapshot)
	b.write()
	b.restart()
	for s := range 3 {
		b.Observe(at(start.Add(time.Duration(s)*time.Second), 1).Snapshot)
	}
	if diff := cmp.Diff(map[owned]float64{{state: cost.Free}: 3}, b.sums(), cmp.AllowUnexported(owned{})); diff != "" {
		t.Errorf("what passed is not booked once (-want +got):\n%s", diff)
	}
}

func TestAGPUThatComesBackAfterLong(t *testing.T) {
	b := newBench(t, price.Config{})
	b.Observe(at(start, 2).Snapshot)
	b.Observe(at(start.Add(time.Second), 1).Snapshot) // GPU-b is away for ten seconds
	b.Observe(at(start.Add(10*time.Second), 2).Snapshot)
	b.Observe(at(start.Add(10*time.Second+DefaultRetention), 1).Snapshot)
	b.Observe(at(start.Add(11*time.Second+DefaultRetention), 2).Snapshot)
	got := map[string]float64{}
	for _, r := range b.costs().Rows {
		got[r.UUID+" "+r.State.String()] += time.Duration(r.Time).Seconds()
	}
	want := map[string]float64{"GPU-a free": 2, "GPU-a unobserved": 9 + DefaultRetention.Seconds(), "GPU-b unobserved": 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a GPU that was away for longer than the retention is booked for that time, or one that was not is not (-want +got):\n%s", diff)
	}
}

func TestEnergyByCounterAndByPower(t *testing.T) {
	byHour := make([]float64, 24)
	byHour[12], byHour[13] = 0.10, 0.40
	cfg := price.Config{Energy: price.Energy{PerKWh: byHour, PUE: 2, Carbon: []float64{500}}}
	run := func(counters []float64, power float64, step time.Duration) (sum cost.Amounts) {
		b := newBench(t, cfg)
		for i, c := range counters {
			n := at(start.Add(time.Duration(i)*step), 1)
			n.GPUs[0].Set(metric.PowerDraw, power)
			if c >= 0 {
				n.GPUs[0].Set(metric.Energy, c)
			}
			b.Observe(n.Snapshot)
		}
		for _, r := range b.costs().Rows {
			sum = sum.Plus(r.Amounts)
		}
		return sum
	}
	for name, c := range map[string]struct {
		counters []float64
		joules   int64
	}{
		"counted":                     {[]float64{5e6, 5e6 + 600, 5e6 + 1300}, 1300},
		"counter begins anew":         {[]float64{5e6, 5e6 + 600, 100}, 700},
		"no counter, by power":        {[]float64{-1, -1, -1}, 1400},
		"counter leaps":               {[]float64{5, 5e6, 5e6 + 700}, 700},
		"counter comes late":          {[]float64{-1, 5e6, 5e6 + 700}, 700},
		"counter is away for a while": {[]float64{5e6, -1, 5e6 + 1500}, 1500},
	} {
		if got := run(c.counters, 700, time.Second); got.Energy != c.joules*1e6 {
			t.Errorf("%s: %d µJ, want %d J", name, got.Energy, c.joules)
		}
	}
	// Two hours in which nobody looked, at two prices: 3.6 MJ are a kWh.
	got := run([]float64{0, 7.2e6}, 700, 2*time.Hour)
	if got.Energy != 7.2e12 || got.Electric != (0.10+0.40)*2*1e9 || got.Carbon != 2*500*2*1e9 {
		t.Errorf("a kWh at 0.10 and one at 0.40, twice over for the data centre, cost %d billionths and cause %d ng; %d µJ", got.Electric, got.Carbon, got.Energy)
	}
}

// TestTooManyOwnersAreFoldedAndSumsMatch holds the bound on accounts.
func TestTooManyOwnersAreFoldedAndSumsMatch(t *testing.T) {
	b := newBench(t, price.Config{})
	before := folded.Get()
	b.Observe(at(start, 1).Snapshot)
	for i := range 50 {
		n := at(start.Add(time.Duration(i+1)*time.Second), 1)
		n.process(0, "", collector.Owner{Kind: "pod", ID: fmt.Sprintf("a/pod-%d", i)}, 1, 1)
		n.GPUs[0].Set(metric.SMActivity, 1)
		b.Observe(n.Snapshot)
	}
	got := b.sums()
	if other := got[owned{Other, cost.Busy}]; other != 50-maxOwners || folded.Get()-before != other || len(got) != maxOwners+1 {
		t.Errorf("of 50 owners in an hour %v s are folded and %v counted; there are %d accounts, want %d s and %d", other, folded.Get()-before, len(got), 50-maxOwners, maxOwners+1)
	}
	n := at(start.Add(time.Hour), 1) // in the next hour there is room again
	n.process(0, "", collector.Owner{Kind: "pod", ID: "a/pod-49"}, 1, 1)
	n.GPUs[0].Set(metric.SMActivity, 1)
	b.Observe(at(start.Add(time.Hour-time.Second), 1).Snapshot)
	b.Observe(n.Snapshot)
	n = at(start.Add(time.Hour+time.Second), 1)
	n.process(0, "", collector.Owner{Kind: "pod", ID: "a/pod-49"}, 1, 1)
	n.GPUs[0].Set(metric.SMActivity, 1)
	b.Observe(n.Snapshot)
	if got := b.sums()[owned{collector.Owner{Kind: "pod", ID: "a/pod-49"}, cost.Busy}]; got != 1 {
		t.Errorf("an owner who was one too many has %v s in the next hour, want 1", got)
	}
}

func TestPricesInForceAreSaid(t *testing.T) {
	b := newBench(t, price.Config{Provider: "RunPod"})
	n := at(start, 2)
	n.GPUs[1].Model = "NVIDIA H1000"
	b.Observe(n.Snapshot)
	n = at(start.Add(time.Second), 2)
	n.GPUs[1].Model = "NVIDIA H1000"
	b.Observe(n.Snapshot)
	b.write()
	want := []cost.Price{
		{GPU: 0, UUID: "GPU-a", Model: h100, Kind: "list", Nano: 3.99e9, Currency: "USD", Provider: "RunPod", Region: "secure",
			Source: "H100 SXM, datareceipts/data-receipts", AsOf: "2026-11-09"},
		{GPU: 1, UUID: "GPU-b", Model: "NVIDIA H1000"},
	}
	if diff := cmp.Diff(want, b.Export().Prices); diff != "" {
		t.Errorf("prices in force (-want +got):\n%s", diff)
	}
	for _, a := range b.Export().Accounts {
		if a.Priced() != (a.GPU == 0) || a.Time != 1e9 || a.Currency != "USD" {
			t.Errorf("account %+v: only the GPU that is known has a price", a)
		}
	}
}

func TestAnotherCurrencyBeginsAtZero(t *testing.T) {
	b := newBench(t, price.Config{})
	b.Observe(at(start, 1).Snapshot)
	b.Observe(at(start.Add(time.Second), 1).Snapshot)
	b.write()
	b.cfg.Prices = newBook(t, price.Config{Provider: price.NoProvider, Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "EUR", Kind: price.Contracted}}})
	b.restart()
	b.Observe(at(start.Add(2*time.Second), 1).Snapshot)
	b.Observe(at(start.Add(3*time.Second), 1).Snapshot)
	b.write()
	for _, a := range b.Export().Accounts {
		if a.Currency != "EUR" || a.Effective != 1e6*a.Time/1e9 && a.State == cost.Unobserved || a.Effective > 2e6 || a.List != 0 {
			t.Errorf("account in another currency: %+v, want euros of what was booked since only", a)
		}
	}
	money := map[string]int64{}
	for _, r := range b.costs().Rows {
		money[r.Currency] += r.Effective
	}
	if money["USD"] != exact(times(1e9, 3.85e9)) || money["EUR"] != 2e6 {
		t.Errorf("hours hold %v billionths, want a second at 3.85 USD and two at 3.60 EUR", money)
	}
}

// A report says when the first GPU was seen, and not the hour that this was in: what
// was before was spent by nobody that it knows.
func TestTheBeginningIsWhenTheFirstGPUWasSeen(t *testing.T) {
	b := newBench(t, price.Config{})
	first := start.Truncate(time.Hour).Add(56 * time.Minute)
	for s := 0; s <= 2*3600; s++ {
		gpus := 1
		if s > 60 {
			gpus = 2
		}
		b.Observe(at(first.Add(time.Duration(s)*time.Second), gpus).Snapshot)
	}
	for _, when := range []string{"at once", "after a write", "after a restart"} {
		if a := b.costs(); !a.Since.Equal(first) || !a.Until.Equal(first.Add(2*time.Hour)) {
			t.Errorf("%s: it answers for %v to %v, want from the first snapshot at %v", when, a.Since, a.Until, first)
		}
		a, err := b.Costs(first.Add(time.Hour), first.Add(3*time.Hour))
		if err != nil || !a.Since.Equal(first.Add(time.Hour).Truncate(time.Hour)) {
			t.Errorf("%s: of the second hour it answers from %v, %v", when, a.Since, err)
		}
		b.write()
		if when == "after a write" {
			b.restart()
			b.Observe(at(first.Add(2*time.Hour), 2).Snapshot)
		}
	}
}

// TestWhatHadAPriceKeepsIt takes a currency there and back between two writes: what was
// booked at a price in force is booked at that price, in its currency.
func TestWhatHadAPriceKeepsIt(t *testing.T) {
	euros := price.Config{Provider: price.NoProvider, Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "EUR", Kind: price.Contracted}}}
	dollars := price.Config{Provider: price.NoProvider, Own: []price.Own{{GPU: "*", PerHour: 7.2, Currency: "USD", Kind: price.Contracted}}}
	b := newBench(t, dollars)
	b.cfg.Budgets = []cost.Budget{{Team: train.Team, Currency: "USD", PerMonth: 5}}
	second := 0
	work := func() {
		n := at(start.Add(time.Duration(second)*time.Second), 1)
		n.process(0, "", train, 1, 1)
		n.GPUs[0].Set(metric.SMActivity, 1)
		b.Observe(n.Snapshot)
		second++
	}
	for i, prices := range []price.Config{dollars, euros, dollars} {
		b.cfg.Prices = newBook(t, prices)
		b.Configure(b.cfg)
		for range 2 + i {
			work()
		}
	}
	check := func(when string) {
		t.Helper()
		money := map[string]int64{}
		var unpriced int64
		for _, r := range b.costs().Rows {
			money[r.Currency] += r.Effective
			unpriced += r.Unpriced
		}
		if unpriced != 0 || money["USD"] != 5*2e6 || money["EUR"] != 3*1e6 {
			t.Errorf("%s: %v without a price, and %v billionths; want five seconds at 0.002 USD and three at 0.001 EUR, all with a price", when, time.Duration(unpriced), money)
		}
	}
	check("in memory")
	b.write()
	check("on disk")
	spent := b.Export().Months
	b.restart()
	if months := b.Export().Months; len(spent) != 1 || spent[0].Spent != 0.01 || len(months) != 1 || months[0].Spent != spent[0].Spent {
		t.Errorf("the team has spent %+v, and after a restart %+v, want 0.01 USD", spent, months)
	}
}

// TestAnotherSimulationGoesOn holds that nobody pays for the energy at which the counters
// of a new simulation stand, and that it is known up to when the last one has booked.
func TestAnotherSimulationGoesOn(t *testing.T) {
	b := newBench(t, price.Config{})
	if booked := b.Renew(); !booked.IsZero() {
		t.Errorf("a new ledger has booked until %v", booked)
	}
	joules := func(when time.Time, v float64) {
		n := at(when, 1)
		n.GPUs[0].Set(metric.Energy, v)
		b.Observe(n.Snapshot)
	}
	joules(start, 4e8)
	joules(start.Add(time.Second), 4e8+70)
	b.write()
	b.restart()
	if booked := b.Renew(); !booked.Equal(start.Add(time.Second)) {
		t.Errorf("booked until %v, want the second that was observed", booked)
	}
	joules(start.Add(12*time.Hour), 3e8)
	joules(start.Add(12*time.Hour+time.Second), 3e8+70)
	var energy int64
	for _, r := range b.costs().Rows {
		energy += r.Energy
	}
	if energy != 140e6 {
		t.Errorf("%d µJ are booked, want the 140 J that were used in two seconds", energy)
	}
}
