package server

import (
	"cmp"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// usage is how much of one GPU each owner uses, and nobody that is known: the zero
// Owner.
type usage struct {
	uuid string
	by   []used
}

// used is one owner's use, by the values of metric.ShareOf, as the driver counts.
type used struct {
	owner collector.Owner
	of    [2]float64
}

func (u *usage) add(o collector.Owner, i int, v float64) {
	if !(v > 0) {
		return
	}
	at := slices.IndexFunc(u.by, func(have used) bool { return have.owner == o })
	if at < 0 {
		at = len(u.by)
		u.by = append(u.by, used{owner: o})
	}
	u.by[at].of[i] += v
}

// usages sums the use of each GPU over the processes of its owners. What the driver
// lists no process for is nobody's. The memory is that of the scrape before.
func usages(into []usage, s *collector.Snapshot) []usage {
	into = into[:0]
	of := func(uuid string) *usage {
		i := slices.IndexFunc(into, func(u usage) bool { return u.uuid == uuid })
		if i < 0 {
			return nil
		}
		return &into[i]
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		u := of(p.UUID)
		if u == nil {
			if n := len(into); n < cap(into) {
				into = into[:n+1]
				into[n].uuid, into[n].by = p.UUID, into[n].by[:0]
			} else {
				into = append(into, usage{uuid: p.UUID})
			}
			u = &into[len(into)-1]
		}
		u.add(p.Owner, 0, p.Value(metric.ProcessMemoryUsed))
		u.add(p.Owner, 1, p.Value(metric.ProcessUtilization))
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if u := of(g.UUID); u != nil { // without a process what the driver holds is not use
			u.add(collector.Owner{}, 0, g.Value(metric.UnattributedMemory))
			u.add(collector.Owner{}, 1, g.Value(metric.UnattributedUtilization))
		}
	}
	for i := range into {
		slices.SortFunc(into[i].by, func(a, b used) int {
			return cmp.Or(cmp.Compare(b.of[0], a.of[0]), cmp.Compare(b.of[1], a.of[1]),
				cmp.Compare(a.owner.Kind, b.owner.Kind), cmp.Compare(a.owner.ID, b.owner.ID), cmp.Compare(a.owner.Team, b.owner.Team))
		})
	}
	return into
}

// ownerLabels are the owner's labels, of every row that has them. An empty label would
// be none. That the page speaks of an owner who is none is noted for nobody.
func (e *exposition) ownerLabels(o collector.Owner) (kind, id, team string) {
	switch o.Kind {
	case "":
		e.unattributed = true
		return metric.Unattributed, metric.Unattributed, o.Team
	case metric.OtherOwners:
		e.others = true
	}
	return o.Kind, o.ID, o.Team
}

// owners has the shares of the GPU's owners, most memory first. Those of owners beyond
// the limit are one share, so that the sum stays 1. There is none of what nobody uses.
func (e *exposition) owners(index, uuid string) {
	i := slices.IndexFunc(e.usages, func(u usage) bool { return u.uuid == uuid })
	if i < 0 {
		return
	}
	by := e.usages[i].by
	var all, rest [2]float64
	for n, u := range by {
		for i, v := range u.of {
			all[i] += v
			if n >= maxOwners {
				rest[i] += v
			}
		}
	}
	if extra := len(by) - maxOwners; extra > 0 {
		cappedOwners.Add(extra)
		by = by[:maxOwners]
	}
	for i, of := range metric.ShareOf.Values {
		if all[i] == 0 {
			continue
		}
		for _, u := range by {
			kind, id, team := e.ownerLabels(u.owner)
			e.one(metric.OwnerShare, u.of[i]/all[i], index, uuid, of, kind, id, team)
		}
		if rest[i] > 0 {
			kind, id, team := e.ownerLabels(collector.Owner{Kind: metric.OtherOwners, ID: metric.OtherOwners})
			e.one(metric.OwnerShare, rest[i]/all[i], index, uuid, of, kind, id, team)
		}
	}
}

func (e *exposition) allocations(index, uuid, mig string, given []collector.Allocation) {
	if extra := len(given) - maxOwners; extra > 0 {
		cappedAllocations.Add(extra)
		given = given[:maxOwners]
	}
	for i, a := range given {
		same := func(b collector.Allocation) bool {
			return b.Owner == a.Owner && b.Container == a.Container && b.Resource == a.Resource && b.Source == a.Source
		}
		if slices.ContainsFunc(given[:i], same) {
			continue // two shares that differ only in their number
		}
		kind, id, team := e.ownerLabels(a.Owner)
		e.one(metric.AllocationInfo, 1, index, uuid, mig, kind, id, team, a.Container, a.Resource, a.Source)
	}
}

// nobody has the descriptions of the owners that are none, of what nobody owns and of
// what those have who are too many, while a series speaks of them: a join with the
// descriptions must not lose it. It comes after all of these series.
func (e *exposition) nobody() {
	if e.unattributed {
		e.one(metric.OwnerInfo, 1, metric.Unattributed, metric.Unattributed, "", "", "", "", "false")
	}
	if e.others {
		e.one(metric.OwnerInfo, 1, metric.OtherOwners, metric.OtherOwners, "", "", "", "", "false")
	}
}
