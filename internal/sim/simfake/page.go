package simfake

import (
	"fmt"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/sim"
)

// VLLM returns the metrics page of a simulated endpoint as vLLM's engine v1 writes it.
func VLLM(e collector.Endpoint, queue sim.Histogram) string {
	var b strings.Builder
	labels := fmt.Sprintf("engine=\"0\",model_name=%q", e.Model)
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	one := func(name, kind string, v float64) {
		fmt.Fprintf(&b, "# HELP %s Simulated.\n# TYPE %[1]s %s\n%[1]s{%[3]s} %s\n", name, kind, labels, number(v))
	}
	one("vllm:num_requests_running", "gauge", e.Value(metric.RequestsRunning))
	one("vllm:num_requests_waiting", "gauge", e.Value(metric.RequestsWaiting))
	one("vllm:kv_cache_usage_perc", "gauge", e.Value(metric.KVCacheUsage))
	one("vllm:generation_tokens_total", "counter", e.Value(metric.GeneratedTokens))

	const name = "vllm:request_queue_time_seconds"
	fmt.Fprintf(&b, "# HELP %s Simulated.\n# TYPE %[1]s histogram\n", name)
	for i, bound := range queue.Bounds {
		fmt.Fprintf(&b, "%s_bucket{%s,le=%q} %.0f\n", name, labels, number(bound), queue.Counts[i])
	}
	total := queue.Counts[len(queue.Bounds)]
	fmt.Fprintf(&b, "%s_bucket{%s,le=\"+Inf\"} %.0f\n%[1]s_count{%[2]s} %.0[3]f\n", name, labels, total)
	fmt.Fprintf(&b, "%s_sum{%s} %s\n", name, labels, number(queue.Sum))
	return b.String()
}
