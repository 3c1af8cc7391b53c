package fleet

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/collector/kubemeta"
	"gpuvigil/collector/owner"
)

// kueueQueue is the label that leads a workload to its LocalQueue, kueueGate what keeps
// its pods until it is admitted.
const (
	kueueQueue = "kueue.x-k8s.io/queue-name"
	kueueGate  = "kueue.x-k8s.io/admission"
)

// podWork is what becomes of the pods that have or ask for GPUs.
func (o *objects) podWork(places []*place) []Work {
	var out []Work
	for _, p := range o.pods {
		asks := o.asks(p)
		if len(asks) == 0 || p.Ended() || p.Deleting && p.Node == "" {
			continue
		}
		state := o.stateOfPod(p, asks)
		if state == "" {
			continue
		}
		w := Work{State: state, Account: p.Namespace, Jobs: 1, GPUs: sum(asks),
			Name: "pod:" + p.Namespace + "/" + p.Name, Asked: p.Created, Told: cmp.Or(p.Scheduled.Message, strings.Join(p.Gates, ", "))}
		if p.Owner != "" {
			w.Of = p.Namespace + "/" + p.Owner
		}
		w.Scheduler, w.Queue = o.queueOf(p)
		w.Team = o.owners.DescribePod(owner.Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels}).Team
		if state == "waiting" || state == "unavailable" && !placed(p) { // a volume, say, no node can give it
			w.Since, w.PerNode, w.Model = o.waitsSince(p), w.GPUs, modelOf(p)
			w.Free, w.Other = o.freeFor(p, places)
		}
		if state == "waiting" {
			w.Reason = o.reason(p, places)
		}
		out = append(out, w)
	}
	return out
}

// ranks are the running pods with GPUs that are parts of a job.
func (o *objects) ranks() map[string]collector.Owner {
	out := map[string]collector.Owner{}
	for _, p := range o.pods {
		if p.Node == "" || p.Ended() || len(o.asks(p)) == 0 {
			continue
		}
		job := kubemeta.JobOf(kubemeta.Pod{Namespace: p.Namespace, Label: func(n string) string { return p.Labels[n] }, OwnerKind: p.OwnerKind, Owner: p.Owner})
		if job.Kind != "" {
			job.Team = o.owners.DescribePod(owner.Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels}).Team
			out[p.Namespace+"/"+p.Name] = job
		}
	}
	return out
}

// queueOf is where a pod waits: Kueue's LocalQueue or Volcano's queue where it has one,
// else its namespace.
func (o *objects) queueOf(p *kube.Pod) (scheduler, queue string) {
	if w := o.workload[name{p.Namespace, p.Annotations[kube.AnnotationWorkload]}]; w != nil && w.LocalQueue != "" {
		return NameKueue, p.Namespace + "/" + w.LocalQueue
	}
	if q := p.Labels[kueueQueue]; q != "" {
		return NameKueue, p.Namespace + "/" + q
	}
	if g := o.group[name{p.Namespace, p.Annotations[kube.AnnotationGroup]}]; g != nil && g.Queue != "" {
		return NameVolcano, g.Queue
	}
	if q := p.Annotations[kube.AnnotationVolcanoQueue]; q != "" {
		return NameVolcano, q
	}
	return NameKubernetes, p.Namespace
}

// waitsSince is since when the pod could have been scheduled: time for which a gate
// kept it was not the GPUs'.
func (o *objects) waitsSince(p *kube.Pod) time.Time {
	since := p.Created
	if w := o.workload[name{p.Namespace, p.Annotations[kube.AnnotationWorkload]}]; w != nil && w.Admitted.Status == "True" && w.Admitted.Since.After(since) {
		since = w.Admitted.Since
	}
	if p.Scheduled.Since.After(since) {
		since = p.Scheduled.Since
	}
	return since
}

// stateOfPod returns what becomes of a pod that asks for GPUs, in the words of
// metric.QueueState; empty if its workload says it in its place.
func (o *objects) stateOfPod(p *kube.Pod, asks map[string]int) string {
	switch {
	case p.Node != "" && p.Phase == "Running":
		return "running"
	case p.Node != "":
		return "starting"
	case len(p.Gates) > 0:
		return o.gated(p)
	case p.Scheduled.Status != "False":
		return "other" // the scheduler has not looked at it yet
	case p.Nominated != "":
		return "waiting" // others are being moved away for it
	case p.Scheduled.Reason != "Unschedulable":
		return "other"
	}
	return stateOfMessage(p.Scheduled.Message, asks)
}

// gated is what becomes of a pod that its gates keep from the scheduler.
func (o *objects) gated(p *kube.Pod) string {
	for _, g := range p.Gates {
		if g != kueueGate {
			continue
		}
		if o.workloadOf(p) {
			return "" // the workload is counted
		}
		return "limited"
	}
	return "scheduled"
}

// kueueGroup is the label of pods that Kueue admits together: their workload is called
// like it.
const kueueGroup = "kueue.x-k8s.io/pod-group-name"

