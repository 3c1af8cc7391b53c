// Package pods measures the rules that tell by statistics on the series of real pods with
// GPUs: how often they are wrong where nothing is, and what of the faults that are put in
// they find.
package pods

import (
	"encoding/csv"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Files of a directory of pods: the time in unix seconds first, then a column for each
// pod; of the queue one column for all of them.
const (
	dutyFile   = "gpu_duty_pct.csv" // %
	memoryFile = "gpu_mem_gib.csv"  // GiB
	hostFile   = "pod_mem_util.csv" // share of the container's limit
	queueFile  = "queue_size.csv"   // requests that wait at the gateway
)

// A Pod is what one pod with a GPU did. Values are NaN where there are none.
type Pod struct {
	Name    string
	Times   []int64   // unix seconds
	Duty    []float64 // share of time, 0 to 1
	Memory  []float64 // bytes on the GPU
	Host    []float64 // bytes in main memory
	Waiting []float64 // requests
}

const (
	gib       = 1 << 30
	hostLimit = 64 * gib // stands for the containers' limits, which are not published
)

// Read reads the pods of a directory that tell their GPU's duty in nine of ten
// rows. The queue is the gateway's: as nobody can tell whose requests wait there, each
// pod is given all of it, which is the worst case for false findings.
func Read(dir string) ([]Pod, error) {
	duty, err := readWide(filepath.Join(dir, dutyFile))
	if err != nil {
		return nil, err
	}
	memory, err := readWide(filepath.Join(dir, memoryFile))
	if err != nil {
		return nil, err
	}
	host, err := readWide(filepath.Join(dir, hostFile))
	if err != nil {
		return nil, err
	}
	queue, err := readWide(filepath.Join(dir, queueFile))
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for _, name := range duty.names {
		p := Pod{Name: name, Times: duty.times}
		known := 0
		for _, t := range duty.times {
			d := duty.at(name, t) / 100
			if !math.IsNaN(d) {
				known++
			}
			p.Duty = append(p.Duty, d)
			p.Memory = append(p.Memory, memory.at(name, t)*gib)
			p.Host = append(p.Host, host.at(name, t)*hostLimit)
			p.Waiting = append(p.Waiting, queue.at(queue.names[0], t))
		}
		if known*10 >= len(duty.times)*9 {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("read %s in %s: no pod has a value in nine of ten rows", dutyFile, dir)
	}
	return pods, nil
}

// wide is a table with a column for each series.
type wide struct {
	names []string
	times []int64
	of    map[string]map[int64]float64
}

func (w *wide) at(name string, t int64) float64 {
	if x, ok := w.of[name][t]; ok {
		return x
	}
	return math.NaN()
}

func readWide(path string) (*wide, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the series of pods: %w", err)
	}
	rows, err := csv.NewReader(f).ReadAll()
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the series of pods in %s: %w", path, err)
	}
	if len(rows) < 2 || len(rows[0]) < 2 {
		return nil, fmt.Errorf("read the series of pods in %s: want a header, rows, and a column beside the time", path)
	}
	w := &wide{names: rows[0][1:], of: map[string]map[int64]float64{}}
	for _, name := range w.names {
		w.of[name] = map[int64]float64{}
	}
	for n, row := range rows[1:] {
		t, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the series of pods in %s, row %d: %w", path, n+2, err)
		}
		w.times = append(w.times, t)
		for i, text := range row[1:] {
			if text == "" {
				continue
			}
			x, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
				return nil, fmt.Errorf("read the series of pods in %s, row %d: %q is no number", path, n+2, text)
			}
			w.of[w.names[i]][t] = x
		}
	}
	return w, nil
}

// Faults are the faults that With knows: a job that runs away, one that stalls while
// requests come, a mild shift, and a leak on a GPU that does less and less.
var Faults = []string{"runaway", "stall", "mild", "leak_idle"}

const (
	faultTime = 2 * time.Hour
	warmUp    = 6 * time.Hour
	lead      = 100 * time.Minute // at least, between the warm-up and a fault
	tail      = 80 * time.Minute  // at least, between a fault and the end
)

// With returns a copy of the pod with a fault of two hours, and when that begins and
// ends. Where it is depends on the fault, the pod and the seed alone.
func (p *Pod) With(fault string, seed uint64) (faulty *Pod, from, to int64, err error) {
	if !slices.Contains(Faults, fault) {
		return nil, 0, 0, fmt.Errorf("put a fault into a pod's series: %q is none of %v", fault, Faults)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", fault, p.Name)
	r := rand.New(rand.NewPCG(h.Sum64(), seed))
	first := p.Times[0] + int64((warmUp + lead).Seconds())
	last := p.Times[len(p.Times)-1] - int64((faultTime + tail).Seconds())
	if first >= last {
		return nil, 0, 0, fmt.Errorf("put a fault into the series of pod %s: it is shorter than half a day", p.Name)
	}
	from = first + int64(r.Uint64()%uint64(last-first))
	to = from + int64(faultTime.Seconds())
	out := &Pod{Name: p.Name, Times: p.Times, Duty: slices.Clone(p.Duty), Memory: slices.Clone(p.Memory), Host: slices.Clone(p.Host), Waiting: slices.Clone(p.Waiting)}
	arrived := false
	for i, t := range p.Times {
		if t < from || t >= to {
			continue
		}
		part := float64(t-from) / faultTime.Seconds()
		switch fault {
		case "runaway":
			out.Duty[i] = 0.97 + 0.03*r.Float64()
			out.Memory[i] += 8 * gib
			out.Host[i] = min(out.Host[i]+0.1*hostLimit, hostLimit)
		case "stall":
			// What the real pod served from now on would wait.
			if arrived = arrived || p.Duty[i] > 0; arrived {
				out.Waiting[i] = 1
			}
			out.Duty[i] = 0
			out.Memory[i] = max(out.Memory[i]-8*gib, 0.5*gib)
		case "mild":
			out.Duty[i] = min(out.Duty[i]+0.2, 1)
			out.Memory[i] += 4 * gib
		case "leak_idle":
			out.Duty[i] *= 0.2
			out.Memory[i] += 12 * gib * part
		}
	}
	return out, from, to, nil
}

// Resample returns weeks of a pod that is made of blocks of its own day in random order.
// All of its series stay together within a block; where two blocks meet there are jumps
// that the pod did not make, so there are rather more false findings than it would have.
func (p *Pod) Resample(weeks, hours int, r *rand.Rand) *Pod {
	step := max(1, (p.Times[len(p.Times)-1]-p.Times[0])/int64(len(p.Times)-1))
	block := int(int64(hours) * 3600 / step)
	n := int(int64(weeks) * int64(7*24*3600) / step)
	out := &Pod{Name: p.Name}
	for at := p.Times[0]; len(out.Times) < n; {
		from := r.IntN(max(1, len(p.Times)-block))
		for i := from; i < min(from+block, len(p.Times)); i++ {
			out.Times = append(out.Times, at)
			out.Duty = append(out.Duty, p.Duty[i])
			out.Memory = append(out.Memory, p.Memory[i])
			out.Host = append(out.Host, p.Host[i])
			out.Waiting = append(out.Waiting, p.Waiting[i])
			at += step
		}
	}
	return out
}
