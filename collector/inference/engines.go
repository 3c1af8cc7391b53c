package inference

import "gpuvigil/internal/metric"

// The outcomes of metric.Outcomes.
const (
	success   = "success"
	failed    = "error"
	cancelled = "cancelled"
	rejected  = "rejected"
	unknown   = "unknown"
)

// byStatus maps HTTP's classes of status codes.
var byStatus = map[string]string{"2xx": success, "4xx": rejected, "5xx": failed, "499": cancelled}

// byReason is how vLLM and its relatives say how a request ended; their counter of
// successes holds all of them.
var byReason = map[string]string{"stop": success, "length": success, "abort": cancelled, "error": failed}

// engines is the table. Its names are those of the servers' own pages. Where pages
// of releases differ, the newest name stands first.
func engines() []*engine {
	return []*engine{vllm(), sglang(), tgi(), triton(), nim(), rayServe(), trtllmServe(), dynamo(), llamaCPP(), lmdeploy(),
		kserve(), torchServe(), envoyAIGateway(), liteLLM()}
}

// vllm has the releases 0, 1, and those between, which served both names of the KV
// cache. Under Ray the prefix is another; some pipelines replace its colon.
func vllm() *engine {
	return &engine{
		name: "vllm", prefixes: []string{"vllm:", "vllm_", "ray_vllm_", "ray_vllm:"}, models: [][]string{{"model_name"}},
		gauges: []gauge{
			// Each engine of a data-parallel server has a queue of its own. The _by_reason
			// families split the same requests once more and are not read.
			{row: metric.RequestsRunning, from: named("num_requests_running")},
			{row: metric.RequestsWaiting, from: named("num_requests_waiting")},
			// A mean would hide the full one; with several API processes all but one say 0.
			{row: metric.KVCacheUsage, from: named("kv_cache_usage_perc", "gpu_cache_usage_perc"), largest: true},
		},
		counters: []counter{
			{row: metric.Requests, from: named("request_success_total"), by: "finished_reason", to: byReason, otherwise: unknown},
			{row: metric.PromptTokens, from: named("prompt_tokens_total")},
			{row: metric.GeneratedTokens, from: named("generation_tokens_total")},
			{row: metric.Preemptions, from: named("num_preemptions_total")},
		},
		histograms: []histogram{
			{metric.QueueTime, named("request_queue_time_seconds")},
			{metric.TimeToFirstToken, named("time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("inter_token_latency_seconds", "time_per_output_token_seconds")},
			{metric.RequestDuration, named("e2e_request_latency_seconds")},
		},
	}
}

// sglang repeats a scheduler's numbers for each rank; with priorities a row without
// one is the total of the others.
func sglang() *engine {
	total := func(name string) []origin { return where(name, "priority", "") }
	return &engine{
		name: "sglang", prefixes: []string{"sglang:", "sglang_"}, models: [][]string{{"model_name"}, {"name"}},
		repeated: []string{"tp_rank", "pp_rank", "moe_ep_rank"},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: total("num_running_reqs")},
			// A server that only decodes has two more queues before the one that others have:
			// for memory, and for what the prefill server sends.
			{row: metric.RequestsWaiting, from: total("num_queue_reqs"), more: append(total("num_decode_prealloc_queue_reqs"), total("num_decode_transfer_queue_reqs")...)},
			{row: metric.KVCacheUsage, from: total("token_usage"), largest: true},
		},
		counters: []counter{
			{row: metric.Requests, from: named("num_requests_total"), otherwise: unknown},
			{row: metric.Requests, from: named("num_aborted_requests_total"), otherwise: cancelled},
			{row: metric.PromptTokens, from: total("prompt_tokens_total")},
			{row: metric.GeneratedTokens, from: total("generation_tokens_total")},
			{row: metric.Preemptions, from: total("num_retracted_requests_total")},
		},
		histograms: []histogram{
			{metric.QueueTime, total("queue_time_seconds")},
			{metric.TimeToFirstToken, total("time_to_first_token_seconds")},
			{metric.InterTokenLatency, append(total("inter_token_latency_seconds"), total("time_per_output_token_seconds")...)},
			{metric.RequestDuration, total("e2e_request_latency_seconds")},
		},
		notes: []string{"finished requests are of outcome unknown: the server does not tell how they ended, aborted ones aside"},
	}
}

