package frame

import (
	"encoding/binary"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// encoder appends one part to b and its strings to table. The first error stays in
// err.
type encoder struct {
	b        []byte
	table    []byte                 // the frame's strings, each after its length
	strings  map[string]uint64      // their numbers, from 1
	rows     map[*metric.Def]uint64 // the catalogue's rows, by number
	base     time.Time              // the part's time
	elements int
	err      error
}

func (e *encoder) part(p *collector.Part) {
	e.b, e.table, e.base, e.elements, e.err = e.b[:0], e.table[:0], p.Time, 0, nil
	clear(e.strings)

	head := len(e.b)
	e.absolute(p.Time)
	e.time(p.Boot)
	e.uvarint(bit(p.Simulated, flagSimulated))
	e.size(head)

	e.node(&p.Node)
	e.section(gpuSection, len(p.GPUs), maxGPUs, func(i int) { e.gpu(&p.GPUs[i]) })
	e.section(instanceSection, len(p.Instances), maxInstances, func(i int) { e.instance(&p.Instances[i]) })
	e.section(processSection, len(p.Processes), maxProcesses, func(i int) { e.process(&p.Processes[i]) })
	e.section(endpointSection, len(p.Endpoints), maxEndpoints, func(i int) { e.endpoint(&p.Endpoints[i]) })
	e.section(targetSection, len(p.Targets), maxTargets, func(i int) { e.target(&p.Targets[i]) })
	e.section(pageSection, len(p.Pages), maxPages, func(i int) { e.page(&p.Pages[i]) })
	e.section(linkSection, len(p.Links), maxLinks, func(i int) { e.link(&p.Links[i]) })
	e.section(interfaceSection, len(p.Interfaces), maxLinks, func(i int) { e.port(&p.Interfaces[i]) })
	e.section(workloadSection, len(p.Workloads), maxWorkloads, func(i int) { e.workload(&p.Workloads[i]) })
	e.section(attributionSection, len(p.Attributions), maxProcesses, func(i int) { e.attribution(&p.Attributions[i]) })
	e.section(allocationSection, len(p.Allocations), maxInstances, func(i int) { e.allocation(&p.Allocations[i]) })
	if p.Inventory != nil {
		e.section(inventorySection, 1, 1, func(int) { e.inventory(p.Inventory) })
	}
	e.section(eventSection, len(p.Events), maxEvents, func(i int) { e.event(&p.Events[i]) })
}

// appendPayload appends the strings and then what refers to them.
func (e *encoder) appendPayload(b []byte) []byte {
	var buf [binary.MaxVarintLen64]byte
	count := buf[:binary.PutUvarint(buf[:], uint64(len(e.strings)))]
	b = binary.AppendUvarint(b, uint64(len(count)+len(e.table)))
	b = append(b, count...)
	b = append(b, e.table...)
	return append(b, e.b...)
}

func (e *encoder) section(id uint64, n, limit int, record func(i int)) {
	if n == 0 || !e.fits(n, limit) {
		return
	}
	e.uvarint(id)
	start := len(e.b)
	e.uvarint(uint64(n))
	for i := range n {
		at := len(e.b)
		record(i)
		e.size(at)
	}
	e.size(start)
}

func (e *encoder) node(n *collector.Node) {
	e.section(nodeSection, 1, 1, func(int) {
		e.str(n.Name)
		e.list(len(n.Versions))
		for _, v := range n.Versions {
			e.str(v.Component)
			e.str(v.Value)
		}
		e.readings(n.Readings, metric.Node)
	})
}

func (e *encoder) rowList(list []*metric.Def) {
	e.list(len(list))
	for _, d := range list {
		e.row(d)
	}
}

func (e *encoder) gpu(g *collector.GPU) {
	e.varint(int64(g.Index))
	for _, s := range [...]string{g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture} {
		e.str(s)
	}
	e.uvarint(bit(g.Present, flagPresent) | bit(g.Hung, flagHung) | bit(g.MIG, flagMIG))
	e.owners(g.Owners)
	e.rowList(g.Unsupported)
	e.list(len(g.Dropped))
	if len(g.Dropped) > 0 {
		for _, d := range metric.All() { // in the catalogue's order: the same part gives the same bytes
			if n, ok := g.Dropped[d]; ok {
				e.row(d)
				e.uvarint(n)
			}
		}
	}
	e.list(len(g.Xids))
	for _, x := range g.Xids {
		e.varint(int64(x.Code))
		e.uvarint(x.Count)
		e.time(x.Last)
	}
	e.readings(g.Readings, metric.GPU)
	e.allocations(g.Allocations)
	e.distributions(g.Distributions)
	for _, s := range [...]string{g.ComputeCapability, g.CPUs, g.NUMANodes} {
		e.str(s)
	}
	e.list(len(g.Paths))
	for _, p := range g.Paths {
		e.str(p.UUID)
		e.str(p.Level)
	}
	e.str(g.Bound)
	for _, s := range [...]string{g.BoardPart, g.GSP, g.InfoROM} {
		e.str(s)
	}
}

func (e *encoder) distributions(list []collector.Distribution) {
	e.list(len(list))
	for _, d := range list {
		e.row(d.Row)
		e.float(d.Sum)
		e.uvarint(d.Zero)
		e.varint(int64(d.First))
		e.list(len(d.Buckets))
		for _, n := range d.Buckets {
			e.uvarint(n)
		}
	}
}

func (e *encoder) instance(i *collector.Instance) {
	e.varint(int64(i.GPU))
	e.str(i.UUID)
	e.str(i.MIGUUID)
	e.varint(int64(i.GI))
	e.varint(int64(i.CI))
	e.str(i.Profile)
	e.owners(i.Owners)
	e.readings(i.Readings, metric.Instance)
	e.allocations(i.Allocations)
}

func (e *encoder) link(l *collector.Link) {
	e.varint(int64(l.GPU))
	e.str(l.UUID)
	e.varint(int64(l.Number))
	e.readings(l.Readings, metric.Link)
}

func (e *encoder) process(p *collector.Process) {
	e.varint(int64(p.PID))
	e.uvarint(p.Start)
	e.str(p.Name)
	e.varint(int64(p.UID))
	e.varint(int64(p.GPU))
	e.str(p.UUID)
	e.str(p.MIG)
	e.owner(p.Owner)
	e.readings(p.Readings, metric.Process)
	e.str(p.Container)
	e.uvarint(bit(p.Privileged, flagPrivileged))
}

func (e *encoder) endpoint(p *collector.Endpoint) {
	e.str(p.URL)
	e.str(p.Engine)
	e.str(p.Model)
	e.list(len(p.GPUs))
	for _, u := range p.GPUs {
		e.str(u)
	}
	e.readings(p.Readings, metric.Endpoint)
	e.histograms(p.Histograms)
	e.rowList(p.Approximate)
}

func (e *encoder) event(v *collector.Event) {
	e.time(v.Time)
	e.str(string(v.Kind))
	e.str(v.UUID)
	e.varint(int64(v.Code))
	e.str(v.Component)
	e.str(v.From)
	e.str(v.To)
	e.str(v.Text)
	e.str(v.PCI)
	e.str(v.Source)
	e.uvarint(bit(v.Fatal, flagFatal))
	e.owner(v.Owner)
}

func (e *encoder) owners(owners []collector.Owner) {
	e.list(len(owners))
	for _, o := range owners {
		e.owner(o)
	}
}

func (e *encoder) owner(o collector.Owner) {
	e.str(o.Kind)
	e.str(o.ID)
	e.str(o.Team)
}
