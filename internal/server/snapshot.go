package server

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxProcesses is how many processes the API tells of, those with most memory.
const maxProcesses = 200

// Snapshot is the answer of GET /api/v1/snapshot: the node as it was seen last.
type Snapshot struct {
	Time          time.Time `json:"time"`
	Boot          time.Time `json:"boot,omitzero"`
	GPUsBefore    int       `json:"gpus_before_boot,omitempty"` // in the last boot before in which there were any
	Version       string    `json:"agent_version"`
	Simulated     bool      `json:"simulated"`
	ReleasedUntil time.Time `json:"released_until,omitzero"` // the agent keeps off the GPUs until then

	Node         Node             `json:"node"`
	GPUs         []GPU            `json:"gpus"`
	Instances    []Instance       `json:"instances"`
	Processes    []Process        `json:"processes"`     // the 200 with most device memory
	ProcessCount int              `json:"process_count"` // all of them
	Endpoints    []Endpoint       `json:"endpoints"`
	Targets      []Target         `json:"targets"`
	Pages        []collector.Page `json:"pages"` // other exporters' that stand for the driver or the kernel
	Workloads    []Workload       `json:"workloads"`
	Interfaces   []Interface      `json:"interfaces"`
	Sources      []Source         `json:"sources"`
}

// Readings are the numbers that were reported, by series without the entity's
// labels: vigil_gpu_power_draw_watts, vigil_gpu_clock_hertz{clock="sm"}.
type Readings map[string]float64

// Node is the machine.
type Node struct {
	Name     string            `json:"name"`
	Versions map[string]string `json:"versions"` // by component
	Readings Readings          `json:"readings"`
}

// GPU is one GPU.
type GPU struct {
	Index     int               `json:"index"`
	UUID      string            `json:"uuid"`
	Model     string            `json:"model,omitempty"`
	PCIBusID  string            `json:"pci_bus_id,omitempty"`
	Serial    string            `json:"serial,omitempty"`
	Present   bool              `json:"present"`
	GivenAway bool              `json:"given_away,omitempty"` // another driver than NVIDIA's has it, as for a virtual machine
	Hung      bool              `json:"hung"`
	MIG       bool              `json:"mig"`
	Owners    []collector.Owner `json:"owners"` // who uses it, most memory first, then who was only given it
	Users     []collector.Owner `json:"users"`  // who has a process on it; one without a kind is of nobody that is known
	Given     []Allocation      `json:"given"`  // who was given it or a share of it
	Xids      []Xid             `json:"xids"`
	Sampled   time.Time         `json:"sampled,omitzero"` // when its fast readings were taken
	Readings  Readings          `json:"readings"`
}

