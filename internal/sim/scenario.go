package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
)

// Scenario is what happens on a node: who works on it and what befalls it, as data.
type Scenario struct {
	Name string
	Help string // one sentence, for a user who chooses one

	// Past is how much of the scenario lies before it goes live: what Sim.Prelude
	// replays. Entries with negative offsets happen in it.
	Past      time.Duration
	Workloads []Workload
	Guests    []Guest
	Gifts     []Gift
	Timeline  []Entry
}

// Guest is a process that shares a GPU with the workload that has it.
type Guest struct {
	On      string          // one of a workload's GPUs: "chat/1"
	Owner   collector.Owner // zero: nobody knows whose it is
	Process string          // what it calls itself
	UID     int
	Memory  float64 // device memory in bytes
	Share   float64 // of the GPU's work
}

// Gift is a share of a GPU that somebody was given and does not use.
type Gift struct {
	On       string // as Guest.On
	Owner    collector.Owner
	Resource string // as the scheduler calls it
}

// WorkloadKind says how a workload uses its GPUs.
type WorkloadKind string

// The kinds of workloads.
const (
	// Training keeps its GPUs at 95 to 100 % and writes a checkpoint every 20 minutes.
	Training WorkloadKind = "training"
	// Inference serves requests from a queue; it has an endpoint.
	Inference WorkloadKind = "inference"
	// Notebook holds its GPU and leaves it idle but for Work entries.
	Notebook WorkloadKind = "notebook"
	// Batch is on the node only during Run entries; its GPU is free otherwise.
	Batch WorkloadKind = "batch"
)

// Workload is a program, its owner and its GPUs.
type Workload struct {
	Name    string // what the timeline calls it
	Kind    WorkloadKind
	GPUs    int // on a node of eight; scaled with the node, at least one
	Owner   collector.Owner
	Traits  Traits
	Process string  // what its processes call themselves; %d is the rank
	UID     int     // of its processes
	Memory  float64 // device memory of each process, in bytes

	// Servers are those of an Inference workload, which share its GPUs. The first one
	// is what it is about; the others are small.
	Servers []Server
}

// Server is an inference server and its endpoint.
type Server struct {
	URL, Engine, Model string
}

// Kind is what an entry of a timeline does.
type Kind string

// The kinds of entries, with what their targets are and what Level, Code,
// Component and To mean.
const (
	Saturate Kind = "saturate" // Inference: Level is arrivals relative to capacity
	Work     Kind = "work"     // Notebook: somebody computes in it
	Run      Kind = "run"      // Batch: it is on the node
	Give     Kind = "give"     // Batch: its GPUs are its owner's, although nothing runs yet
	Spin     Kind = "spin"     // Training: a dead collective, 100 % utilization at little power
	Xid      Kind = "xid"      // GPU: Code falls at the beginning; 79 loses the GPU for the duration, then it is reset
	Heat     Kind = "heat"     // GPU: Level is how much worse it is cooled
	Hang     Kind = "hang"     // GPU: calls into the driver do not return
	Replays  Kind = "replays"  // GPU: Level is PCIe packets sent again in a second
	Version  Kind = "version"  // node: Component has the version To
	Upgrade  Kind = "upgrade"  // any workload: its processes have the version To of Component loaded
)

// Entry is one line of a timeline.
type Entry struct {
	Kind Kind
	// Target is a workload, one of its GPUs ("train/0"), one of the GPUs that no
	// workload has ("free/0"), or empty for the node.
	Target string

	At    time.Duration // offset of the beginning from when the scenario goes live
	For   time.Duration // 0: for ever, or a point event
	Every time.Duration // 0: once

	Level     float64
	Code      int
	Component string
	To        string
}

// at reports whether the entry holds at the offset, and which repetition of it
// has begun last, counted from 1; 0 before the first.
func (e *Entry) at(offset time.Duration) (on bool, episode int64) {
	since := offset - e.At
	if since < 0 {
		return false, 0
	}
	episode = 1
	if e.Every > 0 {
		episode += int64(since / e.Every)
		since %= e.Every
	}
	return e.For == 0 || since < e.For, episode
}

// layout gives each workload its GPUs on a node with the given number; the key
// "free" has those that are left.
func (sc *Scenario) layout(gpus int) (map[string][]int, error) {
	places := map[string][]int{}
	next := 0
	for _, w := range sc.Workloads {
		for range max(1, w.GPUs*gpus/nodeSize) {
			places[w.Name] = append(places[w.Name], next)
			next++
		}
	}
	if next > gpus {
		return nil, fmt.Errorf("scenario %q needs more than %d GPUs: its workloads want %d", sc.Name, gpus, next)
	}
	for ; next < gpus; next++ {
		places[free] = append(places[free], next)
	}
	return places, nil
}

const (
	nodeSize = 8
	free     = "free"
)

// target says what an entry is about.
type target struct {
	workload *workload
	gpu      *gpu
}

// resolve finds an entry's target and reports an entry that cannot happen.
func (s *Sim) resolve(e *Entry, places map[string][]int) (target, error) {
	fail := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("scenario %q: %s at %v: %s", s.cfg.Scenario.Name, e.Kind, e.At, fmt.Sprintf(format, args...))
	}
	if e.Every > 0 && e.For >= e.Every {
		return fail("lasts %v and repeats every %v, so it would never end", e.For, e.Every)
	}
	if e.At < -s.cfg.Scenario.Past {
		return fail("is before the scenario begins, which is %v before it goes live", s.cfg.Scenario.Past)
	}
	if e.Kind == Version {
		if !slices.ContainsFunc(s.versions, func(v collector.Version) bool { return v.Component == e.Component }) {
			return fail("the node has no component %q", e.Component)
		}
		return target{}, nil
	}
	name, _, _ := strings.Cut(e.Target, "/")
	i := slices.IndexFunc(s.workloads, func(w *workload) bool { return w.Name == name })
	if e.Kind == Upgrade {
		if i < 0 || !slices.ContainsFunc(s.workloads[i].software.runtimes, func(v collector.Version) bool { return v.Component == e.Component }) {
			return fail("target %q is no workload that has %q loaded", e.Target, e.Component)
		}
		return target{workload: s.workloads[i]}, nil
	}
	if kind := needs[e.Kind]; kind != "" {
		if i < 0 || s.workloads[i].Kind != kind {
			return fail("target %q is no workload of kind %s", e.Target, kind)
		}
		return target{workload: s.workloads[i]}, nil
	}
	if _, known := needs[e.Kind]; !known {
		return fail("there is no such kind of entry")
	}
	g, err := s.gpuAt(e.Target, places)
	if err != nil {
		return fail("%v", err)
	}
	return target{gpu: g}, nil
}

// gpuAt finds one of a workload's GPUs by WORKLOAD/NUMBER.
func (s *Sim) gpuAt(spot string, places map[string][]int) (*gpu, error) {
	name, number, one := strings.Cut(spot, "/")
	n, err := strconv.Atoi(number)
	if !one || err != nil || n < 0 || n >= len(places[name]) {
		return nil, fmt.Errorf("target %q is no GPU: write WORKLOAD/NUMBER with a number below %d", spot, len(places[name]))
	}
	return s.gpus[places[name][n]], nil
}

// needs is the kind of workload that a kind of entry is about; empty for a GPU.
var needs = map[Kind]WorkloadKind{
	Saturate: Inference, Work: Notebook, Run: Batch, Give: Batch, Spin: Training,
	Xid: "", Heat: "", Hang: "", Replays: "",
}
