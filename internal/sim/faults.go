package sim

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
)

// xidOffBus is "GPU has fallen off the bus": nothing but a reset brings it back.
const xidOffBus = 79

// happening is an entry of the timeline with its target and whether it holds.
type happening struct {
	*Entry
	target  target
	on      bool
	episode int64
	before  string // the version that this entry has replaced
}

// check begins and ends the entry as time goes by.
func (h *happening) check(s *Sim, offset time.Duration) {
	on, episode := h.at(offset)
	if h.on && (!on || episode != h.episode) {
		h.end(s)
	}
	if episode != h.episode {
		h.begin(s)
	}
	h.on, h.episode = on, episode
}

func (h *happening) begin(s *Sim) {
	w, g := h.target.workload, h.target.gpu
	switch h.Kind {
	case Saturate, Work, Spin:
		w.on, w.level = true, h.Level
	case Run:
		w.on, w.crashed = true, false
		s.allocate(w, w.Owner)
	case Give:
		s.allocate(w, w.Owner)
	case Xid:
		s.fail(g, h.Code)
	case Heat:
		g.resistance = h.Level
	case Hang:
		g.hung = true
	case Replays:
		g.replayRate = h.Level
	case Version:
		h.before = s.setVersion(h.Component, h.To)
	case Upgrade:
		h.before = s.upgrade(w, h.Component, h.To)
	}
}

func (h *happening) end(s *Sim) {
	w, g := h.target.workload, h.target.gpu
	switch h.Kind {
	case Saturate, Work, Spin:
		w.on = false
	case Run:
		w.on = false
		s.allocate(w, collector.Owner{})
	case Give:
		if !w.on {
			s.allocate(w, collector.Owner{})
		}
	case Xid:
		if g.lost {
			s.reset(g)
		}
	case Heat:
		g.resistance = 1
	case Hang:
		g.hung = false
		s.observeGPU(g)
	case Replays:
		g.replayRate = 0
	case Version:
		s.setVersion(h.Component, h.before)
	case Upgrade:
		s.upgrade(w, h.Component, h.before)
	}
}

// allocate gives a workload's GPUs to an owner.
func (s *Sim) allocate(w *workload, to collector.Owner) {
	for _, g := range w.gpus {
		if g.owner == to {
			continue
		}
		s.tell(collector.Event{Kind: collector.OwnerEvent, UUID: g.uuid, From: g.owner.String(), To: to.String()})
		g.owner, s.asOf.stale = to, true
	}
}

// fail lets an Xid fall on a GPU. It ends what ran there.
func (s *Sim) fail(g *gpu, code int) {
	g.countXid(code, s.now)
	s.tell(collector.Event{Kind: collector.XidEvent, UUID: g.uuid, Code: code})
	switch code {
	case xidOffBus:
		g.lost = true
		g.procs = nil
		return
	case 48, 94, 95:
		g.countECC(1)
	}
	for _, w := range s.workloads {
		if w.up && slices.Contains(w.gpus, g) {
			w.stop(s, restartAfterXid)
			w.crashed = true
		}
	}
}

// reset brings a lost GPU back as a power cycle does.
func (s *Sim) reset(g *gpu) {
	g.lost = false
	g.reloadDriver()
	s.invite(g)
	g.core, g.memoryTemp, g.thermalCap = ambient+4, ambient+6, smClockMax
	s.observeGPU(g)
}

// firstVersions are those of a node before anything happens, sorted.
func firstVersions() []collector.Version {
	return []collector.Version{
		{Component: "container_toolkit", Value: "1.17.8"},
		{Component: "containerd", Value: "1.7.27"},
		{Component: "cuda", Value: "12.8"},
		{Component: "driver", Value: "570.124.06"},
		{Component: "fabric_manager", Value: "570.124.06"},
		{Component: "kernel", Value: "6.8.0-60-generic"},
		{Component: "kubelet", Value: "1.33.4"},
		{Component: "nvml", Value: "12.570.124.06"},
		{Component: "vbios", Value: vbios},
	}
}

// setVersion changes a component's version and returns the one before. A driver
// is replaced only when nothing uses it, and takes its NVML with it.
func (s *Sim) setVersion(component, to string) string {
	i := slices.IndexFunc(s.versions, func(v collector.Version) bool { return v.Component == component })
	from := s.versions[i].Value
	if from == to {
		return from
	}
	s.versions = slices.Clone(s.versions)
	s.versions[i].Value = to
	s.tell(collector.Event{Kind: collector.VersionEvent, Component: component, From: from, To: to})
	if component == "driver" {
		for _, w := range s.workloads {
			if w.up {
				w.stop(s, restartAfterLoss)
			}
		}
		for _, g := range s.gpus {
			g.reloadDriver()
			s.invite(g)
		}
		major, _, _ := strings.Cut(s.version("cuda"), ".")
		s.setVersion("nvml", major+"."+to)
	}
	return from
}

func (s *Sim) version(component string) string {
	for _, v := range s.versions {
		if v.Component == component {
			return v.Value
		}
	}
	return ""
}
