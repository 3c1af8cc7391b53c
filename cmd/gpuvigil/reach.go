package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// reach says whom and what an incident of this node touches, and what it costs.
func (p *pipeline) reach(i *detect.Incident) alerting.Context {
	c := alerting.Context{Cluster: p.cfg.Cluster}
	s := p.newest()
	if s == nil {
		return c
	}
	r := reachOf(s, i)
	c.Owners, c.GPUs, c.Models = r.owners(), len(r.held), r.models(s)
	c.Money = r.money(p.ledger.Money(), i)
	if alerting.Stops(i) {
		c.Lost = r.lost(s, p.ledger.Money(), i)
	}
	return c
}

// newest is the newest snapshot, also of a demo that has only looked at its past.
func (p *pipeline) newest() *collector.Snapshot {
	if s := p.latest(); s != nil {
		return s
	}
	if p.demo != nil {
		return p.demo.last
	}
	return nil
}

// reached are the GPUs that an incident is about, and those of the work behind it.
type reached struct {
	about map[string]bool                     // uuids of the GPUs that findings are about
	held  map[string]bool                     // uuids of the GPUs that the owners behind it have
	by    map[collector.Owner]map[string]bool // which of them whose
}

func reachOf(s *collector.Snapshot, i *detect.Incident) *reached {
	r := newReached()
	for k := range i.Members {
		r.member(s, &i.Members[k])
	}
	r.hold(s)
	return r
}

func newReached() *reached {
	return &reached{about: map[string]bool{}, held: map[string]bool{}, by: map[collector.Owner]map[string]bool{}}
}

// hold adds the GPUs that the owners behind it have on a node.
func (r *reached) hold(s *collector.Snapshot) {
	for g := range s.GPUs {
		for _, o := range s.GPUs[g].Owners {
			if r.by[o] != nil {
				r.by[o][s.GPUs[g].UUID], r.held[s.GPUs[g].UUID] = true, true
			}
		}
	}
}

// member adds the GPUs and the owners of one finding.
func (r *reached) member(s *collector.Snapshot, f *detect.Finding) {
	whose := func(o collector.Owner) {
		if o.Kind != "" && r.by[o] == nil {
			r.by[o] = map[string]bool{}
		}
	}
	on := func(g *collector.GPU) {
		r.about[g.UUID] = true
		for _, o := range g.Owners {
			whose(o)
		}
	}
	whose(f.Owner)
	switch f.Subject.Kind {
	case "gpu":
		if g := s.GPUByUUID(f.Subject.ID); g != nil {
			on(g)
		}
	case "endpoint", "service":
		for k := range s.Endpoints {
			if e := &s.Endpoints[k]; e.Key().String() == f.Subject.ID || f.Subject.Kind == "service" && e.Engine+"/"+e.Model == f.Subject.ID {
				for _, uuid := range e.GPUs {
					r.about[uuid] = true
				}
				if o, known := s.OwnerOf(e); known {
					whose(o)
				}
			}
		}
	case "team":
		for k := range s.GPUs {
			for _, o := range s.GPUs[k].Owners {
				if o.Team == f.Subject.ID {
					whose(o)
				}
			}
		}
	case "node", "interface":
		for k := range s.GPUs {
			on(&s.GPUs[k])
		}
	}
}

// owners are those behind it, who has most GPUs first.
func (r *reached) owners() []collector.Owner {
	return slices.SortedFunc(maps.Keys(r.by), func(a, b collector.Owner) int {
		return cmp.Or(cmp.Compare(len(r.by[b]), len(r.by[a])), cmp.Compare(a.String(), b.String()), cmp.Compare(a.Team, b.Team))
	})
}

// models are those that are served on the GPUs behind it.
func (r *reached) models(s *collector.Snapshot) []string {
	var out []string
	for k := range s.Endpoints {
		e := &s.Endpoints[k]
		if !slices.ContainsFunc(e.GPUs, func(uuid string) bool { return r.held[uuid] || r.about[uuid] }) {
			continue
		}
		name := cmp.Or(e.Model, "a model") + " (" + cmp.Or(e.Engine, "unknown server") + ")"
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// idle are the rules whose findings are about what the GPU itself wastes, whatever else
// its holder has.
var idle = []rules.ID{rules.IDIdleGPU, rules.IDUnallocated}

// money is what the GPUs cost that stand still, as far as their prices are known; nil
// unless all are.
func (r *reached) money(m *collector.Money, i *detect.Incident) *alerting.Money {
	gpus := r.held
	if len(gpus) == 0 || slices.Contains(idle, i.Rule) {
		gpus = r.about
	}
	if len(gpus) == 0 || m == nil {
		return nil
	}
	sum, priced := 0.0, 0
	for _, p := range m.Prices {
		if gpus[p.UUID] {
			sum += p.PerHour
			priced++
		}
	}
	if priced < len(gpus) || math.IsNaN(sum) {
		return nil
	}
	return &alerting.Money{Currency: m.Currency, PerHour: sum, GPUs: len(gpus)}
}

// lost is what the work behind it did after its last checkpoint, of those owners who tell
// of one; nil if none does.
func (r *reached) lost(s *collector.Snapshot, m *collector.Money, i *detect.Incident) *alerting.Lost {
	l := &alerting.Lost{}
	cost := 0.0
	for _, o := range r.owners() {
		w := s.WorkloadOf(o)
		if w == nil || !w.Has(metric.WorkloadCheckpoint) {
			continue
		}
		at := time.Unix(int64(w.Value(metric.WorkloadCheckpoint)), 0).UTC()
		if !at.Before(i.Opened) {
			continue
		}
		if l.Since.IsZero() || at.Before(l.Since) {
			l.Since = at
		}
		for uuid := range r.by[o] {
			hours := i.Opened.Sub(at).Hours()
			l.GPUHours += hours
			cost += hours * m.PriceOf(uuid)
		}
	}
	if l.GPUHours == 0 {
		return nil
	}
	if !math.IsNaN(cost) {
		l.Cost, l.Currency = cost, m.Currency
	}
	return l
}
