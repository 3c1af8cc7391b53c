package detect

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// SharingConfig is what the detector of hidden sharing can be told. The zero value
// works.
type SharingConfig struct {
	Allowed []string // globs of names of processes that may be on anybody's GPU, beside the usual ones
}

// The causes of rule hidden_sharing.
const (
	twoOwners         = "two_owners"
	outsideAllocation = "outside_allocation"
	deadMemory        = "dead_process_memory"
)

const (
	shareMemory    = 500 << 20 // of GPU memory that make an owner one who uses it
	shareSM        = 0.02      // of its SMs, likewise
	shareAfter     = 5 * time.Minute
	deadAfter      = 10 * time.Minute
	deadLeast      = 1 << 30 // of memory without a process: what the driver keeps without saying so is less
	mostTenants    = 64      // owners of one device that are followed
	mostDevices    = 512
	giverForgotten = 24 * time.Hour // a scheduler that has given nothing for so long is not there any more
	loadHalfLife   = 2 * time.Minute
)

// Sharing watches who is on each GPU and MIG instance beside whom.
type Sharing struct {
	cfg     SharingConfig
	devices map[deviceKey]*device
	order   []deviceKey
	givers  map[string]time.Time // when an owner of each kind was last given a device
	sees    bool                 // a process was listed at some time: some drivers and containers list none, ever
}

// deviceKey is a GPU, or a MIG instance of it.
type deviceKey struct{ uuid, mig string }

// device is what is known of one GPU or instance.
type device struct {
	at      time.Time // of the newest list of processes
	tenants []*tenant
	mps     bool        // MPS serves it
	dead    time.Time   // since when memory has been held by no process
	told    [3]Evidence // by cause
	toldAt  [3]time.Time
}

// tenant is an owner with processes on a device.
type tenant struct {
	owner  collector.Owner
	since  time.Time // it has used the device for real
	last   time.Time // it did so last
	seen   time.Time
	given  time.Time // it had the device from a scheduler last
	memory float64   // of the newest list
	sm     float64   // mean of the last minutes
	alone  float64   // that mean when somebody joined it
	listed bool
	mps    bool

	nowSM float64
}

// NewSharing returns the detector of rule hidden_sharing.
func NewSharing(cfg SharingConfig) *Sharing {
	return &Sharing{cfg: cfg, devices: map[deviceKey]*device{}, givers: map[string]time.Time{}}
}

// Rule returns hidden_sharing.
func (d *Sharing) Rule() *rules.Rule { return rules.Get(rules.IDHiddenSharing) }

// Observe judges each GPU and instance of which the processes are listed.
func (d *Sharing) Observe(s *collector.Snapshot, report func(Observation)) {
	moved := false
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.Answers() && g.Has(metric.ProcessCount) {
			moved = d.open(g, deviceKey{g.UUID, ""}) || moved
		}
	}
	if moved {
		d.list(s)
	}
	for _, key := range d.order {
		dev, g := d.devices[key], s.GPUByUUID(key.uuid)
		if g != nil && g.Answers() && s.Time.Sub(dev.at) <= sampleGap {
			d.judge(s, g, key, dev, report)
		}
	}
}

// open makes room for a device and reports whether its GPU has a new list.
func (d *Sharing) open(g *collector.GPU, key deviceKey) bool {
	dev := d.devices[key]
	if dev == nil {
		if len(d.order) >= mostDevices {
			return false
		}
		dev = &device{}
		d.devices[key] = dev
		d.order = append(d.order, key)
	}
	return !dev.at.Equal(g.SampledAt(metric.Processes))
}

