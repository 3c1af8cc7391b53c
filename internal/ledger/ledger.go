// Package ledger keeps account of what GPUs are paid for: it books the time since
// the snapshot before, and with it money, energy and carbon, under whose it was and
// what the GPU was to him. Everything is in whole numbers, and the parts of each
// GPU always sum to what was paid.
//
// Time comes from snapshots only. What was booked is written to the state file with
// the detectors' state; only what is on disk is exported, so that no counter ever
// goes back: what a crash loses is booked as unobserved by the next agent.
package ledger

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

const (
	// maxGap is how many of the snapshots' intervals may lie between two before
	// nobody knows what was in between.
	maxGap = 3

	// maxPiece divides time where a price or the hour may change: no time zone is off
	// by anything but quarters of an hour.
	maxPiece = 15 * time.Minute

	// maxOwners is how many owners of one GPU are kept apart in an hour, and
	// maxAccounts how many accounts in all. Real nodes stay far below them.
	maxOwners   = 32
	maxAccounts = 20000

	// DefaultRetention is how long the hours are kept.
	DefaultRetention = 35 * 24 * time.Hour
)

// Other is the owner of what owners had that were too many to be kept apart.
var Other = collector.Owner{Kind: metric.OtherOwners, ID: metric.OtherOwners}

var (
	folded   = vm.GetOrCreateFloatCounter(metric.LedgerFolded.Series())
	accounts = vm.GetOrCreateGauge(metric.LedgerAccounts.Series(), nil)
)

// Config is what a ledger can be told anew at any time.
type Config struct {
	Node      string
	Prices    *price.Book // required
	Budgets   []cost.Budget
	Retention time.Duration // of the hours, and of the accounts of owners that have gone; 0: DefaultRetention
	Log       *slog.Logger
}

// Ledger is the accounts of one node. Observe belongs to one goroutine; the rest may
// be called from several.
type Ledger struct {
	store  *store.Store
	export atomic.Pointer[cost.Export] // as of the last write

	mu        sync.Mutex
	cfg       Config
	now       time.Time // of the newest snapshot
	simulated bool
	gpus      map[string]*gpu
	accounts  map[cost.Key]*account
	fresh     hours // booked since the last write
	writing   hours // in a transaction that is not known to have succeeded
	sequence  uint64
	currency  string // of all money in accounts, and of what is booked from now on
	pruned    time.Time
	changed   map[cost.Key]bool // accounts that are not on disk as they are
	dropped   []cost.Key        // accounts that are still on disk
	undo      func()            // takes back what the last transaction has not written

	runs                   map[collector.Owner]*run
	freshWork, writingWork workHours // as fresh and writing
	daily                  daily
	began                  time.Time // the first hour that is known
	told                   *collector.Money
}

// span is an hour and the currency of money in it: what was booked before a change of
// currency stays what it was.
type span struct {
	hour     time.Time // its beginning, in UTC
	currency string
}

// span returns the one that the time is in.
func (l *Ledger) span(at time.Time) span { return span{at.UTC().Truncate(time.Hour), l.currency} }

// hours holds what was booked in each hour.
type hours map[span]map[cost.Key]*cost.Amounts

// account is what was booked under one key since the ledger began.
type account struct {
	cost.Amounts
	at      time.Time    // of the last change
	written cost.Amounts // as it is on disk

	// A series that appears is shown with what it held before, for long enough to be
	// scraped: Prometheus counts growth from the first sample that it sees.
	base cost.Amounts
	from time.Time // since when it is shown; zero: as it is
}

// New takes up what an earlier ledger wrote to the store.
func New(st *store.Store, cfg Config) (*Ledger, error) {
	l := &Ledger{store: st, gpus: map[string]*gpu{}, accounts: map[cost.Key]*account{}, fresh: hours{}, changed: map[cost.Key]bool{},
		runs: map[collector.Owner]*run{}, freshWork: workHours{}, daily: daily{}}
	l.export.Store(&cost.Export{})
	if err := l.restore(); err != nil {
		return nil, err
	}
	l.Configure(cfg)
	if err := l.recallMonth(); err != nil {
		return nil, err
	}
	l.publish()
	return l, nil
}

// Configure replaces the configuration. Money in another currency begins at zero:
// two currencies do not add up.
func (l *Ledger) Configure(cfg Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cfg.Retention <= 0 {
		cfg.Retention = DefaultRetention
	}
	l.cfg = cfg
	if c := cfg.Prices.Currency(); c != l.currency {
		l.exchange(c)
	}
}

// exchange begins all counters of money anew in another currency.
func (l *Ledger) exchange(currency string) {
	l.currency = currency
	for k, a := range l.accounts {
		a.List, a.Contracted, a.Effective, a.Electric = 0, 0, 0, 0
		a.Unpriced = a.Time // in this currency
		l.changed[k] = true
	}
	for _, g := range l.gpus {
		g.Carry.money()
	}
	for _, r := range l.runs {
		r.OpenCost, r.Work.LostCost, r.hour = 0, 0, nil
	}
}

// Observe books the time since the snapshot before.
func (l *Ledger) Observe(s *collector.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.simulated = s.Time, s.Simulated
	if s.Step != 0 {
		for _, g := range l.gpus {
			g.shift(s.Step)
		}
		for _, r := range l.runs {
			r.shift(s.Step)
		}
	}
	seen := newEvidence(s)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.UUID == "" {
			continue
		}
		if st := l.gpus[g.UUID]; st == nil {
			l.gpus[g.UUID] = newGPU(g, s.Time)
		} else {
			l.observe(s, g, st, seen)
		}
	}
	l.observeWork(s)
	if age := l.now.Sub(l.toldAt()); age >= toldEvery || age < 0 {
		l.tell()
	}
}

