package series

import (
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// claim says which node a GPU is in.
type claim struct {
	node *node
	at   int64 // of the newest part that has it there
}

// settle leaves out of a new part the GPUs that are in another node. A GPU moves when
// that one has not told of it for the failover: two that both tell of it are one that
// goes by two names, and the first keeps it.
func (a *Assembler) settle(n *node, p *collector.Part, now time.Time) {
	at := now.UnixMilli()
	p.GPUs = slices.DeleteFunc(p.GPUs, func(g collector.GPU) bool {
		c, known := a.claims[g.UUID]
		if known && c.node != n && at-c.at <= a.cfg.Failover.Milliseconds() {
			a.tally.strangers++
			return true
		}
		a.claims[g.UUID] = claim{n, max(at, c.at)}
		return false
	})
	p.Instances = slices.DeleteFunc(p.Instances, func(i collector.Instance) bool { return !a.holds(n, i.UUID) })
	p.Allocations = slices.DeleteFunc(p.Allocations, func(o collector.Allocation) bool { return !a.holds(n, o.UUID) })
}

// holds reports whether the GPU is in the node, as far as anybody knows.
func (a *Assembler) holds(n *node, uuid string) bool {
	c, known := a.claims[uuid]
	return !known || c.node == n
}

// leaveOut takes GPUs out of the snapshot that have moved to another node: they are not
// lost.
func (a *Assembler) leaveOut(n *node, s *collector.Snapshot) {
	before := len(s.GPUs)
	s.GPUs = slices.DeleteFunc(s.GPUs, func(g collector.GPU) bool { return !a.holds(n, g.UUID) })
	if len(s.GPUs) == before {
		return
	}
	s.Events = slices.DeleteFunc(s.Events, func(e collector.Event) bool { return e.Kind == collector.GPUGone && !a.holds(n, e.UUID) })
	s.Node.Set(metric.GPUsExpected, float64(len(s.GPUs)))
}
