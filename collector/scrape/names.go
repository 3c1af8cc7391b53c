package scrape

import (
	"maps"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Names are the names of the exporters' metrics with what they mean, for any number of
// readers at once.
type Names struct {
	dcgm            map[string]*use
	smi, instances  map[string]fact // without smiPrefix
	node, nodePorts map[string]fact // of ports without portPrefix
}

// NewNames turns the catalogue round.
func NewNames() *Names {
	return &Names{dcgm: dcgmUses(), smi: smiFacts(), instances: smiInstanceFacts(), node: nodeFacts(), nodePorts: portFacts()}
}

// OfGPUs returns the names that a GPUReader makes something of.
func (n *Names) OfGPUs() []string {
	names := slices.Collect(maps.Keys(n.dcgm))
	for _, of := range []map[string]fact{n.smi, n.instances} {
		for name := range of {
			names = append(names, smiPrefix+name)
		}
	}
	for _, name := range smiWords {
		names = append(names, smiPrefix+name)
	}
	slices.Sort(names)
	return names
}

// OfNodes returns the names that a NodeReader makes something of.
func (n *Names) OfNodes() []string {
	names := slices.Collect(maps.Keys(n.node))
	names = slices.AppendSeq(names, maps.Keys(columns))
	names = append(names, nodeWords...)
	for name := range n.nodePorts {
		names = append(names, portPrefix+name)
	}
	names = append(names, portPrefix+"state_id")
	slices.Sort(names)
	return names
}

// The generations of dcgm-exporter's names, by how new they are.
const (
	gen1   = iota + 1 // dcgm_sm_clock
	genAny            // of both generations that follow
	gen48             // DCGM_FI_DEV_SM_CLOCK
	gen49             // DCGM_FI_DEV_SM_CLOCK_HERTZ
	gens
)

var genNames = [gens]string{gen1: "1.x", gen48: "until 4.8", gen49: "since 4.9"}

// use is what a name of dcgm-exporter means.
type use struct {
	row      *metric.Def // of a GPU; nil: none
	instance *metric.Def // the same of a MIG instance; nil: none
	name     metric.DCGM
	gen      int
	rank     uint8
	special  special
}

type special uint8

const (
	plain   special = iota
	lastXid         // the code that fell last
	windowXid
	totalXid
	reasons // the bits of why clocks are held
	doubtful
)

// gen1Names are the names of dcgm-exporter 1.x, with those by which the catalogue knows
// the same facts in the same units.
var gen1Names = map[string]string{
	"sm_clock": "DEV_SM_CLOCK", "memory_clock": "DEV_MEM_CLOCK", "memory_temp": "DEV_MEMORY_TEMP", "gpu_temp": "DEV_GPU_TEMP",
	"power_usage": "DEV_POWER_USAGE", "total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION", "pcie_replay_counter": "DEV_PCIE_REPLAY_COUNTER",
	"gpu_utilization": "DEV_GPU_UTIL", "mem_copy_utilization": "DEV_MEM_COPY_UTIL", "enc_utilization": "DEV_ENC_UTIL", "dec_utilization": "DEV_DEC_UTIL",
	"xid_errors": "DEV_XID_ERRORS", "fb_free": "DEV_FB_FREE", "fb_used": "DEV_FB_USED", "fi_prof_gr_engine_active": "PROF_GR_ENGINE_ACTIVE",
	"fi_prof_pipe_tensor_active": "PROF_PIPE_TENSOR_ACTIVE", "fi_prof_dram_active": "PROF_DRAM_ACTIVE",
	"fi_prof_pcie_tx_bytes": "PROF_PCIE_TX_BYTES", "fi_prof_pcie_rx_bytes": "PROF_PCIE_RX_BYTES",
}

// dcgmUses turns the catalogue round: what each name means. A name that is the sum of
// several columns says nothing of one of them.
func dcgmUses() map[string]*use {
	uses := map[string]*use{}
	for _, d := range metric.All() {
		for _, n := range d.DCGM {
			if n.Sum || d.Entity != metric.GPU && d.Entity != metric.Instance && d != metric.XidErrors {
				continue
			}
			u := uses[n.Name]
			if u == nil {
				u = newUse(n)
				uses[n.Name] = u
			}
			switch d.Entity {
			case metric.GPU:
				u.row = d
			case metric.Instance:
				u.instance = d
			default:
				u.special = lastXid
			}
		}
	}
	for old, name := range gen1Names {
		u := *uses["DCGM_FI_"+name]
		u.gen, u.rank = gen1, gen1*2
		uses["dcgm_"+old] = &u
	}
	for name, s := range map[string]special{
		"DCGM_EXP_XID_ERRORS_COUNT": windowXid, "DCGM_EXP_XID_ERRORS_TOTAL": totalXid,
		"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": reasons, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": reasons,
	} {
		uses[name] = &use{gen: genAny, special: s}
	}
	return uses
}

func newUse(n metric.DCGM) *use {
	u := &use{name: n, gen: genAny}
	switch n.Generation {
	case metric.Until48:
		u.gen = gen48
	case metric.Since49:
		u.gen = gen49
	}
	u.rank = uint8(u.gen) * 2
	if n.Listed {
		u.rank++
	}
	// DCGM 4.6 gives these names to percentages, 4.7 to shares.
	if u.gen == gen49 && strings.HasPrefix(n.Name, "DCGM_FI_DEV_") && strings.HasSuffix(n.Name, "_UTIL_RATIO") {
		u.special = doubtful
	}
	return u
}

// Row returns the row of the catalogue that a metric is made into; nil if there is none,
// or several.
func (n *Names) Row(name string) *metric.Def {
	if u := n.dcgm[name]; u != nil {
		if u.row == nil && (u.special == lastXid || u.special == windowXid || u.special == totalXid) {
			return metric.XidErrors
		}
		return u.row
	}
	if rest, ok := strings.CutPrefix(name, smiPrefix); ok {
		return n.smi[rest].row
	}
	if rest, ok := strings.CutPrefix(name, portPrefix); ok {
		return n.nodePorts[rest].row
	}
	if name == CPUSeconds {
		return metric.CPUSeconds
	}
	return n.node[name].row
}
