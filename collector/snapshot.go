// Package collector holds what was seen: the Snapshot of one node at one
// instant, the Source interface that parts of it come from, and the sampler that
// composes and publishes it.
//
// A source never knows a detector, and nothing here knows Prometheus.
package collector

import (
	"math"
	"net/netip"
	"time"

	"gpuvigil/internal/metric"
)

// Snapshot is the state of one node at one instant. It is immutable once it has
// been published: whoever wants to change it makes another.
type Snapshot struct {
	Time time.Time // when it was composed; detectors know no other clock
	// Step is by how much the clock was set since the snapshot before, negative if
	// back. What really passed between the two is the difference of their times less
	// the step; it is not negative. All other times in the snapshot are by the clock
	// of its Time.
	Step time.Duration

	Boot      time.Time // when the node booted; zero if unknown
	BootID    string    // the kernel's id of that boot; empty if unknown
	Simulated bool      // the numbers come from a simulator or a recording of one

	Node       Node
	GPUs       []GPU         // in the order of their index
	Instances  []Instance    // MIG instances, by GPU index, then GI, then CI
	Links      []Link        // NVLinks, by GPU index, then number; in the full profile only
	Interfaces []Interface   // ports of InfiniBand and RoCE adapters, by device, then port
	Processes  []Process     // one for each (process, GPU), by GPU index, then pid
	Endpoints  []Endpoint    // models of inference servers, by URL, then engine and model
	Targets    []Target      // their metrics pages, by URL
	Pages      []Page        // what sources read that take another exporter's page, in the order of the sources
	Workloads  []Workload    // what each owner runs or was given here, by owner
	Inventory  *Inventory    // what runs on the node; nil if nobody has looked
	Events     []Event       // what happened since the snapshot before, in order of time
	Money      *Money        // what the GPUs came to, one snapshot late; nil if nobody keeps account
	SXids      []SXidCount   // errors of the NVSwitches, by switch, code and severity
	Sources    []SourceState // in the order of the configuration
	Queues     []Queue       // of the cluster's schedulers, by scheduler and name; in no snapshot of a node
	Agent      *Agent        // what an agent says of the node; only in snapshots made of series
	Where      []Label       // where the node is, as others know it: its rack, its switch; likewise
	Members    []Member      // owners on this node that are parts of a job; likewise

	// GPUsBefore is how many GPUs an agent had seen in the last boot before this one
	// in which it saw any; 0 if there was none.
	GPUsBefore int

	// Log is how far the logs were read of which all events are in this snapshot
	// or an earlier one.
	Log LogPosition
}

// Node is the machine.
type Node struct {
	Name     string
	Versions []Version // sorted by component
	Readings
}

// Version is one component's version on the node.
type Version struct {
	Component string `json:"component"` // one of metric.VersionParts, or a component of a later release
	Value     string `json:"value"`
}

// GPU is one whole GPU.
type GPU struct {
	Index        int    // at first sight of the uuid, kept until the node reboots
	UUID         string // the only thing to join on
	Model        string
	PCIBusID     string // as NVML writes it: 00000000:3B:00.0
	Serial       string
	VBIOS        string
	Architecture string

	BoardPart string // number of the board: GPUs of one model may be on several
	GSP       string // version of the firmware that runs on the GPU, of the driver's
	InfoROM   string // version of the board's own data

	ComputeCapability string // 9.0
	CPUs              string // those nearest to it: 0-31,64-95, or a mask 0x5555
	NUMANodes         string // those of the nearest memory, likewise

	// Bound is the kernel driver that has the GPU's device on the PCI bus, or NoDriver
	// or NoDevice; empty if nobody looked.
	Bound string

	Present bool    // the driver answers for it
	Hung    bool    // a driver call on it has not returned within its limit
	MIG     bool    // MIG mode is on
	Owners  []Owner // who uses it, most memory first, then who was only given it; empty if unknown

	// Allocations say who was given the whole GPU or a share of it. Who uses it is in
	// the processes: the two are different facts.
	Allocations []Allocation

	Unsupported []*metric.Def          // what this GPU or driver cannot tell
	Dropped     map[*metric.Def]uint64 // implausible values that were dropped
	Xids        []XidCount             // by code
	Paths       []Path                 // to GPUs of a higher index, by uuid; in the full profile only

	// Distributions of the fast signals, by row; empty unless they were asked for.
	Distributions []Distribution
	Readings
}

