package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// comesTo shows what a workload costs, for each of what it does, and what failures lose.
func comesTo() []cog.Builder[dashboard.Panel] {
	const money, unpriced = byOwner + ", currency", "no price is known, or nothing was booked"
	growth := func(title, by, unit string, s selector) query {
		return ask(title, unit, "sum by ("+by+") (increase(%s[$__range]))", s)
	}
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 5601, title: "Cost of the run", w: 12, h: 8, absent: unpriced,
			note: "Over the time range: choose one that holds the run from its beginning. A job that is requeued is one run.",
			queries: []query{
				growth("Cost", money, unitCount, its(metric.OwnerCost)),
				growth("Not busy", money, unitCount, its(metric.OwnerCost, notBusy)),
				growth("Lost by interruptions", money, unitCount, its(metric.OwnerLostCost)),
			}}, "instance", "owner_kind", "owner", "team", "currency"),
		graph(panel{id: 5602, title: "Cost of a unit of work", w: 6, h: 8, absent: "no work was counted, or no price is known",
			note:    "All that its GPU time of the last hour has cost, over what was done in it.",
			queries: []query{value(ofOwner+" {{unit}} {{currency}}", its(metric.OwnerUnitCost))}}),
		graph(panel{id: 5603, title: "Energy of a unit of work", w: 6, h: 8, absent: "no work was counted",
			queries: []query{value(ofOwner+" {{unit}}", its(metric.OwnerUnitEnergy))}}),
		graph(panel{id: 5604, title: "Work", w: 8, h: 8, absent: "no work was counted",
			queries: []query{ask(ofOwner+" {{unit}}", "cps", "sum by ("+byOwner+", unit) (rate(%s["+settled+"]))", its(metric.OwnerWork))}}),
		stacked(panel{id: 5605, title: "GPU time that is kept and lost", w: 8, h: 8, absent: noSignals,
			note: "In GPUs. A checkpoint keeps all at once that was open before it: choose a time range of several.",
			queries: []query{
				ask(ofOwner+" {{outcome}}", unitCount, "sum by ("+byOwner+", outcome) (rate(%s[$__range]))", its(metric.OwnerGoodput)),
			}}),
		graph(panel{id: 5606, title: "What an interruption would lose now", w: 8, h: 8, absent: noSignals, note: "In seconds of GPUs.",
			queries: []query{value(ofOwner, its(metric.OwnerGoodputOpen))}}),
		stacked(panel{id: 5607, title: "Power", w: 12, h: 8, absent: "nothing was booked",
			queries: []query{ask(ofOwner, unitOf(metric.OwnerEnergy).perSecond, "sum by ("+byOwner+") (rate(%s["+settled+"]))", its(metric.OwnerEnergy))}}),
		stacked(panel{id: 5608, title: "GPUs by state", w: 12, h: 8, absent: "nothing was booked",
			queries: []query{ask(ofOwner+" {{state}}", unitCount, "sum by ("+byOwner+", state) (rate(%s["+settled+"]))", its(metric.OwnerSeconds))}}),
	}
}

// toldBy shows whether workloads can tell of their work.
func toldBy() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 5701, title: "Age of what it tells", w: 8, h: 8, absent: noSignals,
			queries: []query{value(ofOwner, its(metric.WorkloadSignalAge))}}),
		graph(panel{id: 5702, title: "Files of workloads", w: 8, h: 8, absent: "textfile.directory is not configured",
			queries: []query{value(ofNode+" {{state}}", sel(metric.TextfileFiles))}}),
		graph(panel{id: 5703, title: "Files that do not count", w: 8, h: 8, absent: "none since the agents that answer have started",
			queries: []query{grown("{{instance}} {{reason}}", "instance, reason", "$__rate_interval", sel(metric.TextfileErrors))}}),
	}
}
