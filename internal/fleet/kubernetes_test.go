package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector/kube"
	"gpuvigil/collector/owner"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

func teams(t testing.TB) *owner.Jobs {
	t.Helper()
	jobs, err := owner.NewJobs(owner.UserID, nil, []owner.Rule{
		{Namespace: regexp.MustCompile("^ml$"), Team: "nlp"},
		{Labels: map[string]*regexp.Regexp{"app": regexp.MustCompile("^vision-.*$")}, Team: "vision"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// decoded reads an object that the test writes down.
func decoded[T any](t testing.TB, decode func(json.RawMessage) (T, error), text string) *T {
	t.Helper()
	v, err := decode(json.RawMessage(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &v
}

// The recorded pods, with the answers that were written down with them: one waits for
// its 8 GPUs; a gate, an image, a pod without GPUs, one that has ended and one that
// nobody has looked at do not.
func TestRecordedPods(t *testing.T) {
	content, err := os.ReadFile("testdata/kubectl-pods-pending.json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	o := &objects{now: time.Date(2026, 9, 1, 1, 0, 5, 0, time.UTC), owners: teams(t)}
	for _, raw := range list.Items {
		o.pods = append(o.pods, decoded(t, kube.DecodePod, string(raw)))
	}
	c := o.cluster()
	q := sumQueues(NameKubernetes, c)[queueName{NameKubernetes, "ml"}]
	want := map[string][2]float64{"waiting": {1, 8}, "limited": {1, 1}, "starting": {1, 1}, "other": {1, 1}}
	for i, state := range metric.QueueState.Values {
		if got := [2]float64{q.jobs[i], q.gpus[i]}; got != want[state] {
			t.Errorf("%s: %v pods and GPUs, want %v", state, got, want[state])
		}
	}
	if len(q.waits) != 1 || q.longest() != time.Hour {
		t.Errorf("the waits are %v, want one of an hour, since the scheduler gave up", q.waits)
	}
}

// The recorded messages of schedulers: those of infer-a to -f wait for GPUs, cpu-only
// does not; the rest are no scheduler's verdicts, or a fault of a device plugin.
func TestRecordedMessages(t *testing.T) {
	f, err := os.Open("testdata/kubectl-get-events-pending.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	asks := map[string]int{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu.shared": 1}
	got := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[2] != "FailedScheduling" {
			continue
		}
		got[strings.TrimPrefix(fields[3], "Pod/")] = stateOfMessage(strings.Join(fields[4:], " "), asks)
	}
	want := map[string]string{"infer-a": "waiting", "infer-b": "waiting", "infer-c": "waiting", "infer-d": "waiting", "infer-e": "waiting", "infer-f": "waiting", "cpu-only": "unavailable"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recorded messages are read as others (-want +got):\n%s", diff)
	}
}

func TestMessages(t *testing.T) {
	f := func(message, want string) {
		t.Helper()
		if got := stateOfMessage(message, map[string]int{"nvidia.com/gpu": 1}); got != want {
			t.Errorf("%q: %s, want %s", message, got, want)
		}
	}
	f("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "waiting")
	f("all nodes are unavailable: 3 Insufficient nvidia.com/gpu.", "waiting") // Volcano's
	// Of another resource the pod asks for none: its name begins the same.
	f("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.shared.", "unavailable")
	f("0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "unavailable")
	f("0/3 nodes are available: 3 node(s) had untolerated taint {dedicated: vision}.", "unavailable")
	f("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "unavailable")
	f(`running PreBind plugin "VolumeBinding": binding volumes: timed out`, "unavailable")
	f("3/8 tasks in gang unschedulable: pod group is not ready, 8 Pending", "dependent")
	f(`waiting for resource claim "x" to be created`, "dependent")
	f("something new", "other")
	f("", "other")
	claim := map[string]int{claimed: 1}
	if got := stateOfMessage("0/3 nodes are available: 3 cannot allocate all claims.", claim); got != "waiting" {
		t.Errorf("a pod whose claim cannot be allocated is %s, want waiting", got)
	}
}

func nodeJSON(name, labels, spec, allocatable string) string {
	return fmt.Sprintf(`{"metadata": {"uid": %[1]q, "name": %[1]q, "labels": {"cloud.google.com/gke-nodepool": "h100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"%[2]s}},
		"spec": {%[3]s}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", %[4]s}}}`, name, labels, spec, allocatable)
}

func podOn(name, node, gpus, cpu string) string {
	return fmt.Sprintf(`{"metadata": {"uid": %[1]q, "name": %[1]q, "namespace": "ml"}, "spec": {"nodeName": %[2]q, "containers": [{"resources": {"requests": {%[3]s "cpu": %[4]q}}}]}, "status": {"phase": "Running"}}`, name, node, gpus, cpu)
}

const tolerant = `"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]`

func waiting(name, more, requests string) string {
	return fmt.Sprintf(`{"metadata": {"uid": %[1]q, "name": %[1]q, "namespace": "ml", "creationTimestamp": "2026-01-31T11:00:00Z"},
		"spec": {%[2]s, "containers": [{"resources": {"requests": {%[3]s}}}]},
		"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."}]}}`, name, more, requests)
}

// Each free GPU is unused for one reason, and all of them sum to what is free.
func TestFreeAndUnusable(t *testing.T) {
	f := func(what, node, pods, pod, cause, reason string, free float64) {
		t.Helper()
		o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, node)}}
		for i, p := range strings.Split(pods, ";") {
			if p != "" {
				parts := strings.Fields(p) // GPUs and CPUs
				o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn(fmt.Sprint("p", i), "n1", `"nvidia.com/gpu": "`+parts[0]+`",`, parts[1])))
			}
		}
		if pod != "" {
			o.pods = append(o.pods, decoded(t, kube.DecodePod, pod))
		}
		c := o.cluster()
		p := sumPools(c.Nodes)["h100"]
		if p == nil {
			t.Fatalf("%s: the pool is not there: %+v", what, c.Nodes)
		}
		for i, name := range metric.FreeCause.Values {
			want := 0.0
			if name == cause {
				want = free
			}
			if p.free[i] != want {
				t.Errorf("%s: %v GPUs are free because of %s, want %v", what, p.free[i], name, want)
			}
		}
		for _, w := range c.Work {
			if w.State == "waiting" && w.Reason != reason {
				t.Errorf("%s: the pod waits because of %s, want %s", what, w.Reason, reason)
			}
		}
	}
	plain := nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`)
	eight := waiting("w", tolerant, `"nvidia.com/gpu": "8", "cpu": "8"`)
	f("nobody waits", plain, "4 8", "", "no_demand", "", 4)
	f("it is about to start", plain, "", eight, "fits", "fits", 8)
	f("too few on one node", plain, "1 1", eight, "fragmented", "no_free_gpu", 7) // nobody who moves makes it enough
	f("none is free", plain, "8 8", eight, "", "no_free_gpu", 0)
	f("the CPUs are used up", plain, "2 60", waiting("w", tolerant, `"nvidia.com/gpu": "1", "cpu": "8"`), "cpu", "cpu", 6)
	f("the memory is too small", plain, "", waiting("w", tolerant, `"nvidia.com/gpu": "1", "memory": "1Ti"`), "memory", "memory", 8)
	f("a taint", nodeJSON("n1", "", `"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]`, `"nvidia.com/gpu": "8"`), "", eight, "tainted", "tainted", 8)
	f("a taint that is tolerated", nodeJSON("n1", "", `"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]`, `"nvidia.com/gpu": "8"`), "", eight, "fits", "fits", 8)
	f("cordoned", nodeJSON("n1", "", `"unschedulable": true`, `"nvidia.com/gpu": "8"`), "2 2", eight, "cordoned", "no_free_gpu", 6) // uncordoned it would be too few
	f("not ready", strings.Replace(plain, `"status": "True"`, `"status": "Unknown"`, 1), "", eight, "not_ready", "not_ready", 8)
	f("another model", plain, "", waiting("w", `"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}`, `"nvidia.com/gpu": "1"`), "wrong_model", "wrong_model", 8)
	f("another zone", plain, "", waiting("w", `"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]}}}`, `"nvidia.com/gpu": "1"`), "selector", "selector", 8)
	f("another MIG profile", nodeJSON("n1", "", "", `"nvidia.com/mig-1g.10gb": "7"`), "", waiting("w", tolerant, `"nvidia.com/mig-3g.40gb": "1"`), "wrong_mig_profile", "", 7)
	f("another model behind a taint", nodeJSON("n1", "", `"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]`, `"nvidia.com/gpu": "8"`), "", waiting("w", `"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}`, `"nvidia.com/gpu": "1"`), "wrong_model", "wrong_model", 8)
	f("beside whom", plain, "", strings.Replace(waiting("w", tolerant, `"nvidia.com/gpu": "1"`), "9 Insufficient", "8 node(s) didn't match pod topology spread constraints, 1 Insufficient", 1), "topology", "topology", 8)
	f("two kinds at once", nodeJSON("n1", "", "", `"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "0"`), "", waiting("w", tolerant, `"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"`), "wrong_mig_profile", "wrong_mig_profile", 2)
}

// GPUs are free on the other nodes and a pod waits all the same: it says why they are of no
// use to it, whatever full nodes there are that would be right for it.
func TestWaitsThoughGPUsAreFree(t *testing.T) {
	const whole = `"nvidia.com/gpu": "8"`
	const taint = `"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]`
	model := func(node, model string) string { return strings.Replace(node, "NVIDIA-H100-80GB-HBM3", model, 1) }
	ready := func(node, status string) string {
		return strings.Replace(node, `"status": "True"`, `"status": "`+status+`"`, 1)
	}
	plain := nodeJSON("n1", "", "", whole)
	two := waiting("w", tolerant, `"nvidia.com/gpu": "2", "cpu": "8", "memory": "64Gi"`)
	selects := func(label string) string {
		return waiting("w", tolerant+`, "nodeSelector": {`+label+`}`, `"nvidia.com/gpu": "2"`)
	}
	f := func(what, reason, pod, nodes string, pods ...string) {
		t.Helper()
		for _, full := range []bool{false, true} {
			o := &objects{now: now, owners: teams(t), pods: []*kube.Pod{decoded(t, kube.DecodePod, pod)}}
			for _, n := range strings.Split(nodes, "\n\n") {
				o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, n))
			}
			for _, p := range pods {
				o.pods = append(o.pods, decoded(t, kube.DecodePod, p))
			}
			if full {
				o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, nodeJSON("full", "", "", whole)))
				o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("all", "full", `"nvidia.com/gpu": "8",`, "1")))
			}
			for _, w := range o.cluster().Work {
				if w.State == "waiting" && w.Reason != reason {
					t.Errorf("%s, full node beside it: %v: the pod waits because of %s, want %s", what, full, w.Reason, reason)
				}
			}
		}
	}
	f("a taint", "tainted", two, nodeJSON("n1", "", taint, whole))
	f("cordoned", "cordoned", two, nodeJSON("n1", "", `"unschedulable": true`, whole))
	f("not ready", "not_ready", two, ready(plain, "False"))
	f("nobody hears of the node", "not_ready", two, ready(plain, "Unknown"))
	f("another model", "wrong_model", selects(`"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"`), model(plain, "NVIDIA-L4"))
	f("another zone", "selector", selects(`"cloud.google.com/gke-nodepool": "h100", "zone": "b"`), plain)
	f("other devices", "wrong_mig_profile", two, nodeJSON("n1", "", "", `"nvidia.com/mig-1g.10gb": "7"`))
	f("on two nodes", "fragmented", two, plain+"\n\n"+nodeJSON("n2", "", "", whole),
		podOn("a", "n1", `"nvidia.com/gpu": "7",`, "1"), podOn("b", "n2", `"nvidia.com/gpu": "7",`, "1"))
	f("no CPU is left", "cpu", two, plain, podOn("a", "n1", "", "60"))
	f("no memory is left", "memory", two, strings.Replace(plain, "512Gi", "32Gi", 1))
	f("no pod more", "pods", two, strings.Replace(plain, `"110"`, `"1"`, 1), podOn("a", "n1", "", "1"))
	f("beside whom", "topology", strings.Replace(two, "9 Insufficient", "8 node(s) didn't match pod anti-affinity rules, 1 Insufficient", 1), plain)
	f("nothing in the way", "fits", two, plain)
	f("too few behind a taint", "no_free_gpu", two, nodeJSON("n1", "", taint, whole), podOn("a", "n1", `"nvidia.com/gpu": "7",`, "1"))
	f("too few anywhere", "no_free_gpu", two, plain, podOn("a", "n1", `"nvidia.com/gpu": "7",`, "1"))
	f("none anywhere", "no_free_gpu", two, plain, podOn("a", "n1", `"nvidia.com/gpu": "8",`, "1"))
	// The one of which an administrator can free something counts.
	f("a taint, and another model elsewhere", "tainted", selects(`"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"`),
		nodeJSON("n1", "", taint, whole)+"\n\n"+model(nodeJSON("n2", "", "", whole), "NVIDIA-L4"))
}

