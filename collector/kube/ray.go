package kube

import (
	"encoding/json"
	"time"
)

// RayCluster is a cluster of Ray's, whose workers KubeRay starts as pods.
type RayCluster struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string
	Suspended            bool
	Autoscaled           bool           // Ray's own autoscaler decides on the workers
	Desired, Available   int            // workers; Unknown if it is not told
	Min, Max             int            // workers that the groups allow
	GPUs                 map[string]int // that the head and the desired workers ask for
}

// ID is the cluster's uid.
func (r RayCluster) ID() string { return r.UID }

type rayClusterSpec struct {
	Suspend                 bool
	EnableInTreeAutoscaling bool
	HeadGroupSpec           struct{ Template struct{ Spec podSpec } }
	WorkerGroupSpecs        []struct {
		Replicas, MinReplicas, MaxReplicas *int64
		NumOfHosts                         *int64
		Template                           struct{ Spec podSpec }
	}
}

// DecodeRayCluster reads a cluster of Ray's.
func DecodeRayCluster(raw json.RawMessage) (RayCluster, error) {
	var o struct {
		Metadata Meta
		Spec     rayClusterSpec
		Status   struct {
			Desired   *int `json:"desiredWorkerReplicas"`
			Available *int `json:"availableWorkerReplicas"`
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return RayCluster{}, notJSON(err)
	}
	r := RayCluster{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), Created: o.Metadata.Created,
		Labels: boundedLabels(o.Metadata.Labels), Suspended: o.Spec.Suspend, Autoscaled: o.Spec.EnableInTreeAutoscaling,
		Desired: told(o.Status.Desired), Available: told(o.Status.Available), GPUs: o.Spec.gpus()}
	for _, g := range o.Spec.WorkerGroupSpecs {
		r.Min += int(clamp(g.MinReplicas, 0))
		r.Max += int(clamp(g.MaxReplicas, clamp(g.Replicas, 0)))
	}
	return r, nil
}

// gpus is what the head and the workers ask for that the groups have now.
func (s *rayClusterSpec) gpus() map[string]int {
	all := times(s.HeadGroupSpec.Template.Spec.requests(), 1)
	for _, g := range s.WorkerGroupSpecs {
		pods := clamp(g.Replicas, clamp(g.MinReplicas, 0)) * clamp(g.NumOfHosts, 1)
		all = all.plus(times(g.Template.Spec.requests(), pods))
	}
	return all.GPUs
}

// clamp is a count that others wrote, or what stands for it if it is not given.
func clamp(n *int64, missing int64) int64 {
	if n == nil {
		return missing
	}
	return min(max(*n, 0), 1<<16)
}

// RayJob is a job of Ray's, which may bring its cluster along.
type RayJob struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string
	Suspended            bool
	Status               string // jobDeploymentStatus: Initializing, Running, Complete, Failed, Suspended, …
	Cluster              string // that it runs on, empty while there is none
	GPUs                 map[string]int
}

// ID is the job's uid.
func (r RayJob) ID() string { return r.UID }

// DecodeRayJob reads a job of Ray's.
func DecodeRayJob(raw json.RawMessage) (RayJob, error) {
	var o struct {
		Metadata Meta
		Spec     struct {
			Suspend        bool
			RayClusterSpec *rayClusterSpec
		}
		Status struct{ JobDeploymentStatus, RayClusterName string }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return RayJob{}, notJSON(err)
	}
	r := RayJob{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), Created: o.Metadata.Created,
		Labels: boundedLabels(o.Metadata.Labels), Suspended: o.Spec.Suspend, Status: o.Status.JobDeploymentStatus, Cluster: name(o.Status.RayClusterName)}
	if o.Spec.RayClusterSpec != nil {
		r.GPUs = o.Spec.RayClusterSpec.gpus()
	}
	return r, nil
}