// Xid is how often an error code has fallen since the agent started.
type Xid struct {
	Code  int       `json:"code"`
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// Instance is one MIG instance.
type Instance struct {
	GPU      int               `json:"gpu"`
	UUID     string            `json:"uuid"` // the GPU's
	MIGUUID  string            `json:"mig_uuid"`
	GI       int               `json:"gi"`
	CI       int               `json:"ci"`
	Profile  string            `json:"profile"`
	Owners   []collector.Owner `json:"owners"`
	Given    []Allocation      `json:"given"`
	Readings Readings          `json:"readings"`
}

// Allocation says who was given a GPU or an instance.
type Allocation struct {
	Owner     collector.Owner `json:"owner"`
	Container string          `json:"container,omitempty"`
	Resource  string          `json:"resource,omitempty"` // as the scheduler calls it
	Shares    int             `json:"shares,omitempty"`   // of the device; none: all of it
	Source    string          `json:"source"`             // who said so: kubelet, slurm
}

// Process is one process on one GPU. Its name is what it calls itself.
type Process struct {
	PID       int             `json:"pid"`
	Name      string          `json:"name"`
	UID       int             `json:"uid"` // -1 if unknown
	GPU       int             `json:"gpu"`
	UUID      string          `json:"uuid"`
	MIG       string          `json:"mig,omitempty"`
	Owner     collector.Owner `json:"owner"`
	Container string          `json:"container,omitempty"`
	Readings  Readings        `json:"readings"`
}

// Endpoint is a model of an inference server.
type Endpoint struct {
	URL         string   `json:"url"`
	Engine      string   `json:"engine"`
	Model       string   `json:"model"`
	GPUs        []string `json:"gpus"`                  // uuids; none: all of the node
	Approximate []string `json:"approximate,omitempty"` // metrics that are only about what their names say
	Readings    Readings `json:"readings"`
}

// Target is an inference server's metrics page.
type Target struct {
	URL        string   `json:"url"`
	Discovered bool     `json:"discovered"` // found by the sockets of processes on the GPUs, not configured
	Readings   Readings `json:"readings"`
}

// Source is how well one source looks.
type Source struct {
	Name     string    `json:"name"`
	Up       bool      `json:"up"`
	Expected bool      `json:"expected"`
	Interval float64   `json:"interval_seconds"`
	Last     time.Time `json:"last,omitzero"` // of the last good sample
	Samples  uint64    `json:"samples"`
	Errors   uint64    `json:"errors"`
	Error    string    `json:"error,omitempty"` // of the last sample
}

func snapshotOf(s *collector.Snapshot, now time.Time) Snapshot {
	answer := Snapshot{
		Time: s.Time, Boot: s.Boot, GPUsBefore: s.GPUsBefore, Simulated: s.Simulated,
		Node:         Node{Name: s.Node.Name, Versions: map[string]string{}, Readings: readingsOf(metric.Node, s.Node.Readings)},
		GPUs:         each(s.GPUs, func(g collector.GPU) GPU { return gpuOf(g, s.Processes) }),
		Instances:    each(s.Instances, instanceOf),
		Processes:    each(biggest(s.Processes, maxProcesses), processOf),
		ProcessCount: len(s.Processes),
		Endpoints:    each(s.Endpoints, endpointOf),
		Targets:      each(s.Targets, targetOf),
		Pages:        orEmpty(s.Pages),
		Workloads:    each(s.Workloads, workloadOf),
		Interfaces:   each(s.Interfaces, interfaceOf),
		Sources:      []Source{},
	}
	for _, v := range s.Node.Versions {
		answer.Node.Versions[v.Component] = v.Value
	}
	for _, src := range s.Sources {
		answer.Sources = append(answer.Sources, Source{
			Name: src.Name, Up: src.Fresh(now), Expected: src.Expected, Interval: src.Interval.Seconds(),
			Last: src.Last, Samples: src.Samples, Errors: src.Errors, Error: src.Err,
		})
	}
	return answer
}

func gpuOf(g collector.GPU, processes []collector.Process) GPU {
	return GPU{
		Index: g.Index, UUID: g.UUID, Model: g.Model, PCIBusID: g.PCIBusID, Serial: g.Serial,
		Present: g.Present, GivenAway: g.GivenAway(), Hung: g.Hung, MIG: g.MIG,
		Owners:  orEmpty(g.Owners),
		Users:   usersOf(g.UUID, processes),
		Given:   each(g.Allocations, allocationOf),
		Xids:    each(g.Xids, func(x collector.XidCount) Xid { return Xid(x) }),
		Sampled: g.SampledAt(metric.Fast), Readings: readingsOf(metric.GPU, g.Readings),
	}
}

func instanceOf(m collector.Instance) Instance {
	return Instance{
		GPU: m.GPU, UUID: m.UUID, MIGUUID: m.MIGUUID, GI: m.GI, CI: m.CI, Profile: m.Profile,
		Owners: orEmpty(m.Owners), Given: each(m.Allocations, allocationOf), Readings: readingsOf(metric.Instance, m.Readings),
	}
}

// usersOf lists the owners of the GPU's processes, in their order.
func usersOf(uuid string, processes []collector.Process) []collector.Owner {
	users := []collector.Owner{}
	for i := range processes {
		if p := &processes[i]; p.UUID == uuid && !slices.Contains(users, p.Owner) {
			users = append(users, p.Owner)
		}
	}
	return users
}

func allocationOf(a collector.Allocation) Allocation {
	return Allocation{Owner: a.Owner, Container: a.Container, Resource: a.Resource, Shares: a.Shares, Source: a.Source}
}

func processOf(p collector.Process) Process {
	return Process{
		PID: p.PID, Name: p.Name, UID: p.UID, GPU: p.GPU, UUID: p.UUID, MIG: p.MIG, Owner: p.Owner, Container: p.Container,
		Readings: readingsOf(metric.Process, p.Readings),
	}
}

func endpointOf(p collector.Endpoint) Endpoint {
	return Endpoint{
		URL: p.URL, Engine: p.Engine, Model: p.Model,
		GPUs: orEmpty(p.GPUs), Readings: readingsOf(metric.Endpoint, p.Readings),
		Approximate: each(p.Approximate, metric.Signal),
	}
}

func targetOf(t collector.Target) Target {
	return Target{URL: t.URL, Discovered: t.Discovered, Readings: readingsOf(metric.Target, t.Readings)}
}

// biggest returns at most n processes, those with most device memory first.
func biggest(processes []collector.Process, n int) []collector.Process {
	sorted := slices.Clone(processes)
	slices.SortStableFunc(sorted, func(a, b collector.Process) int {
		return cmp.Compare(memoryOf(b), memoryOf(a))
	})
	return sorted[:min(n, len(sorted))]
}

// memoryOf is the process's device memory, below zero if it is unknown.
func memoryOf(p collector.Process) float64 {
	if v := p.Value(metric.ProcessMemoryUsed); !math.IsNaN(v) {
		return v
	}
	return -1
}

func readingsOf(e metric.Entity, r collector.Readings) Readings {
	values := Readings{}
	for _, d := range metric.Of(e) {
		for i := range d.Width() {
			v := r.ValueAt(d, i)
			if !finite(v) {
				continue
			}
			key := d.Name
			if d.Dim != nil {
				key += "{" + d.Dim.Label + `="` + d.Dim.Values[i] + `"}`
			}
			values[key] = v
		}
	}
	return values
}

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// each returns f of every item; never nil, so that JSON has a list.
func each[A, B any](items []A, f func(A) B) []B {
	made := make([]B, len(items))
	for i, item := range items {
		made[i] = f(item)
	}
	return made
}

func orEmpty[A any](items []A) []A {
	if items == nil {
		return []A{}
	}
	return items
}
