// Package host is the source of what the node itself does: CPU, load, memory,
// pressure, disk and network, from the kernel's files.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// sectorBytes is the unit of /proc/diskstats, whatever the device's own sector is
// (Documentation/admin-guide/iostats.rst).
const sectorBytes = 512

// Host reads one node's kernel files. It is used from one goroutine.
type Host struct {
	procPath, sysPath string
	drainedFile       string // empty: none
	proc              procfs.FS
	block             blockdevice.FS

	cpus map[int64]procfs.CPUStat // of the last sample, for the shares

	read, written, busy, received, sent Sum

	bootID string // empty: not read yet, or not there

	onBus  map[string]string // at pciAt; replaced, never changed
	pciErr error
	pciAt  time.Time
}

var _ collector.Source = (*Host)(nil)

// New returns a source that reads the given mount points of procfs and sysfs. The
// error says which one is not there.
func New(procPath, sysPath string) (*Host, error) {
	proc, err := procfs.NewFS(procPath)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w: name the host's with --path.procfs", err)
	}
	block, err := blockdevice.NewFS(procPath, sysPath)
	if err != nil {
		return nil, fmt.Errorf("open sysfs: %w: name the host's with host.sysfs in the configuration", err)
	}
	return &Host{procPath: procPath, sysPath: sysPath, proc: proc, block: block}, nil
}

// WatchDrained has the source tell whether the file exists whose existence says that
// the node is drained. It is called before the first sample.
func (h *Host) WatchDrained(file string) { h.drainedFile = file }

// Name is "host".
func (h *Host) Name() string { return "host" }

// Sample reads everything once. What cannot be read is absent and named in the
// error; the rest is in the part all the same. What this kernel does not have
// (pressure, say) is absent without an error.
func (h *Host) Sample(ctx context.Context) (*collector.Part, error) {
	r := collector.NewReadings(metric.Node)
	part := &collector.Part{}
	var errs []error
	for _, read := range []func(collector.Readings, *collector.Part) error{
		h.cpu, h.load, h.memory, h.pressure, h.disk, h.network, h.kernel, h.boot, h.pci, h.drained,
	} {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		if err := guarded(read, r, part); err != nil {
			errs = append(errs, err)
		}
	}
	part.Time = time.Now()
	r.Stamp(metric.Fast, part.Time)
	r.Stamp(metric.Inventory, part.Time)
	part.Node.Readings = r
	return part, errors.Join(errs...)
}

// guarded turns a panic of a parser into an error: procfs indexes into lines that
// it takes to be whole, and a file can be cut short.
func guarded(read func(collector.Readings, *collector.Part) error, r collector.Readings, part *collector.Part) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read a file of the kernel that is not as expected: %v", p)
		}
	}()
	return read(r, part)
}

func (h *Host) cpu(r collector.Readings, part *collector.Part) error {
	stat, err := h.proc.Stat()
	if err != nil {
		return fmt.Errorf("read CPU time: %w", err)
	}
	part.Boot = time.Unix(int64(stat.BootTime), 0)
	all := stat.CPUTotal
	// Guest time is in user and nice already.
	for i, v := range []float64{all.User, all.Nice, all.System, all.Idle, all.Iowait, all.IRQ, all.SoftIRQ, all.Steal} {
		r.SetAt(metric.CPUSeconds, i, v)
	}
	r.Set(metric.CPUCount, float64(len(stat.CPU)))
	var busy, total, busiest float64
	for n, now := range stat.CPU {
		before, ok := h.cpus[n]
		if !ok {
			continue
		}
		b, t := busyTime(now)-busyTime(before), allTime(now)-allTime(before)
		if b < 0 || t <= 0 {
			continue // idle and iowait may step back by a tick
		}
		busy += b
		total += t
		busiest = max(busiest, b/t)
	}
	if total > 0 {
		r.Set(metric.CPUBusy, min(busy/total, 1))
		r.Set(metric.CPUBusiest, min(busiest, 1))
	}
	h.cpus = stat.CPU
	return nil
}

func busyTime(c procfs.CPUStat) float64 {
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
}

func allTime(c procfs.CPUStat) float64 { return busyTime(c) + c.Idle + c.Iowait }

func (h *Host) load(r collector.Readings, _ *collector.Part) error {
	l, err := h.proc.LoadAvg()
	if err != nil {
		return fmt.Errorf("read the load average: %w", err)
	}
	for i, v := range []float64{l.Load1, l.Load5, l.Load15} {
		r.SetAt(metric.Load, i, v)
	}
	return nil
}

