//go:build linux && cgo

package nvml

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/procfs"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	untrusted "gpuvigil/internal/text"
)

const (
	computeList  = "nvmlDeviceGetComputeRunningProcesses"
	graphicsList = "nvmlDeviceGetGraphicsRunningProcesses"
	mpsList      = "nvmlDeviceGetMPSComputeRunningProcesses"
	processUsage = "nvmlDeviceGetProcessUtilization"
)

func gpuProcessCalls() []call {
	calls := listCalls(metric.ProcessCount, metric.ProcessMemory, metric.ProcessMemoryUsed)
	return append(calls, call{function: processUsage, rows: usageRows[:], read: readProcessUsage})
}

func instanceProcessCalls() []call {
	return listCalls(metric.MIGProcesses)
}

// listCalls asks for the three lists that together hold every process. A process
// may be in several.
func listCalls(rows ...*metric.Def) []call {
	list := func(function string, get func(device) ([]nvml.ProcessInfo, nvml.Return)) call {
		return call{function: function, rows: rows, read: func(d device, s *sample) nvml.Return {
			infos, ret := get(d)
			s.procs.add(infos, ret)
			if function == mpsList && ret == nvml.SUCCESS {
				s.procs.addMPS(infos)
			}
			return ret
		}}
	}
	return []call{
		list(computeList, device.GetComputeRunningProcesses),
		list(graphicsList, device.GetGraphicsRunningProcesses),
		list(mpsList, device.GetMPSComputeRunningProcesses),
	}
}

func isList(c *call) bool {
	return c.function == computeList || c.function == graphicsList || c.function == mpsList
}

// processList is what the driver says about the processes of one device.
type processList struct {
	memory     map[int]float64 // bytes by pid, NaN where the driver does not tell; nil before the first list
	incomplete bool            // a list could not be read
	mps        map[int]bool    // clients of an MPS server; nil if the driver does not tell
	usage      []nvml.ProcessUtilizationSample
	used       bool // whether the driver tells the use of a process
}

// known reports whether the list holds every process.
func (p *processList) known() bool { return p.memory != nil && !p.incomplete }

func (p *processList) add(infos []nvml.ProcessInfo, ret nvml.Return) {
	if judge(ret) > unsupported {
		p.incomplete = true
	}
	if ret != nvml.SUCCESS {
		return
	}
	if p.memory == nil {
		p.memory = map[int]float64{}
	}
	for _, info := range infos {
		memory := math.NaN()
		if !sentinel(info.UsedGpuMemory) {
			memory = float64(info.UsedGpuMemory)
		}
		// Each list tells the memory of the whole process.
		if have, ok := p.memory[int(info.Pid)]; ok && !math.IsNaN(have) && !(memory > have) {
			continue
		}
		p.memory[int(info.Pid)] = memory
	}
}

func (p *processList) addMPS(infos []nvml.ProcessInfo) {
	p.mps = map[int]bool{}
	for _, info := range infos {
		p.mps[int(info.Pid)] = true
	}
}

// readProcessUsage asks for what came after the newest that was seen. From zero
// the driver would average over its whole buffer, with processes that are gone.
func readProcessUsage(d device, s *sample) (ret nvml.Return) {
	// go-nvml asks for the size and then for the samples, and slices beyond its
	// buffer when a process starts in between.
	defer func() {
		if recover() != nil {
			ret = nvml.ERROR_INSUFFICIENT_SIZE
		}
	}()
	usage, ret := d.GetProcessUtilization(s.seen)
	if len(usage) == 0 && ret == nvml.ERROR_INSUFFICIENT_SIZE {
		ret = nvml.ERROR_NOT_FOUND
	}
	s.procs.used = judge(ret) <= nothing
	if ret == nvml.SUCCESS {
		s.procs.usage = usage
	}
	return ret
}

// processes makes the entities of a device's list. where has what they share:
// the GPU and the MIG instance.
func (w *worker) processesOf(s *sample, where collector.Process, now time.Time) []collector.Process {
	usage := s.usageByPID(now)
	var out []collector.Process
	for _, pid := range slices.Sorted(maps.Keys(s.procs.memory)) {
		p := where
		p.PID = pid
		p.UID = -1
		if !w.foreign {
			identify(w.procfs, &p)
		}
		p.Readings = collector.NewReadings(metric.Process)
		p.Stamp(metric.Processes, now)
		own := sample{readings: p.Readings}
		if memory := s.procs.memory[pid]; !math.IsNaN(memory) {
			put(&own, metric.ProcessMemoryUsed, 0, uint64(memory))
		}
		if u, ok := usage[pid]; ok {
			for i, d := range usageRows {
				p.Set(d, u[i])
			}
		}
		if s.procs.mps != nil {
			p.Set(metric.ProcessMPS, bit(s.procs.mps[pid]))
		}
		s.dropped = append(s.dropped, own.dropped...)
		out = append(out, p)
	}
	shareOut(out)
	return out
}

// identify adds what procfs knows of a process. One that has ended, or that the
// file system does not show, keeps its pid and is of unknown user.
func identify(fs procfs.FS, p *collector.Process) {
	proc, err := fs.Proc(p.PID)
	if err != nil {
		return
	}
	if stat, err := proc.Stat(); err == nil {
		p.Start = stat.Starttime
	}
	if name, err := proc.Comm(); err == nil {
		p.Name = clean(name)
	}
	if status, err := proc.NewStatus(); err == nil {
		p.UID = int(status.UIDs[0])
	}
}

// maxText is more than any name or version that is shown needs.
const maxText = 200

func clean(s string) string { return untrusted.Clean(s, maxText) }

// countProcesses fills a GPU's readings from the processes on it. The memory is a
// sum only if every process tells its own.
func (s *sample) countProcesses(processes []collector.Process) {
	pids, memory := map[int]bool{}, 0.0
	for _, p := range processes {
		pids[p.PID] = true
		memory += p.Value(metric.ProcessMemoryUsed)
	}
	put(s, metric.ProcessCount, 0, len(pids))
	if s.procs.mps != nil {
		put(s, metric.MPSClients, 0, len(s.procs.mps))
	}
	if !math.IsNaN(memory) {
		put(s, metric.ProcessMemory, 0, uint64(memory))
	}
}

func byGPUThenPID(a, b collector.Process) int {
	return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.PID, b.PID), cmp.Compare(a.MIG, b.MIG))
}
