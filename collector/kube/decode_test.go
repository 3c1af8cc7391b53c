package kube

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPendingPods(t *testing.T) {
	type facts struct {
		Name, Phase, Node string
		GPUs              int
		Gates             string
		Scheduled, Reason string
	}
	var got []facts
	for _, raw := range items(t, "testdata/kubectl-pods-pending.json") {
		p, err := DecodePod(raw)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, facts{p.Name, p.Phase, p.Node, p.Requests.Devices(), strings.Join(p.Gates, " "), p.Scheduled.Status, p.Scheduled.Reason})
	}
	want := []facts{
		{"wait-gpu", "Pending", "", 8, "", "False", "Unschedulable"},
		{"gated", "Pending", "", 1, "kueue.x-k8s.io/admission", "False", "SchedulingGated"},
		{"image-pull", "Pending", "node-a", 1, "", "True", ""},
		{"cpu-wait", "Pending", "", 0, "", "", ""}, // asks for no GPU: nothing more is kept of it
		{"done", "Succeeded", "node-a", 1, "", "", ""},
		{"no-conditions-yet", "Pending", "", 1, "", "", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recorded pods are read as others (-want +got):\n%s", diff)
	}
}

func TestRequests(t *testing.T) {
	f := func(spec string, want Resources) {
		t.Helper()
		p, err := DecodePod(json.RawMessage(`{"metadata": {"uid": "u"}, "spec": ` + spec + `}`))
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if diff := cmp.Diff(want, p.Requests); diff != "" {
			t.Errorf("%s asks for something else (-want +got):\n%s", spec, diff)
		}
	}
	gpus := func(n int) map[string]int { return map[string]int{WholeGPU: n} }
	f(`{}`, Resources{})
	f(`{"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}, {"resources": {"requests": {"cpu": 2, "memory": "1e3", "nvidia.com/gpu": "2"}}}]}`,
		Resources{CPU: 3500, Memory: 1<<30 + 1000, GPUs: gpus(2)})
	// Init containers run before the rest, so the larger of the two counts.
	f(`{"initContainers": [{"resources": {"requests": {"cpu": "4", "nvidia.com/gpu": "1"}}}], "containers": [{"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}`,
		Resources{CPU: 4000, GPUs: gpus(1)})
	// A sidecar stays: it is added to what comes after it.
	f(`{"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "3"}}}], "containers": [{"resources": {"requests": {"cpu": "2"}}}], "overhead": {"cpu": "250m"}}`,
		Resources{CPU: 4250})
	// Only a limit: of a GPU it is the request.
	f(`{"containers": [{"resources": {"limits": {"cpu": "8", "nvidia.com/mig-1g.10gb": "1"}}}]}`, Resources{GPUs: map[string]int{"nvidia.com/mig-1g.10gb": 1}})
	f(`{"resources": {"requests": {"cpu": "6"}}, "containers": [{"resources": {"requests": {"cpu": "2", "memory": "5"}}}]}`, Resources{CPU: 6000, Memory: 5})
	// What only counts with a GPU is none.
	f(`{"containers": [{"resources": {"limits": {"nvidia.com/gpumem": "4000", "nvidia.com/gpu": "0", "amd.com/gpu": "1"}}}]}`, Resources{})
	for _, bad := range []string{`"1e999999999"`, `"1e-99999"`, `"ten"`, `""`, `{}`, `"` + strings.Repeat("9", 65) + `"`} {
		if _, err := DecodePod(json.RawMessage(`{"metadata": {"uid": "u"}, "spec": {"containers": [{"resources": {"requests": {"cpu": ` + bad + `}}}]}}`)); err == nil {
			t.Errorf("the amount %.40s is taken", bad)
		}
	}
}

func TestKueuePage(t *testing.T) {
	f, err := os.Open("testdata/kueue.prom")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := ParseKueue(f)
	if err != nil {
		t.Fatal(err)
	}
	want := []Queue{
		{UID: "gpu-a", Name: "gpu-a", Pending: 12, Inadmissible: 9, Inqueue: Unknown, Admitted: 8, Limit: 64, Used: 64},
		{UID: "gpu-b", Name: "gpu-b", Pending: 0, Inadmissible: 0, Inqueue: Unknown, Admitted: Unknown, Limit: Unknown, Used: Unknown},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recorded page is read as other queues (-want +got):\n%s", diff)
	}
	for text, says := range map[string]string{
		"<html>": "not a page of metrics", "# TYPE up gauge\nup 1\n": "not Kueue's", "": "not Kueue's",
		"x 1\n" + strings.Repeat("#\n", maxKueuePage/2): "larger",
	} {
		if _, err := ParseKueue(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.30q: error %v, want one that says %q", text, err, says)
		}
	}
}