// observe books one GPU's time.
func (l *Ledger) observe(s *collector.Snapshot, g *collector.GPU, st *gpu, seen *evidence) {
	st.Index, st.Model = g.Index, g.Model
	elapsed := s.Time.Sub(st.Until)
	switch {
	case elapsed <= 0:
		st.Until = s.Time // an earlier agent's clock ran ahead of this one's
		return
	case elapsed > l.cfg.Retention:
		*st = *newGPU(g, s.Time) // it was away for so long that nobody was asked to pay for it
		return
	}
	known := elapsed <= maxGap*seen.interval && s.Step == 0
	energy := st.spend(g, s.Time, known)
	if known {
		st.learn(g, seen, elapsed)
	}
	parts := unseen
	if known {
		parts = seen.parts(g, st)
	}
	l.book(st, g.UUID, s.Time, parts, energy)
	st.Until = s.Time
}

// book books the time from where the GPU's account ends, in pieces in which nothing
// changes, and with it the energy.
func (l *Ledger) book(st *gpu, uuid string, until time.Time, parts []part, energy int64) {
	var pieces []time.Time
	var lengths []uint64
	for at := st.Until; at.Before(until); {
		end := at.Truncate(maxPiece).Add(maxPiece)
		if end.After(until) {
			end = until
		}
		pieces, lengths = append(pieces, at), append(lengths, uint64(end.Sub(at)))
		at = end
	}
	if len(pieces) == 0 {
		return
	}
	for i, e := range cost.Split(energy, lengths) {
		l.bookPiece(st, uuid, pieces[i], int64(lengths[i]), parts, e)
	}
}

func (l *Ledger) bookPiece(st *gpu, uuid string, at time.Time, elapsed int64, parts []part, energy int64) {
	paid := st.meter(l.cfg.Prices, at, elapsed, energy)
	times := divide(elapsed, parts)
	weights := make([]uint64, len(times))
	for i, t := range times {
		weights[i] = uint64(t.ns)
	}
	for i, a := range cost.SplitAmounts(paid, weights) {
		if a != (cost.Amounts{}) {
			l.add(at, l.key(st, uuid, at, times[i], a.Time), a)
		}
	}
}

// key returns the account for one part of a GPU's time, or, for an owner too many,
// that of the others.
func (l *Ledger) key(st *gpu, uuid string, at time.Time, t timed, ns int64) cost.Key {
	k := cost.Key{UUID: uuid, Owner: t.owner, State: t.state}
	if t.owner == (collector.Owner{}) {
		return k
	}
	if hour := at.Truncate(time.Hour); !hour.Equal(st.hour) {
		st.hour, st.owners = hour, map[collector.Owner]bool{}
	}
	if !st.owners[t.owner] {
		_, known := l.accounts[k]
		if len(st.owners) >= maxOwners || !known && len(l.accounts) >= maxAccounts {
			folded.Add(time.Duration(ns).Seconds())
			k.Owner = Other
			return k
		}
		st.owners[t.owner] = true
	}
	return k
}

func (l *Ledger) add(at time.Time, k cost.Key, a cost.Amounts) {
	l.fresh.add(l.span(at), k, a)
	l.spend(at, k.Owner, l.currency, a.Effective)
	l.hold(at, k, a)
	total := l.accounts[k]
	if total == nil {
		total = &account{}
		l.accounts[k] = total
	}
	total.Amounts, total.at = total.Plus(a), l.now
	l.changed[k] = true
}

func (h hours) add(at span, k cost.Key, a cost.Amounts) {
	in := h[at]
	if in == nil {
		in = map[cost.Key]*cost.Amounts{}
		h[at] = in
	}
	if have := in[k]; have != nil {
		*have = have.Plus(a)
		return
	}
	in[k] = &a
}

// merge adds what other holds.
func (h hours) merge(other hours) {
	for at, in := range other {
		for k, a := range in {
			h.add(at, k, *a)
		}
	}
}

// prune drops what is older than the retention: the accounts of owners that have had
// nothing since. All of an owner's go at once, so that sums over them do not fall
// while he is there.
func (l *Ledger) prune() {
	limit := l.now.Add(-l.cfg.Retention)
	newest := map[collector.Owner]time.Time{}
	for k, a := range l.accounts {
		if a.at.After(newest[k.Owner]) {
			newest[k.Owner] = a.at
		}
	}
	for k := range l.accounts {
		if newest[k.Owner].Before(limit) {
			delete(l.accounts, k)
			delete(l.changed, k)
			l.dropped = append(l.dropped, k)
		}
	}
	for uuid, g := range l.gpus {
		if g.Until.Before(limit) {
			delete(l.gpus, uuid)
		}
	}
	l.pruneRuns()
	l.pruneDays()
}

// Renew tells that the GPUs' counters have begun anew, as those of another simulation of
// the same node have, and returns up to when time is booked; zero if none is.
func (l *Ledger) Renew() (booked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gpus {
		g.Counter, g.Guessed = nil, 0
		if g.Until.After(booked) {
			booked = g.Until
		}
	}
	return booked
}

// index returns the GPUs by their index.
func (l *Ledger) index() []string {
	uuids := slices.Collect(maps.Keys(l.gpus))
	slices.SortFunc(uuids, func(a, b string) int { return compareGPUs(l.gpus[a].Index, l.gpus[b].Index, a, b) })
	return uuids
}
