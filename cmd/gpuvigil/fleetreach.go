package main

import (
	"cmp"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/fleet"
)

// reachAcross says whom and what an incident of many nodes touches, and what it costs: the
// GPUs of a job count wherever it has them.
func reachAcross(cluster string, v *fleet.View, i *detect.Incident) alerting.Context {
	c := alerting.Context{Cluster: cluster}
	r, on := newReached(), map[string]bool{}
	for k := range i.Members {
		f := &i.Members[k]
		if s := v.Snapshot(f.Node); s != nil {
			r.member(s, f)
			on[f.Node] = true
			continue
		}
		for _, n := range v.Nodes { // it is about the whole: a team, a job
			if s := v.Snapshot(n.Node); s != nil && (f.Subject.Kind == "team" || f.Subject.Kind == "service" || f.Owner.Kind != "") {
				r.member(s, f)
			}
		}
	}
	all := pooled(v, r, on)
	c.Owners, c.GPUs, c.Models = r.owners(), len(r.held), r.models(all)
	c.Money = r.money(all.Money, i)
	if alerting.Stops(i) {
		c.Lost = r.lost(all, all.Money, i)
	}
	return c
}

// pooled is what the nodes together have that the incident touches: those that it is on,
// and those on which the work behind it has GPUs. Money is in the currency of the first.
func pooled(v *fleet.View, r *reached, on map[string]bool) *collector.Snapshot {
	all := &collector.Snapshot{Money: &collector.Money{}}
	for _, n := range v.Nodes {
		s := v.Snapshot(n.Node)
		if s == nil {
			continue
		}
		before := len(r.held)
		r.hold(s)
		if len(r.held) == before && !on[n.Node] {
			continue
		}
		all.Time = s.Time
		all.GPUs = append(all.GPUs, s.GPUs...)
		all.Endpoints = append(all.Endpoints, s.Endpoints...)
		all.Workloads = append(all.Workloads, s.Workloads...)
		if m := s.Money; m != nil {
			all.Money.Currency = cmp.Or(all.Money.Currency, m.Currency)
			if m.Currency == all.Money.Currency {
				all.Money.Prices = append(all.Money.Prices, m.Prices...)
			}
		}
	}
	return all
}
