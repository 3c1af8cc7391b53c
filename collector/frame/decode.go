package frame

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxKnown bounds the bytes of the strings that a decoder keeps from frame to
// frame so that a uuid is not allocated each time.
const maxKnown = 1 << 20

// decoder reads one payload from b. The first error stays in err, and everything
// read after it is zero.
type decoder struct {
	*mapping
	b      []byte
	base   time.Time // the part's time
	table  []string  // the frame's strings
	budget int       // list elements that the payload may still have
	err    error

	known      map[string]string // nil: keep none
	knownBytes int
}

func (d *decoder) part(payload []byte) (*collector.Part, error) {
	d.b, d.table, d.budget, d.err = payload, d.table[:0], maxElements, nil
	p := new(collector.Part)
	rest := d.enter()
	for range d.list(maxElements) {
		d.table = append(d.table, d.literal())
	}
	d.leave(rest)
	rest = d.enter()
	d.base = d.absolute()
	p.Time = d.base
	p.Boot = d.time()
	p.Simulated = d.uvarint()&flagSimulated != 0
	d.leave(rest)
	for len(d.b) > 0 && d.err == nil {
		id := d.uvarint()
		rest := d.enter()
		d.section(p, id)
		d.leave(rest)
	}
	if d.err != nil {
		return nil, d.err
	}
	return p, nil
}

// section reads one section; one of a later release is left to be skipped.
func (d *decoder) section(p *collector.Part, id uint64) {
	switch id {
	case nodeSection:
		if n := records(d, 1, d.vectors(metric.Node), (*decoder).node); len(n) > 0 {
			p.Node = n[0]
		}
	case gpuSection:
		p.GPUs = records(d, maxGPUs, d.vectors(metric.GPU), (*decoder).gpu)
	case instanceSection:
		p.Instances = records(d, maxInstances, d.vectors(metric.Instance), (*decoder).instance)
	case processSection:
		p.Processes = records(d, maxProcesses, d.vectors(metric.Process), (*decoder).process)
	case endpointSection:
		p.Endpoints = records(d, maxEndpoints, d.vectors(metric.Endpoint), (*decoder).endpoint)
	case targetSection:
		p.Targets = records(d, maxTargets, d.vectors(metric.Target), (*decoder).target)
	case pageSection:
		p.Pages = records(d, maxPages, vector{}, (*decoder).page)
	case linkSection:
		p.Links = records(d, maxLinks, d.vectors(metric.Link), (*decoder).link)
	case interfaceSection:
		p.Interfaces = records(d, maxLinks, d.vectors(metric.Interface), (*decoder).port)
	case workloadSection:
		p.Workloads = records(d, maxWorkloads, d.vectors(metric.Workload), (*decoder).workload)
	case attributionSection:
		p.Attributions = records(d, maxProcesses, vector{}, (*decoder).attribution)
	case allocationSection:
		p.Allocations = records(d, maxInstances, vector{}, (*decoder).allocation)
	case inventorySection:
		if i := records(d, 1, vector{}, (*decoder).inventory); len(i) > 0 {
			p.Inventory = &i[0]
		}
	case eventSection:
		p.Events = records(d, maxEvents, vector{}, (*decoder).event)
	}
}

// vector is where a record's readings go: memory of the catalogue's length, and
// for each column of the stream the catalogue's column.
type vector struct {
	values []float64
	cols   []int
	width  int
}

func (d *decoder) vectors(e metric.Entity) vector {
	return vector{cols: d.cols[e], width: metric.VectorLen(e)}
}

// records reads a section's records. Their vectors share one piece of memory.
func records[T any](d *decoder, limit int, v vector, read func(*decoder, *T, vector)) []T {
	n := d.list(limit)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	all := make([]float64, n*v.width)
	for i := range all {
		all[i] = math.NaN()
	}
	for i := range out {
		rest := d.enter()
		v.values = all[i*v.width : (i+1)*v.width : (i+1)*v.width]
		read(d, &out[i], v)
		d.leave(rest)
	}
	return out
}

func (d *decoder) node(n *collector.Node, v vector) {
	n.Name = d.str()
	n.Versions = list(d, func(v *collector.Version) { v.Component, v.Value = d.str(), d.str() })
	n.Readings = d.readings(v)
}

