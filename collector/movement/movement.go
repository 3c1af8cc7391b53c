// Package movement is the source of what each owner moves: bytes to and from block
// devices, networks and NFS servers, the addresses it talks to, the traffic of its
// GPUs; and beside it the CPU time and memory of its control group.
//
// Counters are kept for each owner over its processes, control groups and namespaces
// as they come and go. What is first seen counts from then on: a control group that
// is days old when its owner opens a GPU is no burst of all those days. So a counter
// is a floor. It never falls while the agent runs.
//
// A fact that cannot be told, or not as a whole, is absent or has a caveat that says
// why. Everything but /proc/PID/io and /proc/PID/mountstats is readable by anybody.
package movement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// SourceName is the source's name among the sources of samples.
const SourceName = "movement"

// The bounds of what may be many.
const (
	maxOwners    = 256
	maxProcesses = 4096
	keepRounds   = 240 // samples for which an owner that is not seen is remembered
)

// Config is what the source needs.
type Config struct {
	ProcFS string // mount point of the host's /proc
	SysFS  string // mount point of the host's /sys

	// Snapshot returns the newest snapshot, or nil: its processes are looked at.
	Snapshot func() *collector.Snapshot

	Addresses  bool // keep public addresses for the evidence of findings
	Privileged bool // read what only a process's own user, or an administrator, may read

	Log *slog.Logger
}

// Movement reads what the owners of the snapshot's processes move. It is used from
// one goroutine.
type Movement struct {
	cfg     Config
	cgroups *cgroups
	round   uint64
	tallies map[collector.Owner]*tally
	crowded bool // too many owners or processes, and the log says so
}

var _ collector.Source = (*Movement)(nil)

// New returns a source. The error says which mount point is not there.
func New(cfg Config) (*Movement, error) {
	if _, err := os.Stat(filepath.Join(cfg.ProcFS, "self")); err != nil {
		return nil, fmt.Errorf("open procfs: %w: name the host's with --path.procfs", err)
	}
	groups, err := openCgroups(filepath.Join(cfg.SysFS, "fs", "cgroup"))
	if err != nil {
		cfg.Log.Warn("What owners read and write is not told: there are no control groups.", "err", err)
	}
	return &Movement{cfg: cfg, cgroups: groups, tallies: map[collector.Owner]*tally{}}, nil
}

// Inherit goes on with the counters of an earlier source that is not used any more.
func (m *Movement) Inherit(old *Movement) { m.round, m.tallies = old.round, old.tallies }

// Close gives back what the source holds open.
func (m *Movement) Close() error {
	if m.cgroups == nil {
		return nil
	}
	return m.cgroups.root.Close()
}

// Name is SourceName.
func (m *Movement) Name() string { return SourceName }

// Sample looks at the owners of the last snapshot's processes. What cannot be read
// costs that fact of that owner only; it is a caveat, not an error.
func (m *Movement) Sample(ctx context.Context) (*collector.Part, error) {
	snap := m.cfg.Snapshot()
	if snap == nil {
		return &collector.Part{Time: time.Now()}, nil
	}
	m.round++
	s := &scene{Movement: m, namespaces: map[uint64]*namespace{}, mounts: map[string]*owned{}}
	s.gather(snap)
	err := s.look(ctx)
	part := &collector.Part{}
	for _, o := range s.owners {
		if ctx.Err() != nil {
			break
		}
		if !o.seen {
			continue // all its processes have gone
		}
		part.Workloads = append(part.Workloads, s.workload(o, snap))
	}
	m.forget()
	part.Time = time.Now()
	return part, errors.Join(err, ctx.Err())
}

// forget drops owners that were not seen for long.
func (m *Movement) forget() {
	for o, t := range m.tallies {
		if m.round-t.seen > keepRounds {
			delete(m.tallies, o)
			continue
		}
		t.forget(m.round)
	}
}

func (m *Movement) tally(o collector.Owner) *tally {
	t := m.tallies[o]
	if t == nil {
		t = newTally()
		m.tallies[o] = t
	}
	t.begin(m.round)
	return t
}

// workload makes one owner's readings.
func (s *scene) workload(o *owned, snap *collector.Snapshot) collector.Workload {
	w := collector.Workload{Owner: o.owner, Readings: collector.NewReadings(metric.Workload)}
	f := &facts{scene: s, owned: o, tally: s.tally(o.owner), caveats: map[collector.Caveat]bool{}, readings: w.Readings}
	f.groups()
	f.network()
	f.files()
	f.openFiles()
	f.gpus(snap)
	f.tally.report(w.Readings)
	w.Caveats = f.sortedCaveats()
	public := f.publicAddresses()
	w.Networks = networks(public)
	if s.cfg.Addresses {
		w.Remotes = public[:min(len(public), maxEvidence)]
	}
	w.Stamp(metric.Slow, time.Now())
	return w
}