// What stands in GPU.Bound where no driver has the device, or there is none any more.
const (
	NoDriver = "(none)"
	NoDevice = "(gone)"
)

// GivenAway reports whether another driver than NVIDIA's has the GPU: it was passed on
// to a virtual machine, say.
func (g *GPU) GivenAway() bool {
	return !g.Present && g.Bound != "" && g.Bound != "nvidia" && g.Bound != NoDriver && g.Bound != NoDevice
}

// Path is the way from one GPU to another one.
type Path struct {
	UUID  string // of the other
	Level string // what they have in common: internal, single, multiple, hostbridge, node, system
}

// Distribution is how often a signal had which value since its source began to
// count: the counts of a native histogram.
type Distribution struct {
	Row     *metric.Def // of kind metric.Histogram
	Sum     float64     // of all samples, in the unit of the row
	Zero    uint64      // samples of at most metric.HistogramZero
	First   int         // number of the first bucket that is not empty
	Buckets []uint64    // samples in it and in those that follow
}

// Answers reports whether the driver answers for the GPU and its calls return: else
// its readings are those of an earlier time, until they are left out.
func (g *GPU) Answers() bool { return g.Present && !g.Hung }

// Instance is one MIG instance. UUID is its GPU's.
type Instance struct {
	GPU     int
	UUID    string
	MIGUUID string
	GI, CI  int
	Profile string // 1g.10gb
	Owners  []Owner

	Allocations []Allocation
	Readings
}

// Link is one NVLink of a GPU.
type Link struct {
	GPU    int
	UUID   string
	Number int
	Readings
}

// Interface is one port of an InfiniBand or RoCE adapter.
type Interface struct {
	Device        string // mlx5_0
	Port          int    // from 1
	LinkLayer     string // InfiniBand, or Ethernet for RoCE
	State         string // ACTIVE, DOWN, INIT …
	PhysicalState string // LinkUp, Disabled, Polling …
	Readings
}

// Process is one process on one GPU. Name is untrusted: it is what the process
// calls itself.
type Process struct {
	PID   int
	Start uint64 // clock ticks after boot, so that a reused pid is another process
	Name  string
	UID   int // -1 if unknown
	GPU   int
	UUID  string
	MIG   string // "GI/CI" on a MIG instance, else empty
	Owner Owner
	// Container names the container within the owner; untrusted, empty if unknown.
	Container string
	// Privileged says that it is in a container and has every capability on the node: it
	// may use all devices. False also if nobody looked.
	Privileged bool
	Readings
}

// Endpoint is a model of an inference server.
type Endpoint struct {
	URL    string // without user info and query
	Engine string
	Model  string   // untrusted; empty if the server does not tell
	GPUs   []string // uuids that it runs on, if known

	// Approximate are what the server tells something near to, and not itself.
	Approximate []*metric.Def

	Histograms []Histogram // in the catalogue's order
	Readings
}

// EndpointKey tells the models of inference servers apart: a page may tell of several.
type EndpointKey struct {
	URL    string `json:"url"`
	Engine string `json:"engine,omitempty"`
	Model  string `json:"model,omitempty"`
}

// Key returns what the endpoint is known by, over time.
func (e *Endpoint) Key() EndpointKey { return EndpointKey{e.URL, e.Engine, e.Model} }

// String returns URL#engine/model, without what is not known.
func (k EndpointKey) String() string {
	out := k.URL
	if k.Engine != "" || k.Model != "" {
		out += "#" + k.Engine
	}
	if k.Model != "" {
		out += "/" + k.Model
	}
	return out
}

// Target is the metrics page of an inference server.
type Target struct {
	URL        string // without user info and query
	Discovered bool   // found by the sockets of processes on the GPUs, not configured
	Readings
}

// Page is another exporter's page that a source reads in place of the driver or the
// kernel, as far as it was understood.
type Page struct {
	Source      string `json:"source"`
	URL         string `json:"url"`         // without user info and query
	Exporter    string `json:"exporter"`    // dcgm-exporter, nvidia_gpu_exporter, node_exporter
	Names       string `json:"names"`       // which generation of its names
	Utilization string `json:"utilization"` // percent, ratio or unclear; empty: it tells none
	GPUs        bool   `json:"gpus"`        // it stands for the driver
}

