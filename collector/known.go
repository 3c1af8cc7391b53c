package collector

import (
	"slices"
	"time"
)

// Known is what an agent knows of its node from before it started: without it a
// GPU that was lost while no agent ran would be missed by nobody, and indices
// would be given anew.
type Known struct {
	Boot     time.Time  `json:"boot"`
	BootID   string     `json:"boot_id,omitempty"` // the kernel's; empty in the state of older agents
	GPUs     []KnownGPU `json:"gpus"`              // since that boot
	Versions []Version  `json:"versions"`

	// GPUsBefore is how many GPUs there were in the last boot before that one in which
	// there were any.
	GPUsBefore int `json:"gpus_before,omitempty"`

	SXids []SXidCount `json:"sxids,omitempty"` // since that boot

	// Inventory is what the source of it remembers: runtimes without processes are
	// what owners had who are not here any more. Nil if nobody has looked.
	Inventory *Inventory `json:"inventory,omitempty"`

	// Log is how far the logs were read of which all events are in a snapshot.
	Log LogPosition `json:"log"`
}

// LogPosition is where a reader of logs goes on: what is before it was seen.
type LogPosition struct {
	Boot    string `json:"boot,omitempty"`    // id of the boot that Kernel counts in
	Kernel  uint64 `json:"kernel,omitempty"`  // number of the next kernel record
	Journal uint64 `json:"journal,omitempty"` // stamp of the last record, in microseconds since 1970

	FabricFile   uint64 `json:"fabric_file,omitempty"`   // inode of the fabric manager's log
	FabricOffset int64  `json:"fabric_offset,omitempty"` // bytes of it
}

// KnownGPU is a GPU that was seen, and whether it was there at last.
type KnownGPU struct {
	Index        int    `json:"index"`
	UUID         string `json:"uuid"`
	Model        string `json:"model"`
	PCIBusID     string `json:"pci_bus_id"`
	Serial       string `json:"serial"`
	VBIOS        string `json:"vbios"`
	Architecture string `json:"architecture"`
	Present      bool   `json:"present"`

	BoardPart string `json:"board_part,omitempty"`
	GSP       string `json:"gsp,omitempty"`
	InfoROM   string `json:"inforom,omitempty"`

	ComputeCapability string `json:"compute_capability,omitempty"`
	CPUs              string `json:"cpus,omitempty"`
	NUMANodes         string `json:"numa_nodes,omitempty"`

	Xids []XidCount `json:"xids,omitempty"` // so that a counter does not begin anew
}

// Known returns what the next agent should know.
func (s *Snapshot) Known() Known {
	k := Known{Boot: s.Boot, BootID: s.BootID, GPUsBefore: s.GPUsBefore, Versions: s.Node.Versions, SXids: s.SXids, Inventory: s.Inventory, Log: s.Log}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		k.GPUs = append(k.GPUs, KnownGPU{Index: g.Index, UUID: g.UUID, Model: g.Model, PCIBusID: g.PCIBusID, Serial: g.Serial, VBIOS: g.VBIOS,
			Architecture: g.Architecture, BoardPart: g.BoardPart, GSP: g.GSP, InfoROM: g.InfoROM, Present: g.Present, ComputeCapability: g.ComputeCapability, CPUs: g.CPUs, NUMANodes: g.NUMANodes, Xids: g.Xids})
	}
	return k
}

// Know tells the sampler what an earlier one knew. It must be called before Run.
func (s *Sampler) Know(k Known) {
	s.compose.known = &k
	s.compose.versions = slices.Clone(k.Versions)
	s.compose.faults.read = k.Log
}

// bootStep is by how much two readings of the same boot time may differ: the
// kernel computes it from the wall clock, which is set after boot.
const bootStep = 5 * time.Minute

// sameBoot reports whether the boot is the one that the knowledge is of. Only where
// one of the two has no id do their times decide.
func (k *Known) sameBoot(boot time.Time, id string) bool {
	if k.BootID != "" && id != "" {
		return k.BootID == id
	}
	return boot.Sub(k.Boot).Abs() <= bootStep
}

// recall takes up the GPUs of an earlier agent once it is known which boot this is,
// and if they are of this boot.
func (c *composer) recall(boot time.Time, id string) {
	if c.known == nil || boot.IsZero() {
		return
	}
	c.gpusBefore = c.known.GPUsBefore
	if !c.known.sameBoot(boot, id) {
		if n := len(c.known.GPUs); n > 0 {
			c.gpusBefore = n
		}
	} else {
		c.gpus.recall(c.known.GPUs)
		for _, x := range c.known.SXids {
			c.faults.add(x)
		}
	}
	c.known = nil
}

// nobody is the source of a GPU that no source of this agent has listed yet.
const nobody = -1

func (f *fleet) recall(known []KnownGPU) {
	for _, k := range known {
		if k.UUID == "" {
			continue
		}
		if _, ok := f.byUUID[k.UUID]; !ok {
			f.add(&seenGPU{source: nobody, present: k.Present, identity: GPU{
				Index: f.free(k.Index), UUID: k.UUID, Model: k.Model, PCIBusID: k.PCIBusID, Serial: k.Serial, VBIOS: k.VBIOS, Architecture: k.Architecture,
				BoardPart: k.BoardPart, GSP: k.GSP, InfoROM: k.InfoROM, ComputeCapability: k.ComputeCapability, CPUs: k.CPUs, NUMANodes: k.NUMANodes,
			}})
		}
		for _, x := range k.Xids {
			if t := f.byUUID[k.UUID].tell(x.Code); t != nil {
				t.events, t.last = t.events+x.Count, later(t.last, x.Last)
			}
		}
	}
}

// adopt makes a source that lists GPUs answer for those that an earlier agent had
// seen and nobody lists.
func (f *fleet) adopt(source int) {
	for _, g := range f.list {
		if g.source == nobody {
			g.source = source
		}
	}
}

// versionEvents tells of components whose version is another than the last one
// that was known, unless a source has told it itself.
func (c *composer) versionEvents(now []Version, at time.Time, events []Event) []Event {
	for _, v := range now {
		i := slices.IndexFunc(c.versions, func(o Version) bool { return o.Component == v.Component })
		if i < 0 {
			c.versions = append(c.versions, v)
			continue
		}
		from := c.versions[i].Value
		c.versions[i] = v
		told := slices.ContainsFunc(events, func(e Event) bool {
			return e.Kind == VersionEvent && e.Component == v.Component && e.Owner == (Owner{})
		})
		if from != v.Value && !told {
			events = append(events, Event{Time: at, Kind: VersionEvent, Component: v.Component, From: from, To: v.Value})
		}
	}
	return events
}