// A pod that wants two kinds finds one of them used up.
func TestOneOfTwoKindsIsFree(t *testing.T) {
	o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, nodeJSON("n1", "", "", `"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"`))}}
	o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("p", "n1", `"nvidia.com/mig-1g.10gb": "1",`, "1")),
		decoded(t, kube.DecodePod, waiting("w", tolerant, `"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"`)))
	c := o.cluster()
	if diff := cmp.Diff(map[string]int{"fragmented": 1}, c.Nodes[0].Free); diff != "" {
		t.Errorf("the free GPU is unused for another reason (-want +got):\n%s", diff)
	}
}

// Whatever waits, what is used and free is never more than there is.
func TestAllocationNeverExceedsCapacity(t *testing.T) {
	o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`))}}
	for i := range 40 {
		o.pods = append(o.pods, decoded(t, kube.DecodePod, waiting(fmt.Sprint("w", i), tolerant, `"nvidia.com/gpu": "8"`)))
	}
	o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("r", "n1", `"nvidia.com/gpu": "6",`, "1")), decoded(t, kube.DecodePod, podOn("ended", "n1", `"nvidia.com/gpu": "8",`, "1")))
	o.pods[len(o.pods)-1].Phase = kube.Succeeded
	c := o.cluster()
	p := sumPools(c.Nodes)["h100"]
	used, free := p.capacity[metric.CapacityState.Index("used")], p.capacity[metric.CapacityState.Index("free")]
	if used != 6 || free != 2 || p.resources["nvidia.com/gpu"] != (Amount{8, 6}) {
		t.Errorf("used %v, free %v, %v: want 6 and 2 of 8: what waits has no node, what has ended holds nothing", used, free, p.resources)
	}
}

func TestStatesOfNodes(t *testing.T) {
	f := func(node, want string) {
		t.Helper()
		o := &objects{nodes: []*kube.Node{decoded(t, kube.DecodeNode, node)}}
		o.index()
		places := o.places()
		if len(places) != 1 || places[0].state != want {
			t.Errorf("%s: %d places, want one that is %s", node, len(places), want)
			return
		}
		metric.NodeState.Index(want)
	}
	f(nodeJSON("n", "", "", `"nvidia.com/gpu": "8"`), "usable")
	f(nodeJSON("n", "", `"unschedulable": true`, `"nvidia.com/gpu": "8"`), "drained")
	f(nodeJSON("n", "", `"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]`, `"nvidia.com/gpu": "8"`), "booting")
	f(strings.Replace(nodeJSON("n", "", "", `"cpu": "1"`), `"nvidia.com/gpu": "8"`, `"cpu": "1"`, 1), "booting") // the device plugin has not told
	f(strings.Replace(nodeJSON("n", "", "", `"nvidia.com/gpu": "8"`), `"True"`, `"False"`, 1), "down")
	f(nodeJSON("n", "", `"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "a", "effect": "PreferNoSchedule"}]`, `"nvidia.com/gpu": "8"`), "usable")
}

