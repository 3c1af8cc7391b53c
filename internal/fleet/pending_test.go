package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
)

// Pods are asked for by their name, and by what made them; a job's array by what squeue
// shows of it.
func TestPendingIsFoundAsPeopleCallIt(t *testing.T) {
	o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`))}}
	o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("on-n1", "n1", `"nvidia.com/gpu": "3",`, "1")))
	for i := range 2 {
		p := decoded(t, kube.DecodePod, waiting(fmt.Sprint("train-", i), tolerant, `"nvidia.com/gpu": "8"`))
		p.OwnerKind, p.Owner = "Job", "train"
		o.pods = append(o.pods, p)
	}
	pods := o.cluster()
	arrays := &Cluster{Time: now, Work: []Work{{Queue: "gpu", State: "limited", Jobs: 9, GPUs: 1, Name: "job:slurm/77", Of: "77_[2-10%1]", Asked: now}}}
	f := clusterRole(t, Config{Schedulers: []Scheduler{
		{Name: NameKubernetes, Latest: func() *Cluster { return pods }}, {Name: NameSlurm, Latest: func() *Cluster { return arrays }}, {Name: "silent", Latest: func() *Cluster { return nil }},
	}})
	for job, want := range map[string][]string{
		"ml/train-0": {"pod:ml/train-0"}, "pod:ml/train-1": {"pod:ml/train-1"}, "train-1": {"pod:ml/train-1"}, "train": {"pod:ml/train-0", "pod:ml/train-1"},
		"77": {"job:slurm/77"}, "slurm/77": {"job:slurm/77"}, "77_[2-10%1]": {"job:slurm/77"}, "7": nil, "trai": nil, "on-n1": {"pod:ml/on-n1"},
		"": {"pod:ml/train-0", "pod:ml/train-1", "job:slurm/77"},
	} {
		found, answered := f.Pending(job)
		var got []string
		for _, p := range found {
			got = append(got, p.Job)
		}
		if !slices.Equal(got, want) || answered != 2 {
			t.Errorf("pending %q is %v of %d schedulers, want %v of 2", job, got, answered, want)
		}
	}
	found, _ := f.Pending("train-0")
	p := found[0]
	if p.Waits.Matching() != 5 || !slices.Equal(p.Sizes, []Size{{5, 1}}) || !slices.Equal(p.Blocked, []string{"5 on 1 node with fewer than 8, most of them on n1"}) ||
		p.Help != "Wait until 3 GPUs more become free, or ask for fewer." {
		t.Errorf("of a pod that wants 8 GPUs while 5 are free it says %+v", p)
	}
	p = f.pendingOf(t, "77")
	if p.Jobs != 9 || p.Waits.Free != nil || p.Before != (Before{}) {
		t.Errorf("of an array that its limit holds back it says %+v", p)
	}
}

func (f *Fleet) pendingOf(t *testing.T, job string) Pending {
	t.Helper()
	found, _ := f.Pending(job)
	if len(found) != 1 {
		t.Fatalf("pending %s is %+v, want one", job, found)
	}
	return found[0]
}

// What comes first in the queue is those that have waited longer, of the same queue alone.
func TestPendingSaysWhoComesFirst(t *testing.T) {
	work := func(id, queue string, gpus, hours int) Work {
		return Work{Queue: queue, State: "waiting", Jobs: 1, GPUs: gpus, PerNode: gpus, Name: "job:slurm/" + id, Since: now.Add(-time.Duration(hours) * time.Hour),
			Free: []collector.Free{{Cause: "fits", GPUs: 2, Nodes: 1, Node: "n1"}}}
	}
	c := &Cluster{Time: now, Work: []Work{work("1", "gpu", 8, 3), work("2", "gpu", 4, 1), work("3", "other", 4, 9)}}
	f := clusterRole(t, Config{Schedulers: []Scheduler{{Name: NameSlurm, Latest: func() *Cluster { return c }}}})
	p := f.pendingOf(t, "2")
	if p.Before != (Before{1, 8}) || p.Help != "Wait for its turn: 1 job comes before it, and 2 GPUs more are needed than are free now." {
		t.Errorf("behind a job of 8 GPUs it says %+v", p)
	}
}
