package series

import (
	"slices"

	"gpuvigil/internal/metric"
)

// agentUse is what a name on the page of an agent of gpuvigil means.
type agentUse struct {
	row  *metric.Def
	part histogramPart
	take func(r *agentReader, at identity, v float64) // nil: it is a column of its entity's readings
}

type histogramPart uint8

const (
	noHistogram histogramPart = iota
	bucket
	sumOf
	countOf
)

// agentNames are the names on agents' pages, for any number of readers at once.
type agentNames struct{ uses map[string]agentUse }

// madeUp are rows that are no column of an entity but made from the rest of it, or which
// nothing is made of.
var madeUp = []*metric.Def{metric.VersionChanges, metric.PriceMissing}

func newAgentNames() *agentNames {
	n := &agentNames{uses: map[string]agentUse{}}
	for _, d := range metric.All() {
		switch {
		case special[d] != nil:
			n.uses[d.Name] = agentUse{row: d, take: special[d]}
		case d.Entity == metric.Latency:
			n.uses[d.Name+"_bucket"] = agentUse{row: d, part: bucket}
			n.uses[d.Name+"_sum"] = agentUse{row: d, part: sumOf}
			n.uses[d.Name+"_count"] = agentUse{row: d, part: countOf}
		case len(d.Labels) == 0 && d.Kind != metric.Info && keyed[d.Entity] && !slices.Contains(madeUp, d):
			n.uses[d.Name] = agentUse{row: d}
		}
	}
	return n
}

// keyed are the entities that have readings of which the labels name whose they are.
var keyed = map[metric.Entity]bool{
	metric.Node: true, metric.GPU: true, metric.Instance: true, metric.Link: true, metric.Interface: true,
	metric.Endpoint: true, metric.Target: true, metric.Workload: true,
}

// special are the rows that say something else than a number of an entity.
var special = map[*metric.Def]func(*agentReader, identity, float64){
	metric.NodeInfo:        (*agentReader).nodeInfo,
	metric.VersionInfo:     (*agentReader).version,
	metric.SXidErrors:      (*agentReader).sxid,
	metric.SXidLast:        (*agentReader).sxid,
	metric.GPUInfo:         (*agentReader).gpuInfo,
	metric.GPUTopology:     (*agentReader).topology,
	metric.GPUPresent:      func(r *agentReader, at identity, v float64) { r.gpu(at).Present = v == 1 },
	metric.GPUHung:         func(r *agentReader, at identity, v float64) { r.gpu(at).Hung = v == 1 },
	metric.GPUSampleAge:    func(r *agentReader, at identity, v float64) { r.gpu(at).age = v },
	metric.GPUUnsupported:  (*agentReader).unsupported,
	metric.GPUDropped:      (*agentReader).dropped,
	metric.GPUVerdict:      (*agentReader).verdict,
	metric.XidErrors:       (*agentReader).xid,
	metric.XidLast:         (*agentReader).xidLast,
	metric.OwnerShare:      (*agentReader).share,
	metric.AllocationInfo:  (*agentReader).allocation,
	metric.MIGInfo:         (*agentReader).migInfo,
	metric.InterfaceInfo:   (*agentReader).interfaceInfo,
	metric.OwnerInfo:       (*agentReader).ownerInfo,
	metric.OwnerLabel:      (*agentReader).ownerLabel,
	metric.WorkloadQuality: (*agentReader).quality,
	metric.WorkloadCaveat:  (*agentReader).caveat,

	metric.EndpointApproximate: (*agentReader).approximate,

	metric.RuntimeInfo:      (*agentReader).runtime,
	metric.ImageInfo:        (*agentReader).image,
	metric.DatasetInfo:      (*agentReader).dataset,
	metric.InferenceAPIInfo: (*agentReader).api,

	metric.SourceUp:       (*agentReader).source,
	metric.SourceAge:      (*agentReader).source,
	metric.SourceDuration: (*agentReader).source,
	metric.SourceInterval: (*agentReader).source,
	metric.SourceSamples:  (*agentReader).source,
	metric.SourceErrors:   (*agentReader).source,
	metric.SourcePage:     (*agentReader).page,

	metric.FindingActive:   (*agentReader).finding,
	metric.FindingStart:    (*agentReader).finding,
	metric.FindingObserved: (*agentReader).finding,
	metric.FindingExpected: (*agentReader).finding,
	metric.FindingScore:    (*agentReader).finding,

	metric.TeamSpent:      (*agentReader).team,
	metric.TeamProjection: (*agentReader).team,
	metric.TeamBudget:     (*agentReader).team,
	metric.PricePerHour:   (*agentReader).price,
	metric.OwnerCost:      (*agentReader).ownerCost,
}

// all returns the names, in no order.
func (n *agentNames) all() []string {
	names := make([]string, 0, len(n.uses))
	for name := range n.uses {
		names = append(names, name)
	}
	return names
}
