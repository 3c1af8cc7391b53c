package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// ranks gives each node a pod of one training, which Kubernetes knows to be of one job.
func ranks(a *agents, nodes int) collector.Owner {
	job := collector.Owner{Kind: "job", ID: "jobset/nlp/llama", Team: "nlp"}
	c := &Cluster{Ranks: map[string]collector.Owner{}}
	for i, name := range a.names[:nodes] {
		a.owner[name] = collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/llama-%d", i), Team: "nlp"}
		c.Ranks[a.owner[name].ID] = job
	}
	a.role = clusterRole(a.t, Config{Schedulers: []Scheduler{{Name: "kubernetes", Latest: func() *Cluster { return c }}}})
	return job
}

// The pods of a training are ranks of one job: they hang together, as one finding, and not
// at all while most of them work.
func TestPodsOfAJobHangAsOne(t *testing.T) {
	a := newAgents(t, 10)
	job := ranks(a, 8)
	a.edit = func(node string, s *collector.Snapshot) {
		for i := range s.GPUs {
			util, watts := 1.0, 150.0
			if node == "gpu-005" && i == 5 {
				util, watts = 0, 110
			}
			s.GPUs[i].Set(metric.Utilization, util)
			s.GPUs[i].Set(metric.PowerDraw, watts)
			s.GPUs[i].Set(metric.PowerLimit, 700)
		}
	}
	a.run(20 * time.Minute)
	for i, name := range a.names[:8] {
		a.says(name, "job_hung", "page", fmt.Sprintf("pod:nlp/llama-%d", i), "collective")
	}
	a.run(5 * time.Minute)
	in := a.only()
	f := in.Members[0]
	if len(in.Members) != 1 || f.Rule != rules.IDJobHung || f.Owner != job || !strings.Contains(f.Evidence.Title, "63 of its 64 GPUs spin") || !strings.Contains(f.Evidence.Seen, "on 8 nodes") {
		t.Errorf("a job of eight pods that hangs is told as %d findings, the first of %s: %s; %s", len(in.Members), f.Owner, f.Evidence.Title, f.Evidence.Seen)
	}
}

// A GPU lost in one pod stands above the job of which that pod is a rank.
func TestLostGPUOfAPodHeadsItsJob(t *testing.T) {
	a := newAgents(t, 10)
	ranks(a, 8)
	a.run(20 * time.Minute)
	a.says("gpu-005", "xid", "page", "gpu:GPU-gpu-005-5", "xid_79")
	a.run(6 * time.Minute)
	for i, name := range a.names[:8] {
		a.says(name, "job_stalled", "page", fmt.Sprintf("pod:nlp/llama-%d", i), "no_progress")
	}
	a.run(5 * time.Minute)
	if in := a.only(); in.Rule != rules.IDXid || len(in.Members) != 2 || in.Members[1].Rule != rules.IDJobStalled {
		t.Errorf("open is %s, want the lost GPU with the job that it stopped", namesOf([]detect.Incident{in}))
	}
}

// What Kubernetes' API says of pods is what makes them ranks.
func TestRanksOfRunningPods(t *testing.T) {
	running := func(name, labels, ownerKind, ownerName string) *kube.Pod {
		return decoded(t, kube.DecodePod, fmt.Sprintf(`{"metadata": {"uid": %q, "name": %[1]q, "namespace": "nlp", "labels": {%s}, "ownerReferences": [{"controller": true, "kind": %q, "name": %q}]},
			"spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, "status": {"phase": "Running"}}`, name, labels, ownerKind, ownerName))
	}
	o := &objects{now: now, owners: teams(t), pods: []*kube.Pod{
		running("llama-0", `"jobset.sigs.k8s.io/jobset-name": "llama"`, "Job", "llama-0"), running("bert-0", "", "PyTorchJob", "bert"), running("chat-0", "", "ReplicaSet", "chat"),
	}}
	c := o.cluster()
	if len(c.Ranks) != 2 || c.Ranks["nlp/llama-0"].ID != "jobset/nlp/llama" || c.Ranks["nlp/bert-0"].ID != "pytorchjob/nlp/bert" {
		t.Errorf("of three pods these are ranks: %+v", c.Ranks)
	}
}

// What series say of where nodes are counts as what schedulers say.
func TestWhereNodesAreBySeries(t *testing.T) {
	a := newAgents(t, 100)
	a.edit = func(node string, s *collector.Snapshot) {
		s.Where = []collector.Label{{Name: "switch", Value: "leaf-" + node[4:6]}}
	}
	a.run(20 * time.Minute)
	for _, name := range a.names[30:38] {
		a.says(name, "network_port", "ticket", "port:"+name+"/mlx5_0/1", "down")
	}
	a.run(2 * time.Minute)
	if in := a.only(); in.Common != "switch leaf-03 (8 of the 10 nodes with it)" {
		t.Errorf("ports that went down behind one switch share %q", in.Common)
	}
}
