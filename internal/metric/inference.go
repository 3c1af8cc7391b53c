package metric

import "strings"

// Outcomes are how a request can have ended. A cancelled one was given up by its
// client, a rejected one was never taken in: neither is a fault of the server.
// unknown are those of which the server does not say how.
var Outcomes = &Dimension{Label: "outcome", Values: []string{"success", "error", "cancelled", "rejected", "unknown"}}

// TargetReasons are why a target's page is not understood.
var TargetReasons = &Dimension{Label: "reason", Values: []string{
	"unreachable", "timeout", "tls", "credentials", "status", "redirect", "forbidden_address",
	"too_large", "cut_off", "empty", "html", "json", "syntax", "unknown_engine", "other_engine",
}}

// Engines are the inference servers whose pages are understood, as the
// configuration and the engine label name them.
var Engines = []string{
	"vllm", "sglang", "tgi", "triton", "nim", "ray-serve", "trtllm-serve", "dynamo", "llamacpp", "lmdeploy",
	"kserve", "torchserve", "envoy-ai-gateway", "litellm",
}

const maxRate = 1e9 // of anything that a server counts, in a second

// Rows that describe a model of an inference server. The rates and means are over
// the last minute; docs/inference.md has their formulas.
var (
	EndpointUp = row(Def{Entity: Endpoint, Tier: Fast, Max: 1, Name: "vigil_inference_up",
		Help: "1 if the server's metrics page could be read and understood, 0 if not."})
	RequestsRunning = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e7, Name: "vigil_inference_requests_running",
		Help: "Requests that the server is working on."})
	RequestsWaiting = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e7, Name: "vigil_inference_requests_waiting",
		Help: "Requests that wait in the server's queue."})
	Requests = row(Def{Entity: Endpoint, Kind: Counter, Tier: Fast, Name: "vigil_inference_requests_total", Dim: Outcomes,
		Help: "Requests that ended, by outcome. Cancelled by the client and rejected by the server are not its errors; unknown if it does not tell."})

	EndpointApproximate = row(Def{Entity: Endpoint, Kind: Info, Tier: Fast, Name: "vigil_inference_approximate_info", Labels: []string{"signal"},
		Help: "A signal of the model, named as its metric is without vigil_inference_, that is only about what the name says, because the server tells something near it; always 1. The docs say how each differs."})

	EndpointNotAvailable = row(Def{Entity: Endpoint, Kind: Info, Tier: Fast, Name: "vigil_inference_not_available_info", Labels: []string{"fact"},
		Help: "A fact that a rule would need and that the model's server does not tell; always 1. requests_by_client: how much each client asks, so that unusual_model_use cannot judge a single one."})

	QueueTimeP95 = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e6, Name: "vigil_inference_queue_time_p95_seconds",
		Help: "95th percentile of the time in the queue, over the requests of the last minute."})
	QueueTimeMean = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e6, Name: "vigil_inference_queue_time_mean_seconds",
		Help: "Mean of the time in the queue, over the requests of the last minute; also of servers that tell no more than a sum."})
	RequestDurationMean = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e6, Name: "vigil_inference_request_duration_mean_seconds",
		Help: "Mean duration of the requests that ended within the last minute; also of servers that tell no more than a sum."})

	PromptTokens = row(Def{Entity: Endpoint, Kind: Counter, Tier: Fast, Name: "vigil_inference_prompt_tokens_total",
		Help: "Tokens of the prompts that the server took in."})
	GeneratedTokens = row(Def{Entity: Endpoint, Kind: Counter, Tier: Fast, Name: "vigil_inference_generated_tokens_total",
		Help: "Tokens that the server generated."})
	Preemptions = row(Def{Entity: Endpoint, Kind: Counter, Tier: Fast, Name: "vigil_inference_preemptions_total",
		Help: "Requests that lost their place in the KV cache while they ran, and began anew."})

	KVCacheUsage = row(Def{Entity: Endpoint, Tier: Fast, Max: 1, Name: "vigil_inference_kv_cache_usage_ratio",
		Help: "Share of the KV cache in use; of several engines the fullest one's."})
	KVCacheHeadroom = row(Def{Entity: Endpoint, Tier: Fast, Max: 1, Name: "vigil_inference_kv_cache_headroom_ratio",
		Help: "Share of the KV cache that is free; of several engines the fullest one's."})
	KVCacheTimeToFull = row(Def{Entity: Endpoint, Tier: Fast, Max: 86400, Name: "vigil_inference_kv_cache_time_to_full_seconds",
		Help: "When the KV cache is full if it goes on to fill as in the last minute. Absent while it does not fill, or would take more than a day."})

	EndpointStale = row(Def{Entity: Endpoint, Tier: Fast, Max: 1, Name: "vigil_inference_stale",
		Help: "1 if the server says that requests run or wait and nothing on its page has changed for two minutes: servers show a queue for ever after all its requests were cancelled."})
	ArrivalRate = row(Def{Entity: Endpoint, Tier: Fast, Max: maxRate, Name: "vigil_inference_arrivals_per_second",
		Help: "Requests that were taken in each second: those that ended, and by how many more are inside."})
	ServiceRate = row(Def{Entity: Endpoint, Tier: Fast, Max: maxRate, Name: "vigil_inference_completions_per_second",
		Help: "Requests that ended each second, without rejected ones."})
	ServerUtilization = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e3, Name: "vigil_inference_utilization_ratio",
		Help: "Load that arrives over what the server works on at once, by Little's law; above 1 the queue grows. Absent until requests have waited, which shows how many it works on at once."})
	QueueConsistency = row(Def{Entity: Endpoint, Tier: Fast, Max: 1e6, Name: "vigil_inference_queue_consistency_ratio",
		Help: "Requests that wait over those that the rate of the queue and the time in it account for (Little's law): near 1 if the server's numbers agree over a steady minute. Absent for queues shorter than one request."})
)

