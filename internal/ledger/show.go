package ledger

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

const (
	shownFor = time.Hour   // an account that does not change is exported for so long
	baseFor  = time.Minute // and one that appears with what it held before: two scrapes, at least
)

// Export returns what the scrape page shows: accounts as they are on disk, so that
// they never go back, and the prices that are in force.
func (l *Ledger) Export() *cost.Export { return l.export.Load() }

// publish exports what was restored.
func (l *Ledger) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.export.Store(l.snapshot())
	accounts.Set(float64(len(l.accounts)))
}

// snapshot returns the export as of now.
func (l *Ledger) snapshot() *cost.Export {
	e := &cost.Export{Prices: l.prices(), Budgets: l.cfg.Budgets}
	before := l.export.Load().Accounts
	shown := map[cost.Key]bool{}
	for _, a := range before {
		shown[a.Key] = true
	}
	owners := map[collector.Owner]bool{}
	for k, a := range l.accounts {
		if l.now.Sub(a.at) > shownFor {
			continue
		}
		if !shown[k] && before != nil {
			a.base, a.from = a.written, l.now
		}
		e.Accounts = append(e.Accounts, l.account(k, a.shown(l.now)))
		owners[k.Owner] = true
	}
	slices.SortFunc(e.Accounts, func(a, b cost.Account) int { return compareKeys(a.GPU, b.GPU, a.Key, b.Key) })

	type ownerModel struct {
		owner collector.Owner
		model string
	}
	sums := map[ownerModel]cost.Amounts{}
	for k, a := range l.accounts {
		if owners[k.Owner] {
			om := ownerModel{k.Owner, l.model(k.UUID)}
			sums[om] = sums[om].Plus(a.shown(l.now))
		}
	}
	for om, sum := range sums {
		e.Owners = append(e.Owners, cost.OwnerEnergy{Owner: om.owner, Model: om.model, Currency: l.currency, Amounts: sum})
	}
	slices.SortFunc(e.Owners, func(a, b cost.OwnerEnergy) int {
		return cmp.Or(compareOwners(a.Owner, b.Owner), strings.Compare(a.Model, b.Model))
	})
	e.Work, e.Months = l.ownersWork(), l.months()
	return e
}

// ownersWork is what is exported of what owners did.
func (l *Ledger) ownersWork() []cost.OwnerWork {
	last := l.export.Load()
	before := map[collector.Owner]bool{}
	for _, w := range last.Work {
		before[w.Owner] = true
	}
	var out []cost.OwnerWork
	for o, r := range l.runs {
		if l.now.Sub(r.At) > shownFor {
			continue
		}
		if !before[o] && last.Accounts != nil {
			r.base, r.from = r.written, l.now
		}
		w := cost.OwnerWork{Owner: o, Currency: l.currency, Work: r.Work, Tells: r.Tells, Open: r.Open}
		if since := l.now.Sub(r.from); !r.from.IsZero() && since >= 0 && since < baseFor {
			w.Work = r.base
		}
		w.UnitCost, w.UnitEnergy = r.hour.units(l.now)
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b cost.OwnerWork) int { return compareOwners(a.Owner, b.Owner) })
	return out
}

// shown is what is exported of the account.
func (a *account) shown(now time.Time) cost.Amounts {
	if since := now.Sub(a.from); !a.from.IsZero() && since >= 0 && since < baseFor {
		return a.base
	}
	return a.Amounts
}

func (l *Ledger) account(k cost.Key, a cost.Amounts) cost.Account {
	out := cost.Account{Key: k, Currency: l.currency, Amounts: a, Model: l.model(k.UUID)}
	if g := l.gpus[k.UUID]; g != nil {
		out.GPU = g.Index
	}
	return out
}

func (l *Ledger) model(uuid string) string {
	if g := l.gpus[uuid]; g != nil {
		return g.Model
	}
	return ""
}

// prices returns what each GPU costs now.
func (l *Ledger) prices() []cost.Price {
	out := []cost.Price{}
	for _, uuid := range l.index() {
		g := l.gpus[uuid]
		p := cost.Price{GPU: g.Index, UUID: uuid, Model: g.Model}
		if r := l.cfg.Prices.Rates(g.Model, l.now)[price.Effective]; r != nil {
			p.Kind, p.Nano, p.Currency, p.Provider, p.Region, p.Source, p.AsOf = r.Kind.String(), r.Nano, r.Currency, r.Provider, r.Region, r.Source, r.AsOf
		}
		out = append(out, p)
	}
	return out
}

