package collector

import (
	"context"
	"errors"
	"time"
)

// ErrAbsent is wrapped by the error of a source that looks at something which
// this machine does not have: no NVIDIA driver, say. Readiness does not wait for
// such a source.
var ErrAbsent = errors.New("not on this machine")

// ErrPaused is of the kind of the errors of a source that was told not to look, and
// ErrHung of one that waits for an answer which does not come.
var (
	ErrPaused = errors.New("told not to look")
	ErrHung   = errors.New("no answer comes")
)

// Source fills its part of a snapshot.
//
// The sampler calls Sample from one goroutine, never twice at once, and gives it
// a context with the source's deadline. Sample returns by then, with what it has:
// a Part beside an error is used. It stamps the tiers of the readings that it
// fills (Readings.Stamp) with the time at which they were taken.
type Source interface {
	// Name is the value of the source label: nvml, host, agent, sim …
	Name() string
	// Sample returns the source's part. The part is not changed afterwards by
	// either side; parts may share memory with earlier ones.
	Sample(ctx context.Context) (*Part, error)
}

// Part is what one source knows. Entities that two sources know are merged by
// their identity: readings that are not NaN and fields that are not empty win
// over those of sources earlier in the list.
type Part struct {
	Time       time.Time
	Boot       time.Time
	BootID     string // see Snapshot; not recorded
	Simulated  bool
	Node       Node
	GPUs       []GPU
	Instances  []Instance
	Links      []Link
	Interfaces []Interface
	Processes  []Process
	Endpoints  []Endpoint
	Targets    []Target
	Pages      []Page // that the source reads
	Workloads  []Workload
	Inventory  *Inventory // nil: the source does not tell
	Events     []Event    // since the part before; each is delivered once

	// Attributions and Allocations are joined to the processes and GPUs that other
	// sources list. They add none: one that nobody lists is left out.
	Attributions []Attribution
	Allocations  []Allocation

	// Bus is which kernel driver has which NVIDIA GPU on the PCI bus, by address as
	// PCIAddress writes it; NoDriver for one that none has. Nil: the source does not
	// tell. It is joined to the GPUs and not recorded by itself.
	Bus map[string]string

	// Log is how far a source that reads logs has read for this part; nil for
	// other sources.
	Log *LogPosition
}

// Scheduled is a source with its place in the sampler's timetable.
type Scheduled struct {
	Source   Source
	Interval time.Duration // between the starts of two samples
	Deadline time.Duration // of one sample
	Expected bool          // readiness waits for it
}

// Part returns what the snapshot holds as one source's part, for a recording.
func (s *Snapshot) Part() *Part {
	return &Part{
		Time: s.Time, Boot: s.Boot, Simulated: s.Simulated, Node: s.Node,
		GPUs: s.GPUs, Instances: s.Instances, Links: s.Links, Interfaces: s.Interfaces, Processes: s.Processes, Endpoints: s.Endpoints, Targets: s.Targets, Pages: s.Pages,
		Workloads: s.Workloads, Inventory: s.Inventory, Events: s.Events,
	}
}
