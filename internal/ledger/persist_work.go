package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/store"
)

// ownedRun is what is kept of one owner's work.
type ownedRun struct {
	Owner collector.Owner `json:"o"`
	Run   *run            `json:"r"`
}

// ownedWork is what is kept of what an owner did in an hour.
type ownedWork struct {
	Owner collector.Owner `json:"o"`
	Work  cost.Work       `json:"w"`
}

func (l *Ledger) writeRuns(tx *store.Tx) error {
	list := make([]ownedRun, 0, len(l.runs))
	for o, r := range l.runs {
		list = append(list, ownedRun{o, r})
	}
	slices.SortFunc(list, func(a, b ownedRun) int { return compareOwners(a.Owner, b.Owner) })
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return tx.Put(store.Ledger, runsKey, data)
}

// restoreRuns reads the owners' work: none of it, and an error, if it cannot be read.
func restoreRuns(tx *store.Tx) (map[collector.Owner]*run, error) {
	out := map[collector.Owner]*run{}
	data := tx.Get(store.Ledger, runsKey)
	if data == nil {
		return out, nil
	}
	list, err := decodeRuns(data)
	if err != nil {
		return out, err
	}
	for _, e := range list {
		e.Run.written = e.Run.Work
		out[e.Owner] = e.Run
	}
	return out, nil
}

func decodeRuns(data []byte) ([]ownedRun, error) {
	var list []ownedRun
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for _, e := range list {
		if err := e.Run.check(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func workKey(at span) string {
	return workPrefix + at.hour.UTC().Format(hourLayout) + "/" + at.currency
}

// writeWork adds to what is on disk of the hour.
func (l *Ledger) writeWork(tx *store.Tx, at span, in map[collector.Owner]cost.Work) error {
	key := workKey(at)
	list, err := readHour(tx, key, decodeWork)
	if err != nil {
		return err
	}
	sums := map[collector.Owner]cost.Work{}
	for _, e := range list {
		sums[e.Owner] = sums[e.Owner].Plus(e.Work)
	}
	for o, w := range in {
		sums[o] = sums[o].Plus(w)
	}
	list = list[:0]
	for o, w := range sums {
		list = append(list, ownedWork{o, w})
	}
	slices.SortFunc(list, func(a, b ownedWork) int { return compareOwners(a.Owner, b.Owner) })
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return tx.Put(store.Ledger, key, data)
}

func decodeWork(data []byte) ([]ownedWork, error) {
	var list []ownedWork
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Work.Negative() {
			return nil, fmt.Errorf("the work of %v is less than nothing: %+v", e.Owner, e.Work)
		}
	}
	return list, nil
}

// readWork appends what is on disk. An hour that cannot be read is missing from it.
func readWork(tx *store.Tx, log *slog.Logger, within func(time.Time) bool, rows []cost.WorkRow) []cost.WorkRow {
	tx.Range(store.Ledger, workPrefix, func(k string, v []byte) bool {
		if !strings.HasPrefix(k, workPrefix) {
			return false
		}
		hour, currency, bad := parseHour(k)
		if bad != nil || !within(hour) {
			return true
		}
		list, err := decodeWork(v)
		if err != nil {
			log.Error("An hour of the ledger cannot be read: it is missing from the answer.", "key", k, "err", err)
		}
		for _, e := range list {
			rows = append(rows, cost.WorkRow{Hour: hour, Owner: e.Owner, Currency: currency, Work: e.Work})
		}
		return true
	})
	return rows
}

// rows returns what was done in the hours.
func (h workHours) rows(within func(time.Time) bool) (out []cost.WorkRow) {
	for at, in := range h {
		if !within(at.hour) {
			continue
		}
		for o, w := range in {
			out = append(out, cost.WorkRow{Hour: at.hour, Owner: o, Currency: at.currency, Work: w})
		}
	}
	return out
}

// joinedWork sorts the rows and adds up those of the same hour and owner.
func joinedWork(rows []cost.WorkRow) []cost.WorkRow {
	type place struct {
		hour     time.Time
		owner    collector.Owner
		currency string
	}
	sums := map[place]cost.Work{}
	for _, r := range rows {
		p := place{r.Hour, r.Owner, r.Currency}
		sums[p] = sums[p].Plus(r.Work)
	}
	out := make([]cost.WorkRow, 0, len(sums))
	for p, w := range sums {
		out = append(out, cost.WorkRow{Hour: p.hour, Owner: p.owner, Currency: p.currency, Work: w})
	}
	slices.SortFunc(out, func(a, b cost.WorkRow) int {
		return cmp.Or(a.Hour.Compare(b.Hour), strings.Compare(a.Currency, b.Currency), compareOwners(a.Owner, b.Owner))
	})
	return out
}

// recallMonth reads what teams have spent in the month of what was booked last. An hour
// that cannot be read is missing from it.
func (l *Ledger) recallMonth() error {
	month := monthOf(l.now)
	err := l.store.View(func(tx *store.Tx) error {
		tx.Range(store.Ledger, hourPrefix, func(k string, v []byte) bool {
			if !strings.HasPrefix(k, hourPrefix) {
				return false
			}
			hour, currency, bad := parseHour(k)
			if bad != nil {
				return true
			}
			if l.began.IsZero() || hour.Before(l.began) {
				l.began = hour
			}
			if hour.Before(month) {
				return true
			}
			list, err := decodeEntries(v)
			if err != nil {
				l.cfg.Log.Error("An hour of the ledger cannot be read: what teams spent in it is missing from their month.", "key", k, "err", err)
			}
			for _, e := range list {
				l.spend(hour, e.Owner, currency, cost.FromArray(e.Amount).Effective)
			}
			return true
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what teams have spent this month from %s: %w", l.store.Path(), err)
	}
	return nil
}