// String says what of the page was understood.
func (p Page) String() string {
	words := p.URL + ", " + p.Exporter
	if p.Names != "" {
		words += ", names " + p.Names
	}
	if p.Utilization != "" {
		words += ", utilization in " + p.Utilization
	}
	return words
}

// Owner is who holds or uses a GPU. The zero Owner is "unattributed".
type Owner struct {
	Kind string `json:"kind,omitempty"` // pod, job, container, service, user; empty: unattributed
	ID   string `json:"id,omitempty"`   // namespace/name, slurm/4711, user id …
	Team string `json:"team,omitempty"`
}

// String returns kind:id, or "unattributed".
func (o Owner) String() string {
	if o.Kind == "" {
		return "unattributed"
	}
	return o.Kind + ":" + o.ID
}

// Attribution says whose a process is: its use of a GPU is the owner's.
type Attribution struct {
	PID       int
	Start     uint64 // clock ticks after boot
	Owner     Owner
	Container string // name, or the first 12 digits of its id

	Privileged bool // in a container, with every capability on the node
}

// Allocation says that an owner was given a GPU, a MIG instance, or a share of one.
type Allocation struct {
	UUID      string // of the GPU
	MIG       string // "GI/CI" of an instance, empty for the whole GPU
	Owner     Owner
	Container string
	Resource  string // as the scheduler calls it: nvidia.com/gpu
	Shares    int    // shares of the device that it was given; 0: all of it
	Source    string // who said so: kubelet, slurm, sim
}

// Workload is what one owner runs on the node or was given there.
type Workload struct {
	Owner
	CostCenter  string
	Sensitivity string // class of its data, as the configuration names it
	Stage       string // data_preparation, training, fine_tuning, evaluation, inference, notebook; empty if unknown
	Critical    bool   // its findings are one severity higher
	Containers  []string
	Caveats     []Caveat // by fact, then reason
	Labels      []Label  // of its pod, those that the configuration names, by name

	// Quality is what the workload says of how good its results are, by name.
	Quality []Figure

	// Remotes are public addresses that it holds connections to, some of them if there
	// are many: for the evidence of a finding, and only if the configuration allows
	// it. They are in no metric, answer or recording.
	Remotes []netip.Addr

	// Networks are those of the public addresses that it holds connections to, in order,
	// as wide as a provider is given them: /16 of IPv4, /32 of IPv6. They are for
	// detectors, and in no metric, answer or recording.
	Networks []netip.Prefix
	Readings
}

// Label is one label of a pod. Both texts are untrusted.
type Label struct{ Name, Value string }

// Figure is one number of a workload's quality. Its name is the workload's own: it is
// untrusted.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // finite
}

// Caveat says that a fact of a workload is absent or not the whole of it.
type Caveat struct {
	Fact   string // one of metric.WorkloadFact
	Reason string // one of metric.CaveatReason
}

// Inventory is what runs on the node, as far as it may be looked at. Every text in
// it is untrusted.
type Inventory struct {
	At       time.Time `json:"at"`                 // when it was taken; zero if never
	Runtimes []Runtime `json:"runtimes,omitempty"` // by owner, component, version
	Images   []Image   `json:"images,omitempty"`   // by owner, container
	Datasets []Dataset `json:"datasets,omitempty"` // by owner, kind, source, mount
	APIs     []API     `json:"apis,omitempty"`     // by port, owner, model
	Unread   []Unread  `json:"unread,omitempty"`   // processes of which not all could be read, by reason
	Absent   []string  `json:"absent,omitempty"`   // what cannot be told here, and why
}

// Unread is how many processes could not be read for one reason.
type Unread struct {
	Reason    string `json:"reason"` // one of metric.UnreadReason
	Processes int    `json:"processes"`
}

// Runtime is a library that processes of an owner have loaded.
type Runtime struct {
	Owner     Owner  `json:"owner"`
	Component string `json:"component"` // cuda_runtime, cudnn, nccl, cublas, tensorrt, libcuda, torch, jax, tensorflow, vllm …
	Version   string `json:"version"`   // unknown if the library is loaded and does not tell
	Processes int    `json:"processes"`
}

// Image is a container image in use.
type Image struct {
	Owner     Owner  `json:"owner"`
	Container string `json:"container"`
	Name      string `json:"name"`
	Digest    string `json:"digest,omitempty"`
}

