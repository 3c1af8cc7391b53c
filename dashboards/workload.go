package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const workloadUID = "gpuvigil-workload"

const (
	// onItsGPUs keeps the GPUs that the workload has a process on.
	onItsGPUs = "%s and on (instance, uuid) %s"
	// ofItsServers keeps the servers that are the workload's, and names it.
	ofItsServers = "%s * on (instance, endpoint) group_left (owner) %s"

	ofQuality = ofOwner + " {{name}}"

	noSignals = "no workload tells of its own work: docs/training.md"
	noProcess = "no workload with a process on a GPU"
	noOwned   = "no inference server whose owner is known"
)

// workload is all that is known of one workload on one page: what it uses, how fast and
// how well it works, what it moves, and what that costs.
func workload() (dashboard.Dashboard, error) {
	return page{
		uid: workloadUID, title: "gpuvigil workload", since: "6h", refresh: "30s",
		description: "All that is known of a workload: what it uses, how fast and how well it works, what it moves, and what that costs.",
		gpus:        true, owners: true,
		rows: []row{
			{5100, "What it uses", uses()},
			{5200, "Training", trains()},
			{5300, "Inference", serves()},
			{5400, "Quality, errors, availability", quality()},
			{5500, "Storage and network", moves()},
			{5600, "Cost and energy", comesTo()},
			{5700, "What it tells", toldBy()},
		},
	}.build()
}

// its selects a row's series of the chosen workloads.
func its(row *metric.Def, where ...string) selector {
	return sel(row, append([]string{fmt.Sprintf(`owner=~"$%s"`, VarOwner)}, where...)...)
}

// onGPUs asks for a gauge of the workload's GPUs.
func onGPUs(legend string, row *metric.Def) query {
	q := ask(legend, unitOf(row).value, onItsGPUs, sel(row), its(metric.OwnerShare))
	q.whole = isShare(row)
	return q
}

// served asks for a gauge of the workload's inference servers.
func served(legend string, row *metric.Def) query {
	return per("instance, owner, model, endpoint", ask(legend+" {{endpoint}}", unitOf(row).value, ofItsServers, sel(row), its(metric.EndpointOwnerInfo)))
}

// serveRate asks how fast a counter of the workload's inference servers grows.
func serveRate(legend, by string, row *metric.Def) query {
	return ask(legend, unitOf(row).perSecond, "sum by ("+by+") (rate(%s[$__rate_interval]) * on (instance, endpoint) group_left (owner) %s)",
		sel(row), its(metric.EndpointOwnerInfo))
}

// serveTime asks for the 95th percentile of a latency of the workload's servers.
func serveTime(legend string, row *metric.Def) query {
	return ask(legend, unitOf(row).value, "histogram_quantile(0.95, sum by (instance, owner, model, le) (rate(%s[$__rate_interval]) * on (instance, endpoint) group_left (owner) %s))",
		selector{row: row, suffix: "_bucket"}, its(metric.EndpointOwnerInfo))
}

const ofModel = "{{instance}} {{owner}} {{model}}"

func uses() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 5101, title: "Workloads", w: 24, h: 7, absent: "no owner is known",
			note: "An empty cell is a fact that is absent.",
			queries: []query{
				per(byOwner+", stage, cost_center", ask("", unitCount, "%s", its(metric.OwnerInfo))),
				per(byOwner, value("Step", its(metric.WorkloadStep))),
				per(byOwner, value("Step time", its(metric.WorkloadStepTime))),
				per(byOwner, value("Waits for data", its(metric.WorkloadLoaderWait))),
				per(byOwner, value("Last progress", its(metric.WorkloadProgress))),
				per(byOwner, value("Last checkpoint", its(metric.WorkloadCheckpoint))),
				per(byOwner, value("Finished", its(metric.WorkloadFinished))).
					meaning(word{value: 0, text: "no", color: "blue"}, word{value: 1, text: "yes", color: "green"}),
			}}, "instance", "owner_kind", "owner", "team", "stage", "cost_center"),
		graph(panel{id: 5102, title: "GPU utilization", w: 8, h: 8, absent: noProcess,
			note:    "Of the GPUs that it has a process on; others may use them, too.",
			queries: []query{onGPUs(ofGPU, metric.Utilization)}}),
		graph(panel{id: 5103, title: "How full its GPUs are", w: 8, h: 8, absent: onHopper,
			queries: []query{onGPUs(ofGPU+" SMs", metric.SMActivity), onGPUs(ofGPU+" memory bandwidth", metric.DRAMActivity)}}),
		graph(panel{id: 5104, title: "Its share of the GPUs", w: 8, h: 8, absent: noProcess,
			queries: []query{value(ofGPU+" {{team}} {{owner_kind}} {{owner}} {{of}}", its(metric.OwnerShare))}}),
		graph(panel{id: 5105, title: "CPUs in use", w: 8, h: 8, absent: noProcess, note: "100 % is one CPU.",
			queries: []query{rate(ofOwner, byOwner, its(metric.WorkloadCPUSeconds)), rate(ofOwner+" throttled", byOwner, its(metric.WorkloadCPUThrottled))}}),
		graph(panel{id: 5106, title: "Memory that stays", w: 8, h: 8, absent: noProcess,
			queries: []query{value(ofOwner+" {{kind}}", its(metric.WorkloadMemory))}}),
		graph(panel{id: 5107, title: "Power of its GPUs", w: 8, h: 8, absent: noProcess,
			queries: []query{onGPUs(ofGPU, metric.PowerDraw)}}),
	}
}

