package server

import (
	"math"
	"slices"
	"strconv"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// How many owners and ports have series in the default profile, and in the full one.
const (
	maxWorkloads     = 32
	maxWorkloadsFull = 256
	maxPorts         = 16
	maxPortsFull     = 256
)

var (
	cappedWorkloads = vm.GetOrCreateCounter(metric.SeriesCapped.Series("workload"))
	cappedPorts     = vm.GetOrCreateCounter(metric.SeriesCapped.Series("interface"))
)

// workloads has what the configuration says of owners, and what they move and use. Of too many those that are looked at come
// first, so that an owner who was only given a GPU crowds out nobody.
func (e *exposition) workloads(s *collector.Snapshot) {
	list := s.Workloads
	if limit := e.limit(maxWorkloads, maxWorkloadsFull); len(list) > limit {
		cappedWorkloads.Add(len(list) - limit)
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b collector.Workload) int { return known(b) - known(a) })
		list = list[:limit]
	}
	for i := range list {
		w := &list[i]
		kind, id, team := e.ownerLabels(w.Owner)
		t := e.entity(metric.Workload, kind, id, team)
		if t == nil {
			continue
		}
		e.one(metric.OwnerInfo, 1, kind, id, team, w.CostCenter, w.Sensitivity, w.Stage, strconv.FormatBool(w.Critical))
		e.readings(metric.Workload, t, w.Readings)
		for _, f := range w.Quality {
			e.one(metric.WorkloadQuality, f.Value, kind, id, team, f.Name)
		}
		for _, c := range w.Caveats {
			e.one(metric.WorkloadCaveat, 1, kind, id, team, c.Fact, c.Reason)
		}
		for _, l := range w.Labels {
			e.one(metric.OwnerLabel, 1, kind, id, team, l.Name, l.Value)
		}
	}
}

func (e *exposition) limit(few, many int) int {
	if e.full {
		return many
	}
	return few
}

// known is 1 if the workload has readings, else 0.
func known(w collector.Workload) int {
	if slices.ContainsFunc(w.Vector(), func(v float64) bool { return !math.IsNaN(v) }) {
		return 1
	}
	return 0
}

func (e *exposition) interfaces(s *collector.Snapshot) {
	list := s.Interfaces
	if limit := e.limit(maxPorts, maxPortsFull); len(list) > limit {
		cappedPorts.Add(len(list) - limit)
		list = list[:limit]
	}
	for i := range list {
		p := &list[i]
		port := strconv.Itoa(p.Port)
		if t := e.entity(metric.Interface, p.Device, port); t != nil {
			e.one(metric.InterfaceInfo, 1, p.Device, port, p.LinkLayer, p.State, p.PhysicalState)
			e.readings(metric.Interface, t, p.Readings)
		}
	}
}

// Workload is what one owner runs on the node.
type Workload struct {
	Owner       collector.Owner `json:"owner"`
	CostCenter  string          `json:"cost_center,omitempty"`
	Sensitivity string          `json:"sensitivity,omitempty"`
	Stage       string          `json:"stage,omitempty"`
	Critical    bool            `json:"critical"`
	Containers  []string        `json:"containers"`
	Caveats     []Caveat        `json:"caveats"`
	Labels      []Label         `json:"labels,omitempty"`
	Quality     []Figure        `json:"quality"`
	Readings    Readings        `json:"readings"`
}

// Label is a label of the owner's pod.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Figure is one number of a workload's quality, by the name that the workload gives it.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Caveat says of a fact that it is absent or not the whole of it, and why.
type Caveat struct {
	Fact   string `json:"fact"`
	Reason string `json:"reason"`
}

// Interface is a port of an InfiniBand or RoCE adapter.
type Interface struct {
	Device        string   `json:"device"`
	Port          int      `json:"port"`
	LinkLayer     string   `json:"link_layer,omitempty"`
	State         string   `json:"state,omitempty"`
	PhysicalState string   `json:"physical_state,omitempty"`
	Readings      Readings `json:"readings"`
}

func workloadOf(w collector.Workload) Workload {
	return Workload{
		Owner: w.Owner, CostCenter: w.CostCenter, Sensitivity: w.Sensitivity, Stage: w.Stage, Critical: w.Critical,
		Containers: orEmpty(w.Containers), Readings: readingsOf(metric.Workload, w.Readings),
		Caveats: each(w.Caveats, func(c collector.Caveat) Caveat { return Caveat(c) }),
		Labels:  each(w.Labels, func(l collector.Label) Label { return Label(l) }),
		Quality: each(w.Quality, func(f collector.Figure) Figure { return Figure(f) }),
	}
}

func interfaceOf(i collector.Interface) Interface {
	return Interface{
		Device: i.Device, Port: i.Port, LinkLayer: i.LinkLayer, State: i.State, PhysicalState: i.PhysicalState,
		Readings: readingsOf(metric.Interface, i.Readings),
	}
}
