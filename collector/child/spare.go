package child

import (
	"fmt"
	"slices"
)

// spare decides whether a process that there is reason to end is left alone,
// because another one is stuck already: to kill this one too would most likely
// leave a second behind and help nobody. It stays the present process until it
// ends by itself, answers again, or the stuck one is gone. before is the reason
// for which it was spared last.
func (c *Child) spare(p *process, why ending, before Reason) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why.reason == Exited || len(c.stuck) == 0 {
		return false
	}
	why.err = fmt.Errorf("%w; it is not ended, because process %d was killed before it and does not go: see the kernel log, the node may need a reboot",
		why.err, c.stuck[0].pid)
	if why.reason != before {
		c.log.Error("the child is left alone though there is reason to end it", "pid", p.pid, "reason", why.reason, "err", why.err)
	}
	switch {
	case why.reason == DriverChanged: // it reads on
	case why.talks:
		c.setLocked(Hung, nil)
	default:
		c.setLocked(Hung, why.err)
	}
	return true
}

// answers notes that a process that was spared has come back.
func (c *Child) answers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log.Info("the child that hung answers again", "pid", c.status.PID)
	c.setLocked(Running, nil)
}

// hung reports whether the reason passes if the process answers again.
func (e ending) hung() bool { return slices.Contains([]Reason{InitHung, AllGPUsHung}, e.reason) }
