// Package inventory is the source of what runs on the node: the libraries and
// frameworks that GPU processes really have loaded, the node's own components,
// images, data sets, models, and the addresses at which they are served. It runs
// nothing and connects to nobody: it reads files, and those of other people's
// processes as if they were hostile.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// SourceName is the source's name among the sources of samples.
const SourceName = "inventory"

const (
	maxProcesses = 512              // looked at
	maxHung      = 8                // looks that do not return; then no process is looked at
	lookLimit    = 5 * time.Second  // of the look at one process
	firstLook    = 10 * time.Second // for which the first look waits for the list of processes
)

// errHung is of a process whose files do not answer: it may have a file system of
// its own, or one over a network that is down.
var errHung = errors.New("its files do not answer")

// Config says what is looked at. Snapshot and Log are required.
type Config struct {
	ProcFS, SysFS string
	Root          string // the node's root directory, where packages, programs and containers are described; empty: they are not looked at

	// Runtimes allows what takes the right to trace a process: its libraries and
	// the sockets that it listens at. Without that right they are told of the
	// user's own processes only.
	Runtimes bool

	// Approved are globs of the models that may be served; nil: there is no list.
	Approved []string

	Snapshot func() *collector.Snapshot // the last one, nil before the first
	Log      *slog.Logger
}

// Source is the source inventory.
type Source struct {
	cfg   Config
	now   func() time.Time
	limit time.Duration // of the look at one process
	node  *nodeReader

	mu     sync.Mutex
	memory memory
	known  map[identity]reading
	hung   map[identity]chan reading
	waited bool
}

// identity is a process.
type identity struct {
	pid   int
	start uint64
}

var _ collector.Source = (*Source)(nil)

// New returns the source. It opens nothing before the first sample.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, now: time.Now, limit: lookLimit, node: newNodeReader(cfg.SysFS), known: map[identity]reading{}, hung: map[identity]chan reading{}}
}

// Name returns inventory.
func (s *Source) Name() string { return SourceName }

// Restore says what an earlier source knew, so that what has changed since is told.
// It must be called before the first sample.
func (s *Source) Restore(i *collector.Inventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i != nil {
		s.memory.take(i)
	}
}

// Known returns what the next source should know; nil if nobody has looked yet.
func (s *Source) Known() *collector.Inventory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.inventory()
}

// Sample looks at the node and at each process that uses a GPU. A process that
// cannot be read is counted by the reason and costs itself only.
func (s *Source) Sample(ctx context.Context) (*collector.Part, error) {
	snap := s.await(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	part := &collector.Part{Time: s.now()}
	var absent []string
	host, err := s.host()
	if errors.Is(err, errNoOpenat2) {
		absent = append(absent, "node components, images and versions of frameworks: "+errNoOpenat2.Error())
		host, err = nil, nil
	}
	errs := []error{err}
	if host != nil {
		defer func() { _ = host.close() }() // nothing was written
	}
	versions, err := s.node.versions(host)
	part.Node.Versions = versions
	errs = append(errs, err)
	absent = append(absent, s.node.absent...)
	if snap == nil || !listsProcesses(snap) {
		part.Inventory = unlisted(snap, part.Time, absent)
		return part, errors.Join(errs...)
	}
	mounts, err := s.nodeMounts()
	errs = append(errs, err)
	look, around := newLook(s, snap, absent), surroundings{mounts, newTables(s.cfg.ProcFS)}
	for _, p := range look.processes {
		look.take(p, s.read(ctx, p, &around, host != nil))
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, fmt.Errorf("look at the processes on the GPUs: %w", err))
	}
	part.Inventory = look.finish(part.Time)
	part.Node.Readings = collector.NewReadings(metric.Node)
	for i, n := range look.unread {
		part.Node.SetAt(metric.InventoryUnread, i, float64(n))
	}
	part.Node.Stamp(metric.Inventory, part.Time)
	part.Events = s.memory.compare(part.Inventory, look.unsure)
	return part, errors.Join(errs...)
}