// Dataset is data that an owner has mounted. With the empty owner it is mounted on
// the node for everybody.
type Dataset struct {
	Owner  Owner  `json:"owner"`
	Kind   string `json:"kind"`   // claim, nfs, lustre, bucket, fuse, ceph, gpfs …
	Source string `json:"source"` // server:/export, bucket, claim
	Mount  string `json:"mount"`
}

// API is an address at which a process that uses a GPU listens.
type API struct {
	Owner    Owner  `json:"owner"`
	Port     int    `json:"port"`
	Scope    string `json:"scope,omitempty"` // loopback, private, public, any; empty if unknown
	TLS      *bool  `json:"tls,omitempty"`
	Engine   string `json:"engine,omitempty"`
	Model    string `json:"model,omitempty"`
	Approved *bool  `json:"approved,omitempty"` // nil without a list of approved models
}

// XidCount is how often an Xid code has fallen on a GPU: in a source's part since
// the source started, in a snapshot since the node booted, as far as an agent was
// told. There an error that several sources tell of counts once.
type XidCount struct {
	Code  int       `json:"code"`
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// SXidCount is how often an NVSwitch has had an error since the node booted, as far
// as an agent was told. The composer counts the events; no source gives it.
type SXidCount struct {
	Switch string    `json:"switch"` // PCI address
	Code   int       `json:"code"`
	Fatal  bool      `json:"fatal"`
	Count  uint64    `json:"count"`
	Last   time.Time `json:"last"`
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	XidEvent       EventKind = "xid"           // Code, UUID, PCI; Text: of the message only what the rule book reads
	SXidEvent      EventKind = "sxid"          // Code, PCI of the NVSwitch, Fatal; Text: the link
	FabricEvent    EventKind = "fabric"        // Text: an error that the fabric manager wrote
	VersionEvent   EventKind = "version"       // Component, From, To
	GPUAppeared    EventKind = "gpu_appeared"  // UUID
	GPUGone        EventKind = "gpu_gone"      // UUID
	ChildRestart   EventKind = "child_restart" // Text: the reason
	ClocksEvent    EventKind = "clocks"        // Text: the reason
	OwnerEvent     EventKind = "owner"         // UUID, From, To
	InventoryEvent EventKind = "inventory"     // Owner; Component: image, dataset, api, or a runtime's; From, To; one of them is empty for what came or went
)

// Event is something that happened at one instant. Each is in exactly one
// snapshot.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind"`
	UUID   string    `json:"uuid,omitempty"`       // the GPU, if it is about one that is known
	PCI    string    `json:"pci_bus_id,omitempty"` // as the kernel writes it, if that is how it was told: 0000:3b:00.0
	Code   int       `json:"code,omitempty"`
	Fatal  bool      `json:"fatal,omitempty"`  // the driver calls it fatal
	Source string    `json:"source,omitempty"` // of a fault: who told, joined by "+": nvml, kernel, fabric_manager, gpu_exporter, sim

	// Within is by how much earlier than its time it may have been. It is not
	// recorded: what joins faults has used it by then.
	Within time.Duration `json:"-"`

	Component string `json:"component,omitempty"`
	Owner     Owner  `json:"owner,omitzero"`
	From      string `json:"from,omitempty"`
	To        string `json:"to,omitempty"`
	Text      string `json:"text,omitempty"` // untrusted
}

// SourceState is how well one source looks.
type SourceState struct {
	Name     string
	Interval time.Duration
	Duration time.Duration // of the last sample
	Last     time.Time     // of the last good sample; zero if there was none
	Samples  uint64
	Errors   uint64
	Err      string // of the last sample, empty if it was good
	Expected bool   // readiness waits for it
	Paused   bool   // it was told not to look: that it is silent is no fault
	Hung     bool   // it waits for an answer that does not come
}

// Fresh reports whether the source's last sample is good and not older than
// three of its intervals at the given time.
func (s SourceState) Fresh(now time.Time) bool {
	return s.Err == "" && !s.Last.IsZero() && now.Sub(s.Last) <= 3*s.Interval
}

// Readings is an entity's vector of numbers, indexed by the catalogue, with the
// time at which each tier was sampled. The zero Readings has none.
type Readings struct {
	values []float64
	at     [metric.Tiers]time.Time
}

