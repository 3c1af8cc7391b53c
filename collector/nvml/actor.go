//go:build linux && cgo

package nvml

import (
	"context"
	"sync/atomic"
	"time"
)

// actor is a goroutine that does one round at a time when it is told to. One that
// is stuck in the driver is simply not told again.
type actor struct {
	busy atomic.Bool
	wake chan round
}

type round struct {
	at   time.Time
	done chan<- struct{} // has room for every actor
}

func newActor() actor { return actor{wake: make(chan round, 1)} }

// start begins a round and reports true unless the one before still runs.
func (a *actor) start(r round) bool {
	if !a.busy.CompareAndSwap(false, true) {
		return false
	}
	a.wake <- r
	return true
}

// hold keeps the actor from beginning a round until it is let go, and reports true
// unless one is under way.
func (a *actor) hold() bool { return a.busy.CompareAndSwap(false, true) }

func (a *actor) letGo() { a.busy.Store(false) }

func (a *actor) loop(ctx context.Context, act func(context.Context, time.Time)) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-a.wake:
			act(ctx, r.at)
			a.busy.Store(false)
			r.done <- struct{}{}
		}
	}
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
