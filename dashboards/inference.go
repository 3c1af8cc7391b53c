package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const inferenceUID = "gpuvigil-inference"

const (
	ofTarget = "{{instance}} {{endpoint}}"

	byModel    = "instance, endpoint, engine, model"
	byEndpoint = "instance, endpoint"
)

// noWait is what a panel says of facts that are absent on a good day.
const noWait = "no server at which requests have waited"

// inference is in the order of a question about a slow service: who waits, how long
// does an answer take, is it the cache, what does it give, and can the page be read.
func inference() (dashboard.Dashboard, error) {
	return page{
		uid: inferenceUID, title: "gpuvigil inference and queues", since: "3h", refresh: "30s",
		description: "What is asked of inference servers, who waits, how long answers take, and what the GPUs give for it.",
		rows: []row{
			{3100, "Queue", waiting()},
			{3200, "Answers", answers()},
			{3300, "KV cache", cache()},
			{3400, "Output", output()},
			{3500, "Metrics pages", metricsPages()},
		},
	}.build()
}

// quantile asks for a quantile over time of a histogram.
func quantile(legend, q string, s selector) query {
	return ask(legend, unitOf(s.row).value, "histogram_quantile("+q+", sum by ("+byModel+", le) (rate(%s[$__rate_interval])))",
		selector{row: s.row, where: s.where, suffix: "_bucket"})
}

// times draws the middle and the far end of a latency.
func times(id uint32, title, note string, row *metric.Def) cog.Builder[dashboard.Panel] {
	return graph(panel{id: id, title: title, w: 12, h: 8, absent: "no server that tells it as a histogram", note: note,
		queries: []query{
			quantile(ofEndpoint+" median", "0.5", sel(row)), quantile(ofEndpoint+" 95th", "0.95", sel(row)),
		}})
}

func waiting() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 3101, title: "Waiting and running", w: 12, h: 8, absent: noServer,
			queries: []query{
				value(ofEndpoint+" waiting", sel(metric.RequestsWaiting)), value(ofEndpoint+" running", sel(metric.RequestsRunning)),
			}}),
		graph(panel{id: 3102, title: "Arriving and served", w: 12, h: 8, absent: noServer,
			note: "Where more arrives than ends, the queue grows.",
			queries: []query{
				value(ofEndpoint+" arriving", sel(metric.ArrivalRate)), value(ofEndpoint+" served", sel(metric.ServiceRate)),
			}}),
		graph(panel{id: 3103, title: "Utilization by Little's law", w: 12, h: 8, absent: noWait,
			note:    "From 100 % on, what arrives is more than the server works on at once. A scaling rule on waiting requests sees this before one on the CPU.",
			queries: []query{value(ofEndpoint, sel(metric.ServerUtilization))}}),
		graph(panel{id: 3104, title: "Time in the queue", w: 12, h: 8, absent: noServer,
			note: "Over the requests of the last minute.",
			queries: []query{
				value(ofEndpoint+" mean", sel(metric.QueueTimeMean)), value(ofEndpoint+" 95th", sel(metric.QueueTimeP95)),
			}}),
		graph(panel{id: 3105, title: "Does the queue add up", w: 12, h: 8, absent: noWait,
			note:    "Requests that wait over those that rate and time account for. Far from 100 % for long, one of the server's numbers is wrong, or counts something else.",
			queries: []query{value(ofEndpoint, sel(metric.QueueConsistency))}}),
		times(3106, "Time in the queue, as a histogram", "Of servers with a histogram, over the panel's interval.", metric.QueueTime),
	}
}

func answers() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		times(3201, "Time to the first token", "What a person waits for.", metric.TimeToFirstToken),
		times(3202, "Time between tokens", "How fast an answer can be read.", metric.InterTokenLatency),
		times(3203, "Duration of requests", "From arrival to the end of the answer.", metric.RequestDuration),
		graph(panel{id: 3204, title: "Mean duration of requests", w: 12, h: 8, absent: noServer,
			queries: []query{value(ofEndpoint, sel(metric.RequestDurationMean))}}),
		bars(panel{id: 3205, title: "Requests that ended", w: 24, h: 8, absent: noServer,
			note:    "By outcome. Cancelled by the client and rejected by the server are not the server's errors.",
			queries: []query{rate(ofEndpoint+" {{outcome}}", byModel+", outcome", sel(metric.Requests))}}),
	}
}

func cache() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 3301, title: "KV cache", w: 8, h: 8, absent: noServer,
			queries: []query{
				value(ofEndpoint+" used", sel(metric.KVCacheUsage)), value(ofEndpoint+" free", sel(metric.KVCacheHeadroom)),
			}}),
		graph(panel{id: 3302, title: "Time until the KV cache is full", w: 8, h: 8, absent: "no cache fills",
			note:    "If it goes on to fill as in the last minute.",
			queries: []query{value(ofEndpoint, sel(metric.KVCacheTimeToFull))}}),
		bars(panel{id: 3303, title: "Preemptions", w: 8, h: 8, absent: noServer,
			note:    "Work that is done twice, as the cache was too small.",
			queries: []query{increase(ofEndpoint, byModel, "$__rate_interval", sel(metric.Preemptions))}}),
	}
}

func output() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 3401, title: "Tokens", w: 8, h: 8, absent: noServer,
			queries: []query{
				rate(ofEndpoint+" generated", byModel, sel(metric.GeneratedTokens)), rate(ofEndpoint+" prompts", byModel, sel(metric.PromptTokens)),
			}}),
		graph(panel{id: 3402, title: "Tokens a second on each GPU", w: 8, h: 8, absent: "no server whose GPUs are known",
			queries: []query{value(ofTarget, sel(metric.TokensPerGPU))}}),
		graph(panel{id: 3403, title: "Tokens for a joule", w: 8, h: 8, absent: "no server whose GPUs are known",
			queries: []query{value(ofTarget, sel(metric.TokensPerJoule))}}),
	}
}

func metricsPages() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		states(panel{id: 3501, title: "Pages", w: 12, h: 7, absent: noServer,
			queries: []query{per(byEndpoint, value(ofTarget, sel(metric.TargetUp))).
				meaning(word{value: 0, text: "cannot be read", color: "red"}, word{value: 1, text: "read", color: "green"})}}),
		states(panel{id: 3502, title: "Pages that stand still", w: 12, h: 7, absent: noServer,
			queries: []query{per(byModel, value(ofEndpoint, sel(metric.EndpointStale))).
				meaning(word{value: 0, text: "moves", color: "green"}, word{value: 1, text: "stale", color: "orange"})}}),
		grid(panel{id: 3503, title: "Pages that cannot be read, and why", w: 8, h: 8, absent: "all can be read",
			queries: []query{per(byEndpoint+", reason", ask("", unitCount, "%s", sel(metric.TargetFailing)))},
		}, "instance", "endpoint", "reason"),
		graph(panel{id: 3504, title: "Time to read a page", w: 8, h: 8, absent: noServer,
			queries: []query{
				value(ofTarget, sel(metric.TargetDuration)), value(ofTarget+" age", sel(metric.TargetAge)),
			}}),
		graph(panel{id: 3505, title: "Length of pages", w: 8, h: 8, absent: noServer,
			queries: []query{value(ofTarget, sel(metric.TargetBytes))}}),
	}
}