// Histograms of a model of an inference server, where it has them.
var (
	QueueTime = row(Def{Entity: Latency, Kind: Histogram, Tier: Fast, Name: "vigil_inference_queue_time_seconds",
		Help: "Time that requests waited in the server's queue."})
	TimeToFirstToken = row(Def{Entity: Latency, Kind: Histogram, Tier: Fast, Name: "vigil_inference_time_to_first_token_seconds",
		Help: "Time from a request's arrival to its first token; for Triton to the first part of the answer."})
	InterTokenLatency = row(Def{Entity: Latency, Kind: Histogram, Tier: Fast, Name: "vigil_inference_inter_token_latency_seconds",
		Help: "Time between two tokens of an answer; for TGI the mean of each request with the first token in it."})
	RequestDuration = row(Def{Entity: Latency, Kind: Histogram, Tier: Fast, Name: "vigil_inference_request_duration_seconds",
		Help: "Time from a request's arrival to the end of its answer."})
)

// Rows that describe a target: one metrics page, of one or more models.
var (
	TargetUp = row(Def{Entity: Target, Tier: Fast, Max: 1, Name: "vigil_inference_target_up",
		Help: "1 if the page could be read and understood at the last try, 0 if not."})
	TargetFailing = row(Def{Entity: Target, Tier: Fast, Max: 1, Name: "vigil_inference_target_failing", Dim: TargetReasons,
		Help: "1 for the reason why the page could not be read or understood at the last try; absent while it can."})
	TargetDuration = row(Def{Entity: Target, Tier: Fast, Max: 1e4, Name: "vigil_inference_target_read_duration_seconds",
		Help: "How long the last try took."})
	TargetAge = row(Def{Entity: Target, Tier: Fast, Max: 1e9, Name: "vigil_inference_target_age_seconds",
		Help: "Age of the last page that was understood, when the target was last tried."})
	TargetBytes = row(Def{Entity: Target, Tier: Fast, Max: maxBytes, Name: "vigil_inference_target_page_bytes",
		Help: "Length of the last page that was understood, not compressed."})
	TokensPerGPU = row(Def{Entity: Target, Tier: Fast, Max: maxRate, Name: "vigil_inference_tokens_per_second_per_gpu",
		Help: "Tokens that all models of the target generated each second of the last minute, over the GPUs that it runs on. Absent if those are not known."})
	TokensPerJoule = row(Def{Entity: Target, Tier: Fast, Max: maxRate, Name: "vigil_inference_tokens_per_joule",
		Help: "Tokens that all models of the target generated within the last minute, over the energy that its GPUs drew in it. Absent if the GPUs are not known or tell no energy."})
)

// Signal is how a row of inference servers is called in a label: its name without what
// all of them begin with.
func Signal(d *Def) string { return strings.TrimPrefix(d.Name, "vigil_inference_") }
