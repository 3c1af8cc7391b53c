//go:build linux && cgo

package nvml

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventWait bounds how long the watcher is inside the driver at a time.
const eventWait = time.Second

// openEvents makes the set that tells of Xid errors. A driver without events is
// no reason to do without the rest.
func (s *session) openEvents() {
	for _, function := range []string{
		"nvmlEventSetCreate", "nvmlEventSetWait", "nvmlEventSetFree",
		"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
	} {
		if !s.guard.has(function) {
			s.log.Warn("this driver has no events: no Xid errors", "missing", function)
			return
		}
	}
	sets := &eventSets{create: s.lib.EventSetCreate, free: func(set nvml.EventSet) {
		if ret := set.Free(); ret != nvml.SUCCESS {
			s.account.errors.Add(1)
			s.log.Warn("cannot free a set of events", "err", text(ret))
		}
	}}
	if ret := sets.replace(); ret != nvml.SUCCESS {
		s.log.Warn("cannot watch for events: no Xid errors", "err", text(ret))
		return
	}
	s.events = sets
}

// mustWatch reports whether the set that the GPU was registered with is no more.
func (w *worker) mustWatch() bool {
	return w.events != nil && w.events.current().number() != w.eventsOf
}

// watchXids registers the worker's GPU, once for each handle and set. What
// happened before is lost.
func (w *worker) watchXids(now time.Time) {
	if w.events == nil {
		return
	}
	set := w.events.take()
	defer w.events.put(set)
	if !w.xidless && w.eventsOf == set.number() {
		return
	}
	w.eventsOf = set.number()
	deaf := set == nil || !w.register(set, now)
	if w.gpu == nil {
		return
	}
	w.learned = w.learned || deaf != w.xidless
	w.xidless = deaf
}

// register reports whether the set will tell of the GPU's Xid errors.
func (w *worker) register(set *eventSet, now time.Time) bool {
	var types uint64
	ret := w.do("nvmlDeviceGetSupportedEventTypes", func() (ret nvml.Return) {
		types, ret = w.handle.GetSupportedEventTypes()
		return ret
	})
	types &= nvml.EventTypeXidCriticalError
	if ret == nvml.SUCCESS && types != 0 {
		ret = w.do("nvmlDeviceRegisterEvents", func() nvml.Return {
			return w.handle.RegisterEvents(types, set.EventSet)
		})
	}
	switch {
	case judge(ret) == lost:
		w.lose(ret, now)
	case judge(ret) > unsupported:
		w.log.Warn("cannot watch the GPU for Xid errors", "gpu", w.gpu.UUID, "err", text(ret))
	case ret == nvml.SUCCESS && types != 0:
		set.watched.Store(true)
		return true
	}
	return false
}

// watch waits for events until ctx ends. A set that fails wait after wait is
// replaced: the workers then register the GPUs that still answer with the new one.
func (s *session) watch(ctx context.Context) {
	defer s.events.close()
	var trouble eventTrouble
	for ctx.Err() == nil {
		set := s.events.current()
		if set == nil || !set.watched.Load() {
			sleep(ctx, eventWait) // waiting on an empty set is an error
			if now := time.Now(); set == nil && !now.Before(trouble.next) {
				s.replaceEvents(&trouble, now)
			}
			continue
		}
		start := time.Now()
		event, ret := set.Wait(uint32(eventWait.Milliseconds()))
		now := time.Now()
		if judge(ret) == fatal {
			s.fail(&callError{"nvmlEventSetWait", "", ret})
			return
		}
		if ret != nvml.SUCCESS && ret != nvml.ERROR_TIMEOUT {
			s.account.errors.Add(1)
			if ret != trouble.last {
				s.log.Warn("waiting for events fails", "err", text(ret))
			}
		}
		if trouble.note(ret, now) {
			s.replaceEvents(&trouble, now)
		}
		if ret == nvml.SUCCESS {
			s.event(event, now)
			continue
		}
		// Some drivers return long before the time is over.
		sleep(ctx, eventWait-time.Since(start))
	}
}

// replaceEvents gives the workers an empty set to register their GPUs with.
func (s *session) replaceEvents(trouble *eventTrouble, now time.Time) {
	trouble.replaced(now)
	if ret := s.events.replace(); ret != nvml.SUCCESS {
		s.account.errors.Add(1)
		s.log.Warn("cannot watch for events anew: no Xid errors from the driver until it can be", "err", text(ret), "next try in", trouble.pause)
		return
	}
	s.eventSets.Add(1)
	s.log.Info("waiting for events begins anew, with the GPUs that answer")
}

func (s *session) event(e nvml.EventData, at time.Time) {
	if e.EventType != nvml.EventTypeXidCriticalError {
		return
	}
	code := int(e.EventData)
	if !s.fleet.xid(e.Device, code, at) {
		s.log.Warn("an Xid error on a GPU that is not known", "xid", code)
	}
}
