package scrape

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

const (
	maxGPUs      = 64
	maxInstances = 512
	maxHolders   = 1024
	maxProcesses = 4096
)

// board is what one page says of the node's GPUs.
type board struct {
	devices []*device
	byUUID  map[string]*device
	hosts   map[string]string // the value of each label that names the node

	versions  []collector.Version
	processes []collector.Process
}

// device is what a page says of one GPU.
type device struct {
	gpu       collector.GPU
	rank      []uint8 // of the name that each column has its value from
	instances []*instance
	holders   []collector.Allocation
	holder    []byte // as the labels named it last: most series of a GPU have the same
	fallen    []fallen
	unclear   []unclear
	indexed   bool
	processes bool // its processes are listed
}

type instance struct {
	collector.Instance
	rank []uint8
}

// unclear is utilization of which the page has to tell the unit.
type unclear struct {
	row   *metric.Def
	rank  uint8
	value float64
}

func newBoard() *board {
	return &board{byUUID: map[string]*device{}, hosts: map[string]string{}}
}

// device returns the GPU of the uuid, which may be new to the page.
func (b *board) device(uuid []byte) (d *device, isNew bool, err error) {
	if d := b.byUUID[string(uuid)]; d != nil {
		return d, false, nil
	}
	if len(b.devices) == maxGPUs {
		return nil, false, page.Failing("too_large", "its page has more than %d GPUs: one agent watches one node", maxGPUs)
	}
	d = &device{gpu: collector.GPU{Index: len(b.devices), UUID: fullUUID(word(uuid)), Present: true, Readings: collector.NewReadings(metric.GPU)}}
	d.rank = make([]uint8, metric.VectorLen(metric.GPU))
	b.devices = append(b.devices, d)
	b.byUUID[string(uuid)] = d
	return d, true, nil
}

// fullUUID gives a uuid the prefix that the driver writes: nvidia_gpu_exporter leaves
// it out.
func fullUUID(uuid string) string {
	if strings.HasPrefix(uuid, "GPU-") || strings.HasPrefix(uuid, "MIG-") {
		return uuid
	}
	return "GPU-" + uuid
}

// instance returns the MIG instance of the GPU, nil if there are too many.
func (d *device) instance(gi, ci int) *instance {
	for _, i := range d.instances {
		if i.GI == gi && i.CI == ci {
			return i
		}
	}
	if len(d.instances) == maxInstances {
		return nil
	}
	i := &instance{Instance: collector.Instance{UUID: d.gpu.UUID, GI: gi, CI: ci, Readings: collector.NewReadings(metric.Instance)}}
	i.rank = make([]uint8, metric.VectorLen(metric.Instance))
	d.instances = append(d.instances, i)
	d.gpu.MIG = true
	return i
}

// lay takes in a reading of the GPU. Of several names of one fact the one with the
// highest rank counts, of several series of one name the first: an exporter repeats
// those of a GPU for each of its holders.
func (d *device) lay(row *metric.Def, at int, rank uint8, v float64) {
	if !row.Plausible(v) {
		if d.gpu.Dropped == nil {
			d.gpu.Dropped = map[*metric.Def]uint64{}
		}
		d.gpu.Dropped[row]++
		return
	}
	if c := row.Col() + at; rank > d.rank[c] {
		d.rank[c] = rank
		d.gpu.SetAt(row, at, v)
	}
}

func (i *instance) lay(row *metric.Def, at int, rank uint8, v float64) {
	if c := row.Col() + at; rank > i.rank[c] && row.Plausible(v) {
		i.rank[c] = rank
		i.SetAt(row, at, v)
	}
}

// hold notes that the GPU, or the instance of it that mig names, was given to somebody.
func (d *device) hold(mig string, o collector.Owner, container, source string) {
	a := collector.Allocation{UUID: d.gpu.UUID, MIG: mig, Owner: o, Container: container, Source: source}
	if len(d.holders) < maxHolders && !slices.Contains(d.holders, a) {
		d.holders = append(d.holders, a)
	}
}

// host notes the node that a series is of. A page of several nodes, as Prometheus and
// gateways serve them, would make their GPUs those of one.
func (b *board) host(labels []exposition.Label) error {
	for i := range labels {
		switch string(labels[i].Name) {
		case "Hostname", "hostname", "instance":
			before, known := b.hosts[string(labels[i].Name)]
			if known && before != string(labels[i].Value) {
				return page.Failing("several_nodes", "its page is of several nodes, %s and %s (label %s): one agent watches one node, so point it at the exporter of this node",
					before, word(labels[i].Value), labels[i].Name)
			}
			if !known {
				b.hosts[string(labels[i].Name)] = word(labels[i].Value)
			}
		}
	}
	return nil
}

// version notes a component's version.
func (b *board) version(component string, value []byte) {
	v := collector.Version{Component: component, Value: word(value)}
	if v.Value != "" && !slices.ContainsFunc(b.versions, func(o collector.Version) bool { return o.Component == component }) {
		b.versions = append(b.versions, v)
	}
}

// part returns what the page says, as of now.
func (b *board) part(now time.Time) *collector.Part {
	p := &collector.Part{Time: now, Node: collector.Node{Versions: b.versions}, Processes: b.processes}
	for _, d := range b.devices {
		d.complete()
		tiers := []metric.Tier{metric.Fast, metric.Slow, metric.Inventory}
		if d.processes {
			tiers = append(tiers, metric.Processes)
		}
		for _, t := range tiers {
			d.gpu.Stamp(t, now)
		}
		p.GPUs = append(p.GPUs, d.gpu)
		for _, i := range d.instances {
			i.GPU = d.gpu.Index
			for _, t := range tiers {
				i.Stamp(t, now)
			}
			p.Instances = append(p.Instances, i.Instance)
		}
		p.Allocations = append(p.Allocations, d.holders...)
	}
	slices.SortStableFunc(p.GPUs, func(a, b collector.GPU) int { return cmp.Compare(a.Index, b.Index) })
	for i := range p.Processes {
		p.Processes[i].Stamp(metric.Processes, now)
	}
	return p
}

// complete derives what a page leaves out and what follows from the rest: the driver
// divides its memory into these three.
func (d *device) complete() {
	g := &d.gpu
	if whole := g.Value(metric.MemoryUsed) + g.Value(metric.MemoryFree) + g.Value(metric.MemoryReserved); !g.Has(metric.MemoryCapacity) && !math.IsNaN(whole) {
		d.lay(metric.MemoryCapacity, 0, 1, whole)
	}
}

// numberOf reads a small number, such as an index; -1 if it is none.
func numberOf(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 0 || n > 1<<20 {
		return -1
	}
	return n
}
