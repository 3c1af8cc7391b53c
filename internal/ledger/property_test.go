package ledger

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

// life is a node whose owners come and go at random, with what was truly paid for
// each of its GPUs.
type life struct {
	*bench
	r     *rand.Rand
	now   time.Time
	gpus  int
	paid  []paid
	seen  map[cost.Key]cost.Amounts // exported last
	joule []float64
}

// paid is what was paid for a GPU: time, and time by price.
type paid struct {
	ns    int64
	money *big.Int
}

// twoPrices is a contract whose price falls at noon's end of the second day.
func twoPrices() price.Config {
	next := start.AddDate(0, 0, 1).Truncate(24 * time.Hour)
	return price.Config{Own: []price.Own{
		{GPU: "*", PerHour: 2.987654321, Currency: "USD", Kind: price.Contracted, To: next.AddDate(0, 0, -1)},
		{GPU: "*", PerHour: 2.123456789, Currency: "USD", Kind: price.Contracted, From: next},
	}, Energy: price.Energy{PerKWh: []float64{0.2111}, PUE: 1.3, Carbon: []float64{381}}}
}

func (l *life) pass(d time.Duration) {
	for i := range l.paid {
		for at, end := l.now, l.now.Add(d); at.Before(end); {
			next := at.Truncate(time.Hour).Add(time.Hour)
			if next.After(end) {
				next = end
			}
			rate := int64(2987654321)
			if !at.Before(start.AddDate(0, 0, 1).Truncate(24 * time.Hour)) {
				rate = 2123456789
			}
			l.paid[i].money.Add(l.paid[i].money, times(int64(next.Sub(at)), rate))
			at = next
		}
		l.paid[i].ns += int64(d)
		l.joule[i] += d.Seconds() * (70 + 600*l.r.Float64())
	}
	l.now = l.now.Add(d)
}

// snapshot is the node now: shared, cut, given, preempted, lost, hung as chance has it.
func (l *life) snapshot() node {
	n := at(l.now, l.gpus)
	owner := func() collector.Owner {
		return collector.Owner{Kind: []string{"pod", "job", ""}[l.r.IntN(3)], ID: fmt.Sprint(l.r.IntN(4)), Team: []string{"a", "b"}[l.r.IntN(2)]}
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Set(metric.Energy, l.joule[i])
		g.Set(metric.SMActivity, l.r.Float64()*l.r.Float64())
		switch l.r.IntN(12) {
		case 0:
			g.Set(metric.GPUPresent, 0)
		case 1:
			g.Hung = true
		case 2:
			g.Readings = collector.NewReadings(metric.GPU)
		case 3, 4:
			n.instance(i, 1, "3g.40gb", l.r.Float64(), owner(), owner())
			n.instance(i, 2, "2g.20gb", 0)
		}
		for range l.r.IntN(5) {
			mig := ""
			if g.MIG {
				mig = "1/0"
			}
			n.process(i, mig, owner(), l.r.Float64()/5, l.r.Float64()*1e10)
		}
		if l.r.IntN(3) == 0 {
			g.Allocations = append(g.Allocations, collector.Allocation{UUID: g.UUID, Owner: owner(), Shares: l.r.IntN(4)})
		}
	}
	return n
}

var errDisk = errors.New("the disk is full")

// step lets some time pass, in one of the ways in which it does.
func (l *life) step() {
	var by time.Duration
	switch l.r.IntN(40) {
	case 0: // the agent ends, or is killed: what it had not written is gone
		if l.r.IntN(2) == 0 {
			l.write()
		}
		l.pass(time.Duration(l.r.Int64N(int64(3 * time.Hour))))
		l.restart()
	case 1: // a gap
		l.pass(time.Duration(l.r.Int64N(int64(time.Minute))))
	case 2: // the clock is set
		by = time.Duration(l.r.Int64N(int64(2*time.Hour))) - time.Hour
		l.now = l.now.Add(by) // the price is that of the new clock
	case 3:
		_ = l.store.Update(func(tx *store.Tx) error { return errors.Join(l.WriteTx(tx), errDisk) })
	case 4, 5, 6:
		l.write()
	}
	l.pass(time.Duration(l.r.Int64N(int64(2 * time.Second))))
	n := l.snapshot()
	n.Step = by
	l.Observe(n.Snapshot)
	if by != 0 {
		l.write() // as the agent does: killed before it is told, nobody could know that the clock was set
	}
}

// check holds that parts sum to what was paid, and counters only grow.
func (l *life) check() {
	l.t.Helper()
	l.write()
	type sums struct{ hours, accounts cost.Amounts }
	got := map[string]*sums{}
	for i := range l.paid {
		got["GPU-"+string(rune('a'+i))] = &sums{}
	}
	for _, r := range l.costs().Rows {
		got[r.UUID].hours = got[r.UUID].hours.Plus(r.Amounts)
	}
	for k, a := range l.accounts {
		got[k.UUID].accounts = got[k.UUID].accounts.Plus(a.Amounts)
	}
	for i, p := range l.paid {
		uuid := "GPU-" + string(rune('a'+i))
		s := got[uuid]
		if s.hours != s.accounts {
			l.t.Fatalf("%s: hours sum to %+v, accounts to %+v", uuid, s.hours, s.accounts)
		}
		if s.hours.Time != p.ns || s.hours.Effective != exact(p.money) || s.hours.Contracted != s.hours.Effective || s.hours.Unpriced != 0 {
			l.t.Fatalf("%s: paid %d ns and %d billionths, booked %+v", uuid, p.ns, exact(p.money), s.hours)
		}
		if off := float64(s.hours.Energy)/1e6 - l.joule[i]; off > 1 || off < -l.joule[i]/20-1e5 {
			l.t.Fatalf("%s: used %f J, booked %d µJ", uuid, l.joule[i], s.hours.Energy)
		}
	}
	for _, a := range l.Export().Accounts {
		before, now := l.seen[a.Key].Array(), a.Array()
		for c := range now {
			if now[c] < before[c] {
				l.t.Fatalf("counter %d of %v went back from %d to %d", c, a.Key, before[c], now[c])
			}
		}
		l.seen[a.Key] = a.Amounts
	}
}

func TestWhatWasPaidIsWhatIsBooked(t *testing.T) {
	for seed := range uint64(6) {
		b := newBench(t, twoPrices())
		l := &life{bench: b, r: rand.New(rand.NewPCG(seed, 7)), now: start, gpus: 3, seen: map[cost.Key]cost.Amounts{}, joule: make([]float64, 3)}
		for range l.gpus {
			l.paid = append(l.paid, paid{money: new(big.Int)})
		}
		n := at(start, l.gpus)
		for i := range n.GPUs {
			n.GPUs[i].Set(metric.Energy, 0)
		}
		l.Observe(n.Snapshot)
		l.write()
		for range 12 {
			for range 60 {
				l.step()
			}
			l.check()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
