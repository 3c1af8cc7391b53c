package collector

import (
	"math"

	"gpuvigil/internal/metric"
)

// kind is what merging needs to know of one kind of entity.
type kind[T any, K comparable] struct {
	list     func(*Part) []T
	key      func(*T) K      // its identity
	gpu      func(*T) string // uuid of the GPU that it is a part of; nil if it is of none
	readings func(*T) *Readings
	over     func(dst, src *T) // takes over the fields of src that are not empty
}

type instanceKey struct {
	uuid   string
	gi, ci int
}

type linkKey struct {
	uuid   string
	number int
}

type interfaceKey struct {
	device string
	port   int
}

type processKey struct {
	pid       int
	uuid, mig string
}

var instances = kind[Instance, instanceKey]{
	list:     func(p *Part) []Instance { return p.Instances },
	key:      func(i *Instance) instanceKey { return instanceKey{i.UUID, i.GI, i.CI} },
	gpu:      func(i *Instance) string { return i.UUID },
	readings: func(i *Instance) *Readings { return &i.Readings },
	over: func(dst, src *Instance) {
		over(&dst.MIGUUID, src.MIGUUID)
		over(&dst.Profile, src.Profile)
		overList(&dst.Owners, src.Owners)
	},
}

var links = kind[Link, linkKey]{
	list:     func(p *Part) []Link { return p.Links },
	key:      func(l *Link) linkKey { return linkKey{l.UUID, l.Number} },
	gpu:      func(l *Link) string { return l.UUID },
	readings: func(l *Link) *Readings { return &l.Readings },
	over:     func(_, _ *Link) {},
}

var interfaces = kind[Interface, interfaceKey]{
	list:     func(p *Part) []Interface { return p.Interfaces },
	key:      func(i *Interface) interfaceKey { return interfaceKey{i.Device, i.Port} },
	readings: func(i *Interface) *Readings { return &i.Readings },
	over: func(dst, src *Interface) {
		over(&dst.LinkLayer, src.LinkLayer)
		over(&dst.State, src.State)
		over(&dst.PhysicalState, src.PhysicalState)
	},
}

var processes = kind[Process, processKey]{
	list:     func(p *Part) []Process { return p.Processes },
	key:      func(p *Process) processKey { return processKey{p.PID, p.UUID, p.MIG} },
	gpu:      func(p *Process) string { return p.UUID },
	readings: func(p *Process) *Readings { return &p.Readings },
	over: func(dst, src *Process) {
		over(&dst.Start, src.Start)
		over(&dst.Name, src.Name)
		over(&dst.Owner, src.Owner)
		over(&dst.Container, src.Container)
		if src.UID >= 0 {
			dst.UID = src.UID
		}
	},
}

var endpoints = kind[Endpoint, EndpointKey]{
	list:     func(p *Part) []Endpoint { return p.Endpoints },
	key:      (*Endpoint).Key,
	readings: func(p *Endpoint) *Readings { return &p.Readings },
	over: func(dst, src *Endpoint) {
		overList(&dst.GPUs, src.GPUs)
		overList(&dst.Histograms, src.Histograms)
		overList(&dst.Approximate, src.Approximate)
	},
}

var targets = kind[Target, string]{
	list:     func(p *Part) []Target { return p.Targets },
	key:      func(t *Target) string { return t.URL },
	readings: func(t *Target) *Readings { return &t.Readings },
	over:     func(dst, src *Target) { over(&dst.Discovered, src.Discovered) },
}

var workloads = kind[Workload, Owner]{
	list:     func(p *Part) []Workload { return p.Workloads },
	key:      func(w *Workload) Owner { return w.Owner },
	readings: func(w *Workload) *Readings { return &w.Readings },
	over: func(dst, src *Workload) {
		over(&dst.CostCenter, src.CostCenter)
		over(&dst.Sensitivity, src.Sensitivity)
		over(&dst.Stage, src.Stage)
		over(&dst.Critical, src.Critical)
		overList(&dst.Containers, src.Containers)
		overList(&dst.Caveats, src.Caveats)
		overList(&dst.Labels, src.Labels)
		overList(&dst.Quality, src.Quality)
		overList(&dst.Remotes, src.Remotes)
		overList(&dst.Networks, src.Networks)
	},
}

// mergeEntities joins the entities of all inputs by their identity. Those of
// which nothing is known any more are left out: a list is a reading too.
func mergeEntities[T any, K comparable](inputs []input, rows []*metric.Def, k kind[T, K]) []T {
	total, sources := 0, 0
	for _, in := range inputs {
		if n := len(k.list(in.Part)); n > 0 {
			total += n
			sources++
		}
	}
	if total == 0 {
		return nil
	}
	out := make([]T, 0, total)
	var at map[K]int // of each entity in out; not needed for one source
	if sources > 1 {
		at = make(map[K]int, total)
	}
	for _, in := range inputs {
		list := k.list(in.Part)
		for i := range list {
			own := in
			if k.gpu != nil {
				own = in.of(k.gpu(&list[i]))
			}
			if !own.knows(*k.readings(&list[i])) {
				continue
			}
			e := list[i]
			r := k.readings(&e)
			*r = own.current(*r, rows)
			j, seen := at[k.key(&e)]
			if !seen {
				if at != nil {
					at[k.key(&e)] = len(out)
				}
				out = append(out, e)
				continue
			}
			k.over(&out[j], &e)
			dst := k.readings(&out[j])
			*dst = dst.Clone()
			dst.overlay(*r)
		}
	}
	return out
}

// knows reports whether anything of an entity with these readings is still held:
// one of its tiers, or, if it has none, the part.
func (in input) knows(r Readings) bool {
	stamped := false
	for t, at := range r.at {
		if at.IsZero() {
			continue
		}
		if in.now.Sub(at) <= 3*in.interval[t] {
			return true
		}
		stamped = true
	}
	return !stamped && in.fresh
}

// overlay takes over src's numbers that are not NaN, and for each tier the later
// sample time. It changes r's own memory.
func (r *Readings) overlay(src Readings) {
	if r.values == nil {
		r.values = append([]float64(nil), src.values...)
	} else {
		for i, v := range src.values {
			if !math.IsNaN(v) {
				r.values[i] = v
			}
		}
	}
	for t, at := range src.at {
		if at.After(r.at[t]) {
			r.at[t] = at
		}
	}
}

// over sets dst to v unless v is empty.
func over[T comparable](dst *T, v T) {
	var empty T
	if v != empty {
		*dst = v
	}
}

func overList[T any](dst *[]T, v []T) {
	if len(v) > 0 {
		*dst = v
	}
}
