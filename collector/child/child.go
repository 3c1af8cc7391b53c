// Package child keeps the process that talks to NVML: it starts it, reads its
// frames, and replaces it when it ends, hangs or holds a driver that is being
// replaced. NVML can hang in the kernel, end its process over a missing symbol
// and pin the driver; all of that costs the child and never the agent.
//
// To the sampler a Child is the source "nvml".
package child

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gpuvigil/collector"
)

// ExitNoDriver is the exit status by which a child says that this machine has no
// NVIDIA driver, so that it is no use to start it again soon.
const ExitNoDriver = 3

// ErrNoDriver is wrapped by Sample's error on a machine without an NVIDIA driver.
// It wraps collector.ErrAbsent.
var ErrNoDriver = fmt.Errorf("no NVIDIA driver: %w", collector.ErrAbsent)

// Config says what to run and how patient to be. Zero durations stand for the
// defaults.
type Config struct {
	Command []string // program and arguments; it writes frames to its standard output
	Env     []string // added to the few variables of the agent that the child gets

	// Watch lists files by which a replaced driver is noticed; nil: DefaultWatch.
	Watch []string

	InitLimit     time.Duration // until the first frame; default 75 s
	HangLimit     time.Duration // without a frame, or with no GPU that answers; default 30 s
	Grace         time.Duration // between SIGTERM and SIGKILL; default 2 s
	ReapLimit     time.Duration // after SIGKILL, until a child counts as stuck; default 2 s
	BackoffMin    time.Duration // before the first restart, doubled with each further one; default 1 s
	BackoffMax    time.Duration // default 60 s
	HealthyAfter  time.Duration // a child that ran so long starts the back-off anew; default 60 s
	NoDriverRetry time.Duration // between two looks for a driver; default 60 s
	WatchInterval time.Duration // between two looks at the watched files; default 5 s

	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		unset time.Duration
	}{
		{&c.InitLimit, 75 * time.Second}, {&c.HangLimit, 30 * time.Second},
		{&c.Grace, 2 * time.Second}, {&c.ReapLimit, 2 * time.Second},
		{&c.BackoffMin, time.Second}, {&c.BackoffMax, time.Minute},
		{&c.HealthyAfter, time.Minute}, {&c.NoDriverRetry, time.Minute}, {&c.WatchInterval, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.unset
		}
	}
	if c.Watch == nil {
		c.Watch = DefaultWatch()
	}
	return c
}

// maxEvents bounds the events that wait for the next Sample.
const maxEvents = 10_000

// Child is a supervised process and the source of what it sees.
type Child struct {
	cfg      Config
	log      *slog.Logger
	counters *counters
	wake     chan struct{} // the supervisor looks at the state again
	kill     killFunc
	isolate  uintptr // clone flags that take the network away
	refused  bool    // the kernel's refusal to do so was said; Run's own
	driver   string  // fingerprint at the last start; Run's own

	mu       sync.Mutex
	changed  chan struct{} // closed with the next change of what is below
	status   Status
	down     error           // why no frame can come now; nil: one can
	newest   *collector.Part // not sampled yet
	lastPart time.Time       // when the newest frame came
	events   []collector.Event
	lost     int // events beyond maxEvents
	current  *process
	stuck    []*process
	backoff  time.Duration
	next     time.Time // earliest start
	away     time.Time // released until
}

// New returns a Child that does nothing until Run.
func New(cfg Config) *Child {
	c := &Child{
		cfg:      cfg.withDefaults(),
		log:      cfg.Log,
		counters: newCounters(),
		wake:     make(chan struct{}, 1),
		kill:     killGroup,
		isolate:  isolation(),
		changed:  make(chan struct{}),
	}
	c.set(Stopped, nil) // not an error: Run may start a moment after the first Sample
	return c
}

// Reconfigure takes another configuration for the next Run. It must not be called
// while Run runs.
func (c *Child) Reconfigure(cfg Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg, c.log = cfg.withDefaults(), cfg.Log
	c.next, c.backoff = time.Time{}, 0
}

// Name returns "nvml".
func (c *Child) Name() string { return "nvml" }

// Sample returns the newest part that it has not returned before, and with it the
// events of all frames since then. It waits for one as long as ctx lasts, and does
// not wait while none can come: its error then says why.
func (c *Child) Sample(ctx context.Context) (*collector.Part, error) {
	for {
		part, changed, err := c.take()
		if part != nil || err != nil {
			return part, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, c.silence(ctx)
		}
	}
}

func (c *Child) take() (*collector.Part, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest == nil {
		return nil, c.changed, c.down
	}
	part, events := c.newest, c.events
	c.newest, c.events = nil, nil
	if len(events) != len(part.Events) {
		joined := *part
		joined.Events = events
		part = &joined
	}
	return part, nil, nil
}

// silence says why there was nothing to sample within the limit of ctx.
func (c *Child) silence(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.State == Running {
		return fmt.Errorf("the child has not sent a frame for %v: %w", time.Since(c.lastPart).Round(100*time.Millisecond), ctx.Err())
	}
	return fmt.Errorf("the child has been %s for %v and has not sent a frame: %w",
		c.status.State, time.Since(c.status.Since).Round(100*time.Millisecond), ctx.Err())
}

// deliver takes up a frame of the present process.
func (c *Child) deliver(part *collector.Part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest, c.lastPart = part, time.Now()
	c.addEvents(part.Events...)
	if c.status.Frames++; c.status.Frames == 1 {
		c.log.Info("the child has sent its first frame", "pid", c.status.PID, "gpus", len(part.GPUs),
			"after", time.Since(c.status.Since).Round(time.Millisecond))
		c.setLocked(Running, nil)
		return
	}
	c.broadcast()
}

// addEvents keeps events for the next Sample. If nobody samples, the oldest go.
func (c *Child) addEvents(events ...collector.Event) {
	c.events = append(c.events, events...)
	if over := len(c.events) - maxEvents; over > 0 {
		c.events = append([]collector.Event(nil), c.events[over:]...)
		if c.lost == 0 {
			c.log.Error("nobody takes the child's events: the oldest are thrown away", "kept", maxEvents)
		}
		c.lost += over
	}
}
