//go:build linux && cgo

package nvml

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventSet is one of NVML's sets of events. A GPU cannot be taken out of one, and
// the driver fails every wait on a set that has a lost GPU in it.
type eventSet struct {
	nvml.EventSet
	generation uint64
	watched    atomic.Bool // a GPU is in it

	users   int  // who are inside of a call with it; guarded by eventSets.mu
	retired bool // to be freed by the last of them
}

// number is the set's generation, 0 for none.
func (s *eventSet) number() uint64 {
	if s == nil {
		return 0
	}
	return s.generation
}

// eventSets holds the set in use. One that was replaced is freed when nobody is
// inside of a call with it any more; a call that hangs keeps its set, and no other.
type eventSets struct {
	create func() (nvml.EventSet, nvml.Return)
	free   func(nvml.EventSet)

	mu         sync.Mutex
	set        *eventSet // nil: none could be made
	generation uint64
}

// replace retires the set in use and makes an empty one. If that cannot be, there
// is none.
func (e *eventSets) replace() nvml.Return {
	e.close()
	made, ret := e.create()
	if ret != nvml.SUCCESS {
		return ret
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation++
	e.set = &eventSet{EventSet: made, generation: e.generation}
	return ret
}

// close retires the set in use.
func (e *eventSets) close() {
	e.mu.Lock()
	old := e.set
	e.set = nil
	idle := old != nil && old.users == 0
	if old != nil {
		old.retired = true
	}
	e.mu.Unlock()
	if idle {
		e.free(old.EventSet)
	}
}

// current returns the set in use, or nil. Only who replaces it may wait on it
// without take.
func (e *eventSets) current() *eventSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}

// take returns the set in use, or nil, and keeps it from being freed until put.
func (e *eventSets) take() *eventSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.set != nil {
		e.set.users++
	}
	return e.set
}

func (e *eventSets) put(s *eventSet) {
	if s == nil {
		return
	}
	e.mu.Lock()
	s.users--
	last := s.retired && s.users == 0
	e.mu.Unlock()
	if last {
		e.free(s.EventSet)
	}
}

const (
	maxFailedWaits = 5           // in a row, of a set that fails for an unknown reason
	maxEventPause  = time.Minute // between two sets that both fail
)

// eventTrouble decides when a set is replaced: at once when the driver says that
// a GPU in it is lost, and ever more rarely while that does not help.
type eventTrouble struct {
	last   nvml.Return
	failed int // waits in a row
	pause  time.Duration
	next   time.Time // not before
}

// note remembers how a wait ended and reports whether the set is to be replaced.
func (t *eventTrouble) note(ret nvml.Return, now time.Time) bool {
	t.last = ret
	if ret == nvml.SUCCESS || ret == nvml.ERROR_TIMEOUT {
		t.failed = 0
		if now.After(t.next) {
			t.pause = 0
		}
		return false
	}
	t.failed++
	return (judge(ret) == lost || t.failed >= maxFailedWaits) && !now.Before(t.next)
}

// replaced begins the time in which the set is not replaced again.
func (t *eventTrouble) replaced(now time.Time) {
	t.failed = 0
	t.pause = min(max(2*t.pause, eventWait), maxEventPause)
	t.next = now.Add(t.pause)
}
