package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"gpuvigil/collector"
)

// drainLimit bounds the wait for the last frames and words of a process that has
// ended; they are in the pipes already.
const drainLimit = time.Second

// Run keeps a child running until ctx ends, ends it and returns nil. It returns an
// error at once if there is no command. It may be called again when it has returned,
// and remembers processes that are stuck and a release that lasts.
func (c *Child) Run(ctx context.Context) error {
	if len(c.cfg.Command) == 0 {
		return errors.New("run the NVML child: no command is configured")
	}
	defer c.set(Stopped, errStopped)
	for c.ready(ctx) {
		// Taken before the start, so that a change while it starts is seen.
		c.driver = fingerprint(c.cfg.Watch)
		p, err := c.start()
		if err != nil {
			c.conclude(ctx, ending{reason: Exited, err: err}, 0)
			continue
		}
		c.began(p)
		begin := time.Now()
		why := c.supervise(ctx, p)
		c.finish(p, &why)
		c.conclude(ctx, why, time.Since(begin))
	}
	return nil
}

// ready waits until a child may be started and reports false when ctx ends first.
// Two processes may exist, the stuck one and its successor, but no third: a release
// or the end of Run may have left the successor stuck as well. A driver that has
// changed since the last start is worth a look before the time.
func (c *Child) ready(ctx context.Context) bool {
	for ctx.Err() == nil {
		wait := c.obstacle(time.Now())
		if wait == 0 {
			return true
		}
		timer := time.NewTimer(min(wait, c.cfg.WatchInterval))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
			if fingerprint(c.cfg.Watch) != c.driver {
				c.startNow()
			}
		}
		timer.Stop()
	}
	return false
}

// obstacle returns how long a start must wait at the least, and sets the state that
// says why.
func (c *Child) obstacle(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now.Before(c.away):
		c.setLocked(Away, marks(collector.ErrPaused, "the GPUs are released until %s; `gpuvigil release --for 0s` takes them back", c.away.UTC().Format(time.RFC3339)))
		return c.away.Sub(now)
	case len(c.stuck) > 1:
		c.setLocked(Waiting, marks(collector.ErrHung, "%d children were killed and do not go, because a driver call does not return; no other is started until one is gone: see the kernel log, the node may need a reboot", len(c.stuck)))
		return time.Hour // reaped wakes us
	case now.Before(c.next):
		if c.status.State == Away {
			c.setLocked(Waiting, errors.New("the GPUs are taken back: the child starts in a moment"))
		}
		return c.next.Sub(now)
	}
	c.setLocked(Starting, nil)
	return 0
}

func (c *Child) startNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = time.Time{}
}

func (c *Child) began(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = p
	c.status.PID, c.status.Frames, c.status.Isolated, c.status.Next = p.pid, 0, p.isolated, time.Time{}
	c.log.Debug("the child has started", "pid", p.pid, "isolated", p.isolated)
}

// supervise delivers a process's frames until there is a reason to end it that
// counts, or it has ended.
func (c *Child) supervise(ctx context.Context, p *process) ending {
	silence := time.NewTimer(c.cfg.InitLimit)
	defer silence.Stop()
	watch := time.NewTicker(c.cfg.WatchInterval)
	defer watch.Stop()
	h := health{limit: c.cfg.HangLimit}
	var spared ending // why it is ended once no other one is stuck
	for {
		var why ending
		select {
		case <-ctx.Done():
			return ending{err: errStopping}
		case r := <-p.results:
			if r.err != nil {
				why = c.broken(p, r.err)
				break
			}
			silence.Reset(c.cfg.HangLimit)
			c.deliver(r.part)
			if h.hung(r.part, time.Now()) {
				why = ending{reason: AllGPUsHung, talks: true, err: marks(collector.ErrHung, "no GPU has answered for %v", c.cfg.HangLimit)}
			} else if spared.hung() {
				spared = ending{}
				c.answers()
			}
		case <-p.exited:
			return c.lastFrames(p)
		case <-silence.C:
			why = c.silent()
			silence.Reset(c.cfg.HangLimit)
		case <-watch.C:
			if spared.reason == "" && fingerprint(c.cfg.Watch) != c.driver {
				why = ending{reason: DriverChanged, err: errors.New("the NVIDIA driver has been replaced")}
			}
		case <-c.wake:
			if !c.ReleasedUntil().IsZero() {
				return ending{reason: Released, err: errors.New("the GPUs were released on request")}
			}
			why = spared // the one that was stuck may be gone
		}
		if why.reason == "" {
			continue
		}
		if !c.spare(p, why, spared.reason) {
			return why
		}
		spared = why
	}
}