// big is a cluster with everything in it.
func big(t testing.TB) *objects {
	o := &objects{now: now, owners: teams(t)}
	node := func(text string) { o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, text)) }
	pod := func(text string) { o.pods = append(o.pods, decoded(t, kube.DecodePod, text)) }
	node(nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`))
	node(nodeJSON("n2", "", `"unschedulable": true`, `"nvidia.com/gpu": "7"`)) // one GPU of it is ill
	node(`{"metadata": {"uid": "cpu", "name": "cpu"}, "status": {"allocatable": {"cpu": "64"}}}`)
	node(`{"metadata": {"uid": "n3", "name": "n3", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100", "eks.amazonaws.com/nodegroup": "claims"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "64", "memory": "1Ti", "pods": 100}}}`)
	o.slices = append(o.slices, decoded(t, kube.DecodeSlice, `{"metadata": {"uid": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n3", "pool": {"name": "n3"}, "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}}`))
	o.claims = append(o.claims, decoded(t, kube.DecodeClaim, `{"metadata": {"uid": "c", "name": "c", "namespace": "dra"}, "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}, "status": {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n3", "device": "gpu-1"}]}}}}`))
	pod(`{"metadata": {"uid": "d", "name": "d", "namespace": "dra"}, "spec": {"nodeName": "n3", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}, "status": {"phase": "Running"}}`)
	pod(podOn("on-drained", "n2", `"nvidia.com/gpu": "1",`, "1"))
	pod(waiting("w", tolerant, `"nvidia.com/gpu": "16"`))
	// A Deployment that is scaled on its CPU.
	for i := range 2 {
		pod(fmt.Sprintf(`{"metadata": {"uid": "chat%[1]d", "name": "chat-5f6-%[1]d", "namespace": "web", "labels": {"pod-template-hash": "5f6", "app": "vision-chat"}, "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-5f6", "controller": true}]},
			"spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}, "status": {"phase": "Running"}}`, i))
	}
	o.hpas = append(o.hpas,
		decoded(t, kube.DecodeHPA, `{"metadata": {"uid": "h", "name": "chat", "namespace": "web"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "maxReplicas": 4, "metrics": [{"resource": {"name": "cpu"}}]}, "status": {"currentReplicas": 2, "desiredReplicas": 2}}`),
		decoded(t, kube.DecodeHPA, `{"metadata": {"uid": "h2", "name": "no-gpus", "namespace": "web"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "other"}, "maxReplicas": 4, "metrics": [{"resource": {"name": "cpu"}}]}}`),
		decoded(t, kube.DecodeHPA, `{"metadata": {"uid": "h3", "name": "keda-hpa-chat", "namespace": "web", "labels": {"scaledobject.keda.sh/name": "chat"}}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "maxReplicas": 4}, "status": {"currentReplicas": 2, "desiredReplicas": 4, "conditions": [{"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}]}}`))
	o.scaledObjects = append(o.scaledObjects, decoded(t, kube.DecodeScaledObject, `{"metadata": {"uid": "k", "name": "chat", "namespace": "web"}, "spec": {"scaleTargetRef": {"name": "chat"}, "maxReplicaCount": 4, "triggers": [{"type": "prometheus"}]}, "status": {"hpaName": "keda-hpa-chat"}}`))
	// Kueue: one workload waits for its quota and brings its gated pod along, one has pods.
	o.localQueues = append(o.localQueues, decoded(t, kube.DecodeLocalQueue, `{"metadata": {"uid": "lq", "name": "team-a", "namespace": "ml"}, "spec": {"clusterQueue": "gpu-a"}}`),
		decoded(t, kube.DecodeLocalQueue, `{"metadata": {"uid": "lq2", "name": "empty", "namespace": "ml"}}`))
	o.workloads = append(o.workloads,
		decoded(t, kube.DecodeWorkload, `{"metadata": {"uid": "w1", "name": "w1", "namespace": "ml", "ownerReferences": [{"kind": "Pod", "name": "gated", "controller": true}]}, "spec": {"queueName": "team-a", "podSets": [{"count": 1, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}}]}, "status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}`),
		decoded(t, kube.DecodeWorkload, `{"metadata": {"uid": "w2", "name": "w2", "namespace": "ml"}, "spec": {"queueName": "team-a", "podSets": [{"count": 1, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}]}, "status": {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-31T11:30:00Z"}]}}`))
	pod(`{"metadata": {"uid": "gated", "name": "gated", "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "team-a"}}, "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, "status": {"phase": "Pending"}}`)
	pod(strings.Replace(waiting("admitted", tolerant, `"nvidia.com/gpu": "1"`), `"namespace": "ml"`, `"namespace": "ml", "annotations": {"kueue.x-k8s.io/workload": "w2"}`, 1))
	o.clusterQueues = append(o.clusterQueues, decoded(t, kube.DecodeClusterQueue, `{"metadata": {"uid": "cq", "name": "gpu-a"}, "spec": {"resourceGroups": [{"flavors": [{"resources": [{"name": "nvidia.com/gpu", "nominalQuota": "64"}]}]}]}, "status": {"pendingWorkloads": 12, "admittedWorkloads": 8, "flavorsUsage": [{"resources": [{"name": "nvidia.com/gpu", "total": "56"}]}]}}`))
	page, err := os.Open("../../collector/kube/testdata/kueue.prom")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	if o.page, err = kube.ParseKueue(page); err != nil {
		t.Fatal(err)
	}
	// Volcano: a group that is not let in.
	o.groups = append(o.groups, decoded(t, kube.DecodePodGroup, `{"metadata": {"uid": "g", "name": "g", "namespace": "ml", "creationTimestamp": "2026-01-31T10:00:00Z"}, "spec": {"queue": "batch", "minResources": {"nvidia.com/gpu": "32"}}, "status": {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True", "message": "resource in cluster is overused"}]}}`))
	o.volcanoQueues = append(o.volcanoQueues, decoded(t, kube.DecodeVolcanoQueue, `{"metadata": {"uid": "vq", "name": "batch"}, "status": {"pending": 1}}`))
	o.rayClusters = append(o.rayClusters, decoded(t, kube.DecodeRayCluster, `{"metadata": {"uid": "ray", "name": "ray", "namespace": "ml"}, "spec": {"enableInTreeAutoscaling": true, "workerGroupSpecs": [{"replicas": 2, "maxReplicas": 2, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}]}, "status": {"desiredWorkerReplicas": 2, "availableWorkerReplicas": 1}}`))
	o.rayJobs = append(o.rayJobs, decoded(t, kube.DecodeRayJob, `{"metadata": {"uid": "rj", "name": "held", "namespace": "ml"}, "spec": {"suspend": true, "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]}}}}}}`))
	return o
}

func kubernetesPage(t testing.TB, o *objects) string {
	t.Helper()
	c := o.cluster()
	f := New(Config{Schedulers: []Scheduler{{Name: NameKubernetes, Latest: func() *Cluster { return c },
		Health: func() Health { return Health{Up: true, Last: now, Good: 9} },
		Readers: func() []kube.Health {
			return []kube.Health{{Kind: kube.Pods, State: kube.Up, Objects: 9, Bytes: 4096}, {Kind: kube.KueueWorkloads, State: kube.Missing}}
		}}}, Log: slog.New(slog.DiscardHandler)})
	f.loaded.Store(now.Unix())
	return string(f.page(now))
}

func TestPageOfKubernetes(t *testing.T) {
	page := kubernetesPage(t, big(t))
	golden.Check(t, "testdata/kubernetes.prom", page, "the page of a cluster of Kubernetes is another one")
	for _, want := range []string{
		`vigil_queue_gpus{scheduler="kubernetes",queue="ml",state="waiting"} 16`,
		`vigil_queue_gpus{scheduler="kubernetes",queue="ml",state="scheduled"} 2`, // the RayJob that somebody holds
		`vigil_queue_gpus{scheduler="kubernetes",queue="web",state="running"} 2`,
		`vigil_queue_gpus{scheduler="kubernetes",queue="dra",state="running"} 1`,
		`vigil_queue_gpus{scheduler="kueue",queue="ml/team-a",state="limited"} 8`, // once, though there are a pod and a workload
		`vigil_queue_gpus{scheduler="kueue",queue="ml/team-a",state="waiting"} 1`,
		`vigil_queue_jobs{scheduler="kueue",queue="ml/empty",state="limited"} 0`,
		`vigil_queue_wait_longest_seconds{scheduler="kueue",queue="ml/team-a"} 1800`, // since it was admitted
		`vigil_queue_gpus{scheduler="volcano",queue="batch",state="waiting"} 32`,
		`vigil_waiting_gpus{scheduler="volcano",queue="batch",account="ml",team="nlp",reason="no_free_gpu"} 32`,
		`vigil_queue_workloads{scheduler="kueue",queue="gpu-a",state="inadmissible"} 9`,
		`vigil_queue_quota_gpus{scheduler="kueue",queue="gpu-a",state="limit"} 64`,
		`vigil_queue_quota_gpus{scheduler="kueue",queue="gpu-a",state="used"} 56`,
		`vigil_waiting_gpus{scheduler="kubernetes",queue="ml",account="ml",team="nlp",reason="no_free_gpu"} 16`,
		`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="h100",state="used"} 3`,
		`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="h100",state="drained"} 6`,
		`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="h100",state="down"} 1`,
		`vigil_pool_nodes{scheduler="kubernetes",pool="h100",state="cordoned"} 1`,
		`vigil_pool_allocatable_devices{scheduler="kubernetes",pool="claims",resource="gpu.nvidia.com"} 2`,
		`vigil_pool_requested_devices{scheduler="kubernetes",pool="claims",resource="gpu.nvidia.com"} 1`,
		`vigil_pool_info{scheduler="kubernetes",pool="claims",model="NVIDIA-A100"} 1`,
		`vigil_autoscaler_condition{kind="HorizontalPodAutoscaler",namespace="web",autoscaler="chat",condition="blind"} 1`,
		`vigil_autoscaler_condition{kind="ScaledObject",namespace="web",autoscaler="chat",condition="blind"} 0`,
		`vigil_autoscaler_condition{kind="ScaledObject",namespace="web",autoscaler="chat",condition="at_maximum"} 1`,
		`vigil_autoscaler_replicas{kind="ScaledObject",namespace="web",autoscaler="chat",state="desired"} 4`,
		`vigil_autoscaler_condition{kind="RayCluster",namespace="ml",autoscaler="ray",condition="at_maximum"} 1`,
		`vigil_kubernetes_reader{resource="workloads.kueue.x-k8s.io",state="missing"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page does not say %s", want)
		}
	}
	for _, never := range []string{"no-gpus", "keda-hpa", `queue="team-a"`} {
		if strings.Contains(page, never) {
			t.Errorf("the page speaks of %s", never)
		}
	}
}

// A group of Volcano's that is not let in has no pods to try: with enough free GPUs it is not
// said that none is free.
func TestVolcanosGroupThoughGPUsAreFree(t *testing.T) {
	for gpus, want := range map[string]string{"8": notTried, "9": "no_free_gpu"} {
		o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`))}}
		o.groups = append(o.groups, decoded(t, kube.DecodePodGroup, `{"metadata": {"uid": "g", "name": "g", "namespace": "ml"}, "spec": {"queue": "batch", "minResources": {"nvidia.com/gpu": "`+gpus+`"}},
			"status": {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True", "message": "resource in cluster is overused"}]}}`))
		if work := o.cluster().Work; len(work) != 1 || work[0].Reason != want {
			t.Errorf("a group that wants %s of 8 free GPUs: %+v, want one that waits because of %s", gpus, work, want)
		}
	}
}

// The order in which the API server names things changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	o := big(t)
	want := kubernetesPage(t, o)
	slices.Reverse(o.pods)
	slices.Reverse(o.nodes)
	slices.Reverse(o.workloads)
	slices.Reverse(o.hpas)
	if diff := cmp.Diff(want, kubernetesPage(t, o)); diff != "" {
		t.Errorf("the page depends on the order of objects (-want +got):\n%s", diff)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available.", "nvidia.com/gpu")
	f.Fuzz(func(t *testing.T, message, resource string) {
		if state := stateOfMessage(message, map[string]int{resource: 1}); metric.QueueState.Index(state) < 0 {
			t.Errorf("%q is %q, which is no state", message, state)
		}
	})
}
