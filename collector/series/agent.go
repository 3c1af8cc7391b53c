package series

import (
	"math"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// The bounds of what an agent's page may have of one kind. Agents keep well below.
const (
	maxThings = 4096
	maxText   = 256 // letters of a label
)

// agentReader reads the page of an agent of gpuvigil back: the page is made of a
// snapshot, and of that is made here what the page tells.
type agentReader struct {
	names *agentNames

	// of the page that is read
	part      *collector.Part
	samples   int
	gpus      map[string]*agentGPU
	order     []*agentGPU
	things    map[string]int // positions in the part's lists, by kind and identity
	buckets   map[bucketKey]*buckets
	key       []byte
	inventory collector.Inventory
	said      agentSays

	xids map[xidKey]uint64 // of the page before
}

// agentGPU is one GPU with what is told of it apart from its part.
type agentGPU struct {
	collector.GPU
	age    float64 // of its fast readings, in seconds
	shares []shared
}

type shared struct {
	owner collector.Owner
	of    float64
}

type xidKey struct {
	uuid string
	code int
}

// agentSays is what goes into the snapshot past the composer.
type agentSays struct {
	agent     collector.Agent
	sources   []collector.SourceState
	sxids     []collector.SXidCount
	money     *collector.Money
	simulated bool
}

func newAgentReader(names *agentNames) *agentReader { return &agentReader{names: names} }

// identity is whose a sample is.
type identity struct {
	row    *metric.Def
	labels []exposition.Label
}

// raw returns a label's value as the agent wrote it: a Prometheus that has given the
// label another meaning has put exported_ before it.
func (i identity) raw(name string) []byte {
	var plain []byte
	for _, l := range i.labels {
		if string(l.Name) == name {
			plain = l.Value
		} else if len(l.Name) == len(exported)+len(name) && string(l.Name[:len(exported)]) == exported && string(l.Name[len(exported):]) == name {
			return l.Value
		}
	}
	return plain
}

const exported = "exported_"

func (i identity) text(name string) string { return text.Clean(string(i.raw(name)), maxText) }

func (i identity) number(name string) int {
	n, err := strconv.Atoi(string(i.raw(name)))
	if err != nil || n < 0 || n > 1<<30 {
		return -1
	}
	return n
}

func (i identity) owner() collector.Owner {
	o := collector.Owner{Kind: i.text("owner_kind"), ID: i.text("owner"), Team: i.text("team")}
	if o.Kind == metric.Unattributed {
		return collector.Owner{Team: o.Team}
	}
	return o
}

func (r *agentReader) begin(now time.Time) {
	*r = agentReader{names: r.names, xids: r.xids, part: &collector.Part{Time: now}, gpus: map[string]*agentGPU{}, things: map[string]int{}, buckets: map[bucketKey]*buckets{}}
	r.part.Node.Readings = collector.NewReadings(metric.Node)
}

func (r *agentReader) sample(name []byte, labels []exposition.Label, v float64, _ bool) error {
	use, ok := r.names.uses[string(name)]
	if !ok {
		return nil
	}
	r.samples++
	at := identity{use.row, labels}
	switch {
	case use.take != nil:
		use.take(r, at, v)
	case use.part != noHistogram:
		r.bucket(use, at, v)
	default:
		column := 0
		if use.row.Dim != nil {
			column = use.row.Dim.Index(string(at.raw(use.row.Dim.Label)))
		}
		if readings := r.readings(at); readings != nil && column >= 0 && use.row.Plausible(v) {
			readings.SetAt(use.row, column, v)
		}
	}
	return nil
}

// readings returns those of the entity that the labels name; nil if there are too many.
func (r *agentReader) readings(at identity) *collector.Readings {
	p := r.part
	switch at.row.Entity {
	case metric.GPU:
		return &r.gpu(at).Readings
	case metric.Instance:
		if i := r.instance(at); i != nil {
			return &i.Readings
		}
	case metric.Link:
		if l, isNew := find(r, at, &p.Links, metric.Link, "uuid", "link"); l != nil {
			if isNew {
				*l = collector.Link{GPU: at.number("gpu"), UUID: at.text("uuid"), Number: at.number("link"), Readings: collector.NewReadings(metric.Link)}
			}
			return &l.Readings
		}
	case metric.Interface:
		if i := r.port(at); i != nil {
			return &i.Readings
		}
	case metric.Endpoint:
		if e := r.endpoint(at); e != nil {
			return &e.Readings
		}
	case metric.Target:
		if t, isNew := find(r, at, &p.Targets, metric.Target, "endpoint"); t != nil {
			if isNew {
				*t = collector.Target{URL: at.text("endpoint"), Readings: collector.NewReadings(metric.Target)}
			}
			return &t.Readings
		}
	case metric.Workload:
		if w := r.workload(at); w != nil {
			return &w.Readings
		}
	default:
		return &p.Node.Readings
	}
	return nil
}

// find returns the thing in the list that the labels name, and whether it is new; nil
// if there are too many. What it returns is good until the next call.
func find[T any](r *agentReader, at identity, list *[]T, kind metric.Entity, labels ...string) (thing *T, isNew bool) {
	r.key = append(r.key[:0], byte(kind))
	for _, l := range labels {
		r.key = append(append(r.key, at.raw(l)...), 0xff)
	}
	i, ok := r.things[string(r.key)]
	if !ok {
		if len(*list) >= maxThings {
			return nil, false
		}
		i = len(*list)
		r.things[string(r.key)] = i
		*list = append(*list, *new(T))
	}
	return &(*list)[i], !ok
}

func (r *agentReader) gpu(at identity) *agentGPU {
	uuid := at.raw("uuid")
	g := r.gpus[string(uuid)]
	if g == nil {
		g = &agentGPU{GPU: collector.GPU{Index: at.number("gpu"), UUID: at.text("uuid"), Present: true, Readings: collector.NewReadings(metric.GPU)}}
		if len(r.order) < maxThings && len(uuid) > 0 { // else what is said of it is lost with it
			r.gpus[string(uuid)] = g
			r.order = append(r.order, g)
		}
	}
	return g
}

func (r *agentReader) instance(at identity) *collector.Instance {
	i, isNew := find(r, at, &r.part.Instances, metric.Instance, "uuid", "mig")
	if isNew {
		i.UUID, i.Profile, i.GPU = at.text("uuid"), at.text("profile"), at.number("gpu")
		gi, ci, _ := cutNumber(at.text("mig"))
		i.GI, i.CI = gi, ci
		i.Readings = collector.NewReadings(metric.Instance)
		r.gpu(at).MIG = true
	}
	return i
}

func (r *agentReader) port(at identity) *collector.Interface {
	i, isNew := find(r, at, &r.part.Interfaces, metric.Interface, "device", "port")
	if isNew {
		i.Device, i.Port, i.Readings = at.text("device"), at.number("port"), collector.NewReadings(metric.Interface)
	}
	return i
}

func (r *agentReader) endpoint(at identity) *collector.Endpoint {
	e, isNew := find(r, at, &r.part.Endpoints, metric.Endpoint, "endpoint", "engine", "model")
	if isNew {
		e.URL, e.Engine, e.Model, e.Readings = at.text("endpoint"), at.text("engine"), at.text("model"), collector.NewReadings(metric.Endpoint)
	}
	return e
}

func (r *agentReader) workload(at identity) *collector.Workload {
	o := at.owner()
	if o.Kind == "" || o.Kind == metric.OtherOwners {
		return nil // of nobody: an owner whom the snapshot does not have
	}
	w, isNew := find(r, at, &r.part.Workloads, metric.Workload, "owner_kind", "owner", "team")
	if isNew {
		w.Owner, w.Readings = o, collector.NewReadings(metric.Workload)
	}
	return w
}

func (r *agentReader) end(now time.Time) (*collector.Part, error) {
	if r.samples == 0 {
		return nil, page.Failing("unknown_page", "it has nothing of an agent")
	}
	p := r.part
	p.Simulated = r.said.simulated
	stamp(&p.Node.Readings, now)
	r.endGPUs(now)
	r.endHistograms()
	each(p.Instances, func(i *collector.Instance) *collector.Readings { return &i.Readings }, now)
	each(p.Links, func(l *collector.Link) *collector.Readings { return &l.Readings }, now)
	each(p.Interfaces, func(i *collector.Interface) *collector.Readings { return &i.Readings }, now)
	each(p.Endpoints, func(e *collector.Endpoint) *collector.Readings { return &e.Readings }, now)
	each(p.Targets, func(t *collector.Target) *collector.Readings { return &t.Readings }, now)
	each(p.Workloads, func(w *collector.Workload) *collector.Readings { return &w.Readings }, now)
	if inventory := r.inventory; len(inventory.Runtimes)+len(inventory.Images)+len(inventory.Datasets)+len(inventory.APIs) > 0 {
		inventory.At = now
		p.Inventory = &inventory
	}
	return p, nil
}

// endGPUs makes the GPUs whole: who owns them, when they were looked at, and which
// errors have fallen since the page before.
func (r *agentReader) endGPUs(now time.Time) {
	first := r.xids == nil
	told := map[xidKey]uint64{}
	for _, g := range r.order {
		slices.SortStableFunc(g.shares, func(a, b shared) int { return int(math.Copysign(1, b.of-a.of)) })
		for _, s := range g.shares {
			g.Owners = append(g.Owners, s.owner)
		}
		slices.SortFunc(g.Xids, func(a, b collector.XidCount) int { return a.Code - b.Code })
		for _, x := range g.Xids {
			k := xidKey{g.UUID, x.Code}
			told[k] = x.Count
			if !first && x.Count > r.xids[k] {
				r.part.Events = append(r.part.Events, collector.Event{Time: x.Last, Kind: collector.XidEvent, UUID: g.UUID, Code: x.Code})
			}
		}
		stamp(&g.Readings, now)
		if g.age > 0 && g.age < maxAge {
			g.Stamp(metric.Fast, now.Add(-time.Duration(g.age*float64(time.Second))))
		}
		r.part.GPUs = append(r.part.GPUs, g.GPU)
	}
	r.xids = told
}

// maxAge is more than any sample is held, in seconds.
const maxAge = 3600

func stamp(r *collector.Readings, now time.Time) {
	for t := range metric.Tiers {
		r.Stamp(t, now)
	}
}

func each[T any](list []T, readings func(*T) *collector.Readings, now time.Time) {
	for i := range list {
		stamp(readings(&list[i]), now)
	}
}
