// Package nvml samples NVIDIA GPUs. It is what the supervised child process runs:
// it talks to the driver through libnvidia-ml, which it loads at run time, and
// writes frames of readings. It has no network, no secrets and no state.
//
// Whatever the driver does costs as little as possible: a call that is not
// supported or missing costs its field, a call that does not return costs the
// readings of its GPU, a driver that is gone costs the process.
package nvml

import (
	"errors"
	"log/slog"
	"time"

	"gpuvigil/internal/metric"
)

// The limits that a zero Config stands for.
const (
	DefaultCallLimit = 5 * time.Second
	DefaultInitLimit = 60 * time.Second // without persistence mode, some seconds for each GPU
)

// ErrNoDriver is wrapped by Serve's error when the machine has no NVIDIA driver, or
// this build cannot load one: a state of the machine and not a fault.
var ErrNoDriver = errors.New("no NVIDIA driver is installed (libnvidia-ml.so.1 is not there)")

// minProcesses keeps process lists rare: they hold the driver's global lock, and
// the workload pays for that.
const minProcesses = 15 * time.Second

// Config says how to sample. Its zero value is usable.
type Config struct {
	LibraryPath string                      // empty: libnvidia-ml.so.1 as the dynamic linker finds it
	ProcFS      string                      // where the host's procfs is mounted; empty: /proc
	Tiers       [metric.Tiers]time.Duration // intervals; zero ones are the defaults of metric.Tier
	CallLimit   time.Duration               // a GPU with a call older than this counts as hung
	InitLimit   time.Duration               // after which Serve gives up on initialising
	Full        bool                        // each NVLink, too: one call more for each, every slow round
	Histograms  bool                        // distributions of the fast signals, too
	Log         *slog.Logger                // nil: nothing is logged

	lostBackoff time.Duration // before a GPU that does not answer is looked for again
}

func (c Config) withDefaults() Config {
	defaults := [metric.Tiers]time.Duration{
		metric.Fast: time.Second, metric.Slow: 15 * time.Second,
		metric.Processes: minProcesses, metric.Inventory: time.Minute,
	}
	for t, d := range defaults {
		if c.Tiers[t] <= 0 {
			c.Tiers[t] = d
		}
	}
	c.Tiers[metric.Processes] = max(c.Tiers[metric.Processes], minProcesses)
	if c.CallLimit <= 0 {
		c.CallLimit = DefaultCallLimit
	}
	if c.InitLimit <= 0 {
		c.InitLimit = DefaultInitLimit
	}
	if c.lostBackoff <= 0 {
		c.lostBackoff = 30 * time.Second
	}
	if c.ProcFS == "" {
		c.ProcFS = "/proc"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
