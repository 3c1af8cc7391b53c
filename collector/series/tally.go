package series

import (
	vm "github.com/VictoriaMetrics/metrics"

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
}

func (t *tally) refuse(r refusal) { t.refused[r]++ }

func (t *tally) unreadable(k kind, reason string) {
	vm.GetOrCreateCounter(metric.FleetUnreadable.Series(sources[k], reason)).Inc()
}

// publish adds what was counted to the counters of the process.
func (t *tally) publish(a *Assembler) {
	for r, n := range t.refused {
		if n > 0 {
			vm.GetOrCreateCounter(metric.FleetSeriesRefused.Series(metric.SeriesRefusal.Values[r-1])).Add(n)
		}
	}
	for o, n := range t.samples {
		vm.GetOrCreateCounter(metric.FleetSamples.Series(metric.SampleOutcome.Values[o])).Add(n)
	}
	vm.GetOrCreateCounter(metric.FleetStrangers.Name).Add(t.strangers)
	for s, n := range t.nodes {
		vm.GetOrCreateGauge(metric.FleetNodes.Series(metric.FleetNodeState.Values[s]), nil).Set(float64(n))
	}
	vm.GetOrCreateGauge(metric.FleetGPUs.Name, nil).Set(float64(t.gpus))
	vm.GetOrCreateGauge(metric.FleetSeries.Name, nil).Set(float64(a.index.series))
	t.refused, t.samples, t.strangers = [refusals]int{}, [outcomes]int{}, 0
}