func tgi() *engine {
	return &engine{
		name: "tgi",
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("tgi_batch_current_size")},
			{row: metric.RequestsWaiting, from: named("tgi_queue_size")},
		},
		counters: []counter{
			{row: metric.Requests, from: named("tgi_request_success"), otherwise: success},
			{row: metric.Requests, from: named("tgi_request_failure"), by: "err", otherwise: failed,
				to: map[string]string{"overloaded": rejected, "validation": rejected, "dropped": cancelled}},
			{row: metric.PromptTokens, from: named("tgi_request_input_length_sum")},
			{row: metric.GeneratedTokens, from: named("tgi_request_generated_tokens_sum")},
		},
		histograms: []histogram{
			{metric.QueueTime, named("tgi_request_queue_duration")},
			{metric.InterTokenLatency, named("tgi_request_mean_time_per_token_duration")},
			{metric.RequestDuration, named("tgi_request_duration")},
		},
		approximate: []*metric.Def{metric.InterTokenLatency},
		notes:       []string{"the time between tokens is the mean of each request and has its first token in it: an approximation"},
	}
}

// triton has also TensorRT-LLM's numbers when that runs in it: one family whose
// label values are the signals.
func triton() *engine {
	return &engine{
		name: "triton", models: [][]string{{"model"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: where("nv_trt_llm_request_metrics", "request_type", "scheduled")},
			{row: metric.RequestsWaiting, from: append(where("nv_trt_llm_request_metrics", "request_type", "waiting"), named("nv_inference_pending_request_count")...)},
			{row: metric.KVCacheUsage, from: where("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"), largest: true},
			{row: metric.KVCacheUsage, from: where("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "used"),
				over: where("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max")},
		},
		counters: []counter{
			{row: metric.Requests, from: named("nv_inference_request_success"), otherwise: success},
			{row: metric.Requests, from: named("nv_inference_request_failure"), by: "reason", otherwise: failed,
				to: map[string]string{"CANCELED": cancelled, "REJECTED": rejected}},
		},
		sums: []sum{
			{metric.QueueTimeMean, scaled("nv_inference_queue_duration_us", 1e-6), named("nv_inference_request_success")},
			{metric.RequestDurationMean, scaled("nv_inference_request_duration_us", 1e-6), named("nv_inference_request_success")},
		},
		histograms:  []histogram{{metric.TimeToFirstToken, scaled("nv_inference_first_response_histogram_ms", 1e-3)}},
		approximate: []*metric.Def{metric.TimeToFirstToken},
		notes:       []string{"the time to the first token is that to the first part of the answer, and told only if switched on", "queue time and duration are means: no more is told"},
	}
}

// nim has names that any exporter might have.
func nim() *engine {
	return &engine{
		name: "nim", told: true, models: [][]string{{"model_name"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("num_requests_running")},
			{row: metric.RequestsWaiting, from: named("num_requests_waiting")},
			{row: metric.KVCacheUsage, from: named("gpu_cache_usage_perc"), largest: true},
		},
		counters: []counter{
			{row: metric.Requests, from: named("request_success_total"), by: "finished_reason", to: byReason, otherwise: success},
			{row: metric.Requests, from: named("request_failure_total"), otherwise: failed},
			{row: metric.PromptTokens, from: named("prompt_tokens_total")},
			{row: metric.GeneratedTokens, from: named("generation_tokens_total")},
		},
		histograms: []histogram{
			{metric.TimeToFirstToken, named("time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("time_per_output_token_seconds")},
			{metric.RequestDuration, named("e2e_request_latency_seconds")},
		},
		notes: []string{"only with engine: nim, as its names are not its own; the page is at /v1/metrics"},
	}
}

// rayServe counts a request for each replica that has processed it, as a success or
// an error.
func rayServe() *engine {
	return &engine{
		name: "ray-serve", models: [][]string{{"application", "deployment"}, {"deployment"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("ray_serve_replica_processing_queries", "ray_serve_num_ongoing_requests_at_replicas")},
			{row: metric.RequestsWaiting, from: named("ray_serve_deployment_queued_queries")},
		},
		counters: []counter{
			{row: metric.Requests, from: named("ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter"), otherwise: success},
			{row: metric.Requests, from: named("ray_serve_deployment_error_counter_total", "ray_serve_deployment_error_counter"), otherwise: failed},
		},
		histograms:  []histogram{{metric.RequestDuration, scaled("ray_serve_deployment_processing_latency_ms", 1e-3)}},
		approximate: []*metric.Def{metric.RequestDuration, metric.RequestDurationMean},
		notes:       []string{"the model is application/deployment", "the duration is the replica's, without the time in the queue"},
	}
}
