package child

import (
	"context"
	"time"

	"gpuvigil/collector"
)

// conclude counts and says why a process ended and sets when the next one starts.
func (c *Child) conclude(ctx context.Context, why ending, ran time.Duration) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := c.delay(why, ran)
	now := time.Now()
	c.next = now.Add(wait)
	again := c.status.Err == why.err.Error()
	if !why.noDriver {
		c.counters.restarts[why.reason].Inc()
		c.status.Restarts++
		if c.status.Frames > 0 {
			c.addEvents(collector.Event{Time: now.Round(0), Kind: collector.ChildRestart, Text: string(why.reason) + ": " + why.err.Error()})
		}
	}
	c.status.Reason, c.status.Err, c.status.Next, c.status.Frames = why.reason, why.err.Error(), c.next, 0
	state := Waiting
	if why.noDriver {
		state = NoDriver
	}
	c.setLocked(state, why.err)
	c.say(why, wait, again)
}

// delay returns how long to wait before the next start. mu is held.
func (c *Child) delay(why ending, ran time.Duration) time.Duration {
	if why.noDriver {
		c.backoff = 0
		return c.cfg.NoDriverRetry
	}
	if ran >= c.cfg.HealthyAfter || why.reason == DriverChanged || why.reason == Released {
		c.backoff = 0
	}
	c.backoff = min(max(2*c.backoff, c.cfg.BackoffMin), c.cfg.BackoffMax)
	return c.backoff
}

// say logs why a process ended, and the same again only for those who look closer.
func (c *Child) say(why ending, wait time.Duration, again bool) {
	switch {
	case again:
		c.log.Debug("the child has ended again", "reason", why.reason, "err", why.err, "next_start_in", wait)
	case why.noDriver:
		c.log.Info("there is no NVIDIA driver here: GPUs are not watched until there is one", "err", why.err, "next_look_in", wait)
	case why.reason == Released:
		c.log.Info("the child was ended on request", "until", c.away)
	default:
		c.log.Warn("the child has ended and is started again", "reason", why.reason, "err", why.err, "next_start_in", wait)
	}
}
