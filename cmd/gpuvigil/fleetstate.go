package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/detect"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/lease"
	"gpuvigil/internal/store"
)

// What the cluster role keeps in its state directory: beside an agent's of the same node
// these are files of their own.
const (
	fleetStateFile = "fleet.state"
	fleetSocket    = "fleet.sock"
	fleetPrefix    = "fleet/" // of its parts in the store's bucket of the engine
)

// fleetRecorder writes the state of the cluster role in a goroutine of its own: a disk
// that hangs must not stop judging and telling.
type fleetRecorder struct {
	store  *store.Store
	outbox *alerting.Outbox
	role   *fleet.Fleet
	log    *slog.Logger
	wake   chan struct{} // has room for one
	found  atomic.Pointer[found]
	charts atomic.Pointer[fleetCharts] // nil: nothing is drawn

	elector *lease.Elector // nil: there are no replicas

	senders atomic.Pointer[[]*alertmanager.Sender] // those that run

	failing bool // the last write failed
}

// openFleetState opens the state file and what waits in it to be said.
func openFleetState(dir, cluster string, log *slog.Logger) (*fleetRecorder, error) {
	if err := makeStateDir(dir); err != nil {
		return nil, err
	}
	st, err := store.Open(filepath.Join(dir, fleetStateFile), 3*time.Second, log)
	if err != nil {
		return nil, err
	}
	outbox, err := alerting.NewOutbox(st, alerting.OutboxConfig{GateConfig: alerting.GateConfig{Node: cluster}, Log: log})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &fleetRecorder{store: st, outbox: outbox, log: log, wake: make(chan struct{}, 1)}, nil
}

// tell takes what people are to hear of, before the state that it follows from is
// written: both are in one transaction.
func (r *fleetRecorder) tell(incidents []detect.Incident) {
	r.outbox.Take(incidents)
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look
	}
}

// restore takes up what an earlier role wrote last. A part that cannot be read is set
// aside and begins anew; only what a newer release wrote stops the start.
func (r *fleetRecorder) restore() error {
	var names []string
	err := r.store.View(func(tx *store.Tx) error {
		tx.Range(store.Engine, fleetPrefix, func(k string, _ []byte) bool {
			if !bytes.HasPrefix([]byte(k), []byte(fleetPrefix)) {
				return false
			}
			names = append(names, k)
			return true
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the state from %s: %w", r.store.Path(), err)
	}
	for _, name := range names {
		var data []byte
		err := r.store.View(func(tx *store.Tx) error {
			data = tx.Get(store.Engine, name)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the state from %s: %w", r.store.Path(), err)
		}
		if data == nil {
			continue
		}
		switch err := r.role.Restore(name[len(fleetPrefix):], data); {
		case errors.Is(err, detect.ErrNewer):
			return fmt.Errorf("restore what is known from %s: %w", r.store.Path(), err)
		case err != nil:
			r.store.SetAside(store.Engine, name, err)
		}
	}
	return nil
}

// run writes when there is something to tell, and every half minute, until ctx ends, and
// then once more.
func (r *fleetRecorder) run(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-r.wake:
		case <-tick.C:
		case <-ctx.Done():
		}
		r.write()
	}
}

func (r *fleetRecorder) write() {
	parts, undo := r.role.Save(time.Now())
	err := r.store.Update(func(tx *store.Tx) error {
		var errs []error
		for name, data := range parts {
			if data == nil {
				errs = append(errs, tx.Delete(store.Engine, fleetPrefix+name))
			} else {
				errs = append(errs, tx.Put(store.Engine, fleetPrefix+name, data))
			}
		}
		return errors.Join(append(errs, r.outbox.WriteTx(tx))...)
	})
	if err != nil {
		undo()
	}
	switch {
	case err != nil && !r.failing:
		r.log.Error("The state cannot be written: incidents and messages are kept in memory, and a crash now would lose them.", "err", err)
	case err == nil && r.failing:
		r.log.Info("The state is written again.")
	}
	r.failing = err != nil
}
