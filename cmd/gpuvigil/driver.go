package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/child"
)

// driver keeps the child process that talks to NVML over reloads of the
// configuration: it is restarted only when its own configuration changes, and it
// remembers what is stuck in the driver and a release that lasts.
type driver struct {
	log *slog.Logger

	mu    sync.Mutex
	child *child.Child // nil until a configuration wants one
	cfg   child.Config // that it runs with
	stop  func()       // ends its Run and waits; nil while it does not run
}

// source returns the child as a source of samples, whether it runs or not.
func (d *driver) source(cfg child.Config) collector.Source {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.child == nil {
		d.child = child.New(cfg)
	}
	return d.child
}

// use makes the child run with the configuration until ctx ends; nil ends it.
func (d *driver) use(ctx context.Context, cfg *child.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cfg != nil && d.stop != nil && slices.Equal(cfg.Command, d.cfg.Command) && cfg.InitLimit == d.cfg.InitLimit {
		return
	}
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
	if cfg == nil {
		return
	}
	d.cfg = *cfg
	d.child.Reconfigure(*cfg)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.child.Run(ctx); err != nil {
			d.log.Error("GPUs are not watched.", "err", err)
		}
	}()
	d.stop = func() {
		cancel()
		<-done
	}
}

func (d *driver) pids() []int {
	if c := d.current(); c != nil {
		return c.PIDs()
	}
	return nil
}

func (d *driver) release(length time.Duration) error {
	if c := d.current(); c != nil {
		return c.Release(length)
	}
	return errors.New("this agent holds no GPU driver: there is nothing to release")
}

func (d *driver) releasedUntil() time.Time {
	if c := d.current(); c != nil {
		return c.ReleasedUntil()
	}
	return time.Time{}
}

func (d *driver) current() *child.Child {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.child
}