// Costs returns what was booked from since to until, in whole hours: the one that
// since is in, and all that have begun before until. What is not on disk yet is in it.
func (l *Ledger) Costs(since, until time.Time) (*cost.Answer, error) {
	since = since.UTC().Truncate(time.Hour)
	within := func(hour time.Time) bool { return !hour.Before(since) && hour.Before(until) }
	a, m := l.recall(since, within)
	err := l.store.View(func(tx *store.Tx) error {
		written, err := sequenceOf(tx)
		if err != nil {
			return err
		}
		if written < m.sequence { // the transaction that was under way is not on disk yet
			a.Rows, a.Work = append(a.Rows, m.writing...), append(a.Work, m.writingWork...)
		}
		if written <= m.sequence { // else what was fresh is on disk by now
			a.Rows, a.Work = append(a.Rows, m.fresh...), append(a.Work, m.freshWork...)
		}
		a.Rows, a.Work = readHours(tx, m.log, within, a.Rows), readWork(tx, m.log, within, a.Work)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger from %s: %w", l.store.Path(), err)
	}
	a.Rows, a.Work = joined(a.Rows), joinedWork(a.Work)
	if len(a.Rows) > 0 {
		a.Since = a.Rows[0].Hour
		if !m.began.Before(a.Since) {
			a.Since = begin(a.Rows, earlier(a.Since.Add(time.Hour), m.now))
		}
		a.Until = earlier(a.Rows[len(a.Rows)-1].Hour.Add(time.Hour), m.now)
	}
	return a, nil
}

// begin returns when in the first hour of the rows the first GPU's time began: each
// GPU's is booked without a gap, until the hour is over or until now.
func begin(rows []cost.Row, until time.Time) time.Time {
	booked := map[string]time.Duration{}
	longest := time.Duration(0)
	for _, r := range rows {
		if r.Hour.Equal(rows[0].Hour) {
			booked[r.UUID] += time.Duration(r.Time)
			longest = max(longest, booked[r.UUID])
		}
	}
	return until.Add(-min(longest, until.Sub(rows[0].Hour))).Truncate(time.Second)
}

// memory is what is booked and not on disk.
type memory struct {
	fresh, writing []cost.Row

	freshWork, writingWork []cost.WorkRow

	sequence uint64 // of the last transaction, whether or not it is on disk
	now      time.Time
	began    time.Time // the first hour of all that are known

	log *slog.Logger
}

// recall copies what is in memory, so that nobody waits for the disk.
func (l *Ledger) recall(since time.Time, within func(time.Time) bool) (*cost.Answer, memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := func(h hours) (out []cost.Row) {
		for at, in := range h {
			if !within(at.hour) {
				continue
			}
			for k, v := range in {
				acc := l.account(k, *v)
				out = append(out, cost.Row{Hour: at.hour, GPU: acc.GPU, UUID: k.UUID, Model: acc.Model, Owner: k.Owner, State: k.State, Currency: at.currency, Amounts: *v})
			}
		}
		return out
	}
	a := &cost.Answer{Node: l.cfg.Node, Simulated: l.simulated, Since: since, Until: since, Busy: BusyMeans(), Prices: l.prices(), Rows: []cost.Row{}, Budgets: l.cfg.Budgets}
	return a, memory{fresh: rows(l.fresh), writing: rows(l.writing),
		freshWork: l.freshWork.rows(within), writingWork: l.writingWork.rows(within), sequence: l.sequence, now: l.now, began: l.began, log: l.cfg.Log}
}

// sequenceOf returns which transaction was the last on disk.
func sequenceOf(tx *store.Tx) (uint64, error) {
	data := tx.Get(store.Ledger, stateKey)
	if data == nil {
		return 0, nil
	}
	s, err := decodeState(data)
	if err != nil {
		return 0, err
	}
	return s.Sequence, nil
}

// readHours appends what is on disk. An hour that cannot be read is missing from it.
func readHours(tx *store.Tx, log *slog.Logger, within func(time.Time) bool, rows []cost.Row) []cost.Row {
	tx.Range(store.Ledger, hourPrefix, func(k string, v []byte) bool {
		if !strings.HasPrefix(k, hourPrefix) {
			return false
		}
		hour, currency, bad := parseHour(k)
		if bad != nil || !within(hour) {
			return true
		}
		list, err := decodeEntries(v)
		if err != nil {
			log.Error("An hour of the ledger cannot be read: it is missing from the answer.", "key", k, "err", err)
		}
		for _, e := range list {
			rows = append(rows, cost.Row{Hour: hour, GPU: e.GPU, UUID: e.UUID, Model: e.Model, Owner: e.Owner, State: e.State,
				Currency: currency, Amounts: cost.FromArray(e.Amount)})
		}
		return true
	})
	return rows
}

// joined sorts the rows and adds up those of the same hour and key.
func joined(rows []cost.Row) []cost.Row {
	type place struct {
		hour     time.Time
		currency string
		key      cost.Key
	}
	sums := map[place]*cost.Row{}
	for _, r := range rows {
		p := place{r.Hour, r.Currency, cost.Key{UUID: r.UUID, Owner: r.Owner, State: r.State}}
		if have := sums[p]; have != nil {
			have.Amounts = have.Plus(r.Amounts)
			continue
		}
		sums[p] = &r
	}
	out := make([]cost.Row, 0, len(sums))
	for _, r := range slices.Collect(maps.Values(sums)) {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b cost.Row) int {
		return cmp.Or(a.Hour.Compare(b.Hour), strings.Compare(a.Currency, b.Currency),
			compareKeys(a.GPU, b.GPU, cost.Key{UUID: a.UUID, Owner: a.Owner, State: a.State}, cost.Key{UUID: b.UUID, Owner: b.Owner, State: b.State}))
	})
	return out
}

func compareKeys(i, j int, a, b cost.Key) int {
	return cmp.Or(compareGPUs(i, j, a.UUID, b.UUID), compareOwners(a.Owner, b.Owner), cmp.Compare(a.State, b.State))
}

func compareOwners(a, b collector.Owner) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID), strings.Compare(a.Team, b.Team))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
