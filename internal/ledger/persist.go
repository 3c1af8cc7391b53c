package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/store"
)

// The keys in the store's bucket: one value for the GPUs, one for each account, one
// for each hour and currency.
const (
	stateKey      = "state"
	accountPrefix = "account/"
	hourPrefix    = "hour/"
	workPrefix    = "work/" // before an hour and currency, as hourPrefix
	runsKey       = "runs"

	hourLayout = "2006-01-02T15Z"

	// schema is raised when an older release could no longer read what this one
	// writes.
	schema = 1
)

// state is what is kept beside accounts and hours.
type state struct {
	Version  int             `json:"version"`
	Sequence uint64          `json:"sequence"` // of the transaction that wrote it
	Currency string          `json:"currency"`
	GPUs     map[string]*gpu `json:"gpus"`
}

// entry is what is kept of one key, in an account or in an hour. Currency is the
// hour's.
type entry struct {
	UUID   string              `json:"u"`
	Model  string              `json:"m,omitempty"` // in an hour only
	GPU    int                 `json:"g,omitempty"` // in an hour only
	Owner  collector.Owner     `json:"o,omitzero"`
	State  cost.State          `json:"s"`
	Amount [cost.Columns]int64 `json:"a"`
	At     *time.Time          `json:"t,omitempty"` // in an account only: of the last change
}

func (e *entry) key() cost.Key { return cost.Key{UUID: e.UUID, Owner: e.Owner, State: e.State} }

// check refuses what cannot have been booked.
func (e *entry) check() error {
	for _, v := range e.Amount {
		if v < 0 {
			return fmt.Errorf("an amount of %v is negative", e.key())
		}
	}
	return nil
}

var errNewer = errors.New("run the newer release again to keep it, or move the file away to begin anew")

// decodeState reads the value of stateKey.
func decodeState(data []byte) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, err
	}
	if s.Version < 1 {
		return nil, errors.New("it has no version")
	}
	if s.Version > schema {
		return nil, fmt.Errorf("it has version %d, this release knows 1 to %d: %w", s.Version, schema, errNewer)
	}
	for uuid, g := range s.GPUs {
		if g == nil {
			return nil, fmt.Errorf("GPU %.60q is empty", uuid)
		}
		rests := append(slices.Clone(g.Carry.Rates[:]), g.Carry.Electric, g.Carry.Carbon)
		if slices.ContainsFunc(rests, func(v int64) bool { return v < 0 || v >= cost.PerHour }) {
			return nil, fmt.Errorf("what is left over of GPU %.60q is not less than a unit", uuid)
		}
	}
	return s, nil
}

// decodeEntries reads an hour.
func decodeEntries(data []byte) ([]entry, error) {
	var list []entry
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for i := range list {
		if err := list[i].check(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// decodeAccount reads an account.
func decodeAccount(data []byte) (*entry, error) {
	e := &entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, err
	}
	if e.At == nil {
		return nil, errors.New("it has no time")
	}
	return e, e.check()
}

// parseHour reads the key of an hour, of whichever prefix.
func parseHour(key string) (hour time.Time, currency string, err error) {
	_, rest, _ := strings.Cut(key, "/")
	text, currency, _ := strings.Cut(rest, "/")
	hour, err = time.Parse(hourLayout, text)
	return hour, currency, err
}

func hourKey(at span) string {
	return hourPrefix + at.hour.UTC().Format(hourLayout) + "/" + at.currency
}

// accountKey is the account's place in the store.
func accountKey(k cost.Key) (string, error) {
	text, err := json.Marshal([]string{k.UUID, k.State.String(), k.Owner.Kind, k.Owner.ID, k.Owner.Team})
	return accountPrefix + string(text), err
}

// restore reads accounts and GPUs. What cannot be read is set aside and begins at zero,
// which the log says; the rest is kept. What a newer release wrote is an error.
func (l *Ledger) restore() error {
	damaged := map[string]error{}
	err := l.store.View(func(tx *store.Tx) error {
		if data := tx.Get(store.Ledger, stateKey); data != nil {
			s, err := decodeState(data)
			switch {
			case errors.Is(err, errNewer):
				return fmt.Errorf("restore the ledger from %s: %w", l.store.Path(), err)
			case err != nil:
				damaged[stateKey] = err
			default:
				l.sequence, l.currency = s.Sequence, s.Currency
				maps.Copy(l.gpus, s.GPUs)
			}
		}
		if l.currency == "" {
			l.currency = lastCurrency(tx)
		}
		var err error
		if l.runs, err = restoreRuns(tx); err != nil {
			damaged[runsKey] = err
		}
		tx.Range(store.Ledger, accountPrefix, func(k string, v []byte) bool {
			if !strings.HasPrefix(k, accountPrefix) {
				return false
			}
			e, err := decodeAccount(v)
			if err != nil {
				damaged[k] = err
				return true
			}
			l.accounts[e.key()] = &account{Amounts: cost.FromArray(e.Amount), at: *e.At, written: cost.FromArray(e.Amount)}
			if e.At.After(l.now) {
				l.now = *e.At
			}
			return true
		})
		return nil
	})
	for key, err := range damaged {
		l.store.SetAside(store.Ledger, key, err)
	}
	return err
}

// lastCurrency returns that of the last hour: without it, a state that is lost would
// have all accounts begin anew in another currency.
func lastCurrency(tx *store.Tx) (last string) {
	tx.Range(store.Ledger, hourPrefix, func(k string, _ []byte) bool {
		_, currency, err := parseHour(k)
		if strings.HasPrefix(k, hourPrefix) && err == nil {
			last = currency
		}
		return strings.HasPrefix(k, hourPrefix)
	})
	return last
}

// WriteTx writes what has been booked into the transaction. What is exported follows
// once the transaction is on disk; if it fails, the next call writes all of it.
func (l *Ledger) WriteTx(tx *store.Tx) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gpus) == 0 {
		return nil // it has never seen a GPU
	}
	if l.writing != nil { // the transaction before has failed
		l.fresh.merge(l.writing)
		l.freshWork.merge(l.writingWork)
		if l.undo != nil {
			l.undo()
		}
	}
	l.undo = nil
	l.writing, l.fresh = l.fresh, hours{}
	l.writingWork, l.freshWork = l.freshWork, workHours{}
	l.sequence++
	if hour := l.now.Truncate(time.Hour); !hour.Equal(l.pruned) {
		l.prune()
		if err := errors.Join(l.pruneHours(tx, hourPrefix), l.pruneHours(tx, workPrefix)); err != nil {
			return err
		}
	}
	changed, dropped := l.changed, l.dropped
	actual := map[cost.Key]cost.Amounts{}
	for k := range changed {
		actual[k] = l.accounts[k].Amounts
	}
	did := map[collector.Owner]cost.Work{}
	for o, r := range l.runs {
		did[o] = r.Work
	}
	errs := []error{l.writeAccounts(tx), l.writeState(tx), l.writeRuns(tx)}
	for at, in := range l.writingWork {
		errs = append(errs, l.writeWork(tx, at, in))
	}
	for at, in := range l.writing {
		errs = append(errs, l.writeHour(tx, at, in))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	l.changed, l.dropped = map[cost.Key]bool{}, nil
	export, now := l.snapshot(), l.now
	l.undo = func() {
		maps.Copy(l.changed, changed)
		l.dropped = append(dropped, l.dropped...)
	}
	tx.OnCommit(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writing, l.writingWork, l.undo, l.pruned = nil, nil, nil, now.Truncate(time.Hour)
		for o, w := range did {
			if r := l.runs[o]; r != nil {
				r.written = w
			}
		}
		for k, a := range actual {
			if now := l.accounts[k]; now != nil {
				now.written = a
			}
		}
		l.export.Store(export)
		accounts.Set(float64(len(l.accounts)))
	})
	return nil
}

