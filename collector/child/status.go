package child

import "time"

// State is what a Child is doing.
type State string

// The states.
const (
	Starting State = "starting"  // a process runs and has not sent a frame
	Running  State = "running"   // frames come
	Hung     State = "hung"      // a process does not answer and is left alone, because another one is stuck
	Waiting  State = "waiting"   // for the next start
	NoDriver State = "no_driver" // waiting, because there is no driver
	Away     State = "released"  // kept away by Release
	Stopped  State = "stopped"   // Run does not run
)

// Status tells how a Child is, for people.
type Status struct {
	State    State
	PID      int       // of the present process; 0 if there is none
	Since    time.Time // of the state
	Frames   uint64    // read from the present process
	Restarts uint64    // since the agent started
	Stuck    int       // processes that were killed and do not go
	Isolated bool      // the present process has no network
	Reason   Reason    // why the process before ended; empty if there was none
	Err      string    // the same in words
	Next     time.Time // of the next start, if it waits for one
}

// Status tells how the child is. It may be called from any goroutine.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Stuck = len(c.stuck)
	return s
}

// PIDs returns the processes that exist: the present one and those that are stuck.
func (c *Child) PIDs() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pids()
}

// pids is PIDs while mu is held.
func (c *Child) pids() []int {
	var pids []int
	if c.current != nil {
		pids = append(pids, c.current.pid)
	}
	for _, p := range c.stuck {
		pids = append(pids, p.pid)
	}
	return pids
}

// set changes the state. While down is not nil, Sample returns it at once.
func (c *Child) set(state State, down error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(state, down)
}

func (c *Child) setLocked(state State, down error) {
	if c.status.State != state {
		c.status.State, c.status.Since = state, time.Now()
	}
	c.down = down
	up := 0.0
	if state == Running {
		up = 1
	}
	c.counters.up.Set(up)
	c.broadcast()
}

// broadcast wakes whoever waits for a change. mu is held.
func (c *Child) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Child) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