func (d *decoder) gpu(g *collector.GPU, v vector) {
	g.Index = d.int()
	for _, s := range [...]*string{&g.UUID, &g.Model, &g.PCIBusID, &g.Serial, &g.VBIOS, &g.Architecture} {
		*s = d.str()
	}
	flags := d.uvarint()
	g.Present, g.Hung, g.MIG = flags&flagPresent != 0, flags&flagHung != 0, flags&flagMIG != 0
	g.Owners = d.owners()
	g.Unsupported = d.rowList()
	g.Dropped = d.dropped()
	g.Xids = list(d, func(x *collector.XidCount) { x.Code, x.Count, x.Last = d.int(), d.uvarint(), d.time() })
	g.Readings = d.readings(v)
	g.Allocations = d.allocations()
	g.Distributions = d.distributions()
	if d.done() {
		return // of a release before they came
	}
	g.ComputeCapability, g.CPUs, g.NUMANodes = d.str(), d.str(), d.str()
	g.Paths = list(d, func(p *collector.Path) { p.UUID, p.Level = d.str(), d.str() })
	if d.done() {
		return
	}
	g.Bound = d.str()
	if d.done() {
		return
	}
	g.BoardPart, g.GSP, g.InfoROM = d.str(), d.str(), d.str()
}

func (d *decoder) instance(i *collector.Instance, v vector) {
	i.GPU, i.UUID, i.MIGUUID = d.int(), d.str(), d.str()
	i.GI, i.CI, i.Profile = d.int(), d.int(), d.str()
	i.Owners = d.owners()
	i.Readings = d.readings(v)
	i.Allocations = d.allocations()
}

func (d *decoder) link(l *collector.Link, v vector) {
	l.GPU, l.UUID, l.Number = d.int(), d.str(), d.int()
	l.Readings = d.readings(v)
}

func (d *decoder) process(p *collector.Process, v vector) {
	p.PID, p.Start, p.Name, p.UID = d.int(), d.uvarint(), d.str(), d.int()
	p.GPU, p.UUID, p.MIG = d.int(), d.str(), d.str()
	d.owner(&p.Owner)
	p.Readings = d.readings(v)
	if !d.done() {
		p.Container = d.str()
	}
	if !d.done() {
		p.Privileged = d.uvarint()&flagPrivileged != 0
	}
}

func (d *decoder) endpoint(p *collector.Endpoint, v vector) {
	p.URL, p.Engine, p.Model = d.str(), d.str(), d.str()
	p.GPUs = list(d, func(s *string) { *s = d.str() })
	p.Readings = d.readings(v)
	p.Histograms = d.histograms()
	if !d.done() {
		p.Approximate = d.rowList()
	}
}

func (d *decoder) event(v *collector.Event, _ vector) {
	v.Time, v.Kind, v.UUID, v.Code = d.time(), collector.EventKind(d.str()), d.str(), d.int()
	v.Component, v.From, v.To, v.Text = d.str(), d.str(), d.str(), d.str()
	if d.done() {
		return
	}
	v.PCI, v.Source, v.Fatal = d.str(), d.str(), d.uvarint()&flagFatal != 0
	if !d.done() {
		d.owner(&v.Owner)
	}
}

// done reports whether the record ends here: a release before the fields that
// follow wrote it.
func (d *decoder) done() bool { return len(d.b) == 0 }

func (d *decoder) owners() []collector.Owner { return list(d, d.owner) }

func (d *decoder) owner(o *collector.Owner) { o.Kind, o.ID, o.Team = d.str(), d.str(), d.str() }

// distributions reads those of a GPU; a record of an earlier release has none. It
// leaves out those of rows that are no histograms in this release.
func (d *decoder) distributions() []collector.Distribution {
	if d.done() {
		return nil
	}
	all := list(d, func(x *collector.Distribution) {
		x.Row, x.Sum, x.Zero, x.First = d.row(), d.float(), d.uvarint(), d.int()
		x.Buckets = list(d, func(n *uint64) { *n = d.uvarint() })
	})
	return slices.DeleteFunc(all, func(x collector.Distribution) bool { return x.Row == nil || x.Row.Kind != metric.Histogram })
}

// rowList leaves out those that this release does not have.
func (d *decoder) rowList() []*metric.Def {
	var rows []*metric.Def
	for range d.list(maxPerEntity) {
		if row := d.row(); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// dropped leaves out rows that this release does not have.
func (d *decoder) dropped() map[*metric.Def]uint64 {
	var counts map[*metric.Def]uint64
	for range d.list(maxPerEntity) {
		row, n := d.row(), d.uvarint()
		if row == nil {
			continue
		}
		if counts == nil {
			counts = make(map[*metric.Def]uint64)
		}
		counts[row] = n
	}
	return counts
}
