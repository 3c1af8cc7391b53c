package series

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
)

// Of which job a pod is, and where its node is, comes of kube-state-metrics and of the
// labels that Prometheus gives its targets.
func TestJobsAndPlacesAsKubernetesTellsThem(t *testing.T) {
	a := New(Config{})
	kube := func(name string, labels ...Label) sample {
		return sample{append([]Label{{"__name__", name}, {"namespace", "nlp"}, {"instance", "10.244.0.3:8080"}}, labels...), 1}
	}
	rack := Label{"rack", "r7"}
	all := []sample{
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "gpu-1", "gpu-1:9400", 300, Label{"exported_pod", "llama-0"}, Label{"exported_namespace", "nlp"}, rack),
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-b", "gpu-1", "gpu-1:9400", 300, Label{"exported_pod", "bert-0"}, Label{"exported_namespace", "nlp"}, rack),
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-c", "gpu-1", "gpu-1:9400", 300, Label{"exported_pod", "chat-0"}, Label{"exported_namespace", "nlp"}, rack, Label{"switch", "its own"}),
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-d", "gpu-1", "gpu-1:9400", 300, Label{"exported_pod", "rank-0"}, Label{"exported_namespace", "nlp"}, rack),
		kube("kube_pod_owner", Label{"pod", "llama-0"}, Label{"owner_kind", "Job"}, Label{"owner_name", "llama-workers-0"}),
		kube("kube_job_owner", Label{"job_name", "llama-workers-0"}, Label{"owner_kind", "JobSet"}, Label{"owner_name", "llama"}),
		kube("kube_pod_owner", Label{"pod", "bert-0"}, Label{"owner_kind", "PyTorchJob"}, Label{"owner_name", "bert"}),
		kube("kube_pod_owner", Label{"pod", "chat-0"}, Label{"owner_kind", "ReplicaSet"}, Label{"owner_name", "chat"}),
		kube("kube_pod_labels", Label{"pod", "rank-0"}, Label{"label_job_name", "sweep"}, Label{"label_batch_kubernetes_io_job_completion_index", "0"}),
		kube("kube_pod_labels", Label{"pod", "chat-0"}, Label{"label_app", "chat"}),
		{[]Label{{"__name__", "kube_node_labels"}, {"node", "gpu-1"}, {"label_topology_kubernetes_io_zone", "eu-1a"}, {"label_example_com_leaf", "l3"}}, 1},
	}
	if a.Series(all[7].labels) != nil || a.Series(all[9].labels) != nil {
		t.Error("who made the pods that are of no job takes memory")
	}
	add(a, noon, all)
	s := one(t, a.Snapshots(noon.Add(time.Second)))
	pod := func(name string) collector.Owner { return collector.Owner{Kind: "pod", ID: "nlp/" + name} }
	job := func(id string) collector.Owner { return collector.Owner{Kind: "job", ID: id} }
	for of, want := range map[string]collector.Owner{"llama-0": job("jobset/nlp/llama"), "bert-0": job("pytorchjob/nlp/bert"), "rank-0": job("job/nlp/sweep"), "chat-0": {}} {
		if got := s.JobOf(pod(of)); got != want {
			t.Errorf("pod %s is of %+v, want %+v; known are %+v", of, got, want, s.Members)
		}
	}
	want := []collector.Label{{Name: "rack", Value: "r7"}, {Name: "leaf", Value: "l3"}, {Name: "zone", Value: "eu-1a"}}
	if diff := cmp.Diff(want, s.Where); diff != "" {
		t.Errorf("the node is elsewhere (-want +got):\n%s", diff)
	}
}