// workloadOf reports whether the pod has a workload of Kueue's.
func (o *objects) workloadOf(p *kube.Pod) bool {
	return o.workload[name{p.Namespace, p.Annotations[kube.AnnotationWorkload]}] != nil ||
		o.workload[name{p.Namespace, p.Labels[kueueGroup]}] != nil || o.admitted[name{p.Namespace, p.Name}]
}

var insufficient = regexp.MustCompile(`Insufficient ([A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)`)

// stateOfMessage reads what the scheduler says of a pod that fits on no node: "0/3 nodes
// are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: …". What
// is behind preemption differs by release and says nothing of why.
func stateOfMessage(message string, asks map[string]int) string {
	message, _, _ = strings.Cut(message, "preemption:")
	for _, m := range insufficient.FindAllStringSubmatch(message, -1) {
		if asks[m[1]] > 0 {
			return "waiting"
		}
	}
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(message, p) {
				return true
			}
		}
		return false
	}
	switch {
	case asks[claimed] > 0 && has("cannot allocate all claims", "resourceclaim not available"):
		return "waiting"
	case has("pod group is not ready", "PodGroup"): // the rest of its gang
		return "dependent"
	case has("waiting for resource claim", "resourceclaim"):
		return "dependent"
	case has("Insufficient", "persistentvolumeclaim", "PersistentVolume", "volume", "taint", "affinity", "selector", "spread", "unschedulable", "free ports", "Too many pods"):
		return "unavailable"
	}
	return "other"
}

// kueueWork is what Kueue has not admitted yet: a quota is by design, so it does not
// wait for GPUs. What it has admitted has pods.
func (o *objects) kueueWork() []Work {
	var out []Work
	for _, q := range o.localQueues { // one that is empty has none, and that is known
		out = append(out, Work{Scheduler: NameKueue, Queue: q.Namespace + "/" + q.Name, State: "limited"})
	}
	for _, w := range o.workloads {
		gpus := sum(w.GPUs)
		if gpus == 0 || w.Finished || w.Admitted.Status == "True" {
			continue
		}
		work := Work{Scheduler: NameKueue, Queue: w.Namespace + "/" + w.LocalQueue, Account: w.Namespace, State: "limited", Jobs: 1, GPUs: gpus,
			Name: "workload:" + w.Namespace + "/" + w.Name, Of: w.Namespace + "/" + w.Owner, Asked: w.Created, Told: cmp.Or(w.Reserved.Message, w.Admitted.Message)}
		switch {
		case w.Inactive:
			work.State = "scheduled"
		case w.Reserved.Status == "True":
			work.State = "dependent" // it has its quota and waits for a check
		}
		work.Team = o.owners.DescribePod(owner.Pod{Namespace: w.Namespace, Name: w.Owner, Labels: w.Labels}).Team
		out = append(out, work)
	}
	return out
}

// volcanoWork is groups that Volcano has not let in: they have no pods that could be tried
// on nodes.
func (o *objects) volcanoWork(places []*place) []Work {
	var out []Work
	for _, g := range o.groups {
		gpus := sum(g.GPUs)
		if gpus == 0 || g.Phase != "Pending" && g.Phase != "" || o.grouped[name{g.Namespace, g.Name}] {
			continue
		}
		work := Work{Scheduler: NameVolcano, Queue: g.Queue, Account: g.Namespace, State: "limited", Jobs: 1, GPUs: gpus,
			Name: "podgroup:" + g.Namespace + "/" + g.Name, Of: g.Namespace + "/" + g.Owner, Asked: g.Created, Told: g.Unschedulable.Message}
		message := strings.ToLower(g.Unschedulable.Message)
		if !strings.Contains(message, "quota") && (strings.Contains(message, "overused") || stateOfMessage(g.Unschedulable.Message, g.GPUs) == "waiting") {
			work.State, work.Reason, work.Since = "waiting", notTried, g.Created
			if !enoughTogether(places, g.GPUs) {
				work.Reason = noneFree.String()
			}
		}
		work.Team = o.owners.DescribePod(owner.Pod{Namespace: g.Namespace, Name: g.Owner, Labels: g.Labels}).Team
		out = append(out, work)
	}
	return out
}

// rayWork is clusters and jobs of Ray's that somebody has suspended. Others have pods,
// and those of Kueue a workload.
func (o *objects) rayWork() []Work {
	var out []Work
	add := func(namespace, of string, labels map[string]string, gpus map[string]int) {
		if sum(gpus) == 0 || labels[kueueQueue] != "" {
			return
		}
		team := o.owners.DescribePod(owner.Pod{Namespace: namespace, Name: of, Labels: labels}).Team
		out = append(out, Work{Scheduler: NameKubernetes, Queue: namespace, Account: namespace, Team: team, State: "scheduled", Jobs: 1, GPUs: sum(gpus)})
	}
	jobs := map[name]bool{} // clusters that come with a job
	for _, r := range o.rayJobs {
		jobs[name{r.Namespace, r.Cluster}] = true
		if r.Suspended || r.Status == "Suspended" {
			add(r.Namespace, r.Name, r.Labels, r.GPUs)
		}
	}
	for _, r := range o.rayClusters {
		if r.Suspended && !jobs[name{r.Namespace, r.Name}] {
			add(r.Namespace, r.Name, r.Labels, r.GPUs)
		}
	}
	return out
}