func (c *Child) silent() ending {
	if c.Status().Frames == 0 {
		return ending{reason: InitHung, err: marks(collector.ErrHung, "the child has not sent a frame within %v of its start: the driver's initialisation hangs", c.cfg.InitLimit)}
	}
	return ending{reason: AllGPUsHung, err: marks(collector.ErrHung, "the child has not sent a frame for %v", c.cfg.HangLimit)}
}

// broken judges what came instead of a frame. The end of the stream is the end of
// the process, which may take a moment.
func (c *Child) broken(p *process, err error) ending {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if !errors.Is(err, io.EOF) {
			c.counters.badFrames.Inc()
		}
		if p.await(drainLimit) {
			return ending{reason: Exited}
		}
		return ending{reason: BadFrame, err: errors.New("the child has closed its pipe and runs on")}
	}
	c.counters.badFrames.Inc()
	return ending{reason: BadFrame, err: fmt.Errorf("what the child sent is not a frame: %w", err)}
}

// lastFrames delivers what a process had sent before it ended.
func (c *Child) lastFrames(p *process) ending {
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for {
		select {
		case r := <-p.results:
			if r.err != nil {
				return c.broken(p, r.err)
			}
			c.deliver(r.part)
		case <-limit.C:
			return ending{reason: Exited}
		}
	}
}

// health tells a node whose GPUs have all hung from one where one has.
type health struct {
	limit time.Duration
	since time.Time // no GPU has answered since; zero: one does
}

func (h *health) hung(part *collector.Part, now time.Time) bool {
	answers := func(g collector.GPU) bool { return g.Present && !g.Hung }
	hangs := func(g collector.GPU) bool { return g.Hung }
	// A new process does not help a node whose GPUs are all lost and none hung.
	if slices.ContainsFunc(part.GPUs, answers) || !slices.ContainsFunc(part.GPUs, hangs) {
		h.since = time.Time{}
		return false
	}
	if h.since.IsZero() {
		h.since = now
	}
	return now.Sub(h.since) >= h.limit
}

// finish ends a process, keeps it in mind if it does not go, and completes the
// words of one that ended by itself.
func (c *Child) finish(p *process, why *ending) {
	if why.reason == Exited && why.err == nil {
		within(p.heard, drainLimit)
	}
	gone := c.end(p)
	if why.reason == Exited && why.err == nil {
		*why = exit(p.cmd.ProcessState, p.relay.lastLine())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.status.PID = nil, 0
	// It may have gone since end looked: then reaped has found nothing to strike out.
	if !gone && !p.hasExited() {
		c.stuck = append(c.stuck, p)
		c.counters.stuck.Set(float64(len(c.stuck)))
		c.log.Error("a child was killed and does not go: a driver call does not return; it holds the GPUs until it does",
			"pid", p.pid, "why", why.err, "stuck", len(c.stuck))
	}
	c.broadcast()
}

// reaped strikes out a process that was stuck.
func (c *Child) reaped(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.stuck, p)
	if i < 0 {
		return
	}
	c.stuck = slices.Delete(c.stuck, i, i+1)
	c.counters.stuck.Set(float64(len(c.stuck)))
	c.log.Info("a child that was stuck is gone", "pid", p.pid, "stuck", len(c.stuck))
	c.broadcast()
	c.nudge()
}
