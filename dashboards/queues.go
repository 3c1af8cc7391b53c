package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// The uid of the dashboard is part of links to it.
const queuesUID = "gpuvigil-queues"

// noRole is what is said where no cluster role is scraped.
const noRole = "gpuvigil fleet is not scraped"

// queues says who waits for GPUs, what is free and why it is not used, and what the
// autoscalers see.
func queues() (dashboard.Dashboard, error) {
	return page{
		uid: queuesUID, title: "gpuvigil queues and capacity", since: "6h", refresh: "1m", from: metric.SchedulerUp,
		description: "Who waits for GPUs and why, what the pools have, what is free and cannot be used, and what autoscalers see: from gpuvigil fleet.",
		rows: []row{
			{6000, "Who waits", whoWaits()},
			{6100, "What there is", whatThereIs()},
			{6200, "Autoscalers", autoscalers()},
			{6300, "How well it is known", known()},
			{6400, "What is wrong on the nodes", wrongOnNodes()},
		},
	}.build()
}

func whoWaits() []cog.Builder[dashboard.Panel] {
	const waits = `state="waiting"`
	return []cog.Builder[dashboard.Panel]{
		stats(panel{id: 6001, title: "Waiting for GPUs now", w: 6, h: 8, absent: noRole,
			queries: []query{
				total("jobs and pods", sel(metric.QueueJobs, waits)),
				total("GPUs", sel(metric.QueueGPUs, waits)),
				ask("longest", unitOf(metric.QueueLongest).value, "max(%s)", sel(metric.QueueLongest)),
			}}),
		stacked(panel{id: 6002, title: "GPUs waited for, by queue", w: 9, h: 8, absent: noRole,
			queries: []query{ask("{{scheduler}} {{queue}}", unitCount, "sum by (scheduler, queue) (%s)", sel(metric.QueueGPUs, waits))}}),
		graph(panel{id: 6003, title: "How long they have waited", w: 9, h: 8, absent: "nobody waits",
			queries: []query{
				ask("longest {{scheduler}} {{queue}}", unitOf(metric.QueueLongest).value, "max by (scheduler, queue) (%s)", sel(metric.QueueLongest)),
				ask("typical {{scheduler}} {{queue}}", unitOf(metric.QueueTypical).value, "max by (scheduler, queue) (%s)", sel(metric.QueueTypical)),
			}}),
		grid(panel{id: 6004, title: "Who waits, and why", w: 12, h: 9, absent: "nobody waits",
			queries: []query{
				per("scheduler, queue, account, team, reason", ask("GPUs", unitCount, "%s", sel(metric.WaitingGPUs))),
				per("scheduler, queue, account, team, reason", ask("Jobs or pods", unitCount, "%s", sel(metric.WaitingJobs))),
			}}, "scheduler", "queue", "account", "team", "reason"),
		stacked(panel{id: 6005, title: "Jobs and pods by what becomes of them", w: 12, h: 9, absent: noRole,
			note:    "Only waiting waits for GPUs: a quota, a gate, an image or a volume is something else.",
			queries: []query{ask("{{state}}", unitCount, "sum by (state) (%s)", sel(metric.QueueJobs))}}),
		graph(panel{id: 6006, title: "Quotas", w: 12, h: 8, absent: "no queue has a quota of GPUs that is told",
			queries: []query{ask("{{scheduler}} {{queue}} {{state}}", unitCount, "max by (scheduler, queue, state) (%s)", sel(metric.QueueQuota))}}),
		graph(panel{id: 6007, title: "Workloads by Kueue's and Volcano's count", w: 12, h: 8, absent: "no queue counts its workloads",
			queries: []query{ask("{{scheduler}} {{queue}} {{state}}", unitCount, "max by (scheduler, queue, state) (%s)", sel(metric.QueueWorkloads))}}),
	}
}

func whatThereIs() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		stacked(panel{id: 6101, title: "GPUs by what they can be used for", w: 12, h: 9, absent: noRole,
			note:    "By pool: a node of several of Slurm's partitions is in each.",
			queries: []query{ask("{{pool}} {{state}}", unitCount, "sum by (pool, state) (%s)", sel(metric.PoolCapacity))}}),
		stacked(panel{id: 6102, title: "Free GPUs by why they are not used", w: 12, h: 9, absent: "told for Kubernetes only",
			queries: []query{ask("{{cause}}", unitCount, "sum by (cause) (%s)", sel(metric.PoolFree))}}),
		grid(panel{id: 6103, title: "Pools", w: 14, h: 8, absent: noRole,
			queries: []query{
				per("scheduler, pool, resource", ask("Offered", unitCount, "%s", sel(metric.ResourceAllocatable))),
				per("scheduler, pool, resource", ask("Requested", unitCount, "%s", sel(metric.ResourceRequested))),
			}}, "scheduler", "pool", "resource"),
		stacked(panel{id: 6104, title: "Nodes by how they are", w: 10, h: 8, absent: noRole,
			queries: []query{ask("{{state}}", unitCount, "sum by (state) (%s)", sel(metric.PoolNodes))}}),
		grid(panel{id: 6105, title: "Models of pools", w: 10, h: 6, absent: noRole,
			queries: []query{per("scheduler, pool, model", ask("", unitCount, "%s", sel(metric.PoolInfo)))}}, "scheduler", "pool", "model"),
		stacked(panel{id: 6106, title: "GPUs of jobs", w: 14, h: 6, absent: "no job of Slurm's has a GPU",
			queries: []query{ask("{{account}} {{team}}", unitCount, "sum by (account, team) (%s * on (instance, owner_kind, owner) group_left (account, team) %s)", sel(metric.JobGPUs), sel(metric.JobInfo))}}),
	}
}

