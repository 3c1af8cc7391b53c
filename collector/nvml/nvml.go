//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/procfs"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
)

// library is what is asked of NVML as a whole; nvml.Interface satisfies it.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	Extensions() nvml.ExtendedInterface
	SystemGetDriverVersion() (string, nvml.Return)
	SystemGetNVMLVersion() (string, nvml.Return)
	SystemGetCudaDriverVersion_v2() (int, nvml.Return)
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	EventSetCreate() (nvml.EventSet, nvml.Return)
	SystemGetConfComputeState() (nvml.ConfComputeSystemState, nvml.Return)
	GpmSampleAlloc() (nvml.GpmSample, nvml.Return)
	GpmMetricsGet(*nvml.GpmMetricsGetType) nvml.Return
}

// partWriter is where parts go; *frame.Writer is one.
type partWriter interface {
	Write(*collector.Part) error
}

// Serve samples the GPUs and writes a frame to w every fast tick until ctx ends,
// and then returns nil. It returns an error when there is no usable driver, when
// initialising exceeds its limit, when the driver goes away and when w fails; only
// a new process can do better then, because a process binds one libnvidia-ml and
// calls that hang cannot be ended. While w blocks, frames are left out. What hangs
// when Serve returns goes on hanging until the process exits.
func Serve(ctx context.Context, w io.Writer, cfg Config) error {
	path := cfg.LibraryPath
	if path == "" {
		path = defaultLibrary
	}
	open := func() (library, error) {
		if err := checkLibrary(path); err != nil {
			return nil, err
		}
		return nvml.New(nvml.WithLibraryPath(path)), nil
	}
	return serve(ctx, open, frame.NewWriter(w), cfg.withDefaults())
}

func serve(ctx context.Context, open func() (library, error), out partWriter, cfg Config) error {
	type opened struct {
		s   *session
		err error
	}
	ready := make(chan opened, 1)
	go func() {
		s, err := newSession(open, cfg)
		ready <- opened{s, err}
	}()
	limit := time.NewTimer(cfg.InitLimit)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-limit.C:
		return fmt.Errorf("initialize NVML: the driver has not answered for %v; look for Xid 119 or hung tasks in the kernel log", cfg.InitLimit)
	case o := <-ready:
		if o.err != nil {
			return o.err
		}
		return (&server{session: o.s, out: out}).run(ctx)
	}
}

// session is NVML, initialised.
type session struct {
	cfg     Config
	log     *slog.Logger
	lib     library
	guard   *guard
	procfs  procfs.FS
	foreign bool // the driver's pids mean nothing in it
	account *account
	fleet   *fleet
	census  *census
	events  *eventSets // nil: the driver has no events
	fatal   chan error // has room for the first
	turn    *gpmTurn

	eventSets atomic.Uint64 // that took the place of one that failed

	gpuCalls, migCalls, instanceCalls, linkCalls []*call
	buffers                                      []*buffer
}

// newSession initialises NVML. Each step may hang.
func newSession(open func() (library, error), cfg Config) (*session, error) {
	s := &session{cfg: cfg, log: cfg.Log, account: newAccount(), fleet: newFleet(), fatal: make(chan error, 1), turn: newGPMTurn()}
	var err error
	if s.procfs, err = procfs.NewFS(cfg.ProcFS); err != nil {
		return nil, fmt.Errorf("initialize NVML: %w; say where the host's procfs is mounted", err)
	}
	hostPIDs, err := collector.HostPIDs(cfg.ProcFS)
	if err != nil {
		return nil, fmt.Errorf("initialize NVML: %w", err)
	}
	if s.foreign = !hostPIDs; s.foreign {
		s.log.Warn("the driver's pids are not those of this pid namespace: processes have neither name nor user; "+
			"run with the host's pids, or mount the host's /proc and name it with --path.procfs", "procfs", cfg.ProcFS)
	}
	if s.lib, err = open(); err != nil {
		return nil, fmt.Errorf("initialize NVML: %w", err)
	}
	if ret := s.lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("initialize NVML: %w", &callError{"nvmlInit", "", ret})
	}
	s.guard = newGuard(s.lib.Extensions().LookupSymbol)
	driver, ret := s.lib.SystemGetDriverVersion()
	if judge(ret) == fatal {
		return nil, errors.Join(fmt.Errorf("initialize NVML: %w", &callError{"nvmlSystemGetDriverVersion", "", ret}), s.close())
	}
	if badProcessStruct(driver) {
		s.log.Warn("this driver's process lists are garbage: no processes", "driver", driver)
		for _, function := range []string{computeList, graphicsList, mpsList, processUsage} {
			s.guard.deny(function)
		}
	}
	s.prepare(driver)
	s.openEvents()
	s.census = newCensus(s)
	s.census.take(context.Background(), time.Now())
	return s, nil
}

func (s *session) prepare(driver string) {
	s.gpuCalls = resolve(s.guard, gpuCalls(driver))
	for _, c := range s.gpuCalls {
		if !isList(c) {
			s.migCalls = append(s.migCalls, c)
		}
	}
	s.instanceCalls = resolve(s.guard, instanceCalls())
	s.linkCalls = resolve(s.guard, linkCalls())
	for _, b := range buffers() {
		b.missing = !s.guard.has(b.function)
		s.buffers = append(s.buffers, &b)
	}
}

// fail ends Serve with the first of the errors that leave nothing to be done.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

func (s *session) close() error {
	if ret := s.lib.Shutdown(); ret != nvml.SUCCESS {
		return &callError{"nvmlShutdown", "", ret}
	}
	return nil
}
