//go:build linux && cgo

package nvml

import (
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// account counts the calls of the whole process.
type account struct {
	calls, errors atomic.Uint64
	nanoseconds   atomic.Int64
}

// caller is one goroutine's way into NVML. Others may look at how long its call
// in flight has been running.
type caller struct {
	account *account
	flight  atomic.Pointer[flight]
}

type flight struct {
	function string
	since    time.Time
}

// do makes one call. It returns when the driver does, which may be never.
func (c *caller) do(function string, f func() nvml.Return) nvml.Return {
	start := time.Now()
	c.flight.Store(&flight{function, start})
	ret := f()
	c.flight.Store(nil)
	c.account.calls.Add(1)
	c.account.nanoseconds.Add(int64(time.Since(start)))
	if counted(ret) {
		c.account.errors.Add(1)
	}
	return ret
}

// hung returns the function of a call that has been in flight for longer than the
// limit, or an empty string.
func (c *caller) hung(now time.Time, limit time.Duration) string {
	if f := c.flight.Load(); f != nil && now.Sub(f.since) > limit {
		return f.function
	}
	return ""
}