func autoscalers() []cog.Builder[dashboard.Panel] {
	const which = "kind, namespace, autoscaler"
	condition := func(title, name string) query {
		return per(which, ask(title, unitCount, "%s", sel(metric.ScalerConditions, `condition="`+name+`"`)))
	}
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 6201, title: "What they see", w: 14, h: 8, absent: "no autoscaler scales what has GPUs",
			queries: []query{
				per(which+", target, metrics", ask("", unitCount, "%s", sel(metric.ScalerInfo))),
				condition("Blind", "blind").alarming("orange"),
				condition("At maximum", "at_maximum").alarming("orange"),
				condition("Cannot read", "metric_unreadable").alarming("red"),
				condition("Paused", "paused"),
			}}, "kind", "namespace", "autoscaler", "target", "metrics"),
		graph(panel{id: 6202, title: "Replicas", w: 10, h: 8, absent: "no autoscaler scales what has GPUs",
			queries: []query{ask("{{kind}} {{namespace}} {{autoscaler}} {{state}}", unitCount, "max by ("+which+", state) (%s)", sel(metric.ScalerReplicas))}}),
	}
}

func known() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		states(panel{id: 6301, title: "Schedulers", w: 8, h: 7, absent: noRole,
			queries: []query{value("{{instance}} {{scheduler}}", sel(metric.SchedulerUp)).meaning(word{value: 0, text: "does not answer", color: "red"}, word{value: 1, text: "answers", color: "green"})}}),
		graph(panel{id: 6302, title: "Age of what they said", w: 8, h: 7, absent: noRole, queries: []query{value("{{instance}} {{scheduler}}", sel(metric.SchedulerAge))}}),
		graph(panel{id: 6303, title: "Questions, and what could not be read", w: 8, h: 7, absent: noRole,
			queries: []query{
				rate("{{scheduler}} {{outcome}}", "scheduler, outcome", sel(metric.SchedulerCalls)),
				rate("{{scheduler}} unreadable", "scheduler", sel(metric.SchedulerUnreadable)),
			}}),
		grid(panel{id: 6304, title: "What is read of Kubernetes", w: 12, h: 8, absent: "Kubernetes is not asked",
			queries: []query{
				per("resource, state", ask("", unitCount, "%s == 1", sel(metric.ReaderState))),
				per("resource", ask("Objects", unitCount, "%s", sel(metric.ReaderObjects))),
			}}, "resource", "state"),
		graph(panel{id: 6305, title: "Bytes of lists", w: 12, h: 8, absent: "Kubernetes is not asked",
			queries: []query{rate("{{resource}}", "resource", sel(metric.ReaderBytes))}}),
	}
}

func wrongOnNodes() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 6401, title: "Open incidents of the cluster", w: 8, h: 8, absent: noRole,
			note:    "One for each cause, however many nodes it shows on.",
			queries: []query{ask("{{severity}}", unitCount, "max by (severity) (%s)", sel(metric.FleetIncidents))}}),
		grid(panel{id: 6402, title: "Findings of all nodes", w: 16, h: 8, absent: "nothing is found on any node",
			queries: []query{per("node, rule, severity", ask("Findings", unitCount, "sum by (node, rule, severity) (%s)", sel(metric.FleetFinding)))}}, "node", "rule", "severity"),
		graph(panel{id: 6403, title: "What a look at all nodes takes", w: 12, h: 7, absent: noRole,
			queries: []query{ask("{{instance}}", unitOf(metric.FleetLookSeconds).value, "rate(%s[$__rate_interval]) / rate(%s[$__rate_interval])", sel(metric.FleetLookSeconds), sel(metric.FleetLooks))}}),
		graph(panel{id: 6404, title: "Agents asked for evidence, and snapshots left out", w: 12, h: 7, absent: noRole,
			queries: []query{
				rate("{{outcome}}", "outcome", sel(metric.FleetAgentCalls)),
				rate("{{instance}} left out", "instance", sel(metric.FleetRefused)),
			}}),
	}
}