func (h *Host) memory(r collector.Readings, _ *collector.Part) error {
	m, err := h.proc.Meminfo()
	if err != nil {
		return fmt.Errorf("read memory: %w", err)
	}
	if m.MemTotalBytes != nil {
		r.Set(metric.HostMemoryCapacity, float64(*m.MemTotalBytes))
	}
	if m.MemAvailableBytes != nil {
		r.Set(metric.HostMemoryAvailable, float64(*m.MemAvailableBytes))
	}
	if m.SwapTotalBytes != nil && m.SwapFreeBytes != nil {
		r.Set(metric.HostSwapUsed, float64(*m.SwapTotalBytes-*m.SwapFreeBytes))
	}
	return nil
}

func (h *Host) pressure(r collector.Readings, _ *collector.Part) error {
	var errs []error
	for i, resource := range metric.PSIResource.Values {
		psi, err := h.proc.PSIStatsForResource(resource)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP) {
			continue // an old kernel, or psi=0 at boot
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s pressure: %w", resource, err))
			continue
		}
		const micro = 1e-6
		if psi.Some != nil {
			r.SetAt(metric.PressureSome, i, float64(psi.Some.Total)*micro)
		}
		if psi.Full != nil {
			r.SetAt(metric.PressureFull, i, float64(psi.Full.Total)*micro)
		}
	}
	return errors.Join(errs...)
}

func (h *Host) disk(r collector.Readings, _ *collector.Part) error {
	stats, err := h.block.ProcDiskstats()
	if err != nil {
		return fmt.Errorf("read disk counters: %w", err)
	}
	sums := []*Sum{&h.read, &h.written, &h.busy}
	for _, c := range sums {
		c.Begin()
	}
	for _, d := range stats {
		if !h.physical("block", d.DeviceName) {
			continue // partitions, loop and mapped devices would count twice
		}
		h.read.Add(d.DeviceName, float64(d.ReadSectors)*sectorBytes)
		h.written.Add(d.DeviceName, float64(d.WriteSectors)*sectorBytes)
		h.busy.Add(d.DeviceName, float64(d.IOsTotalTicks)/1000)
	}
	setSum(r, metric.DiskBytes, 0, &h.read)
	setSum(r, metric.DiskBytes, 1, &h.written)
	setSum(r, metric.DiskIOTime, 0, &h.busy)
	return nil
}

func setSum(r collector.Readings, d *metric.Def, i int, s *Sum) {
	if total, ok := s.End(); ok {
		r.SetAt(d, i, total)
	}
}

func (h *Host) network(r collector.Readings, _ *collector.Part) error {
	// Process 1 is in the host's network namespace even where this one is not.
	var dev procfs.NetDev
	first, err := h.proc.Proc(1)
	if err == nil {
		dev, err = first.NetDev()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		dev, err = h.proc.NetDev() // /proc is mounted with hidepid
	}
	if err != nil {
		return fmt.Errorf("read network counters: %w", err)
	}
	h.received.Begin()
	h.sent.Begin()
	for name, d := range dev {
		if !h.physical(filepath.Join("class", "net"), name) {
			continue // bridges, bonds and container ends would count twice
		}
		h.received.Add(name, float64(d.RxBytes))
		h.sent.Add(name, float64(d.TxBytes))
	}
	setSum(r, metric.NetworkBytes, 0, &h.received)
	setSum(r, metric.NetworkBytes, 1, &h.sent)
	return nil
}

// physical reports whether a block device or network interface has hardware (or
// what a hypervisor shows as such) behind it.
func (h *Host) physical(class, name string) bool {
	_, err := os.Stat(filepath.Join(h.sysPath, class, strings.ReplaceAll(name, "/", "!"), "device"))
	return err == nil
}

// boot tells the id of the boot, which cannot change.
func (h *Host) boot(_ collector.Readings, part *collector.Part) (err error) {
	if h.bootID == "" {
		h.bootID, err = collector.BootID(h.procPath)
	}
	part.BootID = h.bootID
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (h *Host) kernel(_ collector.Readings, part *collector.Part) error {
	release, err := os.ReadFile(filepath.Join(h.procPath, "sys", "kernel", "osrelease"))
	if err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	part.Node.Versions = []collector.Version{{Component: "kernel", Value: strings.TrimSpace(string(release))}}
	return nil
}

func (h *Host) drained(r collector.Readings, _ *collector.Part) error {
	return ReadDrained(h.drainedFile, r)
}

// ReadDrained tells whether the file exists whose existence says that the node is
// drained; with no file nobody says.
func ReadDrained(file string, r collector.Readings) error {
	if file == "" {
		return nil
	}
	switch _, err := os.Lstat(file); {
	case err == nil:
		r.Set(metric.Drained, 1)
	case errors.Is(err, fs.ErrNotExist):
		r.Set(metric.Drained, 0)
	default:
		return fmt.Errorf("look whether the node is drained: %w: let the agent's user see the file that host.drained_file names", err)
	}
	return nil
}
