// Package agent is the source of what the agent itself costs the node: CPU,
// memory, file descriptors. A monitor that cannot say what it takes should not be
// on a GPU node.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Agent reads the agent's own process and its children.
type Agent struct {
	proc     procfs.FS
	children func() []int
	slow     time.Duration // between two readings of PSS, for which the kernel walks all pages of a process

	pss   float64 // NaN: the kernel does not tell it
	pssAt time.Time
}

var _ collector.Source = (*Agent)(nil)

// New returns a source for this process. children returns the pids of the child
// processes that count as the agent's cost; nil means there are none. slow is the
// interval of the slow tier.
func New(children func() []int, slow time.Duration) (*Agent, error) {
	// The agent's own pid is that of its own pid namespace, so it is looked up in
	// its own /proc, whatever the host's is mounted as.
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("open /proc for the agent's own cost: %w", err)
	}
	if children == nil {
		children = func() []int { return nil }
	}
	return &Agent{proc: proc, children: children, slow: slow}, nil
}

// Name is "agent".
func (a *Agent) Name() string { return "agent" }

// Sample reads the cost so far.
func (a *Agent) Sample(context.Context) (*collector.Part, error) {
	r := collector.NewReadings(metric.Node)
	cpu, err := processorTime()
	if err != nil {
		return nil, err
	}
	self, err := a.proc.Proc(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("read the agent's own process: %w", err)
	}
	stat, err := self.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the agent's own process: %w", err)
	}
	rss := stat.ResidentMemory()
	var errs []error
	children := a.children()
	for _, pid := range children {
		childRSS, childCPU, err := a.child(pid)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rss += childRSS
		cpu += childCPU
	}
	files, err := self.FileDescriptorsLen()
	if err != nil {
		errs = append(errs, fmt.Errorf("count the agent's open files: %w", err))
	} else {
		r.Set(metric.AgentOpenFiles, float64(files))
	}
	r.Set(metric.AgentCPU, cpu)
	r.Set(metric.AgentRSS, float64(rss))
	r.Set(metric.AgentGoroutines, float64(runtime.NumGoroutine()))
	now := time.Now()
	r.Stamp(metric.Fast, now)
	if a.pssAt.IsZero() || now.Sub(a.pssAt) >= a.slow {
		if a.pss, err = a.proportional(append([]int{os.Getpid()}, children...)); err != nil {
			errs = append(errs, err)
		}
		a.pssAt = now
	}
	r.Set(metric.AgentPSS, a.pss)
	r.Stamp(metric.Slow, a.pssAt)
	return &collector.Part{Time: now, Node: collector.Node{Readings: r}}, errors.Join(errs...)
}

// processorTime returns the CPU time of this process and of its children that
// have ended, so that the sum does not fall when a child is replaced.
func processorTime() (float64, error) {
	var total float64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return 0, fmt.Errorf("read the agent's own CPU time: %w", err)
		}
		total += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	return total, nil
}

func (a *Agent) child(pid int) (rss int, cpu float64, err error) {
	p, err := a.proc.Proc(pid)
	if err == nil {
		var stat procfs.ProcStat
		if stat, err = p.Stat(); err == nil {
			return stat.ResidentMemory(), stat.CPUTime(), nil
		}
	}
	if gone(err) {
		return 0, 0, nil // it has just ended; its time is in RUSAGE_CHILDREN
	}
	return 0, 0, fmt.Errorf("read the agent's child %d: %w", pid, err)
}

// proportional returns the sum of the processes' PSS. It is NaN, which is no error,
// where the kernel is too old to tell or does not let the agent look at its child:
// a sum of some would pass for the sum of all.
func (a *Agent) proportional(pids []int) (float64, error) {
	var sum float64
	for _, pid := range pids {
		p, err := a.proc.Proc(pid)
		if gone(err) {
			continue
		}
		var rollup procfs.ProcSMapsRollup
		if err == nil {
			rollup, err = p.ProcSMapsRollup()
		}
		switch {
		case err == nil:
			sum += float64(rollup.Pss)
		case errors.Is(err, unix.ESRCH): // it has just ended
		case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
			return math.NaN(), nil
		default:
			return math.NaN(), fmt.Errorf("read the proportional memory of process %d: %w", pid, err)
		}
	}
	return sum, nil
}

// gone reports whether a process could not be read because it has ended.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }
