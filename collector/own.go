package collector

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/internal/metric"
)

// own joins attributions to processes and allocations to GPUs and instances, and
// says of each GPU who its owners are.
func own(s *Snapshot, inputs []input) {
	type identity struct {
		pid   int
		start uint64
	}
	whose := map[identity]*Attribution{}
	var given []Allocation
	for _, in := range inputs {
		if !in.fresh {
			continue
		}
		for i := range in.Attributions {
			a := &in.Attributions[i]
			whose[identity{a.PID, a.Start}] = a
		}
		given = append(given, in.Allocations...)
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if a := whose[identity{p.PID, p.Start}]; a != nil {
			p.Owner, p.Container, p.Privileged = a.Owner, a.Container, a.Privileged
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Allocations = append(slices.Clip(g.Allocations), allocated(given, g.UUID, "")...)
		g.Owners = ownersOf(g.Allocations, s.Processes, g.UUID, "", g.Owners)
	}
	for i := range s.Instances {
		m := &s.Instances[i]
		mig := m.MIG()
		m.Allocations = append(slices.Clip(m.Allocations), allocated(given, m.UUID, mig)...)
		m.Owners = ownersOf(m.Allocations, s.Processes, m.UUID, mig, m.Owners)
	}
}

// MIG returns the instance's number on its GPU, "GI/CI", as its label spells it.
func (i *Instance) MIG() string { return strconv.Itoa(i.GI) + "/" + strconv.Itoa(i.CI) }

func allocated(given []Allocation, uuid, mig string) []Allocation {
	var out []Allocation
	for _, a := range given {
		// Of two sources that know of one gift the earlier in the list says it.
		known := func(o Allocation) bool { return o.Source != a.Source && o.Owner == a.Owner }
		if a.UUID == uuid && a.MIG == mig && !slices.ContainsFunc(out, known) {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b Allocation) int { return compareOwners(a.Owner, b.Owner) })
	return out
}

// ownersOf returns who uses the device, most memory first, then who was only given
// it, then those whom a source named itself. With mig empty the device is the GPU,
// and users of its instances are users of the GPU.
func ownersOf(given []Allocation, processes []Process, uuid, mig string, named []Owner) []Owner {
	memory := map[Owner]float64{}
	var out []Owner
	for i := range processes {
		p := &processes[i]
		if p.UUID != uuid || mig != "" && p.MIG != mig || p.Owner == (Owner{}) {
			continue
		}
		if _, seen := memory[p.Owner]; !seen {
			memory[p.Owner] = 0
			out = append(out, p.Owner)
		}
		if used := p.Value(metric.ProcessMemoryUsed); used > 0 {
			memory[p.Owner] += used
		}
	}
	slices.SortStableFunc(out, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(memory[b], memory[a]), compareOwners(a, b))
	})
	add := func(o Owner) {
		if o != (Owner{}) && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	for _, a := range given {
		add(a.Owner)
	}
	for _, o := range named {
		add(o)
	}
	return out
}

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Team, b.Team))
}

// OwnerOf returns whose the endpoint is: the one owner with a process on each of its
// GPUs. It is false if the GPUs are not known, or there is no such owner or several.
func (s *Snapshot) OwnerOf(e *Endpoint) (Owner, bool) {
	on := map[Owner]map[string]bool{}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Owner == (Owner{}) || p.Service() || !slices.Contains(e.GPUs, p.UUID) {
			continue
		}
		if on[p.Owner] == nil {
			on[p.Owner] = map[string]bool{}
		}
		on[p.Owner][p.UUID] = true
	}
	var found []Owner
	for o, gpus := range on {
		if len(gpus) == len(e.GPUs) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		return Owner{}, false
	}
	return found[0], true
}

// services are processes that have a context on GPUs without using them for work.
var services = []string{"nvidia-cuda-mps", "nvidia-persistenced", "nv-hostengine", "dcgm-exporter", "Xorg", "gpuvigil"}

// Service reports whether the process has a context on GPUs without using them for
// anybody's work.
func (p *Process) Service() bool {
	return slices.ContainsFunc(services, func(s string) bool { return strings.HasPrefix(p.Name, s) })
}
