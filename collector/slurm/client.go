package slurm

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Config says how Slurm is asked: through slurmrestd if it has a URL, else through
// its commands.
type Config struct {
	URL         string                 // of slurmrestd with its version, http://slurm:6820/slurm/v0.0.40
	User, Token func() (string, error) // of slurmrestd, read for each answer; nil: none is sent

	Squeue, Sinfo string // absolute paths; without Sinfo nothing is known of nodes

	Interval time.Duration // between two answers
	Timeout  time.Duration // of one answer
	Log      *slog.Logger
}

// Answer is what Slurm said at a time.
type Answer struct {
	Time  time.Time
	Jobs  []Job
	Nodes []Node
}

// maxBackOff is the longest time between two tries while Slurm does not answer.
const maxBackOff = 15 * time.Minute

// keepFor is how many intervals an answer stands while there is no newer one.
const keepFor = 3

// Client asks Slurm from time to time and keeps the last answer, so that the
// controller has the same work however many ask the client.
type Client struct {
	cfg  Config
	ask  func(context.Context) (*Answer, int, error)
	last atomic.Pointer[Answer]

	up           atomic.Bool
	good, failed atomic.Uint64
	badRows      atomic.Uint64
}

// NewClient returns a client. It asks nothing until Run.
func NewClient(cfg Config) *Client {
	c := &Client{cfg: cfg}
	if cfg.URL != "" {
		c.ask = newREST(cfg).ask
	} else {
		c.ask = commands{cfg}.ask
	}
	return c
}

// Run asks until ctx ends. After an answer that failed it waits twice as long, and so
// on up to a quarter of an hour.
func (c *Client) Run(ctx context.Context) {
	wait := time.Duration(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if c.poll(ctx) {
			wait = c.cfg.Interval
		} else {
			wait = min(max(2*wait, c.cfg.Interval), max(maxBackOff, c.cfg.Interval))
		}
		timer.Reset(wait)
	}
}

func (c *Client) poll(ctx context.Context) bool {
	inner, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	began := time.Now()
	answer, bad, err := c.ask(inner)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(err, errors.New("raise fleet.slurm.timeout if Slurm is only slow"))
		}
		c.failed.Add(1)
		if c.up.Swap(false) || c.failed.Load() == 1 {
			c.cfg.Log.Error("Slurm does not answer.", "err", err)
		}
		return false
	}
	answer.Time = began // what came after is not in it
	c.badRows.Add(uint64(bad))
	c.good.Add(1)
	c.last.Store(answer)
	if !c.up.Swap(true) {
		c.cfg.Log.Info("Slurm answers.", "jobs", len(answer.Jobs), "nodes", len(answer.Nodes), "unreadable", bad)
	}
	return true
}

// Latest returns the last answer, nil before the first and once it is older than three
// intervals. It must not be modified.
func (c *Client) Latest() *Answer {
	a := c.last.Load()
	if a == nil || time.Since(a.Time) > keepFor*c.cfg.Interval {
		return nil
	}
	return a
}

// Health is how well Slurm answers.
type Health struct {
	Up           bool
	Last         time.Time // of the last answer; zero: there was none
	Good, Failed uint64    // tries since the start
	Unreadable   uint64    // rows that could not be read since the start
}

// Health returns how well Slurm answers.
func (c *Client) Health() Health {
	h := Health{Up: c.up.Load(), Good: c.good.Load(), Failed: c.failed.Load(), Unreadable: c.badRows.Load()}
	if a := c.last.Load(); a != nil {
		h.Last = a.Time
	}
	return h
}
