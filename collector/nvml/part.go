//go:build linux && cgo

package nvml

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// compose makes the part of this moment from what the workers last published. It
// makes no NVML call, and shares memory with earlier parts that nobody changes.
func (s *server) compose(now time.Time) *collector.Part {
	p := &collector.Part{Time: now}
	var dropped uint64
	if p.Events, dropped = s.fleet.take(); dropped > 0 {
		s.log.Warn("frames were not read for so long that events were dropped", "events", dropped)
	}
	var vbios, gsp, inforom []string
	complete := true
	s.fleet.each(func(slot int, v view) {
		g := v.gpu
		g.Hung = slot != nobody && s.workers[slot].hung(now, s.cfg.CallLimit) != ""
		complete = complete && (g.Present || slot == nobody)
		vbios = append(vbios, g.VBIOS)
		gsp, inforom = append(gsp, g.GSP), append(inforom, g.InfoROM)
		p.GPUs = append(p.GPUs, g)
		p.Instances = append(p.Instances, v.instances...)
		p.Links = append(p.Links, v.links...)
		p.Processes = append(p.Processes, v.processes...)
	})
	slices.SortStableFunc(p.Instances, func(a, b collector.Instance) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI))
	})
	slices.SortStableFunc(p.Processes, byGPUThenPID)
	p.Node = s.node(now)
	slowest(p)
	if complete {
		for component, values := range map[string][]string{"gsp": gsp, "inforom": inforom, "vbios": vbios} {
			if v := distinct(values); v != "" {
				p.Node.Versions = append(p.Node.Versions, collector.Version{Component: component, Value: v})
			}
		}
		slices.SortFunc(p.Node.Versions, func(a, b collector.Version) int { return cmp.Compare(a.Component, b.Component) })
	}
	return p
}

// node is what the process says of the machine and of itself.
func (s *server) node(now time.Time) collector.Node {
	n := collector.Node{Readings: collector.NewReadings(metric.Node)}
	if versions := s.census.versions.Load(); versions != nil {
		n.Versions = slices.Clone(*versions)
	}
	s.account.fill(n.Readings, s.cfg.Full)
	hung := 0
	for _, w := range s.workers {
		if w.hung(now, s.cfg.CallLimit) != "" {
			hung++
		}
	}
	n.Set(metric.NVMLHung, float64(hung))
	n.Set(metric.NVMLHostPIDs, bit(!s.foreign))
	n.Set(metric.NVMLEventSets, float64(s.eventSets.Load()))
	if h := s.census.count.Load(); h != nil && now.Sub(h.at) <= 3*s.cfg.Tiers[metric.Fast] {
		n.Set(metric.GPUsSeen, float64(h.gpus))
	}
	n.Stamp(metric.Fast, now)
	if c := s.census.secret.Load(); c != nil {
		n.Set(metric.ConfidentialComputing, bit(c.on))
		n.Stamp(metric.Inventory, c.at)
	}
	return n
}

// slowest tells for each tier how slow it is on the GPU where it is slowest.
func slowest(p *collector.Part) {
	for i := range metric.GPUSlowdown.Width() {
		for _, g := range p.GPUs {
			if v := g.ValueAt(metric.GPUSlowdown, i); !(v <= p.Node.ValueAt(metric.TierSlowdown, i)) && !math.IsNaN(v) {
				p.Node.SetAt(metric.TierSlowdown, i, v)
			}
		}
	}
}

// distinct joins the different values there are, so that a node whose GPUs carry
// several versions has one value that changes when one of them does.
func distinct(values []string) string {
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	slices.Sort(values)
	return strings.Join(slices.Compact(values), ",")
}
