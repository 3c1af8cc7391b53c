package series

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"gpuvigil/internal/metric"
)

// refusal is why there is no series.
type refusal uint8

const (
	none refusal = iota
	unwanted
	noNode
	seriesLimit
	nodeLimit
	otherShard
	noShardLabel
	refusals
)

// outcome is what became of a sample.
type outcome uint8

const (
	taken outcome = iota
	duplicate
	outOfOrder
	future
	outcomes
)

// nodeState is what is known of a node.
type nodeState uint8

const (
	withAgent     nodeState = iota // its agent speaks for it
	fromExporters                  // other exporters tell of it
	silent                         // nothing has come from it for the lookback
	other                          // it has neither GPUs nor inference servers
	nodeStates
)

// tally counts between two rounds of snapshots, so that a sample costs no atomic
// operation.
type tally struct {
	refused   [refusals]int
	samples   [outcomes]int
	strangers int // GPUs that another node has
	nodes     [nodeStates]int
	gpus      int
	unread    map[unread]int
	published published
}

// unread is why nothing can be made of a target's series.
type unread struct {
	kind   kind
	reason string
}

// published is what was counted up to the last round. Others read it.
type published struct {
	mu        sync.Mutex
	refused   [refusals]uint64
	samples   [outcomes]uint64
	strangers uint64
	nodes     [nodeStates]int
	gpus      int
	series    int
	unread    map[unread]uint64
}

func (t *tally) refuse(r refusal) { t.refused[r]++ }

func (t *tally) unreadable(k kind, reason string) {
	if t.unread == nil {
		t.unread = map[unread]int{}
	}
	t.unread[unread{k, reason}]++
}

// publish adds what was counted to what others read.
func (t *tally) publish(a *Assembler) {
	p := &t.published
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, n := range t.refused {
		p.refused[r] += uint64(n)
	}
	for o, n := range t.samples {
		p.samples[o] += uint64(n)
	}
	p.strangers += uint64(t.strangers)
	p.nodes, p.gpus, p.series = t.nodes, t.gpus, a.index.series
	for u, n := range t.unread {
		if p.unread == nil {
			p.unread = map[unread]uint64{}
		}
		p.unread[u] += uint64(n)
	}
	t.refused, t.samples, t.strangers = [refusals]int{}, [outcomes]int{}, 0
	clear(t.unread)
}

// Tell adds what was counted up to the last round of snapshots to a page of metrics. It
// may be called from any goroutine.
func (a *Assembler) Tell(add func(d *metric.Def, v float64, labels ...string)) {
	p := &a.tally.published
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, n := range p.nodes {
		add(metric.FleetNodes, float64(n), metric.FleetNodeState.Values[s])
	}
	add(metric.FleetGPUs, float64(p.gpus))
	add(metric.FleetSeries, float64(p.series))
	for o, n := range p.samples {
		add(metric.FleetSamples, float64(n), metric.SampleOutcome.Values[o])
	}
	for r, n := range p.refused {
		if n > 0 {
			add(metric.FleetSeriesRefused, float64(n), metric.SeriesRefusal.Values[r-1])
		}
	}
	add(metric.FleetStrangers, float64(p.strangers))
	order := func(a, b unread) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.reason, b.reason)) }
	for _, u := range slices.SortedFunc(maps.Keys(p.unread), order) {
		add(metric.FleetUnreadable, float64(p.unread[u]), sources[u.kind], u.reason)
	}
}
