// Package kernellog reads what the driver says of errors in the kernel log and
// what the fabric manager writes into its own. NVML tells only of the errors that
// the driver calls critical, and of none that fell before somebody listened.
//
// The kernel log is tier 2: without the right to read it the source is absent,
// and says so once. Process names in its lines are never passed on.
package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// SourceName is the source's name among the sources of samples.
const SourceName = "kernellog"

// Who told of an event, in its field Source.
const (
	FromKernel = "kernel"
	FromFabric = "fabric_manager"
)

const (
	retryAfter = time.Minute // a log that could not be opened is tried again
	maxEvents  = 1024        // of one sample; the rest comes with the next
	maxRecords = 20000       // of one sample
)

// Config says which logs are read. An empty path is a log that is not read.
type Config struct {
	Kmsg    string // the kernel's records: /dev/kmsg
	Journal string // a file or FIFO into which journalctl -k -o json writes; read if Kmsg cannot be
	Fabric  string // the log of the fabric manager
	ProcFS  string // for the id of the boot
	Log     *slog.Logger
}

// Source is the source kernellog. It makes events and counts what it read.
type Source struct {
	cfg  Config
	now  func() (wall time.Time, up time.Duration)
	boot string

	mu          sync.Mutex
	pos         collector.LogPosition
	kernel      feed
	journal     feed
	fabric      feed
	drained     time.Time // when the kernel log was last read to its end
	journalFrom uint64    // entries up to this stamp were seen
	fabricRead  time.Time // when the fabric manager's was last read
	events      []collector.Event
	parser      parser

	records, lost, fabricErrors uint64
}

// New returns the source. It opens nothing before the first sample.
func New(cfg Config) *Source {
	s := &Source{cfg: cfg, now: clock, parser: newParser()}
	s.kernel = feed{path: cfg.Kmsg, what: "the kernel log: give this user CAP_SYSLOG and the device, or set host.kmsg to \"\" (gpuvigil doctor, tier 2)"}
	s.journal = feed{path: cfg.Journal, what: "the exported journal: let journalctl -k -f -o json write to it, or set host.journal to \"\""}
	s.fabric = feed{path: cfg.Fabric, optional: true, what: "the fabric manager's log: make it readable, or set host.fabric_manager_log to \"\""}
	return s
}

func clock() (time.Time, time.Duration) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Now(), 0 // a Linux without this clock does not exist
	}
	return time.Now(), time.Duration(ts.Nano())
}

// Name returns kernellog.
func (s *Source) Name() string { return SourceName }

// Restore says where an earlier source has stopped to read. It must be called
// before the first sample.
func (s *Source) Restore(p collector.LogPosition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos = p
}

// Close closes the logs. A later sample opens them again.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.kernel.close(), s.journal.close(), s.fabric.close())
}

// Sample reads what is new in the logs. Its error wraps collector.ErrAbsent if
// there is no log that this user can read.
func (s *Source) Sample(ctx context.Context) (*collector.Part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wall, up := s.now()
	if err := s.checkBoot(); err != nil {
		return nil, err
	}
	s.events = nil
	var errs []error
	if s.journal.file == nil { // else the kernel log would tell all of it again
		errs = append(errs, s.follow(&s.kernel, wall, func(f *stream) error { return s.readKmsg(ctx, f, wall, up) }))
	}
	if s.kernel.file == nil {
		errs = append(errs, s.follow(&s.journal, wall, func(f *stream) error { return s.readJournal(ctx, f, wall) }))
	}
	errs = append(errs, s.follow(&s.fabric, wall, func(f *stream) error { return s.readFabric(ctx, f, wall) }))
	failed := errors.Join(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, collector.ErrAbsent) })...)
	switch {
	case s.kernel.file != nil || s.journal.file != nil || s.fabric.file != nil:
		return s.part(wall), failed // what is absent beside it is no failure
	case failed != nil:
		return nil, failed
	case errors.Join(errs...) == nil:
		return nil, fmt.Errorf("no log is configured: %w", collector.ErrAbsent)
	}
	return nil, errors.Join(errs...)
}

func (s *Source) part(wall time.Time) *collector.Part {
	p := &collector.Part{Time: wall, Events: s.events, Node: collector.Node{Readings: collector.NewReadings(metric.Node)}}
	if s.kernel.file != nil || s.journal.file != nil {
		p.Node.Set(metric.KernelLogRecords, float64(s.records))
		p.Node.Set(metric.KernelLogLost, float64(s.lost))
	}
	if s.fabric.file != nil {
		p.Node.Set(metric.FabricManagerErrors, float64(s.fabricErrors))
	}
	p.Node.Stamp(metric.Fast, wall)
	pos := s.pos
	p.Log = &pos
	return p
}

// checkBoot forgets the number of the next record if the node has booted since.
func (s *Source) checkBoot() error {
	if s.boot != "" {
		return nil
	}
	id, err := collector.BootID(s.cfg.ProcFS)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", collector.ErrAbsent, err)
	}
	if err != nil {
		return fmt.Errorf("tell which records were seen: %w", err)
	}
	s.boot = id
	if s.pos.Boot != s.boot {
		s.pos.Boot, s.pos.Kernel = s.boot, 0
	}
	return nil
}

// full reports whether this sample has taken all that it may.
func (s *Source) full(ctx context.Context, records int) bool {
	return len(s.events) >= maxEvents || records >= maxRecords || ctx.Err() != nil
}

// lastly returns at within the time in which the log grew by what was just read:
// the clock that a record was stamped with may have drifted. A zero since says that
// the record may be of any time before now.
func lastly(at, since, now time.Time) time.Time {
	switch {
	case at.After(now), at.IsZero():
		return now
	case at.Before(since) && !since.After(now): // else the clock was set back
		return since
	}
	return at
}

var errOverwritten = syscall.EPIPE // the kernel needed the place of records that were not read yet
