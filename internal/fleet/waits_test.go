package fleet

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/collector/slurm"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Three pods want 8 GPUs on one node: 44 are free, and none of them is of use.
func TestFreeForPods(t *testing.T) {
	o := &objects{now: now, owners: teams(t)}
	node := func(name, labels, spec string, used int, cpu string) {
		o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, nodeJSON(name, labels, spec, `"nvidia.com/gpu": "8"`)))
		o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("on-"+name, name, fmt.Sprintf(`"nvidia.com/gpu": "%d",`, used), cpu)))
	}
	for i := range 5 {
		node(fmt.Sprint("part", i), "", "", 3, "1") // 25 free
	}
	node("part5", "", "", 2, "1") // 6
	node("gpu-40", "", `"taints": [{"key": "maintenance", "effect": "NoSchedule"}]`, 0, "1")
	node("stranded", "", "", 0, "60") // 8, and 4 CPUs left
	node("full", "", "", 8, "1")
	node("cordoned", "", `"unschedulable": true`, 0, "1")
	other := strings.Replace(nodeJSON("a100", "", "", `"nvidia.com/gpu": "8"`), "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", 1)
	dedicated := strings.Replace(nodeJSON("theirs", "", `"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]`, `"nvidia.com/gpu": "8"`), `"h100"`, `"vision"`, 1)
	o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, other), decoded(t, kube.DecodeNode, dedicated))
	const selector = tolerant + `, "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}`
	for i := range 3 {
		o.pods = append(o.pods, decoded(t, kube.DecodePod, waiting(fmt.Sprint("w", i), selector, `"nvidia.com/gpu": "8", "cpu": "16"`)))
	}
	// One that waits for a volume is not the cluster's to help, and waits for no GPU.
	o.pods = append(o.pods, decoded(t, kube.DecodePod, strings.Replace(waiting("v", selector, `"nvidia.com/gpu": "1"`), "9 Insufficient nvidia.com/gpu.", "pod has unbound immediate PersistentVolumeClaims.", 1)))
	queues := queuesOf(NameKubernetes, o.cluster())
	want := []collector.Queue{{
		Scheduler: NameKubernetes, Name: "ml", At: now, Jobs: 3, P90: time.Hour, Longest: time.Hour,
		Waiting: []collector.Waiting{{
			Jobs: 3, GPUs: 8, PerNode: 8, Model: "NVIDIA-H100-80GB-HBM3", Since: now.Add(-time.Hour),
			Free:  []collector.Free{{Cause: "fragmented", GPUs: 31, Nodes: 6, Node: "part5"}, {Cause: "cpu", GPUs: 8, Nodes: 1, Node: "stranded"}, {Cause: "tainted", GPUs: 8, Nodes: 1, Node: "gpu-40"}},
			Other: []collector.Free{{Cause: "cordoned", GPUs: 8, Nodes: 1, Node: "cordoned"}, {Cause: "tainted", GPUs: 8, Nodes: 1, Node: "theirs"}, {Cause: "wrong_model", GPUs: 8, Nodes: 1, Node: "a100"}},
		}},
	}}
	if diff := cmp.Diff(want, queues); diff != "" {
		t.Errorf("the queues (-want +got):\n%s", diff)
	}
}

// A pod that only lacks CPUs on the nodes with free GPUs waits for GPUs that are
// stranded, whatever the scheduler calls it.
func TestStrandedGPUsOfPodsThatLackCPUs(t *testing.T) {
	o := &objects{now: now, owners: teams(t), nodes: []*kube.Node{decoded(t, kube.DecodeNode, nodeJSON("n1", "", "", `"nvidia.com/gpu": "8"`))}}
	o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn("p", "n1", `"nvidia.com/gpu": "1",`, "60")),
		decoded(t, kube.DecodePod, strings.Replace(waiting("w", tolerant, `"nvidia.com/gpu": "2", "cpu": "8"`), "9 Insufficient nvidia.com/gpu.", "9 Insufficient cpu.", 1)))
	queues := queuesOf(NameKubernetes, o.cluster())
	if len(queues) != 1 || len(queues[0].Waiting) != 1 || queues[0].Waiting[0].Matching() != 7 || queues[0].Jobs != 0 {
		t.Errorf("the queues are %+v, want one in which nobody waits for GPUs alone and one pod could use 7", queues)
	}
}

// backlog is a Slurm whose partition gpu has jobs that wait, and nodes.
func backlog(at time.Time, jobs []slurm.Job, nodes ...slurm.Node) *slurm.Answer {
	for i := range nodes {
		nodes[i].Name, nodes[i].Partitions = fmt.Sprint("gpu-", i), []string{"gpu"}
		if nodes[i].State == "" {
			nodes[i].State = slurm.NodeUsable
		}
	}
	for i := range jobs {
		jobs[i].Partitions = []string{"gpu"}
	}
	return &slurm.Answer{Time: at, Jobs: jobs, Nodes: nodes}
}

