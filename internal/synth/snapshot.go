package synth

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// snapshot is what an agent publishes at the end of a step. It shares no memory with
// the node that the next step changes.
func (n *Node) snapshot() *collector.Snapshot {
	n.samples++
	s := &collector.Snapshot{Time: n.now, Boot: n.boot, BootID: bootID(n.cfg.Name, n.bootID), Simulated: true, Events: n.events, SXids: n.sxids,
		GPUsBefore: nodeSize, Sources: n.sources()}
	n.events = nil
	n.host.see(n)
	s.Node = collector.Node{Name: n.cfg.Name, Versions: n.versions, Readings: n.host.readings.Clone()}
	s.GPUs, s.Processes = n.boards()
	for _, g := range n.gpus {
		if g.mig {
			s.Instances = g.seeInstances(n.now, s.Instances)
		}
	}
	s.Interfaces = n.host.seePorts(n.now)
	for _, t := range n.tenants {
		s.Workloads = append(s.Workloads, t.describe(n.now))
		if t.server != nil && t.up {
			e, target := t.endpoint(n.now)
			s.Endpoints, s.Targets = append(s.Endpoints, e), append(s.Targets, target)
		}
	}
	slices.SortFunc(s.Workloads, func(a, b collector.Workload) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(s.Endpoints, func(a, b collector.Endpoint) int { return strings.Compare(a.URL, b.URL) })
	slices.SortFunc(s.Targets, func(a, b collector.Target) int { return strings.Compare(a.URL, b.URL) })
	s.Inventory = n.look()
	n.last = s
	return s
}

// boards returns the GPUs and the processes on them, the vectors in one piece of
// memory.
func (n *Node) boards() ([]collector.GPU, []collector.Process) {
	dt := n.step.Seconds()
	width := metric.VectorLen(metric.GPU)
	all := make([]float64, nodeSize*width)
	gpus := make([]collector.GPU, nodeSize)
	processes := make([]collector.Process, 0, nodeSize+1)
	for i, g := range n.gpus {
		switch {
		case g.ills.lost || g.ills.hung:
		case n.frozen: // it says again what it said, as if it were new
			g.seen = n.now
			for t := range metric.Tiers {
				g.readings.Stamp(t, n.now)
			}
			processes = g.seeProcesses(n.now, processes)
		default:
			g.see(n.now, dt)
			processes = g.seeProcesses(n.now, processes)
		}
		gpus[i] = g.tell(n, all[i*width:(i+1)*width:(i+1)*width])
	}
	return gpus, processes
}

// tell copies what is known of the GPU. One that does not answer keeps its readings
// for three samples, as an agent holds them.
func (g *gpu) tell(n *Node, into []float64) collector.GPU {
	b := g.board
	copy(into, g.readings.Vector())
	var at [metric.Tiers]time.Time
	for t := range at {
		at[t] = g.readings.SampledAt(metric.Tier(t))
	}
	if g.ills.lost || n.now.Sub(g.seen) > 3*n.step {
		for i := range into {
			into[i] = math.NaN()
		}
		at = [metric.Tiers]time.Time{}
	}
	r := collector.ReadingsFrom(into, at)
	r.Set(metric.GPUPresent, bit(!g.ills.lost))
	r.Set(metric.GPUHung, bit(g.ills.hung))
	r.Set(metric.GPUSampleAge, n.now.Sub(g.seen).Seconds())
	out := collector.GPU{Index: g.index, UUID: g.uuid, Model: b.model, PCIBusID: g.bus, Serial: g.serial, VBIOS: g.vbios, Architecture: b.architecture,
		ComputeCapability: b.capability, CPUs: nearCPUs[g.index/4], NUMANodes: nearNodes[g.index/4], Bound: "nvidia",
		Present: !g.ills.lost, Hung: g.ills.hung, MIG: g.mig, Unsupported: unsupported, Xids: g.xids, Readings: r}
	if !b.activity {
		out.Unsupported = unsupportedBefore
	}
	g.tellOwners(&out)
	return out
}

var nearCPUs, nearNodes = [2]string{"0-95", "96-191"}, [2]string{"0", "1"}

// tellOwners says who uses the GPU, and who was given it.
func (g *gpu) tellOwners(out *collector.GPU) {
	f := g.ills.foreign
	if f != nil && f.owner != (collector.Owner{}) && (len(g.procs) == 0 || f.mem > g.procs[0].mem) {
		out.Owners = append(out.Owners, f.owner)
	}
	for _, p := range g.procs {
		out.Owners = append(out.Owners, p.owner)
	}
	if g.guest != nil {
		out.Owners = append(out.Owners, g.guest.owner)
	}
	if f != nil && f.owner != (collector.Owner{}) && !slices.Contains(out.Owners, f.owner) {
		out.Owners = append(out.Owners, f.owner)
	}
	t := g.tenant
	if t == nil {
		return
	}
	if !slices.Contains(out.Owners, t.owner) {
		out.Owners = append(out.Owners, t.owner)
	}
	resource, source := "nvidia.com/gpu", "kubelet"
	if t.owner.Kind == "job" {
		resource, source = "gres/gpu", "slurm"
	}
	if g.guest != nil {
		resource = "nvidia.com/gpu.shared"
		out.Allocations = []collector.Allocation{{UUID: g.uuid, Owner: g.guest.owner, Container: "main", Resource: resource, Source: source}}
	}
	out.Allocations = append(out.Allocations, collector.Allocation{UUID: g.uuid, Owner: t.owner, Container: t.container, Resource: resource, Source: source})
}

// sources are those of an agent that may read all.
func (n *Node) sources() []collector.SourceState {
	out := make([]collector.SourceState, 0, len(sourceNames))
	for _, name := range sourceNames {
		out = append(out, collector.SourceState{Name: name, Interval: n.step, Duration: 3 * time.Millisecond, Last: n.now, Samples: n.samples, Expected: true})
	}
	return out
}

var sourceNames = []string{"nvml", "host", "owner", "movement", "inventory", "kernellog"}

func bootID(name string, boot int) string { return name + "-boot-" + string(rune('a'+boot%26)) }

// software is what a tenant has loaded.
type software struct {
	runtimes []collector.Version
	image    string
	port     int
	datasets []collector.Dataset // without owner
	odd      collector.Version   // that two of its processes have loaded in place of the others'
}

func softwareOf(k kind) software {
	libraries := []collector.Version{
		{Component: "cublas", Value: "12.8.4.1"}, {Component: "cuda_runtime", Value: "12.8.90"}, {Component: "cudnn", Value: "9.10.2.21"},
		{Component: "nccl", Value: "2.27.5"}, {Component: "torch", Value: "2.9.1+cu128"},
	}
	switch k {
	case trains:
		return software{runtimes: libraries, image: "registry.example/train:2026.11",
			datasets: []collector.Dataset{{Kind: "lustre", Source: "10.0.0.1@o2ib:/scratch", Mount: "/scratch"}}}
	case serves:
		return software{runtimes: append(slices.Clip(libraries), collector.Version{Component: "vllm", Value: "0.10.2"}), image: "registry.example/vllm-openai:stable", port: 8000,
			datasets: []collector.Dataset{{Kind: "claim", Source: "pvc-models", Mount: "/models"}}}
	case explores:
		return software{runtimes: libraries, image: "registry.example/notebook:2026.11",
			datasets: []collector.Dataset{{Kind: "nfs", Source: "files.example:/home", Mount: "/home"}}}
	default:
		return software{runtimes: libraries[:4:4], image: "registry.example/sweep:41"}
	}
}

// look is what the inventory finds, anew where the tenants have changed.
func (n *Node) look() *collector.Inventory {
	if !n.stale && n.inventory != nil {
		again := *n.inventory
		again.At = n.now
		return &again
	}
	i := &collector.Inventory{At: n.now}
	for _, t := range n.tenants {
		if !t.up {
			continue
		}
		for _, v := range append(slices.Clip(t.software.runtimes), collector.Version{Component: "libcuda", Value: n.version("driver")}, t.software.odd) {
			if v.Component == "" {
				continue
			}
			here := len(t.gpus)
			if v == t.software.odd {
				here = 2
			} else if v.Component == t.software.odd.Component {
				here -= 2
			}
			i.Runtimes = append(i.Runtimes, collector.Runtime{Owner: t.owner, Component: v.Component, Version: v.Value, Processes: here})
		}
		if t.owner.Kind == "pod" {
			i.Images = append(i.Images, collector.Image{Owner: t.owner, Container: t.container, Name: t.software.image, Digest: digestOf(t.software.image)})
		}
		for _, d := range t.software.datasets {
			d.Owner = t.owner
			i.Datasets = append(i.Datasets, d)
		}
		if t.software.port != 0 {
			tls := true
			i.APIs = append(i.APIs, collector.API{Owner: t.owner, Port: t.software.port, Scope: "private", TLS: &tls, Engine: "vllm", Model: t.server.model})
		}
	}
	i.Sort()
	n.inventory, n.stale = i, false
	return i
}

func digestOf(image string) string {
	r := newRand(0, image)
	const hex = "0123456789abcdef"
	b := make([]byte, 64)
	for i := range b {
		b[i] = hex[r.IntN(16)]
	}
	return "sha256:" + string(b)
}

func (n *Node) version(component string) string {
	for _, v := range n.versions {
		if v.Component == component {
			return v.Value
		}
	}
	return ""
}

// upgrade puts another driver on the node, and the fabric manager that belongs to it.
func (n *Node) upgrade(to string) {
	n.setVersion("driver", to)
	n.setVersion("fabric_manager", to)
}

// setVersion changes a component's version; a driver brings its NVML along.
func (n *Node) setVersion(component, to string) {
	i := slices.IndexFunc(n.versions, func(v collector.Version) bool { return v.Component == component })
	from := n.versions[i].Value
	if from == to {
		return
	}
	n.versions = slices.Clone(n.versions) // the old ones are in snapshots
	n.versions[i].Value = to
	n.tell(collector.Event{Kind: collector.VersionEvent, Component: component, From: from, To: to})
	if component == "driver" {
		n.setVersion("nvml", "12."+to)
		n.stale = true
	}
}
