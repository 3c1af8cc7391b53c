package child

import (
	"fmt"
	"time"
)

// releaseMargin is what Release waits beyond the limits of ending a process.
const releaseMargin = 500 * time.Millisecond

// Release ends the child and starts none for d, so that the driver can be replaced:
// when it returns nil, no process of ours has a device file open. It waits for that
// as long as ending a child may take, five seconds at most with the defaults, and
// returns an error if a child is stuck in the driver; the child is kept away all the
// same. It ends the present child even while another one is stuck, because somebody
// wants the driver: two may be left then. Release(0) takes the GPUs back.
func (c *Child) Release(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("release the GPUs for %v: the time must not be negative", d)
	}
	c.mu.Lock()
	c.away = time.Time{}
	if d > 0 {
		c.away = time.Now().Add(d)
	}
	c.mu.Unlock()
	c.nudge()
	if d == 0 {
		return nil
	}
	limit := time.NewTimer(c.cfg.Grace + c.cfg.ReapLimit + releaseMargin)
	defer limit.Stop()
	for {
		pids, changed := c.left()
		if pids == nil {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return fmt.Errorf("release the GPUs: process %v was killed and does not go, because a driver call does not return; "+
				"its device files stay open until it does: see the kernel log, the node may need a reboot", pids)
		}
	}
}

// left returns the processes that a release waits for, nil if there is none.
func (c *Child) left() ([]int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := c.pids()
	if pids == nil && c.status.State == Starting {
		pids = []int{} // it is being started and has no pid yet
	}
	return pids, c.changed
}

// ReleasedUntil returns when the child comes back, zero if it is not away.
func (c *Child) ReleasedUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.away) {
		return c.away
	}
	return time.Time{}
}