func trains() []cog.Builder[dashboard.Panel] {
	signal := func(id uint32, title string, w uint32, note string, queries ...query) cog.Builder[dashboard.Panel] {
		return graph(panel{id: id, title: title, w: w, h: 8, absent: noSignals, note: note, queries: queries})
	}
	return []cog.Builder[dashboard.Panel]{
		signal(5201, "Step time", 8, "Steps that take longer than they did are a regression, or a straggler.", value(ofOwner, its(metric.WorkloadStepTime))),
		signal(5202, "Throughput", 8, "", value(ofOwner+" steps", its(metric.WorkloadStepRate)), value(ofOwner+" samples", its(metric.WorkloadSampleRate))),
		signal(5203, "Tokens a second", 8, "", value(ofOwner, its(metric.WorkloadTokenRate))),
		signal(5204, "Loss", 8, "", value(ofOwner, its(metric.WorkloadLoss))),
		signal(5205, "Waits for data", 8, "A GPU that waits for its data is starved by storage, network or CPU.", value(ofOwner, its(metric.WorkloadLoaderWait))),
		signal(5206, "How far it has come", 8, "It falls when it goes back to a checkpoint.",
			value(ofOwner+" step", its(metric.WorkloadStep)), value(ofOwner+" epoch", its(metric.WorkloadEpoch))),
	}
}

func serves() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 5301, title: "Latency, 95th percentile", w: 8, h: 8, absent: noOwned,
			queries: []query{serveTime(ofModel+" first token", metric.TimeToFirstToken), serveTime(ofModel+" request", metric.RequestDuration)}}),
		graph(panel{id: 5302, title: "Requests per second", w: 8, h: 8, absent: noOwned, note: "By outcome.",
			queries: []query{serveRate(ofModel+" {{outcome}}", "instance, owner, model, outcome", metric.Requests)}}),
		graph(panel{id: 5303, title: "Tokens generated", w: 8, h: 8, absent: noOwned,
			queries: []query{serveRate(ofModel, "instance, owner, model", metric.GeneratedTokens)}}),
		graph(panel{id: 5304, title: "Waiting and running", w: 12, h: 8, absent: noOwned,
			queries: []query{served(ofModel+" waiting", metric.RequestsWaiting), served(ofModel+" running", metric.RequestsRunning)}}),
		graph(panel{id: 5305, title: "Time in the queue, 95th percentile", w: 12, h: 8, absent: noOwned,
			queries: []query{served(ofModel, metric.QueueTimeP95)}}),
	}
}

func quality() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 5401, title: "Quality", w: 8, h: 8, absent: noSignals,
			note:    "Accuracy, scores of evaluations, quality of answers: whatever the workload tells, in its own units.",
			queries: []query{value(ofQuality, its(metric.WorkloadQuality))}}),
		bars(panel{id: 5402, title: "Interruptions", w: 8, h: 8, absent: noSignals,
			queries: []query{increase(ofOwner, byOwner, "$__rate_interval", its(metric.OwnerInterruptions))}}),
		states(panel{id: 5403, title: "Inference servers that answer", w: 8, h: 8, absent: noOwned,
			queries: []query{served(ofModel, metric.EndpointUp).
				meaning(word{value: 0, text: "down", color: "red"}, word{value: 1, text: "up", color: "green"})}}),
	}
}

func moves() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 5501, title: "Disks", w: 8, h: 8, absent: noOwner,
			queries: []query{rate(ofOwner+" {{direction}}", byOwner+", direction", its(metric.WorkloadBlockBytes))}}),
		graph(panel{id: 5502, title: "Network", w: 8, h: 8, absent: "no owner with a network namespace of its own",
			queries: []query{rate(ofOwner+" {{direction}}", byOwner+", direction", its(metric.WorkloadNetworkBytes))}}),
		graph(panel{id: 5503, title: "PCIe and NVLink of its GPUs", w: 8, h: 8, absent: "no GPU with a single owner, or none that counts",
			queries: []query{
				rate(ofOwner+" PCIe {{direction}}", byOwner+", direction", its(metric.WorkloadPCIeBytes)),
				rate(ofOwner+" NVLink {{direction}}", byOwner+", direction", its(metric.WorkloadNVLinkBytes)),
			}}),
	}
}
