package series

import (
	"cmp"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/kubemeta"
	"gpuvigil/internal/text"
)

// Further names of kube-state-metrics: who made a pod or a Job, and the labels of pods and
// nodes, which it tells only where it is allowed to.
const (
	podOwner   = "kube_pod_owner"
	jobOwner   = "kube_job_owner"
	podLabels  = "kube_pod_labels"
	nodeLabels = "kube_node_labels"
)

// kubeJobs is what says of which job a pod is.
type kubeJobs struct {
	owners map[pod]madeBy
	jobs   map[pod]madeBy // by the Job's namespace and name
	labels map[pod]*set
}

// madeBy is the kind and the name of what made something.
type madeBy struct{ kind, name string }

func newKubeJobs() kubeJobs {
	return kubeJobs{owners: map[pod]madeBy{}, jobs: map[pod]madeBy{}, labels: map[pod]*set{}}
}

// take takes in a series, and reports whether it is one of these.
func (k *kubeJobs) take(name string, s *set) bool {
	switch name {
	case podOwner:
		k.owners[pod{s.said("namespace"), s.said("pod")}] = madeBy{s.said("owner_kind"), s.said("owner_name")}
	case jobOwner:
		k.jobs[pod{s.said("namespace"), s.said("job_name")}] = madeBy{s.said("owner_kind"), s.said("owner_name")}
	case podLabels:
		k.labels[pod{s.said("namespace"), s.said("pod")}] = s
	default:
		return false
	}
	return true
}

// of returns the job that a pod is of.
func (k *kubeJobs) of(o collector.Owner) collector.Owner {
	namespace, name, ok := strings.Cut(o.ID, "/")
	if !ok || o.Kind != "pod" {
		return collector.Owner{}
	}
	at := pod{namespace, name}
	owner := k.owners[at]
	p := kubemeta.Pod{Namespace: namespace, OwnerKind: owner.kind, Owner: owner.name, Team: o.Team}
	if s := k.labels[at]; s != nil {
		p.Label = func(label string) string { return s.value(toldAs[label]) }
	}
	if owner.kind == "Job" {
		above := k.jobs[pod{namespace, owner.name}]
		p.JobOwnerKind, p.JobOwner = above.kind, above.name
	}
	job := kubemeta.JobOf(p)
	job.ID = text.Clean(job.ID, maxText)
	return job
}

// members are the pods on the node's GPUs that are parts of jobs.
func (c *cluster) members(s *collector.Snapshot) (out []collector.Member) {
	if len(c.jobs.owners) == 0 && len(c.jobs.labels) == 0 {
		return nil
	}
	known := map[collector.Owner]bool{}
	for i := range s.GPUs {
		for _, o := range s.GPUs[i].Owners {
			if known[o] {
				continue
			}
			known[o] = true
			if job := c.jobs.of(o); job.Kind != "" {
				out = append(out, collector.Member{Owner: o, Job: job})
			}
		}
	}
	return out
}

// toldAs are the labels of pods that are looked at, as kube-state-metrics writes them.
var toldAs = func() map[string]string {
	out := map[string]string{}
	for _, l := range kubemeta.Labels() {
		out[l] = kubemeta.ToldAs(l)
	}
	return out
}()

// idle reports whether nothing is made of a series of kube-state-metrics: most pods are of
// no job, and in a large cluster they are many.
func idle(name string, labels []Label) bool {
	value := func(of string) string {
		for i := range labels {
			if labels[i].Name == of {
				return labels[i].Value
			}
		}
		return ""
	}
	switch name {
	case podOwner:
		return !kubemeta.MakesJobs(value("owner_kind"))
	case jobOwner:
		return !kubemeta.MakesJobs(value("owner_kind")) || value("owner_kind") == "Job"
	case podLabels:
		for i := range labels {
			for _, l := range toldAs {
				if labels[i].Name == l && labels[i].Value != "" {
					return false
				}
			}
		}
		return true
	}
	return false
}

// sharedOf is where a node is, by what kube-state-metrics says of its labels.
func sharedOf(s *set) []collector.Label {
	return kubemeta.WhereTold(s.schema.text, s.value)
}

// places is where the node is, by labels that all series of its targets have: those that
// Prometheus was told to give them.
func (n *node) places() (out []collector.Label) {
	for _, s := range n.slots {
		p := s.elected
		if p == nil || s.kind == ofServer || len(p.sets) == 0 {
			continue
		}
		first, middle, last := p.sets[0], p.sets[len(p.sets)/2], p.sets[len(p.sets)-1]
		for _, word := range whereWords {
			if v := first.value(word); v != "" && middle.value(word) == v && last.value(word) == v {
				out = append(out, collector.Label{Name: word, Value: text.Clean(v, maxText)})
			}
		}
	}
	slices.SortFunc(out, func(a, b collector.Label) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return slices.Compact(out)
}

var whereWords = kubemeta.Places()

// where is all that is known of where the node is.
func (c *cluster) where(n *node) []collector.Label {
	out := n.places()
	if k := c.nodes[n.name]; k != nil {
		for _, l := range k.shared {
			l.Value = text.Clean(l.Value, maxText)
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}
