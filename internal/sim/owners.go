package sim

import (
	"cmp"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Traits are what the configuration would say of an owner.
type Traits struct {
	CostCenter, Sensitivity, Stage string
	Critical                       bool
}

// share puts guests on the GPUs and gives what nobody uses.
func (s *Sim) share(places map[string][]int) error {
	for _, guest := range s.cfg.Scenario.Guests {
		g, err := s.gpuAt(guest.On, places)
		if err != nil {
			return err
		}
		g.guests = append(g.guests, &process{name: guest.Process, uid: guest.UID, owner: guest.Owner, mem: guest.Memory, share: guest.Share})
	}
	for _, gift := range s.cfg.Scenario.Gifts {
		g, err := s.gpuAt(gift.On, places)
		if err != nil {
			return err
		}
		g.gifts = append(g.gifts, gift)
	}
	for _, g := range s.gpus {
		s.invite(g)
	}
	return nil
}

// invite starts the guests of a GPU. Whoever starts again is another process.
func (s *Sim) invite(g *gpu) {
	for i, p := range g.guests {
		again := *p
		s.lastPID++
		again.pid, again.start = s.lastPID, uint64(s.now.Sub(s.boot).Seconds()*clockTicks)
		g.guests[i] = &again
	}
}

// all returns the processes on the GPU. What guests do of its work, its own processes
// do not.
func (g *gpu) all() []process {
	if g.lost {
		return nil
	}
	rest := 1.0
	for _, p := range g.guests {
		rest -= p.share
	}
	out := make([]process, 0, len(g.procs)+len(g.guests))
	for _, p := range g.procs {
		out = append(out, *p)
		out[len(out)-1].share = rest / float64(len(g.procs))
	}
	for _, p := range g.guests {
		out = append(out, *p)
	}
	return out
}

// allocations says who was given the GPU: its holder, guests that are known, and those
// who do not use it.
func (s *Sim) allocations(g *gpu) []collector.Allocation {
	var out []collector.Allocation
	give := func(to collector.Owner, resource string, shares int) {
		if to != (collector.Owner{}) {
			out = append(out, collector.Allocation{UUID: g.uuid, Owner: to, Container: s.containerOf(to), Resource: resource, Shares: shares, Source: SourceName})
		}
	}
	shared := 0
	if len(g.guests)+len(g.gifts) > 0 {
		shared = 1
	}
	resource := "nvidia.com/gpu"
	if g.owner.Kind == "job" {
		resource, shared = "gres/gpu", 0
	}
	give(g.owner, resource, shared)
	for _, p := range g.guests {
		give(p.owner, "nvidia.com/gpu.shared", 1)
	}
	for _, gift := range g.gifts {
		give(gift.Owner, gift.Resource, 1)
	}
	return out
}

// containerOf is the container that a pod's processes are in.
func (s *Sim) containerOf(o collector.Owner) string {
	if o.Kind != "pod" {
		return ""
	}
	if i := slices.IndexFunc(s.workloads, func(w *workload) bool { return w.Owner == o }); i >= 0 {
		return cmp.Or(s.workloads[i].software.container, "main")
	}
	return "main"
}

// ownership is who uses and was given the GPUs, as of the last change.
type ownership struct {
	attributions []collector.Attribution
	allocations  []collector.Allocation
	workloads    []collector.Workload
	stale        bool
}

// attribute says whose the GPU's processes are.
func (s *Sim) attribute(g *gpu, to []collector.Attribution) {
	s.asOf.stale = s.asOf.stale || !slices.Equal(g.attributions, to)
	g.attributions = to
}

func (s *Sim) owners() ([]collector.Attribution, []collector.Allocation, []collector.Workload) {
	if s.asOf.stale || s.asOf.workloads == nil {
		now := ownership{}
		for _, g := range s.gpus {
			now.attributions = append(now.attributions, g.attributions...)
			now.allocations = append(now.allocations, s.allocations(g)...)
		}
		s.describe(&now)
		s.asOf = now
	}
	return s.asOf.attributions, s.asOf.allocations, s.asOf.workloads
}

// describe makes a workload of everybody who has or uses something.
func (s *Sim) describe(o *ownership) {
	add := func(who collector.Owner, container string) {
		if slices.ContainsFunc(o.workloads, func(w collector.Workload) bool { return w.Owner == who }) {
			return
		}
		w := collector.Workload{Owner: who, Readings: collector.NewReadings(metric.Workload)}
		if container != "" {
			w.Containers = []string{container}
		}
		if i := slices.IndexFunc(s.workloads, func(w *workload) bool { return w.Owner == who }); i >= 0 {
			t := s.workloads[i].Traits
			w.CostCenter, w.Sensitivity, w.Stage, w.Critical = t.CostCenter, t.Sensitivity, t.Stage, t.Critical
		}
		o.workloads = append(o.workloads, w)
	}
	for _, a := range o.attributions {
		add(a.Owner, a.Container)
	}
	for _, a := range o.allocations {
		add(a.Owner, a.Container)
	}
	slices.SortFunc(o.workloads, func(a, b collector.Workload) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
}
