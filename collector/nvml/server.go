//go:build linux && cgo

package nvml

import (
	"context"
	"slices"
	"sync"
	"time"

	"gpuvigil/internal/metric"
)

// stopLimit is how long Serve waits, when it ends, for calls that are under way.
const stopLimit = 2 * time.Second

// server drives the workers, one for each slot of NVML's list, and writes what
// they see.
type server struct {
	*session
	out     partWriter
	workers []*worker
	running sync.WaitGroup
	survey  *survey      // nil: nobody wants to know
	hanging map[int]bool // slots whose hung call was logged
}

func (s *server) run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWriter(s.out)
	s.running.Go(w.run)
	s.running.Go(func() { s.census.loop(inner, s.census.take) })
	if s.cfg.Full && s.guard.has("nvmlDeviceGetTopologyCommonAncestor") {
		s.survey = newSurvey(s.session)
		s.running.Go(func() { s.survey.loop(inner, s.survey.take) })
	}
	if s.events != nil {
		s.running.Go(func() { s.watch(inner) })
	}
	s.hanging = map[int]bool{}
	err := s.loop(inner, w)
	cancel()
	w.stop()
	s.drain()
	return err
}

func (s *server) loop(ctx context.Context, w *writer) error {
	tick := time.NewTicker(s.cfg.Tiers[metric.Fast])
	defer tick.Stop()
	// The first frame may take longer, so that it is a whole one, but not so long
	// that its readings are stale.
	patience := 2 * s.cfg.Tiers[metric.Fast]
	for {
		s.round(ctx, patience)
		patience = s.cfg.Tiers[metric.Fast] / 2
		if ctx.Err() == nil && w.free() {
			w.put(s.compose(time.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.fatal:
			return err
		case err := <-w.failed:
			return err
		case <-tick.C:
		}
	}
}

// round lets everybody who is not busy do one round and waits for them, but not
// longer than its patience lasts.
func (s *server) round(ctx context.Context, patience time.Duration) {
	now := time.Now()
	for slot := len(s.workers); slot < s.census.gpus(); slot++ {
		w := newWorker(s.session, slot)
		s.workers = append(s.workers, w)
		s.running.Go(func() { w.loop(ctx, w.round) })
	}
	done := make(chan struct{}, len(s.workers)+1)
	started := 0
	for _, w := range s.workers {
		if w.start(round{now, done}) {
			started++
		}
	}
	if s.census.start(round{now, done}) {
		started++
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for range started {
		select {
		case <-done:
		case <-limit.C:
			s.reportHung()
			return
		case <-ctx.Done():
			return
		}
	}
	s.reportHung()
	if s.survey != nil {
		s.survey.begin(slices.Clone(s.workers), now)
	}
}

// reportHung says once when a call does not return, and once when it did.
func (s *server) reportHung() {
	now := time.Now()
	for slot, w := range s.workers {
		function := w.hung(now, s.cfg.CallLimit)
		if hung := function != ""; hung != s.hanging[slot] {
			s.hanging[slot] = hung
			if hung {
				s.log.Error("a driver call does not return; the GPU's values stand still", "slot", slot, "call", function)
			} else {
				s.log.Info("the driver call has returned", "slot", slot)
			}
		}
	}
}

// drain waits a little for the calls under way and shuts NVML down if they have
// ended. Else only the end of the process frees the GPUs.
func (s *server) drain() {
	ended := make(chan error, 1)
	go func() {
		s.running.Wait()
		ended <- s.close()
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		if err != nil {
			s.log.Warn("cannot shut NVML down", "err", err)
		}
	case <-limit.C:
		s.log.Warn("driver calls are still under way; ending without them")
	}
}
