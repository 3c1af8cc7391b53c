package server

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// ProcessSeries says which processes of a GPU have series of their own.
type ProcessSeries struct {
	Top int  // how many, most memory first; the others are summed
	PID bool // those of one name are told apart
}

const (
	other          = "other"   // the name of the sum of all others
	unnamed        = "unknown" // of a process that has ended, or that this user may not see
	maxProcessName = 64
)

// processRows are the readings that have series, memory first.
var processRows = [...]*metric.Def{
	metric.ProcessMemoryUsed, metric.ProcessUtilization, metric.ProcessMemoryUtilization, metric.ProcessEncoder, metric.ProcessDecoder,
}

// group is the processes of one series: those of a GPU with one name, or one alone.
type group struct {
	name, pid string
	processes int
	sums      [len(processRows)]float64 // NaN: no process told it
}

func newGroup(name, pid string) *group {
	g := &group{name: name, pid: pid}
	for i := range g.sums {
		g.sums[i] = math.NaN()
	}
	return g
}

func (g *group) add(processes int, values func(i int) float64) {
	g.processes += processes
	for i, sum := range g.sums {
		if v := values(i); math.IsNaN(sum) {
			g.sums[i] = v
		} else if !math.IsNaN(v) {
			g.sums[i] = sum + v
		}
	}
}

// processes adds the series of each GPU's processes.
func (e *exposition) processes(s *collector.Snapshot, o *ProcessSeries) {
	if o == nil {
		return
	}
	names := metric.Process.Labels()
	if o.PID {
		names = append(slices.Clip(names), "pid")
	}
	byGPU := map[string][]*collector.Process{}
	for i := range s.Processes {
		byGPU[s.Processes[i].UUID] = append(byGPU[s.Processes[i].UUID], &s.Processes[i])
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if !g.Has(metric.ProcessCount) {
			continue // its list is not known
		}
		index := strconv.Itoa(g.Index)
		groups, folded := o.series(byGPU[g.UUID])
		e.one(metric.ProcessesFolded, float64(folded), index, g.UUID)
		for _, p := range groups {
			if t := e.thing(metric.Process.String(), names, []string{index, g.UUID, p.name, p.pid}[:len(names)]...); t != nil {
				for i, d := range processRows {
					e.add(d, &t.labels, p.sums[i])
				}
			}
		}
	}
}

// series returns the groups that have series, the one of all others last, and how
// many processes are in that one.
func (o *ProcessSeries) series(processes []*collector.Process) (groups []*group, folded int) {
	type key struct{ name, pid string }
	rest := newGroup(other, "")
	byKey := map[key]*group{{other, ""}: rest} // a process of that name is one of them
	for _, p := range processes {
		k := key{name: cmp.Or(text.Clean(p.Name, maxProcessName), unnamed)}
		if o.PID {
			k.pid = strconv.Itoa(p.PID)
		}
		g := byKey[k]
		if g == nil {
			g = newGroup(k.name, k.pid)
			byKey[k] = g
			groups = append(groups, g)
		}
		g.add(1, func(i int) float64 { return p.Value(processRows[i]) })
	}
	slices.SortFunc(groups, byMemory)
	if len(groups) > o.Top {
		for _, g := range groups[o.Top:] {
			rest.add(g.processes, func(i int) float64 { return g.sums[i] })
		}
		groups = groups[:o.Top]
	}
	if rest.processes > 0 {
		groups = append(groups, rest)
	}
	return groups, rest.processes
}

// byMemory puts first who holds most; whose memory is not known comes last. What
// does not differ is in the order of names, so that it does not change by itself.
func byMemory(a, b *group) int {
	return cmp.Or(cmp.Compare(b.sums[0], a.sums[0]), cmp.Compare(a.name, b.name), cmp.Compare(a.pid, b.pid))
}
