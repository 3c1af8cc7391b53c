package simfake

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// gauges, counters and histograms are vLLM's names of what is simulated.
var (
	gauges = []struct {
		row  *metric.Def
		name string
	}{
		{metric.RequestsRunning, "vllm:num_requests_running"}, {metric.RequestsWaiting, "vllm:num_requests_waiting"},
		{metric.KVCacheUsage, "vllm:kv_cache_usage_perc"},
	}
	counters = []struct {
		row  *metric.Def
		name string
	}{
		{metric.PromptTokens, "vllm:prompt_tokens_total"}, {metric.GeneratedTokens, "vllm:generation_tokens_total"},
		{metric.Preemptions, "vllm:num_preemptions_total"},
	}
	histograms = map[*metric.Def]string{
		metric.QueueTime: "vllm:request_queue_time_seconds", metric.TimeToFirstToken: "vllm:time_to_first_token_seconds",
		metric.InterTokenLatency: "vllm:inter_token_latency_seconds", metric.RequestDuration: "vllm:e2e_request_latency_seconds",
	}
	reasons = map[string]string{"success": "stop", "cancelled": "abort", "error": "error"}
)

// VLLM returns the metrics page of a simulated endpoint as vLLM's engine v1 writes it.
func VLLM(e collector.Endpoint) string {
	var b strings.Builder
	labels := fmt.Sprintf("engine=\"0\",model_name=%q", e.Model)
	head := func(name, kind string) { fmt.Fprintf(&b, "# HELP %s Simulated.\n# TYPE %[1]s %[2]s\n", name, kind) }
	for _, g := range gauges {
		head(g.name, "gauge")
		fmt.Fprintf(&b, "%s{%s} %s\n", g.name, labels, number(e.Value(g.row)))
	}
	for _, c := range counters {
		head(c.name, "counter")
		fmt.Fprintf(&b, "%s{%s} %s\n", c.name, labels, number(e.Value(c.row)))
	}
	const success = "vllm:request_success_total"
	head(success, "counter")
	for i, outcome := range metric.Outcomes.Values {
		if v := e.ValueAt(metric.Requests, i); !math.IsNaN(v) {
			fmt.Fprintf(&b, "%s{%s,finished_reason=%q} %s\n", success, labels, reasons[outcome], number(v))
		}
	}
	for _, h := range e.Histograms {
		name := histograms[h.Row]
		head(name, "histogram")
		for i, n := range h.Counts {
			bound := math.Inf(1)
			if i < len(h.Bounds) {
				bound = h.Bounds[i]
			}
			fmt.Fprintf(&b, "%s_bucket{%s,le=%q} %d\n", name, labels, number(bound), n)
		}
		fmt.Fprintf(&b, "%s_count{%s} %d\n%[1]s_sum{%[2]s} %[4]s\n", name, labels, h.Count(), number(h.Sum))
	}
	return b.String()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
