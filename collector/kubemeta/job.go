// Package kubemeta knows what Kubernetes' labels of pods and nodes mean, however they were
// read: of which job of several a pod is, and what a node has in common with others.
package kubemeta

import (
	"slices"
	"strings"

	"gpuvigil/collector"
)

// What says that a pod is of a job. The first that fits counts. A job is what stops as a
// whole: the ranks of one training. The replicas of a service are none, and neither are the
// pods of a queue of work, each of which goes on without the others.
const (
	jobSet      = "jobset.sigs.k8s.io/jobset-name"
	training    = "training.kubeflow.org/job-name"
	volcano     = "volcano.sh/job-name"
	ray         = "ray.io/cluster"
	rayCreator  = "ray.io/originated-from-crd"
	batchJob    = "batch.kubernetes.io/job-name"
	batchJobOld = "job-name"
	rank        = "batch.kubernetes.io/job-completion-index" // the ranks of an indexed Job
)

var labels = []string{jobSet, training, volcano, ray, rayCreator, batchJob, batchJobOld, rank}

// kinds are the kinds of pods' owners that are such jobs, and what people call them.
var kinds = map[string]string{
	"JobSet": "jobset", "PyTorchJob": "pytorchjob", "TFJob": "tfjob", "MPIJob": "mpijob", "XGBoostJob": "xgboostjob", "PaddleJob": "paddlejob", "JAXJob": "jaxjob",
}

// Labels returns the labels of pods that are looked at.
func Labels() []string { return slices.Clone(labels) }

// MakesJobs reports whether pods of this kind of owner may be of a job: "Job" may.
func MakesJobs(kind string) bool { return kinds[kind] != "" || kind == "Job" }

// Pod is what is known of a pod.
type Pod struct {
	Namespace string
	Label     func(name string) string // empty: it has none
	OwnerKind string                   // of what made it
	Owner     string
	Team      string

	// JobOwner is what made the Job that the pod is of, if that is known: a JobSet.
	JobOwnerKind, JobOwner string
}

// JobOf returns the job that the pod is of: kind/namespace/name. It is no owner if the pod
// is of none.
func JobOf(p Pod) collector.Owner {
	label := p.Label
	if label == nil {
		label = func(string) string { return "" }
	}
	of := func(kind, name string) collector.Owner {
		if kind == "" || name == "" {
			return collector.Owner{}
		}
		return collector.Owner{Kind: "job", ID: kind + "/" + p.Namespace + "/" + name, Team: p.Team}
	}
	switch {
	case label(jobSet) != "":
		return of("jobset", label(jobSet))
	case label(training) != "":
		kind := kinds[p.OwnerKind]
		if kind == "" {
			kind = "trainingjob"
		}
		return of(kind, label(training))
	case label(volcano) != "":
		return of("volcanojob", label(volcano))
	case label(ray) != "":
		if strings.EqualFold(label(rayCreator), "RayService") {
			return collector.Owner{}
		}
		return of("ray", label(ray))
	case kinds[p.OwnerKind] != "":
		return of(kinds[p.OwnerKind], p.Owner)
	case kinds[p.JobOwnerKind] != "":
		return of(kinds[p.JobOwnerKind], p.JobOwner)
	case label(rank) != "":
		name := label(batchJob)
		if name == "" {
			name = label(batchJobOld)
		}
		if name == "" && p.OwnerKind == "Job" {
			name = p.Owner
		}
		return of("job", name)
	}
	return collector.Owner{}
}
