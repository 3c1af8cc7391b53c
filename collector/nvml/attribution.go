//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// usageRows are what the driver tells of a process's use of a GPU, in the order
// of metric.Engine.
var usageRows = [len(engines)]*metric.Def{
	metric.ProcessUtilization, metric.ProcessMemoryUtilization, metric.ProcessEncoder, metric.ProcessDecoder,
}

// usageByPID returns each process's mean use of the engines, as shares of 1, and
// moves s.seen to the newest sample. The driver is known to return rows of junk
// among the good ones.
func (s *sample) usageByPID(now time.Time) map[int][len(engines)]float64 {
	means, n := map[int][len(engines)]float64{}, map[int]float64{}
	horizon := uint64(now.Add(time.Minute).UnixMicro())
	for _, u := range s.procs.usage {
		if max(u.SmUtil, u.MemUtil, u.EncUtil, u.DecUtil) > 100 || u.TimeStamp > horizon {
			s.drop(metric.ProcessUtilization)
			continue
		}
		s.seen = max(s.seen, u.TimeStamp)
		pid := int(u.Pid)
		sum := means[pid]
		for i, percent := range [...]uint32{u.SmUtil, u.MemUtil, u.EncUtil, u.DecUtil} {
			sum[i] += float64(percent)
		}
		means[pid] = sum
		n[pid]++
	}
	for pid, sum := range means {
		for i := range sum {
			sum[i] = usageRows[i].FromRaw(sum[i] / n[pid])
		}
		means[pid] = sum
	}
	return means
}

// shareOut lets the shares of one GPU's processes sum to no more than the GPU.
// They are of times that differ a little from process to process, and an MPS
// server's clients may each be told the whole server's use.
func shareOut(processes []collector.Process) {
	for _, d := range usageRows {
		if sum := total(processes, d); sum > 1 {
			for _, p := range processes {
				p.Set(d, p.Value(d)/sum)
			}
		}
	}
}

// total sums a reading over the processes that have it.
func total(processes []collector.Process, d *metric.Def) float64 {
	sum := 0.0
	for _, p := range processes {
		if v := p.Value(d); !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}

// leaveOver fills what of the GPU's use no process accounts for. load is the
// GPU's own since the list before.
func (s *sample) leaveOver(load [len(engines)]float64, processes []collector.Process) {
	for i, d := range usageRows {
		if s.procs.used && !math.IsNaN(load[i]) {
			s.put(metric.UnattributedUtilization, i, math.Max(0, load[i]-total(processes, d)))
		}
	}
	used, held := s.readings.Value(metric.MemoryUsed), s.readings.Value(metric.ProcessMemory)
	if !math.IsNaN(used) && !math.IsNaN(held) {
		s.put(metric.UnattributedMemory, 0, math.Max(0, used-held))
	}
}
