package inference

import "gpuvigil/internal/metric"

// trtllmServe serves JSON at /metrics, the text format at /prometheus/metrics. A
// name with a dot is a key within a key of the JSON.
func trtllmServe() *engine {
	return &engine{
		name: "trtllm-serve", models: [][]string{{"model_name"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("trtllm_num_requests_running", "numActiveRequests")},
			{row: metric.RequestsWaiting, from: named("trtllm_num_requests_waiting", "numQueuedRequests")},
			{row: metric.KVCacheUsage, from: named("trtllm_kv_cache_utilization"), largest: true},
			{row: metric.KVCacheUsage, from: named("kvCacheStats.usedNumBlocks"), over: named("kvCacheStats.maxNumBlocks")},
		},
		counters: []counter{
			{row: metric.Requests, from: named("trtllm_request_success_total"), by: "finished_reason", to: byReason, otherwise: success},
			{row: metric.GeneratedTokens, from: named("trtllm_generation_tokens_total")},
		},
		histograms: []histogram{
			{metric.QueueTime, named("trtllm_request_queue_time_seconds")},
			{metric.TimeToFirstToken, named("trtllm_time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("trtllm_time_per_output_token_seconds")},
			{metric.RequestDuration, named("trtllm_e2e_request_latency_seconds")},
		},
		notes: []string{"/prometheus/metrics tells more than the JSON at /metrics, which is used up by whoever reads it first"},
	}
}

// dynamo is the frontend's page. Its queue lasts until the first token, so
// prefilling is in it, and what is queued is in flight, too.
func dynamo() *engine {
	return &engine{
		name: "dynamo", models: [][]string{{"model"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("dynamo_frontend_inflight_requests"), less: named("dynamo_frontend_queued_requests")},
			{row: metric.RequestsWaiting, from: named("dynamo_frontend_queued_requests")},
		},
		counters: []counter{
			{row: metric.Requests, from: named("dynamo_frontend_requests_total"), by: "status", otherwise: unknown,
				to: map[string]string{"success": success, "error": failed}},
			{row: metric.PromptTokens, from: named("dynamo_frontend_input_sequence_tokens_sum")},
			{row: metric.GeneratedTokens, from: named("dynamo_frontend_output_sequence_tokens_sum")},
		},
		histograms: []histogram{
			{metric.TimeToFirstToken, named("dynamo_frontend_time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("dynamo_frontend_inter_token_latency_seconds")},
			{metric.RequestDuration, named("dynamo_frontend_request_duration_seconds")},
		},
		approximate: []*metric.Def{metric.RequestsRunning, metric.RequestsWaiting},
		notes:       []string{"a request waits until its first token: prefilling counts as waiting"},
	}
}

func llamaCPP() *engine {
	return &engine{
		name: "llamacpp", prefixes: []string{"llamacpp:", "llamacpp_"},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("requests_processing")},
			{row: metric.RequestsWaiting, from: named("requests_deferred")},
			{row: metric.KVCacheUsage, from: named("kv_cache_usage_ratio"), largest: true},
		},
		counters: []counter{
			{row: metric.PromptTokens, from: named("prompt_tokens_total")},
			{row: metric.GeneratedTokens, from: named("tokens_predicted_total")},
		},
		approximate: []*metric.Def{metric.PromptTokens},
		notes:       []string{"serves metrics only if it is told to, and answers late while it computes: give it a longer timeout", "prompt tokens from the cache are not counted in newer builds"},
	}
}

func lmdeploy() *engine {
	return &engine{
		name: "lmdeploy", prefixes: []string{"lmdeploy:", "lmdeploy_"}, models: [][]string{{"model_name"}},
		gauges: []gauge{
			{row: metric.RequestsRunning, from: named("num_requests_running")},
			{row: metric.RequestsWaiting, from: named("num_requests_waiting")},
			{row: metric.KVCacheUsage, from: named("gpu_cache_usage_perc"), largest: true},
		},
		counters: []counter{
			{row: metric.PromptTokens, from: named("prompt_tokens_total")},
			{row: metric.GeneratedTokens, from: named("generation_tokens_total")},
		},
		histograms: []histogram{
			{metric.QueueTime, named("request_queue_time_seconds")},
			{metric.TimeToFirstToken, named("time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("inter_token_latency_seconds", "time_per_output_token_seconds")},
			{metric.RequestDuration, named("e2e_request_latency_seconds")},
		},
	}
}

// kserve is its Python servers' page.
func kserve() *engine {
	return &engine{
		name: "kserve", models: [][]string{{"model_name"}},
		histograms:  []histogram{{metric.RequestDuration, named("request_predict_seconds")}},
		approximate: []*metric.Def{metric.RequestDuration, metric.RequestDurationMean},
		notes:       []string{"the duration is that of the prediction alone, without what is before and after it"},
	}
}

func torchServe() *engine {
	return &engine{
		name: "torchserve", models: [][]string{{"model_name"}},
		counters: []counter{{row: metric.Requests, from: named("ts_inference_requests_total"), otherwise: unknown}},
		sums: []sum{
			{metric.QueueTimeMean, scaled("ts_queue_latency_microseconds", 1e-6), named("ts_inference_requests_total")},
			{metric.RequestDurationMean, scaled("ts_inference_latency_microseconds", 1e-6), named("ts_inference_requests_total")},
		},
		notes: []string{"queue time and duration are means: no more is told", "how requests ended is not told"},
	}
}

func envoyAIGateway() *engine {
	const duration = "gen_ai_server_request_duration_seconds"
	tokens := func(kind string) []origin {
		return append(where("gen_ai_client_token_usage_token_sum", "gen_ai_token_type", kind), where("gen_ai_client_token_usage_sum", "gen_ai_token_type", kind)...)
	}
	return &engine{
		name: "envoy-ai-gateway", models: [][]string{{"gen_ai_request_model"}, {"gen_ai_original_model"}},
		counters: []counter{
			{row: metric.Requests, from: where(duration+"_count", "error_type", ""), otherwise: success},
			{row: metric.Requests, from: where(duration+"_count", "error_type", "!"), otherwise: failed},
			{row: metric.PromptTokens, from: tokens("input")},
			{row: metric.GeneratedTokens, from: tokens("output")},
		},
		histograms: []histogram{
			{metric.TimeToFirstToken, named("gen_ai_server_time_to_first_token_seconds")},
			{metric.InterTokenLatency, named("gen_ai_server_time_per_output_token_seconds")},
			{metric.RequestDuration, named(duration)},
		},
	}
}

// liteLLM is a proxy: what it calls failed is in its total, with a status of its own.
func liteLLM() *engine {
	return &engine{
		name: "litellm", models: [][]string{{"requested_model"}, {"model"}},
		counters: []counter{
			{row: metric.Requests, from: named("litellm_proxy_total_requests_metric_total", "litellm_proxy_total_requests_metric"),
				by: "status_code", to: byStatus, otherwise: unknown},
		},
		histograms: []histogram{
			{metric.TimeToFirstToken, named("litellm_llm_api_time_to_first_token_metric")},
			{metric.RequestDuration, named("litellm_request_total_latency_metric")},
		},
		notes: []string{"the time to the first token is of streamed answers only"},
	}
}
