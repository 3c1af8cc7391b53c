package series

import (
	"maps"
	"slices"

	"gpuvigil/collector/inference"
	"gpuvigil/collector/scrape"
	"gpuvigil/internal/metric"
)

// kind is what a metric's name shows to have made it.
type kind uint8

const (
	ofNode    kind = iota // node_exporter
	ofGPUs                // dcgm-exporter, nvidia_gpu_exporter
	ofServer              // an inference server
	ofAgent               // an agent of gpuvigil
	ofCluster             // kube-state-metrics
	kinds
)

// name is a metric's name that something is made of.
type name struct {
	text []byte
	kind kind
}

// vocabulary is all that the readers understand. They share it.
type vocabulary struct {
	names     map[string]*name
	exporters *scrape.Names
	servers   *inference.Names
	agents    *agentNames
}

func newVocabulary() *vocabulary {
	v := &vocabulary{names: map[string]*name{}, exporters: scrape.NewNames(), servers: inference.NewNames(), agents: newAgentNames()}
	for k, names := range [kinds][]string{
		ofNode: v.exporters.OfNodes(), ofGPUs: v.exporters.OfGPUs(), ofServer: v.servers.All(), ofAgent: v.agents.all(), ofCluster: clusterNames,
	} {
		for _, n := range names {
			v.names[n] = &name{text: []byte(n), kind: kind(k)}
		}
	}
	return v
}

func (v *vocabulary) all() []string { return slices.Sorted(maps.Keys(v.names)) }

// Source returns what is taken to have made the metric, in the words of a snapshot's
// sources; "" if nothing is made of it.
func (a *Assembler) Source(metric string) string {
	if n := a.vocab.names[metric]; n != nil {
		return sources[n.kind]
	}
	return ""
}

// Row returns the row of the catalogue that a metric is made into; nil if there is none,
// or several.
func (a *Assembler) Row(name string) *metric.Def {
	if use, ok := a.vocab.agents.uses[name]; ok {
		return use.row
	}
	return a.vocab.exporters.Row(name)
}
