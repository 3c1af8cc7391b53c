package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gpuvigil/internal/metric"
)

// SamplerConfig is what a Sampler needs beside its sources.
type SamplerConfig struct {
	Node  string                      // the node's name; empty: the name that a source gives
	Tiers [metric.Tiers]time.Duration // how often each tier is sampled; a snapshot is composed every Tiers[Fast]
	Log   *slog.Logger
}

// Sampler asks the sources, each in its own goroutine and time, and composes what
// they know into snapshots.
type Sampler struct {
	cfg     SamplerConfig
	runners []*runner
	compose composer
	latest  atomic.Pointer[Snapshot]
	wall    func(time.Time) time.Time // what the wall clock shows at an instant
}

// NewSampler returns a sampler of the sources. In a snapshot they stand in this
// order, and where two know the same thing the later one wins.
func NewSampler(cfg SamplerConfig, sources []Scheduled) *Sampler {
	s := &Sampler{cfg: cfg, compose: newComposer(cfg), wall: func(t time.Time) time.Time { return t.Round(0) }}
	for _, src := range sources {
		s.runners = append(s.runners, newRunner(src, cfg.Log))
	}
	return s
}

// Latest returns the newest snapshot, or nil before the first. It may be called
// from any goroutine.
func (s *Sampler) Latest() *Snapshot { return s.latest.Load() }

// Run samples until the context ends, and calls publish with each snapshot in
// order, from one goroutine: the one that called Run. It may be called once.
//
// A snapshot lies half a fast interval after the sources' fast ticks, so that it
// holds what they saw in that tick. Run returns nil when the context has ended and
// all sources have returned, and an error if a duration cannot be or if a source
// does not return by its deadline after the end.
func (s *Sampler) Run(ctx context.Context, publish func(*Snapshot)) error {
	if err := s.check(); err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, r := range s.runners {
		running.Go(func() { r.run(ctx) })
	}
	fast := s.cfg.Tiers[metric.Fast]
	first := time.NewTimer(fast / 2)
	defer first.Stop()
	select {
	case <-ctx.Done():
		return s.drain(&running)
	case <-first.C:
	}
	tick := time.NewTicker(fast)
	defer tick.Stop()
	for before := time.Now(); ; {
		now := time.Now()
		snap := s.compose.snapshotAfter(now.Sub(before), s.wall(now), s.views(now))
		before = now
		s.latest.Store(snap)
		publish(snap)
		select {
		case <-ctx.Done():
			return s.drain(&running)
		case <-tick.C:
		}
	}
}

func (s *Sampler) check() error {
	for t, d := range s.cfg.Tiers {
		if d <= 0 {
			return fmt.Errorf("start the sampler: the interval of tier %s is %v: it must be positive", metric.Tier(t), d)
		}
	}
	for _, r := range s.runners {
		if r.Interval <= 0 || r.Deadline <= 0 {
			return fmt.Errorf("start the sampler: source %s has interval %v and deadline %v: both must be positive", r.Source.Name(), r.Interval, r.Deadline)
		}
	}
	return nil
}

func (s *Sampler) views(now time.Time) []view {
	views := make([]view, len(s.runners))
	for i, r := range s.runners {
		views[i] = r.view(now)
	}
	return views
}

// drain waits for the sources to return, which a hung one may never do.
func (s *Sampler) drain(running *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	longest := time.Second
	for _, r := range s.runners {
		longest = max(longest, r.Deadline)
	}
	limit := time.NewTimer(longest)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
	}
	var left []string
	for _, r := range s.runners {
		if r.busy() {
			left = append(left, r.Source.Name())
		}
	}
	if len(left) == 0 {
		return nil
	}
	return errors.New("stop the sampler: these sources have not returned: " + strings.Join(left, ", "))
}
