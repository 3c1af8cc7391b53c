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
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		s.log.Warn("cannot watch for events: no Xid errors", "err", text(ret))
		return
	}
	s.events = set
}

// watchXids registers the worker's GPU, once for each handle. What happened
// before is lost.
func (w *worker) watchXids() {
	if !w.xidless || w.events == nil {
		return
	}
	var types uint64
	ret := w.do("nvmlDeviceGetSupportedEventTypes", func() (ret nvml.Return) {
		types, ret = w.handle.GetSupportedEventTypes()
		return ret
	})
	types &= nvml.EventTypeXidCriticalError
	if ret != nvml.SUCCESS || types == 0 {
		return
	}
	ret = w.do("nvmlDeviceRegisterEvents", func() nvml.Return {
		return w.handle.RegisterEvents(types, w.events)
	})
	if ret != nvml.SUCCESS {
		w.log.Warn("cannot watch the GPU for Xid errors", "gpu", w.gpu.UUID, "err", text(ret))
		return
	}
	w.xidless = false
	w.learned = true
	w.watched.Store(true)
}

// watch waits for events until ctx ends.
func (s *session) watch(ctx context.Context) {
	defer s.events.Free()
	last := nvml.SUCCESS
	for ctx.Err() == nil {
		if !s.watched.Load() {
			sleep(ctx, eventWait) // waiting on an empty set is an error
			continue
		}
		start := time.Now()
		event, ret := s.events.Wait(uint32(eventWait.Milliseconds()))
		switch {
		case ret == nvml.SUCCESS:
			s.event(event, time.Now())
			continue
		case judge(ret) == fatal:
			s.fail(&callError{"nvmlEventSetWait", "", ret})
			return
		case ret != nvml.ERROR_TIMEOUT:
			s.account.errors.Add(1)
			if ret != last {
				s.log.Warn("waiting for events fails", "err", text(ret))
			}
		}
		last = ret
		// Some drivers return long before the time is over.
		sleep(ctx, eventWait-time.Since(start))
	}
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
