package fleet

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// When all replicas of a model are at their limit, that is said on top of what each of
// them says; while one has room it is not.
func TestAllReplicasAtTheirLimitAreOneIncident(t *testing.T) {
	a := newAgents(t, 4)
	key := func(node string) string { return "http://" + node + ":8000/metrics#vllm/chat-70b" }
	a.edit = func(node string, s *collector.Snapshot) {
		if node == "gpu-003" {
			return
		}
		e := collector.Endpoint{URL: "http://" + node + ":8000/metrics", Engine: "vllm", Model: "chat-70b", GPUs: []string{s.GPUs[0].UUID}, Readings: collector.NewReadings(metric.Endpoint)}
		e.Set(metric.RequestsWaiting, 12)
		e.Set(metric.RequestsRunning, 32)
		e.Set(metric.KVCacheUsage, 0.97)
		e.Set(metric.EndpointUp, 1)
		e.Stamp(metric.Fast, a.now)
		s.Endpoints = append(s.Endpoints, e)
	}
	a.run(20 * time.Minute)
	a.says("gpu-000", "queueing", "ticket", "endpoint:"+key("gpu-000"), "above_slo")
	a.says("gpu-001", "queueing", "ticket", "endpoint:"+key("gpu-001"), "above_slo")
	a.run(15 * time.Minute)
	for _, in := range a.open() {
		if in.Members[0].Cause == "all_replicas" {
			t.Fatalf("two of three replicas are at their limit, and it is told of all: %s", in.Members[0].Evidence.Seen)
		}
	}
	began := a.now
	a.says("gpu-002", "queueing", "ticket", "endpoint:"+key("gpu-002"), "above_slo")
	a.run(8 * time.Minute)
	in := a.only()
	f := in.Members[0]
	if f.Cause != "all_replicas" || f.Rule != rules.IDQueueing || f.Subject != (detect.Subject{Kind: "service", ID: "vllm/chat-70b"}) || len(in.Members) != 4 || !f.Since.Equal(began) {
		t.Fatalf("all replicas are at their limit, open is %s since %s", namesOf([]detect.Incident{in}), f.Since)
	}
	if want := "36 requests wait at all 3 replicas on 3 nodes for "; !strings.HasPrefix(f.Evidence.Seen, want) || !strings.Contains(f.Evidence.Seen, "the fullest KV cache is at 97 %") {
		t.Errorf("it says %q, want %q", f.Evidence.Seen, want)
	}
	// What a GPU of one of them says from now on belongs to it.
	a.says("gpu-001", "saturated_gpu", "ticket", "gpu:GPU-gpu-001-0", "gpu_bound")
	a.run(2 * time.Minute)
	if in := a.only(); len(in.Members) != 5 {
		t.Errorf("a GPU that is busy for one of the replicas is told beside: %d findings", len(in.Members))
	}
	a.told["gpu-001"] = a.told["gpu-001"][:1]
	// One that has room again ends it; the others stand.
	a.told["gpu-002"] = nil
	a.run(10 * time.Minute)
	for _, in := range a.open() {
		for _, f := range in.Members {
			if f.Cause == "all_replicas" && f.State == detect.Firing {
				t.Error("a replica has room, and all are said to be at their limit")
			}
		}
	}
}
