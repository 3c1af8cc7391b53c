package ledger

import (
	"fmt"
	"math/big"
	"os"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
)

// month is 30 days of a node of eight GPUs, two of them shared or cut, seen every two
// minutes, with a price that changes in the middle.
type month struct {
	*bench
	paid [8]*big.Int
}

const (
	tick  = 2 * time.Minute
	days  = 30
	first = 2_490_000_000 // billionths an hour, before the change
	then  = 2_190_000_000
)

func changes() time.Time { return start.Truncate(24*time.Hour).AddDate(0, 0, 15) }

// at is the node at a time: a training job of four GPUs that is preempted every night
// and begins anew, inference that shares a GPU with a notebook, short jobs one after
// the other, a GPU in instances, one that breaks for a day.
func (m *month) at(when time.Time) node {
	n := at(when, 8)
	for i := range n.Sources {
		n.Sources[i].Interval = tick
	}
	since := when.Sub(start)
	minute := int(since / time.Minute)
	for i := range n.GPUs {
		n.GPUs[i].Set(metric.Energy, since.Seconds()*(100+float64(i)*50))
	}
	work := func(gpu int, o collector.Owner, sm float64) {
		n.process(gpu, "", o, sm, 4e10)
		n.GPUs[gpu].Set(metric.SMActivity, sm)
	}
	night := when.Hour() >= 1 && when.Hour() < 4 // preempted
	for gpu := range 4 {
		n.GPUs[gpu].Allocations = append(n.GPUs[gpu].Allocations, collector.Allocation{UUID: n.GPUs[gpu].UUID, Owner: train})
		if !night {
			work(gpu, train, []float64{0.9, 0.9, 0.9, 0.01}[minute/2%4])
		}
	}
	work(4, chat, 0.3)
	n.process(4, "", collector.Owner{Kind: "pod", ID: "jupyter/ana", Team: "vision"}, float64(minute%3)/30, 9e9)
	if minute%20 < 13 { // a job of a quarter of an hour, then a gap
		work(5, collector.Owner{Kind: "job", ID: fmt.Sprintf("slurm/%d", 9000+minute/20), Team: "sweeps"}, 0.6)
	}
	n.instance(6, 1, "3g.40gb", 0.5, chat)
	n.instance(6, 2, "2g.20gb", 0)
	n.process(6, "1/0", chat, 0, 1e10)
	n.Instances[0].Set(metric.MIGProcesses, 1)
	if day := int(since / (24 * time.Hour)); day == 9 {
		n.GPUs[7].Set(metric.GPUPresent, 0)
	}
	return n
}

// pay is the invoice: time at the price of its hour.
func (m *month) pay(from, to time.Time) {
	for from.Before(to) {
		next, rate := to, int64(then)
		if c := changes(); from.Before(c) {
			next, rate = earlier(to, c), first
		}
		for i := range m.paid {
			m.paid[i].Add(m.paid[i], times(int64(next.Sub(from)), rate))
		}
		from = next
	}
}

// TestAMonthIsBookedToTheCent replays 30 days and holds the sum of all parts against
// the invoice. It prints what docs/costs.md says of time and disk.
func TestAMonthIsBookedToTheCent(t *testing.T) {
	if testing.Short() {
		t.Skip("30 days take some seconds")
	}
	b := newBench(t, price.Config{Provider: price.NoProvider, Own: []price.Own{
		{GPU: "*", PerHour: first / 1e9, Currency: "USD", Kind: price.Contracted, To: changes().AddDate(0, 0, -1)},
		{GPU: "*", PerHour: then / 1e9, Currency: "USD", Kind: price.Contracted, From: changes()},
	}})
	m := &month{bench: b}
	for i := range m.paid {
		m.paid[i] = new(big.Int)
	}
	var booking, writing time.Duration
	timed := func(sum *time.Duration, f func()) {
		began := time.Now()
		f()
		*sum += time.Since(began)
	}
	last, snapshots, writes := start, 0, 0
	m.Observe(m.at(start).Snapshot)
	m.write()
	for when := start.Add(tick); !when.After(start.AddDate(0, 0, days)); when = when.Add(tick) {
		if since := when.Sub(start); since%(73*time.Hour) == 0 { // killed, and up again after a while
			m.restart()
			when = when.Add(18 * time.Minute)
		}
		m.pay(last, when)
		last = when
		s := m.at(when).Snapshot
		timed(&booking, func() { m.Observe(s) })
		snapshots++
		if snapshots%120 == 0 { // as often as a test's disk likes; the agent writes every 30 s
			timed(&writing, m.write)
			writes++
		}
	}
	m.write()

	var invoice, hours, accounts cost.Amounts
	for i := range m.paid {
		invoice.Effective += exact(m.paid[i])
	}
	states := map[cost.State]int64{}
	for _, r := range m.costs().Rows {
		hours = hours.Plus(r.Amounts)
		states[r.State] += r.Time
	}
	for _, a := range m.accounts {
		accounts = accounts.Plus(a.Amounts)
	}
	if hours.Effective != invoice.Effective || accounts != hours || hours.Time != 8*int64(last.Sub(start)) {
		t.Errorf("the invoice is %d billionths for %v of 8 GPUs, the hours sum to %+v, the accounts to %+v", invoice.Effective, last.Sub(start), hours, accounts)
	}
	for s := range cost.States {
		if states[s] == 0 {
			t.Errorf("in a month with everything in it no GPU was ever %s", s)
		}
	}
	info, err := os.Stat(m.store.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d days, 8 GPUs, %d snapshots, %d accounts: invoice and sum of parts %.9f USD; %v for a snapshot, %v for a write; state file %.1f MB; unobserved %.2f %%",
		days, snapshots, len(m.accounts), float64(invoice.Effective)/1e9, (booking / time.Duration(snapshots)).Round(time.Microsecond),
		(writing / time.Duration(writes)).Round(time.Microsecond), float64(info.Size())/1e6, 100*float64(states[cost.Unobserved])/float64(hours.Time))
}