func TestOtherObjects(t *testing.T) {
	when := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	const head = `{"metadata": {"uid": "u", "name": "x", "namespace": "ml", "creationTimestamp": "2026-09-01T00:00:00Z"}, `
	check := func(what string, got any, err error, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s is read as something else, error %v (-want +got):\n%s", what, err, diff)
		}
	}
	w, err := DecodeWorkload([]byte(head + `"spec": {"queueName": "team-a", "podSets": [{"count": 3, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}}, {"count": 1, "template": {"spec": {}}}]},
		"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "couldn't assign flavors"}]}}`))
	check("a workload", w, err, Workload{UID: "u", Namespace: "ml", Name: "x", Created: when, LocalQueue: "team-a", GPUs: map[string]int{WholeGPU: 24},
		Reserved: Condition{Type: "QuotaReserved", Status: "False", Reason: "Pending", Message: "couldn't assign flavors"}})
	q, err := DecodeClusterQueue([]byte(head + `"spec": {"stopPolicy": "Hold", "resourceGroups": [{"flavors": [{"name": "h100", "resources": [{"name": "cpu", "nominalQuota": 100}, {"name": "nvidia.com/gpu", "nominalQuota": "64"}]}]}]},
		"status": {"pendingWorkloads": 12, "admittedWorkloads": 8, "flavorsUsage": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "56", "borrowed": "0"}]}]}}`))
	check("a ClusterQueue", q, err, Queue{UID: "u", Name: "x", Pending: 12, Inadmissible: Unknown, Inqueue: Unknown, Admitted: 8, Limit: 64, Used: 56, Stopped: true})
	q, err = DecodeVolcanoQueue([]byte(head + `"spec": {"capability": {"nvidia.com/gpu": "16", "cpu": "4"}}, "status": {"state": "Open", "pending": 2, "allocated": {"nvidia.com/gpu": "8"}}}`))
	check("a queue of Volcano's", q, err, Queue{UID: "u", Name: "x", Pending: 2, Inadmissible: Unknown, Limit: 16, Used: 8})
	g, err := DecodePodGroup([]byte(head + `"spec": {"queue": "q", "minResources": {"nvidia.com/gpu": "16"}}, "status": {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True", "message": "queue resource quota insufficient"}]}}`))
	check("a pod group", g, err, PodGroup{UID: "u", Namespace: "ml", Name: "x", Created: when, Queue: "q", Phase: "Pending", GPUs: map[string]int{WholeGPU: 16},
		Unschedulable: Condition{Type: "Unschedulable", Status: "True", Message: "queue resource quota insufficient"}})
	r, err := DecodeRayCluster([]byte(head + `"spec": {"enableInTreeAutoscaling": true, "workerGroupSpecs": [{"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}]},
		"status": {"desiredWorkerReplicas": 2, "availableWorkerReplicas": 1}}`))
	check("a RayCluster", r, err, RayCluster{UID: "u", Namespace: "ml", Name: "x", Created: when, Autoscaled: true, Desired: 2, Available: 1, Min: 1, Max: 4, GPUs: map[string]int{WholeGPU: 2}})
	a, err := DecodeHPA([]byte(head + `"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "maxReplicas": 12, "metrics": [{"type": "Resource", "resource": {"name": "cpu"}}, {"type": "External", "external": {"metric": {"name": "waiting"}}}]},
		"status": {"currentReplicas": 4, "desiredReplicas": 12, "conditions": [{"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}, {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric"}]}}`))
	check("a HorizontalPodAutoscaler", a, err, Autoscaler{UID: "u", Kind: KindHPA, Namespace: "ml", Name: "x", TargetKind: "Deployment", Target: "chat",
		Metrics: []Metric{{"cpu", true}, {"waiting", false}}, Min: 1, Max: 12, Current: 4, Desired: 12, AtMaximum: true, Unreadable: true})
	a, err = DecodeScaledObject([]byte(head + `"spec": {"scaleTargetRef": {"name": "chat"}, "minReplicaCount": 2, "triggers": [{"type": "prometheus"}, {"type": "cpu"}]},
		"status": {"hpaName": "keda-hpa-x", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "True"}], "health": {"s0": {"status": "Failing"}}}}`))
	check("a ScaledObject", a, err, Autoscaler{UID: "u", Kind: KindScaledObject, Namespace: "ml", Name: "x", TargetKind: "Deployment", Target: "chat",
		Metrics: []Metric{{"prometheus", false}, {"cpu", true}}, Min: 2, Max: 100, Current: Unknown, Desired: Unknown, Paused: true, Unreadable: true, Makes: "keda-hpa-x"})
}

