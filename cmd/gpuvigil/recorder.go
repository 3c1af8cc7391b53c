package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// Where the engine's state is, in the store's bucket of that name, and beside it
// the memory of each detector and what the next sampler should know.
const (
	engineKey    = "state"
	memoryPrefix = "memory/" // before a rule
	knownKey     = "known"
)

// findings is what the engine knows, as detect.Engine.SaveParts returns it.
type findings struct {
	state    []byte
	memories map[rules.ID]json.RawMessage
}

func (f *findings) write(tx *store.Tx) error {
	errs := []error{tx.Put(store.Engine, engineKey, f.state)}
	for id, memory := range f.memories {
		errs = append(errs, tx.Put(store.Engine, memoryPrefix+string(id), memory))
	}
	return errors.Join(errs...)
}

// stored returns what record wrote last, nil for what was never written. What is known
// of the GPUs is set aside if it cannot be read.
func stored(st *store.Store) (f findings, known *collector.Known, err error) {
	var text []byte
	f.memories = map[rules.ID]json.RawMessage{}
	err = st.View(func(tx *store.Tx) error {
		f.state, text = tx.Get(store.Engine, engineKey), tx.Get(store.Engine, knownKey)
		tx.Range(store.Engine, memoryPrefix, func(k string, v []byte) bool {
			id, ok := strings.CutPrefix(k, memoryPrefix)
			if ok {
				f.memories[rules.ID(id)] = bytes.Clone(v)
			}
			return ok
		})
		return nil
	})
	if err != nil || text == nil {
		return f, nil, err
	}
	if err := json.Unmarshal(text, &known); err != nil {
		st.SetAside(store.Engine, knownKey, err)
		return f, nil, nil
	}
	return f, known, nil
}

// forget empties the state file of a demo but for its ledger and for the digests that were
// sent: what was found is made up anew, and what was paid is a counter, which does not go back.
func forget(st *store.Store) error {
	return st.Update(func(tx *store.Tx) error {
		var keys []string
		tx.Range(store.Engine, "", func(k string, _ []byte) bool {
			keys = append(keys, k)
			return true
		})
		var errs []error
		for _, k := range keys {
			errs = append(errs, tx.Delete(store.Engine, k))
		}
		return errors.Join(append(errs, alerting.ForgetIncidents(tx))...)
	})
}

// recorder writes the agent's state in a goroutine of its own: a disk that hangs
// must not stop sampling, detecting and telling. The newest state wins.
type recorder struct {
	store  *store.Store
	outbox *alerting.Outbox
	ledger *ledger.Ledger
	log    *slog.Logger
	wake   chan struct{} // has room for one

	mu    sync.Mutex
	state *findings // not written yet; nil: nothing new
	known []byte    // the same

	failing bool // the last write failed
}

// record hands over what is to be written; nil leaves what was written before. It
// never waits.
func (r *recorder) record(state *findings, known []byte) {
	r.mu.Lock()
	if state != nil {
		r.state = state
	}
	if known != nil {
		r.known = known
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look
	}
}

// run writes until ctx ends, and then once more.
func (r *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-r.wake:
			r.write()
		case <-ctx.Done():
		}
	}
	r.write()
}

// write puts findings, the messages that they cause and what was booked into one
// transaction, so that none is without the others after a crash.
func (r *recorder) write() {
	r.mu.Lock()
	state, known := r.state, r.known
	r.state, r.known = nil, nil
	r.mu.Unlock()
	err := r.store.Update(func(tx *store.Tx) error {
		var errs []error
		if state != nil {
			errs = append(errs, state.write(tx))
		}
		if known != nil {
			errs = append(errs, tx.Put(store.Engine, knownKey, known))
		}
		return errors.Join(append(errs, r.outbox.WriteTx(tx), r.ledger.WriteTx(tx))...)
	})
	switch {
	case err != nil && !r.failing:
		r.log.Error("The state cannot be written: findings, messages and costs are kept in memory, and a crash now would lose them; costs are exported once they are written.", "err", err)
	case err == nil && r.failing:
		r.log.Info("The state is written again.")
	}
	if r.failing = err != nil; r.failing {
		r.keep(state, known)
	}
}

// keep puts back what could not be written, unless something newer has come.
func (r *recorder) keep(state *findings, known []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == nil {
		r.state = state
	}
	if r.known == nil {
		r.known = known
	}
}
