package alerting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gpuvigil/internal/store"
)

const (
	diskGrace    = 2 * time.Second  // for the disk to take a message before it is sent from memory, and at the end of Run
	diskPatience = 10 * time.Second // until a disk that does not answer is complained of
	saveInterval = time.Second      // between looks for what is not on disk
	sweepEvery   = time.Hour
)

// write is a transaction of the outbox's own.
type write struct {
	done chan struct{} // closed when the disk has answered
	err  error         // its answer
}

// write puts what is not on disk into the transaction.
func (o *Outbox) write(tx *store.Tx) error {
	type change struct {
		r     *record
		gen   uint64
		gone  bool
		value []byte
	}
	var changes []change
	o.mu.Lock()
	first, unnoted := o.first, o.unnoted
	extras := o.extrasDue()
	for key, r := range o.dirty {
		value, err := json.Marshal(r)
		if err != nil {
			// Not even a full disk's worth of patience helps: it is said from memory.
			o.log.Error("an unsent message cannot be stored, a restart would lose it", "key", key, "err", err)
			delete(o.dirty, key)
			continue
		}
		changes = append(changes, change{r, r.gen, r.gone, value})
	}
	o.mu.Unlock()
	if !unnoted && len(changes) == 0 && len(extras) == 0 {
		return nil
	}
	for _, e := range extras {
		if err := tx.Put(store.Meta, e.key, e.value); err != nil {
			return err
		}
	}
	if unnoted {
		value, err := json.Marshal(first)
		if err := errors.Join(err, tx.Put(store.Meta, firstStart, value)); err != nil {
			return err
		}
	}
	for _, c := range changes {
		var err error
		if c.gone {
			err = tx.Delete(store.Outbox, c.r.key)
		} else {
			err = tx.Put(store.Outbox, c.r.key, c.value)
		}
		if err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.unnoted = o.unnoted && !unnoted
		for _, e := range extras {
			e.stored = max(e.stored, e.gen)
		}
		for _, c := range changes {
			c.r.stored = max(c.r.stored, c.gen)
			if c.r.stored == c.r.gen && o.dirty[c.r.key] == c.r {
				delete(o.dirty, c.r.key)
			}
		}
		o.wakeAll()
	})
	return nil
}

// extra is a value in the state file beside the records.
type extra struct {
	gen, stored uint64
	text        func() ([]byte, error) // its form; called with o.mu held
}

func (e *extra) due() bool { return e.stored < e.gen }

// saidExtra is an extra's form at one instant.
type saidExtra struct {
	*extra
	key   string
	gen   uint64
	value []byte
}

// extrasDue returns those extras that are not on disk. The caller holds o.mu.
func (o *Outbox) extrasDue() []saidExtra {
	var out []saidExtra
	for key, e := range o.extras {
		if !e.due() {
			continue
		}
		value, err := e.text()
		if err != nil {
			o.log.Error("a part of the state cannot be stored, a restart would lose it", "part", key, "err", err)
			e.stored = e.gen
			continue
		}
		out = append(out, saidExtra{e, key, e.gen, value})
	}
	return out
}

// clean reports whether all is on disk. The caller holds o.mu.
func (o *Outbox) clean() bool {
	for _, e := range o.extras {
		if e.due() {
			return false
		}
	}
	return len(o.dirty) == 0 && !o.unnoted
}

// flush writes what is not on disk and waits for the disk's answer until ctx ends.
// The write goes on when nobody waits any more, and no other is begun before the
// disk has answered.
func (o *Outbox) flush(ctx context.Context) error {
	for {
		o.mu.Lock()
		w := o.writing
		if w == nil {
			if o.clean() {
				o.mu.Unlock()
				return nil
			}
			w = &write{done: make(chan struct{})}
			o.writing = w
			go o.transact(w)
		}
		o.mu.Unlock()
		select {
		case <-w.done:
			if w.err != nil {
				return w.err
			}
		case <-ctx.Done():
			return fmt.Errorf("write state file %s: the disk has not answered yet: see the kernel log for what ails it", o.store.Path())
		}
	}
}

// transact makes one write. It ends when the disk answers, which closing the store
// waits for too.
func (o *Outbox) transact(w *write) {
	w.err = o.store.Update(o.write)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = nil
	close(w.done)
}

// keep writes what the agent's own transactions did not: what was delivered, and
// what a full disk did not take. It also forgets what is old. It writes once more
// when ctx has ended.
func (o *Outbox) keep(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	pause, failing := saveInterval, false
	for {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-o.save:
			if failing {
				// The disk is not asked more often because there is more to write.
				select {
				case <-ctx.Done():
				case <-t.C:
				}
			}
		case <-sweep.C:
			o.sweep(time.Now())
		case <-t.C:
		}
		t.Stop()
		o.endDrills(time.Now())
		last := ctx.Err() != nil
		err := o.flushWithin(ctx, last)
		switch {
		case err != nil && ctx.Err() != nil && !last:
			continue // interrupted by the end, which writes again
		case err != nil && !failing:
			o.log.Error("what was sent is not stored: after a restart it may be sent again", "err", err)
		case err == nil && failing:
			o.log.Info("the state is stored again")
		}
		if last {
			return
		}
		pause = saveInterval
		if failing = err != nil; failing {
			pause = o.cfg.MaxBackoff / 4
		}
	}
}

// flushWithin flushes with the patience that is due.
func (o *Outbox) flushWithin(ctx context.Context, last bool) error {
	limit := diskPatience
	if last {
		ctx, limit = context.WithoutCancel(ctx), diskGrace
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return o.flush(ctx)
}