// KEDA is paused by an annotation, whether or not its status tells of it.
func TestPausedByAnnotation(t *testing.T) {
	for annotations, want := range map[string]bool{
		``:                                      false,
		`"autoscaling.keda.sh/paused": "false"`: false,
		`"autoscaling.keda.sh/paused": "true"`:  true,
		`"autoscaling.keda.sh/paused-replicas": "0"`:           true,
		`"autoscaling.keda.sh/transfer-hpa-ownership": "true"`: false,
	} {
		a, err := DecodeScaledObject([]byte(`{"metadata": {"uid": "u", "name": "x", "annotations": {` + annotations + `}}, "spec": {"scaleTargetRef": {"name": "chat"}}}`))
		if err != nil || a.Paused != want {
			t.Errorf("with the annotations %s paused is %v, error %v, want %v", annotations, a.Paused, err, want)
		}
	}
}

// Claims and slices look different in each version of the API.
func TestDynamicResources(t *testing.T) {
	for version, spec := range map[string]string{
		"v1":      `{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2}}`,
		"v1beta1": `{"name": "r", "deviceClassName": "gpu.nvidia.com", "count": 2}`,
		"list":    `{"name": "r", "firstAvailable": [{"deviceClassName": "gpu.nvidia.com", "count": 2}, {"deviceClassName": "mig.nvidia.com", "count": 7}]}`,
	} {
		c, err := DecodeClaim([]byte(`{"metadata": {"uid": "u", "name": "c", "namespace": "ml"}, "spec": {"devices": {"requests": [` + spec + `, {"name": "nic", "exactly": {"deviceClassName": "rdma.example.com"}}]}},
			"status": {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}, {"driver": "rdma.example.com", "pool": "n1", "device": "nic-0"}]}}}}`))
		if err != nil || c.Asks != 2 || len(c.Given) != 1 || c.Given[0] != (DeviceName{"n1", "gpu-0"}) {
			t.Errorf("%s: claim %+v, error %v: want that it asks for 2 GPUs and was given gpu-0", version, c, err)
		}
	}
	attributes := `"attributes": {"uuid": {"string": "GPU-1"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}`
	for version, device := range map[string]string{"v1": `{"name": "gpu-0", ` + attributes + `}`, "v1beta1": `{"name": "gpu-0", "basic": {` + attributes + `}}`} {
		s, err := DecodeSlice([]byte(fmt.Sprintf(`{"metadata": {"uid": "u"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [%s]}}`, device)))
		if err != nil || len(s.Devices) != 1 || s.Devices[0].UUID != "GPU-1" || s.Devices[0].Model != "NVIDIA H100 80GB HBM3" {
			t.Errorf("%s: slice %+v, error %v", version, s, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata": {"uid": "u"}, "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}`))
	f.Add([]byte(podJSON("a", "n", "1")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := DecodePod(raw)
		if err == nil && (p.Requests.CPU < 0 || p.Requests.Memory < 0 || p.Requests.Devices() < 0) {
			t.Errorf("a pod asks for less than nothing: %+v", p.Requests)
		}
		for _, decode := range []func() error{
			func() error { _, err := DecodeNode(raw); return err },
			func() error { _, err := DecodeWorkload(raw); return err },
			func() error { _, err := DecodeClusterQueue(raw); return err },
			func() error { _, err := DecodeLocalQueue(raw); return err },
			func() error { _, err := DecodePodGroup(raw); return err },
			func() error { _, err := DecodeVolcanoQueue(raw); return err },
			func() error { _, err := DecodeRayCluster(raw); return err },
			func() error { _, err := DecodeRayJob(raw); return err },
			func() error { _, err := DecodeHPA(raw); return err },
			func() error { _, err := DecodeScaledObject(raw); return err },
			func() error { _, err := DecodeClaim(raw); return err },
			func() error { _, err := DecodeSlice(raw); return err },
		} {
			if err := decode(); err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("an error has control characters: %q", err)
			}
		}
	})
}

func FuzzKueuePage(f *testing.F) {
	f.Add("kueue_pending_workloads{cluster_queue=\"a\",status=\"active\"} 3\n")
	f.Fuzz(func(t *testing.T, page string) {
		queues, err := ParseKueue(strings.NewReader(page))
		if err != nil {
			return
		}
		for _, q := range queues {
			if q.Pending < Unknown || q.Used < Unknown || q.Limit < Unknown {
				t.Errorf("queue %+v has less than nothing", q)
			}
		}
	})
}