// list takes up the newest lists of processes.
func (d *Sharing) list(s *collector.Snapshot) {
	d.noteGivers(s)
	for i := range s.Instances {
		m := &s.Instances[i]
		if g := s.GPUByUUID(m.UUID); g != nil && g.Answers() {
			d.open(g, deviceKey{m.UUID, m.MIG()})
		}
	}
	for _, key := range d.order {
		dev := d.devices[key]
		dev.mps = false
		for _, t := range dev.tenants {
			t.listed, t.mps, t.memory, t.nowSM = false, true, 0, 0
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		d.sees = true
		dev := d.devices[deviceKey{p.UUID, p.MIG}]
		if dev == nil {
			continue
		}
		if strings.HasPrefix(p.Name, "nvidia-cuda-mps") {
			dev.mps = true
		}
		if t := dev.tenant(p.Owner); t != nil && !d.allowed(p) {
			t.listed = true
			t.mps = t.mps && p.Value(metric.ProcessMPS) == 1
			t.memory += positive(p.Value(metric.ProcessMemoryUsed))
			t.nowSM += positive(p.Value(metric.ProcessUtilization))
		}
	}
	for _, key := range d.order {
		if g := s.GPUByUUID(key.uuid); g != nil {
			d.devices[key].settle(g.SampledAt(metric.Processes))
		}
	}
	d.forget(s)
}

// noteGivers remembers which schedulers give devices away here.
func (d *Sharing) noteGivers(s *collector.Snapshot) {
	note := func(list []collector.Allocation) {
		for i := range list {
			d.givers[giver(list[i].Owner.Kind)] = s.Time
		}
	}
	for i := range s.GPUs {
		note(s.GPUs[i].Allocations)
	}
	for i := range s.Instances {
		note(s.Instances[i].Allocations)
	}
}

// giver is the kind of owner that a scheduler gives devices to: Kubernetes to pods,
// Slurm to jobs.
func giver(kind string) string {
	if kind == "pod" || kind == "job" {
		return kind
	}
	return "other"
}

// tenant returns the owner's entry, nil for nobody and if there are too many.
func (dev *device) tenant(o collector.Owner) *tenant {
	if o == (collector.Owner{}) {
		return nil
	}
	for _, t := range dev.tenants {
		if t.owner.Kind == o.Kind && t.owner.ID == o.ID {
			t.owner = o
			return t
		}
	}
	if len(dev.tenants) >= mostTenants {
		return nil
	}
	t := &tenant{owner: o, mps: true}
	dev.tenants = append(dev.tenants, t)
	return t
}

// settle takes up what the tenants do, as of a list.
func (dev *device) settle(at time.Time) {
	before := dev.at
	dt := min(max(at.Sub(before), 0), sampleGap)
	if before.IsZero() {
		dt = 0
	}
	dev.at = at
	for _, t := range dev.tenants {
		if !t.listed || t.memory < shareMemory && t.nowSM <= shareSM {
			continue
		}
		// What nobody looked at for a while, as an agent was restarted, has gone on.
		looked := before.After(t.last) || at.Sub(before) > minExpiry
		if t.since.IsZero() || looked && at.Sub(t.last) > sampleGap {
			t.since = at
			dev.joined(t)
		}
		t.last = at
	}
	for _, t := range dev.tenants {
		if t.seen.IsZero() {
			t.sm = t.nowSM
		} else {
			t.sm += (t.nowSM - t.sm) * decay(dt, loadHalfLife)
		}
		if t.listed {
			t.seen = at
		}
	}
}

// joined notes what the others did before somebody came.
func (dev *device) joined(new *tenant) {
	for _, t := range dev.tenants {
		if t != new && !t.since.IsZero() {
			t.alone = t.sm
		}
	}
}

// forget drops tenants that have gone, and devices that are there no more.
func (d *Sharing) forget(s *collector.Snapshot) {
	gone := func(dev *device, t *tenant) bool { return dev.at.Sub(t.seen) > sampleGap }
	d.order = slices.DeleteFunc(d.order, func(key deviceKey) bool {
		dev := d.devices[key]
		dev.tenants = slices.DeleteFunc(dev.tenants, func(t *tenant) bool { return gone(dev, t) })
		here := s.GPUByUUID(key.uuid) != nil
		if here && key.mig != "" {
			here = slices.ContainsFunc(s.Instances, func(m collector.Instance) bool { return m.UUID == key.uuid && m.MIG() == key.mig })
		}
		if !here {
			delete(d.devices, key)
		}
		return !here
	})
	for kind, at := range d.givers {
		if s.Time.Sub(at) > giverForgotten {
			delete(d.givers, kind)
		}
	}
}