// await returns the last snapshot. The first look waits for one that has a list of
// processes, so that there need not be a whole interval without.
func (s *Source) await(ctx context.Context) *collector.Snapshot {
	if s.waited {
		return s.cfg.Snapshot()
	}
	s.waited = true
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if snap := s.cfg.Snapshot(); snap != nil && (listsProcesses(snap) || snap.GPUPage() != nil) { // a page has its list at once, or never
			return snap
		}
		select {
		case <-ctx.Done():
			return s.cfg.Snapshot()
		case <-tick.C:
		}
	}
}

// listsProcesses reports whether the processes in the snapshot are those that there
// are. Without such a list nothing is known to have ended.
func listsProcesses(snap *collector.Snapshot) bool {
	for i := range snap.GPUs {
		if snap.GPUs[i].Has(metric.ProcessCount) {
			return true
		}
	}
	return false
}

// unlisted is the inventory of a node of which nobody will ever list the processes: it
// says why it is empty. Of another node it is nil, as nobody has looked.
func unlisted(snap *collector.Snapshot, now time.Time, absent []string) *collector.Inventory {
	if snap == nil || snap.GPUPage() == nil {
		return nil
	}
	return &collector.Inventory{At: now, Absent: append(absent, "what runs on the GPUs: they are read from the page of "+snap.GPUPage().Exporter+", which lists no processes")}
}

// host opens the node's root directory, nil if it is not to be looked into.
func (s *Source) host() (*root, error) {
	if s.cfg.Root == "" {
		return nil, nil
	}
	host, err := openRoot(unix.AT_FDCWD, s.cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("%w: give the node's with inventory.root, or \"\"", err)
	}
	fd, err := host.at("/", unix.O_PATH)
	if err == nil {
		return host, unix.Close(fd)
	}
	if errors.Is(err, unix.EPERM) {
		err = errNoOpenat2 // older filters of system calls refuse what they do not know
	}
	return nil, errors.Join(err, host.close())
}

// surroundings are what the looks at the processes have in common.
type surroundings struct {
	mounts  *nodeMounts
	sockets *tables
}

// nodeMounts reads the mounts of process 1, which are the node's where its
// processes are in sight.
func (s *Source) nodeMounts() (*nodeMounts, error) {
	n := newNodeMounts()
	p, err := openProcess(s.cfg.ProcFS, 1, 0)
	if err != nil {
		return &n, nil // hidden: then no mount is known to be the node's
	}
	err = errors.Join(p.mounts(n.add), p.Close())
	if errors.Is(err, unix.EACCES) || errors.Is(err, proc.ErrGone) {
		err = nil
	}
	return &n, err
}

// read looks at one process, in a goroutine of its own that is left behind if the
// process's files do not answer. While it hangs, the process is not looked at again.
func (s *Source) read(ctx context.Context, p *collector.Process, around *surroundings, host bool) reading {
	id := identity{p.PID, p.Start}
	last := s.known[id]
	if done := s.hung[id]; done != nil {
		select {
		case r := <-done:
			delete(s.hung, id)
			s.known[id] = r
			return r
		default:
		}
	}
	if s.hung[id] != nil || len(s.hung) >= maxHung || ctx.Err() != nil {
		last.unread = "hung"
		return last
	}
	t := task{procfs: s.cfg.ProcFS, pid: p.PID, start: p.Start, runtimes: s.cfg.Runtimes, node: around.mounts, sockets: around.sockets, before: last}
	if host {
		t.host = s.cfg.Root
	}
	done := make(chan reading, 1)
	go func() { done <- t.run() }()
	limit := time.NewTimer(s.limit)
	defer limit.Stop()
	select {
	case r := <-done:
		s.known[id] = r
		return r
	case <-limit.C:
	case <-ctx.Done():
	}
	s.hung[id] = done
	s.cfg.Log.Warn("A process's files do not answer: its libraries, images and data sets are not told until they do.", "pid", p.PID)
	last.unread = "hung"
	return last
}
