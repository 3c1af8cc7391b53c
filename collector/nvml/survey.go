//go:build linux && cgo

package nvml

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// maxPaths bounds those of one GPU to others.
const maxPaths = 64

// survey asks for the way from each GPU to each one after it in NVML's list, so that
// each pair is told once. The question is of two GPUs: it is asked between rounds,
// while the workers of both do nothing and cannot begin, so that never two calls are
// in flight on a GPU.
type survey struct {
	*session
	actor
	workers atomic.Pointer[[]*worker]
	next    time.Time // not before: all were asked
}

func newSurvey(s *session) *survey { return &survey{session: s, actor: newActor()} }

// begin starts a survey of the workers unless one is under way. A worker that is busy
// is left for the next time.
func (v *survey) begin(workers []*worker, now time.Time) {
	v.workers.Store(&workers)
	v.start(round{now, make(chan struct{}, 1)})
}

func (v *survey) take(ctx context.Context, now time.Time) {
	if now.Before(v.next) {
		return
	}
	workers := *v.workers.Load()
	all := true
	for i, w := range workers {
		if ctx.Err() != nil || !w.hold() {
			all = false
			continue
		}
		if w.gpu != nil {
			all = v.pathsFrom(ctx, w, workers[i+1:]) && all
		}
		w.letGo()
	}
	if all {
		v.next = now.Add(v.cfg.Tiers[metric.Inventory])
	}
}

// pathsFrom asks for those that are not known yet, and reports whether no peer was
// busy. What a GPU had to one that is not there any more is forgotten.
func (v *survey) pathsFrom(ctx context.Context, w *worker, peers []*worker) bool {
	if w.paths == nil {
		w.paths = map[string]string{}
	}
	there := map[string]bool{}
	all := true
	known := len(w.paths)
	for _, peer := range peers {
		if ctx.Err() != nil || !peer.hold() {
			all = false
			continue
		}
		if peer.gpu != nil {
			there[peer.gpu.UUID] = true
			v.ask(w, peer)
		}
		peer.letGo()
	}
	for uuid := range w.paths {
		if all && !there[uuid] {
			delete(w.paths, uuid)
			known = -1
		}
	}
	if len(w.paths) != known {
		w.gpu.Paths = pathsOf(w.paths)
		w.publish()
	}
	return all
}

// ask asks for the way between two GPUs whose workers are held. A call that hangs is
// shown as one on both.
func (v *survey) ask(w, peer *worker) {
	const function = "nvmlDeviceGetTopologyCommonAncestor"
	if _, known := w.paths[peer.gpu.UUID]; known || len(w.paths) >= maxPaths {
		return
	}
	var level nvml.GpuTopologyLevel
	peer.flight.Store(&flight{function, time.Now()})
	ret := w.do(function, func() (ret nvml.Return) {
		level, ret = w.handle.GetTopologyCommonAncestor(peer.handle)
		return ret
	})
	peer.flight.Store(nil)
	switch judge(ret) {
	case answered:
		w.paths[peer.gpu.UUID] = levelName(level)
	case unsupported:
		w.paths[peer.gpu.UUID] = ""
	}
}
