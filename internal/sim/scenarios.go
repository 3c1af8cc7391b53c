package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
)

const gibi = 1 << 30

// Scenarios returns the scenarios that gpuvigil brings along.
func Scenarios() []Scenario {
	return []Scenario{demo(), quiet(), saturate(), e2e()}
}

// ScenarioByName returns one of Scenarios.
func ScenarioByName(name string) (Scenario, error) {
	all := Scenarios()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i >= 0 {
		return all[i], nil
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return Scenario{}, fmt.Errorf("no scenario %q: use one of %s", name, strings.Join(names, ", "))
}

func training() Workload {
	return Workload{Name: "train", Kind: Training, GPUs: 4, Process: "python3", UID: 20417, Memory: 71.5 * gibi,
		Owner:  collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"},
		Traits: Traits{CostCenter: "cc-210", Sensitivity: "internal", Stage: "training"}}
}

func chat() Workload {
	return Workload{Name: "chat", Kind: Inference, GPUs: 2, Process: "VLLM::Worker_TP%d", UID: 1000, Memory: 72 * gibi,
		Owner:   collector.Owner{Kind: "pod", ID: "inference/chat-70b-0", Team: "assistants"},
		Traits:  Traits{CostCenter: "cc-140", Sensitivity: "customer", Stage: "inference", Critical: true},
		Servers: []Server{{URL: "http://chat-70b.inference.svc:8000/metrics", Engine: "vllm", Model: "meta-llama/Llama-3.1-70B-Instruct"}}}
}

// chatAndTitles has a small server of another engine on the same GPUs, which writes the
// chats' titles.
func chatAndTitles() Workload {
	w := chat()
	w.Servers = append(w.Servers, Server{URL: "http://titles.inference.svc:30000/metrics", Engine: "sglang", Model: "Qwen/Qwen3-4B"})
	return w
}

// notebook has a process and an owner whose names are made to break whatever
// does not escape them.
func notebook() Workload {
	return Workload{Name: "notebook", Kind: Notebook, GPUs: 1, Process: "<!channel> & <b>python3</b>", UID: 31337, Memory: 18.25 * gibi,
		Owner:  collector.Owner{Kind: "pod", ID: `jupyter/<@U042> o'hara & "søns" *lead*`, Team: "research"},
		Traits: Traits{CostCenter: "cc-300", Sensitivity: "internal", Stage: "notebook"}}
}

func experiments() Workload {
	return Workload{Name: "experiments", Kind: Batch, GPUs: 1, Process: "sweep.py", UID: 20980, Memory: 33 * gibi,
		Owner:  collector.Owner{Kind: "pod", ID: "vision/sweep-7f9c4", Team: "vision"},
		Traits: Traits{CostCenter: "cc-220", Sensitivity: "public", Stage: "training"}}
}

// reranker shares a GPU with the chat server, which is another team's.
func reranker() Guest {
	return Guest{On: "chat/0", Process: "rerank-server", UID: 1000, Memory: 3.5 * gibi, Share: 0.06,
		Owner: collector.Owner{Kind: "pod", ID: "search/reranker-5d8f-0", Team: "search"}}
}

// stranger is a process of which nobody knows whose it is.
func stranger() Guest {
	return Guest{On: "train/1", Process: "python", UID: 0, Memory: 0.6 * gibi}
}

// labels is a pod that was given a share of the notebook's GPU and has not used it.
func labels() Gift {
	return Gift{On: "notebook/0", Owner: collector.Owner{Kind: "pod", ID: "vision/label-tool-0", Team: "vision"}, Resource: "nvidia.com/gpu.shared"}
}

// demo has something of everything: just before it goes live an endpoint has run
// into its limit, a training job has lost a GPU, a sweep has died of its own bug
// and a notebook has been idle for more than two hours. Two teams share a GPU, a pod
// has not used what it was given, and there is a process of which nobody knows whose it is. Three driver versions in
// a day are two upgrades and one roll-back; one of them is in the past.
func demo() Scenario {
	const reloaded = 8 * time.Hour
	return Scenario{
		Name: "demo",
		Help: "A node of eight GPUs with a training job, an inference server, a notebook and a sweep, and faults that come and go.",
		Past: 150 * time.Minute,
		Workloads: []Workload{
			training(), chatAndTitles(), notebook(), experiments(),
		},
		Guests: []Guest{reranker(), stranger()},
		Gifts:  []Gift{labels()},
		Timeline: []Entry{
			{Kind: Version, Component: "driver", To: "570.133.20", At: -146 * time.Minute, For: reloaded, Every: 2 * reloaded},

			// What changed just before the endpoint first ran into its limit.
			{Kind: Upgrade, Target: "chat", Component: "vllm", To: "0.11.0", At: -11 * time.Minute, For: reloaded, Every: 2 * reloaded},

			{Kind: Saturate, Target: "chat", Level: 1.7, At: -8 * time.Minute, For: 12 * time.Minute, Every: 20 * time.Minute},

			{Kind: Replays, Target: "train/0", Level: 3, At: -12 * time.Minute, For: 8 * time.Minute, Every: 45 * time.Minute},
			{Kind: Xid, Code: 79, Target: "train/0", At: -4 * time.Minute, For: 9 * time.Minute, Every: 45 * time.Minute},

			{Kind: Run, Target: "experiments", At: -130 * time.Minute, For: 6 * time.Minute, Every: 15 * time.Minute},
			{Kind: Give, Target: "experiments", At: -133 * time.Minute, For: 3*time.Minute + time.Second, Every: 15 * time.Minute},
			{Kind: Xid, Code: 31, Target: "experiments/0", At: -6 * time.Minute, Every: 30 * time.Minute},
			{Kind: Hang, Target: "experiments/0", At: 6 * time.Minute, For: 2 * time.Minute, Every: 30 * time.Minute},

			{Kind: Heat, Target: "chat/0", Level: 2.2, At: 16 * time.Minute, For: 4 * time.Minute, Every: 40 * time.Minute},

			{Kind: Work, Target: "notebook", At: 35 * time.Minute, For: 5 * time.Minute, Every: 3 * time.Hour},
		},
	}
}

// quiet is the look-alikes: everything that must not be a finding.
func quiet() Scenario {
	return Scenario{
		Name: "quiet",
		Help: "The same node on a good day: full GPUs beside an idle CPU, checkpoint pauses, a notebook in use, a free GPU. Nothing is wrong.",
		Past: time.Hour,
		Workloads: []Workload{
			training(), chatAndTitles(), notebook(), experiments(),
		},
		Timeline: []Entry{
			{Kind: Run, Target: "experiments", At: -50 * time.Minute, For: 6 * time.Minute, Every: 15 * time.Minute},
			{Kind: Work, Target: "notebook", At: -58 * time.Minute, For: 3 * time.Minute, Every: 10 * time.Minute},
		},
	}
}

// saturate is one endpoint that runs into its limit once an hour, for the first time
// after half an hour, also of a recording that begins at the start: until then nobody
// knows how long its requests usually wait.
func saturate() Scenario {
	return Scenario{
		Name:      "saturate",
		Help:      "An inference server that runs into its limit for 15 minutes of every hour, beside a healthy training job.",
		Past:      time.Hour,
		Workloads: []Workload{training(), chat()},
		Timeline: []Entry{
			{Kind: Saturate, Target: "chat", Level: 1.7, At: -25 * time.Minute, For: 15 * time.Minute, Every: time.Hour},
		},
	}
}

// e2e is short, for tests that wait for it in real time: a minute of saturation,
// in which two Xids fall, then a driver upgrade.
func e2e() Scenario {
	return Scenario{
		Name:      "e2e",
		Help:      "Saturation, two Xids and a driver upgrade within 90 seconds, for tests.",
		Workloads: []Workload{training(), chat(), notebook()},
		Timeline: []Entry{
			{Kind: Saturate, Target: "chat", Level: 2.5, At: 10 * time.Second, For: time.Minute},
			{Kind: Xid, Code: 31, Target: "notebook/0", At: 15 * time.Second},
			{Kind: Xid, Code: 79, Target: "train/0", At: 25 * time.Second, For: 30 * time.Second},
			{Kind: Version, Component: "driver", To: "570.133.20", At: 80 * time.Second},
		},
	}
}