func TestFreeForSlurmJobs(t *testing.T) {
	f := func(what string, job slurm.Job, want string, nodes ...slurm.Node) {
		t.Helper()
		c := ofSlurm(backlog(now, []slurm.Job{job}, nodes...), teams(t), false)
		got := "nothing"
		if q := queuesOf(NameSlurm, c); len(q) == 1 && len(q[0].Waiting) == 1 {
			w := q[0].Waiting[0]
			got = fmt.Sprint(w.Matching(), " of ", w.GPUs, " for ", w.PerNode, ":")
			for _, of := range w.Free {
				got += fmt.Sprintf(" %s %d", of.Cause, of.GPUs)
			}
			for _, of := range w.Other {
				got += fmt.Sprintf(" not %s %d", of.Cause, of.GPUs)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	n := func(gpus, used int, edit ...func(*slurm.Node)) slurm.Node {
		node := slurm.Node{GPUs: gpus, Used: used}
		for _, e := range edit {
			e(&node)
		}
		return node
	}
	full := func(n *slurm.Node) { n.Full = true }
	planned := func(n *slurm.Node) { n.Planned = true }
	state := func(s slurm.NodeState) func(*slurm.Node) { return func(n *slurm.Node) { n.State = s } }
	typ := func(t string) func(*slurm.Node) { return func(n *slurm.Node) { n.Type = t } }
	h100 := func(j *slurm.Job) { j.Type = "h100" }
	on := func(nodes int) func(*slurm.Job) { return func(j *slurm.Job) { j.Nodes = nodes } }

	f("nothing is free", pending("1", 8, "Resources", time.Hour), "nothing", n(8, 8), n(8, 8))
	f("nothing is in the way", pending("1", 8, "Resources", time.Hour), "8 of 8 for 8: fits 8", n(8, 8), n(8, 0))
	f("too few on each", pending("1", 8, "Resources", time.Hour), "10 of 8 for 8: fragmented 10", n(8, 3), n(8, 3))
	f("half on each", pending("1", 8, "Resources", time.Hour, on(2)), "10 of 8 for 4: fits 10", n(8, 3), n(8, 3))
	f("no CPU left", pending("1", 8, "Priority", time.Hour), "8 of 8 for 8: cpu 8", n(8, 0, full))
	f("kept for another job", pending("1", 1, "Priority", time.Hour), "1 of 1 for 1: fits 1 not planned 8", n(8, 0, planned), n(8, 7))
	f("only kept for another job", pending("1", 1, "Priority", time.Hour), "nothing", n(8, 0, planned))
	f("drained", pending("1", 8, "Resources", time.Hour), "nothing", n(8, 0, state(slurm.NodeDrained)))
	f("another type", pending("1", 8, "Resources", time.Hour, h100), "8 of 8 for 8: fits 8 not wrong_model 8", n(8, 0, typ("a100")), n(8, 0, typ("h100")))
	f("of which it is not told", pending("1", 8, "Resources", time.Hour), "nothing", n(8, slurm.Unknown))
	f("it waits for something else", pending("1", 8, "Dependency", time.Hour), "nothing", n(8, 0))
	f("a limit", pending("1", 8, "QOSMaxGRESPerUser", time.Hour), "nothing", n(8, 0))
}

// The whole way: what Slurm says for half an hour becomes one finding, in the log and on
// the page, outlives a new configuration and ends when the job starts.
func TestFindingOfTheRole(t *testing.T) {
	var log bytes.Buffer
	at := now
	job := pending("1", 8, "Resources", 3*time.Hour)
	var answer func() *slurm.Answer
	config := Config{
		Schedulers: []Scheduler{Slurm(func() *slurm.Answer { return answer() }, func() slurm.Health { return slurm.Health{Up: true} }, teams(t), false)},
		Log:        slog.New(slog.NewTextHandler(&log, nil)),
	}
	role := New(config)
	play := func(d time.Duration, jobs []slurm.Job, nodes ...slurm.Node) {
		answer = func() *slurm.Answer { return backlog(at, jobs, nodes...) }
		for end := at.Add(d); at.Before(end); at = at.Add(lookEvery) {
			role.Observe(at, nil)
		}
	}
	const finding = `vigil_finding{rule="waiting_jobs",severity="ticket",subject="queue:slurm/gpu",cause="free_gpus"} 1`
	fires := func() bool { return strings.Contains(string(role.page(at)), finding+"\n") }

	play(time.Hour, []slurm.Job{job}, slurm.Node{GPUs: 8, Used: 8})
	if log.Len() > 0 || fires() {
		t.Errorf("a backlog of a full cluster is told of: %s", log.String())
	}
	play(20*time.Minute, []slurm.Job{job}, slurm.Node{GPUs: 8, Used: 2}, slurm.Node{GPUs: 8, Used: 3})
	if !fires() || strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "1 job waits in queue gpu for 8 GPUs, 11 free: 11 on 2 nodes with fewer than 8; longest 4 h") {
		t.Errorf("the finding is on the page: %v, want true; the log says %s", fires(), log.String())
	}
	role.Configure(config)
	play(time.Minute, []slurm.Job{job}, slurm.Node{GPUs: 8, Used: 2}, slurm.Node{GPUs: 8, Used: 3})
	if !fires() {
		t.Error("the finding is gone with a new configuration")
	}
	play(10*time.Minute, nil, slurm.Node{GPUs: 8, Used: 8})
	if fires() || !strings.Contains(log.String(), "The incident is over.") {
		t.Errorf("the job has started, the finding fires: %v, the log says %s", fires(), log.String())
	}

	off := config
	off.Rules = map[rules.ID]detect.Setting{rules.IDWaitingJobs: {Disabled: true}}
	role = New(off)
	play(time.Hour, []slurm.Job{job}, slurm.Node{GPUs: 8, Used: 2}, slurm.Node{GPUs: 8, Used: 3})
	if fires() {
		t.Error("the rule is switched off and tells of a finding")
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	role := New(Config{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		role.Watch(ctx)
		close(ended)
	}()
	stop()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the role goes on to look after it was stopped")
	}
}
