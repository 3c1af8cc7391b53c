package kubemeta

import "testing"

func TestJobsOfPods(t *testing.T) {
	type labels map[string]string
	for name, c := range map[string]struct {
		labels labels
		kind   string
		owner  string
		above  [2]string
		want   string
	}{
		"a JobSet's":                  {labels{jobSet: "llama", batchJob: "llama-workers-0", rank: "3"}, "Job", "llama-workers-0", [2]string{}, "jobset/nlp/llama"},
		"a JobSet's without labels":   {nil, "Job", "llama-workers-0", [2]string{"JobSet", "llama"}, "jobset/nlp/llama"},
		"a PyTorchJob's":              {labels{training: "bert"}, "PyTorchJob", "bert", [2]string{}, "pytorchjob/nlp/bert"},
		"a PyTorchJob's by its owner": {nil, "PyTorchJob", "bert", [2]string{}, "pytorchjob/nlp/bert"},
		"an indexed Job's":            {labels{batchJobOld: "sweep", rank: "0"}, "Job", "sweep", [2]string{}, "job/nlp/sweep"},
		"Ray's":                       {labels{ray: "tune-raycluster-x"}, "RayCluster", "tune-raycluster-x", [2]string{}, "ray/nlp/tune-raycluster-x"},
		"Volcano's":                   {labels{volcano: "mpi"}, "Job", "mpi", [2]string{}, "volcanojob/nlp/mpi"},
		"a service of Ray's":          {labels{ray: "serve", rayCreator: "RayService"}, "RayCluster", "serve", [2]string{}, ""},
		"a queue of work":             {labels{batchJob: "render"}, "Job", "render", [2]string{}, ""},
		"a replica of a Deployment":   {nil, "ReplicaSet", "chat-7d9", [2]string{}, ""},
		"nobody's":                    {nil, "", "", [2]string{}, ""},
	} {
		got := JobOf(Pod{Namespace: "nlp", Label: func(n string) string { return c.labels[n] }, OwnerKind: c.kind, Owner: c.owner, Team: "t", JobOwnerKind: c.above[0], JobOwner: c.above[1]})
		if got.ID != c.want || c.want != "" && (got.Kind != "job" || got.Team != "t") {
			t.Errorf("%s pod is of %+v, want %q", name, got, c.want)
		}
	}
	if got := JobOf(Pod{Namespace: "a", OwnerKind: "MPIJob", Owner: "b"}); got.ID != "mpijob/a/b" {
		t.Errorf("a pod whose labels nobody knows is of %+v", got)
	}
}