func (l *Ledger) writeState(tx *store.Tx) error {
	data, err := json.Marshal(state{Version: schema, Sequence: l.sequence, Currency: l.currency, GPUs: l.gpus})
	if err != nil {
		return err
	}
	return tx.Put(store.Ledger, stateKey, data)
}

func (l *Ledger) writeAccounts(tx *store.Tx) error {
	for _, k := range l.dropped {
		key, err := accountKey(k)
		if err == nil && l.accounts[k] == nil {
			err = tx.Delete(store.Ledger, key)
		}
		if err != nil {
			return err
		}
	}
	for k := range l.changed {
		a := l.accounts[k]
		key, err := accountKey(k)
		if err != nil {
			return err
		}
		data, err := json.Marshal(entry{UUID: k.UUID, Owner: k.Owner, State: k.State, Amount: a.Array(), At: &a.at})
		if err != nil {
			return err
		}
		if err := tx.Put(store.Ledger, key, data); err != nil {
			return err
		}
	}
	return nil
}

// readHour returns what is on disk of an hour. What cannot be read is set aside, and the
// hour begins anew.
func readHour[T any](tx *store.Tx, key string, decode func([]byte) ([]T, error)) ([]T, error) {
	data := tx.Get(store.Ledger, key)
	if data == nil {
		return nil, nil
	}
	list, err := decode(data)
	if err == nil {
		return list, nil
	}
	return nil, tx.SetAside(store.Ledger, key, err)
}

// writeHour adds to what is on disk of the hour.
func (l *Ledger) writeHour(tx *store.Tx, at span, in map[cost.Key]*cost.Amounts) error {
	key := hourKey(at)
	list, err := readHour(tx, key, decodeEntries)
	if err != nil {
		return err
	}
	place := map[cost.Key]int{}
	for i := range list {
		place[list[i].key()] = i
	}
	for k, a := range in {
		i, known := place[k]
		if !known {
			i = len(list)
			e := entry{UUID: k.UUID, Owner: k.Owner, State: k.State}
			if g := l.gpus[k.UUID]; g != nil {
				e.GPU, e.Model = g.Index, g.Model
			}
			list = append(list, e)
		}
		list[i].Amount = cost.FromArray(list[i].Amount).Plus(*a).Array()
	}
	slices.SortFunc(list, func(a, b entry) int { return compareKeys(a.GPU, b.GPU, a.key(), b.key()) })
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return tx.Put(store.Ledger, key, data)
}

// pruneHours deletes the hours that are older than the retention.
func (l *Ledger) pruneHours(tx *store.Tx, prefix string) error {
	limit := l.now.Add(-l.cfg.Retention)
	var old []string
	tx.Range(store.Ledger, prefix, func(k string, _ []byte) bool {
		hour, _, err := parseHour(k)
		if !strings.HasPrefix(k, prefix) || err == nil && hour.Add(time.Hour).After(limit) {
			return false
		}
		old = append(old, k) // also what is no hour: nobody could read it
		return true
	})
	for _, k := range old {
		if err := tx.Delete(store.Ledger, k); err != nil {
			return err
		}
	}
	return nil
}