// NewReadings returns an empty vector for the entity.
func NewReadings(e metric.Entity) Readings {
	v := make([]float64, metric.VectorLen(e))
	for i := range v {
		v[i] = math.NaN()
	}
	return Readings{values: v}
}

// Value returns the reading, in the unit of its name, or NaN if it was not
// reported. For a row with a dimension it is the first value's.
func (r Readings) Value(d *metric.Def) float64 { return r.ValueAt(d, 0) }

// ValueAt returns the reading for the i-th value of the row's dimension, or NaN.
func (r Readings) ValueAt(d *metric.Def, i int) float64 {
	if c := d.Col() + i; c < len(r.values) && i < d.Width() {
		return r.values[c]
	}
	return math.NaN()
}

// Has reports whether the row was reported.
func (r Readings) Has(d *metric.Def) bool { return !math.IsNaN(r.Value(d)) }

// Set stores a reading in the row's base unit. It does not judge it: whoever
// reads a device asks Def.Plausible first.
func (r Readings) Set(d *metric.Def, v float64) { r.values[d.Col()] = v }

// SetAt stores the reading for the i-th value of the row's dimension.
func (r Readings) SetAt(d *metric.Def, i int, v float64) { r.values[d.Col()+i] = v }

// Stamp says when a tier was sampled.
func (r *Readings) Stamp(t metric.Tier, at time.Time) { r.at[t] = at }

// SampledAt returns when a tier was sampled; zero if never. A detector consumes
// a reading only when its tier's time has moved.
func (r Readings) SampledAt(t metric.Tier) time.Time { return r.at[t] }

// Clone returns a copy that can be changed.
func (r Readings) Clone() Readings {
	r.values = append([]float64(nil), r.values...)
	return r
}

// Vector returns the numbers in the order of the catalogue's columns, NaN where
// absent. It must not be modified once the snapshot is published.
func (r Readings) Vector() []float64 { return r.values }

// ReadingsFrom makes a vector of an entity from columns in the catalogue's order.
// It takes ownership of values, which must have the entity's length.
func ReadingsFrom(values []float64, at [metric.Tiers]time.Time) Readings {
	return Readings{values: values, at: at}
}

// Expire returns the readings without those whose tier is older than three of
// its intervals at the given time. It copies only if it drops something.
func (r Readings) Expire(rows []*metric.Def, now time.Time, interval [metric.Tiers]time.Duration) Readings {
	var stale [metric.Tiers]bool
	any := false
	for t, at := range r.at {
		if !at.IsZero() && now.Sub(at) > 3*interval[t] {
			stale[t], any = true, true
		}
	}
	if !any || r.values == nil {
		return r
	}
	r = r.Clone()
	for _, d := range rows {
		if !stale[d.Tier] {
			continue
		}
		for i := range d.Width() {
			r.values[d.Col()+i] = math.NaN()
		}
	}
	return r
}

// WorkloadOf returns what is known of the owner, or nil.
func (s *Snapshot) WorkloadOf(o Owner) *Workload {
	for i := range s.Workloads {
		if s.Workloads[i].Owner == o {
			return &s.Workloads[i]
		}
	}
	return nil
}

// Member is an owner that is a part of a job of several: a pod, a rank of which it is.
type Member struct{ Owner, Job Owner }

// JobOf returns the job that the owner is, or is a part of; no owner if it is of none.
func (s *Snapshot) JobOf(o Owner) Owner {
	if o.Kind == "job" {
		return o
	}
	for i := range s.Members {
		if m := &s.Members[i]; m.Owner.Kind == o.Kind && m.Owner.ID == o.ID {
			return m.Job
		}
	}
	return Owner{}
}

// GPUPage returns the page that the GPUs come from, nil if they do not come from one
// or it has not been read for long.
func (s *Snapshot) GPUPage() *Page {
	for i := range s.Pages {
		if s.Pages[i].GPUs {
			return &s.Pages[i]
		}
	}
	return nil
}

// GPUByUUID returns the GPU with the uuid, or nil.
func (s *Snapshot) GPUByUUID(uuid string) *GPU {
	for i := range s.GPUs {
		if s.GPUs[i].UUID == uuid {
			return &s.GPUs[i]
		}
	}
	return nil
}
