//go:build linux && cgo

package nvml

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// account counts the calls of the whole process, and those of each function in the
// order of metric.NVMLFunction.
type account struct {
	tally
	functions []tally
	index     map[string]int
}

type tally struct {
	calls, errors atomic.Uint64
	nanoseconds   atomic.Int64
}

func newAccount() *account {
	values := metric.NVMLFunction.Values
	a := &account{functions: make([]tally, len(values)), index: make(map[string]int, len(values))}
	for i, function := range values {
		a.index[function] = i
	}
	return a
}

func (t *tally) add(took time.Duration, ret nvml.Return) {
	t.calls.Add(1)
	t.nanoseconds.Add(int64(took))
	if counted(ret) {
		t.errors.Add(1)
	}
}

// seconds is the time spent so far.
func (t *tally) seconds() float64 { return time.Duration(t.nanoseconds.Load()).Seconds() }

func (a *account) add(function string, took time.Duration, ret nvml.Return) {
	a.tally.add(took, ret)
	if i, listed := a.index[function]; listed {
		a.functions[i].add(took, ret)
	}
}

// fill writes the counts. Of the functions that were called it tells all, or only
// those that took the most time.
func (a *account) fill(r collector.Readings, all bool) {
	r.Set(metric.NVMLCalls, float64(a.calls.Load()))
	r.Set(metric.NVMLErrors, float64(a.errors.Load()))
	r.Set(metric.NVMLSeconds, a.seconds())
	type entry struct {
		at    int
		spent int64
	}
	var called []entry
	for i := range a.functions {
		if a.functions[i].calls.Load() > 0 {
			called = append(called, entry{i, a.functions[i].nanoseconds.Load()})
		}
	}
	if limit := metric.NVMLFunction.Shown; !all && len(called) > limit {
		slices.SortStableFunc(called, func(a, b entry) int { return cmp.Compare(b.spent, a.spent) })
		called = called[:limit]
	}
	for _, f := range called {
		t := &a.functions[f.at]
		r.SetAt(metric.FunctionSeconds, f.at, t.seconds())
		r.SetAt(metric.FunctionCalls, f.at, float64(t.calls.Load()))
		r.SetAt(metric.FunctionErrors, f.at, float64(t.errors.Load()))
	}
}

// caller is one goroutine's way into NVML. Others may look at how long its call
// in flight has been running.
type caller struct {
	account *account
	flight  atomic.Pointer[flight]
	spent   time.Duration // inside NVML so far; the goroutine's own
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
	took := time.Since(start)
	c.spent += took
	c.account.add(function, took, ret)
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
