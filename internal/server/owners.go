package server

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// use is how much of one GPU each owner uses, and nobody that is known: the zero Owner.
type use struct {
	of map[collector.Owner]*[2]float64 // by the values of metric.ShareOf; as the driver counts
}

func (u *use) add(o collector.Owner, i int, v float64) {
	if !(v > 0) {
		return
	}
	if u.of == nil {
		u.of = map[collector.Owner]*[2]float64{}
	}
	if u.of[o] == nil {
		u.of[o] = &[2]float64{}
	}
	u.of[o][i] += v
}

// sharesOf sums the use of each GPU over the processes of its owners, by uuid. What the
// driver lists no process for is nobody's.
func sharesOf(s *collector.Snapshot) map[string]*use {
	gpus := map[string]*use{}
	for i := range s.Processes {
		p := &s.Processes[i]
		u := gpus[p.UUID]
		if u == nil {
			u = &use{}
			gpus[p.UUID] = u
		}
		u.add(p.Owner, 0, p.Value(metric.ProcessMemoryUsed))
		u.add(p.Owner, 1, p.Value(metric.ProcessUtilization))
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		u := gpus[g.UUID]
		if u == nil {
			continue // without a process what the driver holds is not use
		}
		u.add(collector.Owner{}, 0, g.Value(metric.UnattributedMemory))
		u.add(collector.Owner{}, 1, g.Value(metric.UnattributedUtilization))
	}
	return gpus
}

// shares returns the owners, most memory first, and what share of the whole use each
// has: NaN where nothing is used or known.
func (u *use) shares() ([]collector.Owner, map[collector.Owner][2]float64) {
	var all [2]float64
	for _, v := range u.of {
		all[0] += v[0]
		all[1] += v[1]
	}
	out := map[collector.Owner][2]float64{}
	for o, v := range u.of {
		share := [2]float64{math.NaN(), math.NaN()}
		for i := range share {
			if all[i] > 0 {
				share[i] = v[i] / all[i]
			}
		}
		out[o] = share
	}
	owners := slices.SortedFunc(maps.Keys(u.of), func(a, b collector.Owner) int {
		return cmp.Or(cmp.Compare(u.of[b][0], u.of[a][0]), cmp.Compare(u.of[b][1], u.of[a][1]), cmp.Compare(a.String()+a.Team, b.String()+b.Team))
	})
	return owners, out
}

// ownerLabels are the owner's labels. An empty label would be none.
func ownerLabels(o collector.Owner) (kind, id, team string) {
	if o.Kind == "" {
		return metric.Unattributed, metric.Unattributed, o.Team
	}
	return o.Kind, o.ID, o.Team
}

// owners has the GPU's shares. Those of owners beyond the limit are one share of an
// owner of that name, so that the sum stays 1.
func (e *exposition) owners(index string, g *collector.GPU, u *use) {
	if u == nil {
		return
	}
	owners, shares := u.shares()
	var rest [2]float64
	if extra := len(owners) - maxOwners; extra > 0 {
		cappedOwners.Add(extra)
		for _, o := range owners[maxOwners:] {
			for i, v := range shares[o] {
				if v > 0 {
					rest[i] += v
				}
			}
		}
		owners = owners[:maxOwners]
	}
	for i, of := range metric.ShareOf.Values {
		for _, o := range owners {
			kind, id, team := ownerLabels(o)
			e.one(metric.OwnerShare, shares[o][i], index, g.UUID, of, kind, id, team)
		}
		if rest[i] > 0 {
			e.one(metric.OwnerShare, rest[i], index, g.UUID, of, others, others, "")
		}
	}
}

// others is the owner of what those have who are too many.
const others = "others"

func (e *exposition) allocations(index, uuid, mig string, given []collector.Allocation) {
	if extra := len(given) - maxOwners; extra > 0 {
		cappedAllocations.Add(extra)
		given = given[:maxOwners]
	}
	seen := map[[5]string]bool{}
	for _, a := range given {
		kind, id, team := ownerLabels(a.Owner)
		key := [5]string{kind, id, a.Container, a.Resource, a.Source}
		if seen[key] {
			continue // two shares that differ only in their number
		}
		seen[key] = true
		e.one(metric.AllocationInfo, 1, index, uuid, mig, kind, id, team, a.Container, a.Resource, a.Source)
	}
}

// workloads has the owners with what the configuration says of them, and, while there
// is some, the one of what nobody owns.
func (e *exposition) workloads(s *collector.Snapshot, users map[string]*use) {
	list := s.Workloads
	if extra := len(list) - maxWorkloads; extra > 0 {
		cappedOwners.Add(extra)
		list = list[:maxWorkloads]
	}
	for i := range list {
		w := &list[i]
		kind, id, team := ownerLabels(w.Owner)
		t := e.entity(metric.Workload, kind, id, team)
		if t == nil {
			continue
		}
		e.one(metric.OwnerInfo, 1, kind, id, team, w.CostCenter, w.Sensitivity, w.Stage, strconv.FormatBool(w.Critical))
		e.readings(metric.Workload, t, w.Readings)
	}
	for _, u := range users {
		if u.of[collector.Owner{}] != nil {
			kind, id, team := ownerLabels(collector.Owner{})
			e.one(metric.OwnerInfo, 1, kind, id, team, "", "", "", "false")
			return
		}
	}
}
