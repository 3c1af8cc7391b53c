package kube

import (
	"encoding/json"
	"time"
)

// Workload is what Kueue admits: a job, or a pod, as a whole.
type Workload struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string
	LocalQueue           string // in its namespace
	OwnerKind, Owner     string
	Inactive             bool           // somebody holds it back
	GPUs                 map[string]int // that all of its pods ask for together
	Reserved             Condition      // QuotaReserved
	Admitted             Condition
	Finished             bool
	Evicted              Condition
}

// ID is the workload's uid.
func (w Workload) ID() string { return w.UID }

// DecodeWorkload reads a workload of Kueue's.
func DecodeWorkload(raw json.RawMessage) (Workload, error) {
	var o struct {
		Metadata Meta
		Spec     struct {
			QueueName string
			Active    *bool
			PodSets   []struct {
				Count    int64
				Template struct{ Spec podSpec }
			}
		}
		Status struct{ Conditions []Condition }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Workload{}, notJSON(err)
	}
	w := Workload{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), Created: o.Metadata.Created,
		Labels: boundedLabels(o.Metadata.Labels), LocalQueue: name(o.Spec.QueueName), Inactive: o.Spec.Active != nil && !*o.Spec.Active}
	w.OwnerKind, w.Owner = o.Metadata.Controller()
	w.OwnerKind, w.Owner = name(w.OwnerKind), name(w.Owner)
	var all Resources
	for _, set := range o.Spec.PodSets {
		all = all.plus(times(set.Template.Spec.requests(), set.Count))
	}
	w.GPUs = all.GPUs
	for _, c := range o.Status.Conditions {
		c.Message = shown(c.Message, maxMessage)
		switch c.Type {
		case "QuotaReserved":
			w.Reserved = c
		case "Admitted":
			w.Admitted = c
		case "Evicted":
			w.Evicted = c
		case "Finished":
			w.Finished = c.Status == "True"
		}
	}
	return w, nil
}

// times is the GPUs of so many of the same.
func times(r Resources, n int64) Resources {
	n = min(max(n, 0), maxDevices)
	out := Resources{GPUs: map[string]int{}}
	for resource, each := range r.GPUs {
		out.GPUs[resource] = int(min(int64(each)*n, maxDevices))
	}
	return out
}

// Queue is a queue as its own scheduler counts it: a ClusterQueue of Kueue's, or a queue
// of Volcano's. Numbers that are not told are Unknown.
type Queue struct {
	UID, Name    string
	Pending      int // workloads that wait
	Inadmissible int // of those, what could not be admitted now even without the others
	Inqueue      int // of Volcano: let in, without all of their pods running
	Admitted     int // that have their quota
	Limit, Used  int // GPUs of the quota; a MIG instance or a share is one
	Stopped      bool
}

// Unknown is a number that was not told.
const Unknown = -1

// ID is the queue's uid.
func (q Queue) ID() string { return q.UID }

// DecodeClusterQueue reads a ClusterQueue of Kueue's.
func DecodeClusterQueue(raw json.RawMessage) (Queue, error) {
	type resources []struct {
		Name          string
		NominalQuota  *quantity
		Total         *quantity
		BorrowedTotal *quantity `json:"borrowed"`
	}
	var o struct {
		Metadata Meta
		Spec     struct {
			StopPolicy     string
			ResourceGroups []struct {
				Flavors []struct{ Resources resources }
			}
		}
		Status struct {
			Pending       *int `json:"pendingWorkloads"`
			Admitted      *int `json:"admittedWorkloads"`
			FlavorsUsage  []struct{ Resources resources }
			FlavorsReserv []struct{ Resources resources } `json:"flavorsReservation"`
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Queue{}, notJSON(err)
	}
	q := Queue{UID: o.Metadata.UID, Name: name(o.Metadata.Name), Pending: told(o.Status.Pending), Admitted: told(o.Status.Admitted),
		Inadmissible: Unknown, Inqueue: Unknown, Limit: Unknown, Used: Unknown, Stopped: o.Spec.StopPolicy != "" && o.Spec.StopPolicy != "None"}
	for _, g := range o.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				if IsGPU(r.Name) && r.NominalQuota != nil {
					q.Limit = added(q.Limit, r.NominalQuota)
				}
			}
		}
	}
	for _, f := range o.Status.FlavorsUsage {
		for _, r := range f.Resources {
			if IsGPU(r.Name) && r.Total != nil {
				q.Used = added(q.Used, r.Total)
			}
		}
	}
	return q, nil
}

func told(n *int) int {
	if n == nil || *n < 0 {
		return Unknown
	}
	return *n
}

// added adds to a number that may be unknown.
func added(n int, q *quantity) int { return max(n, 0) + int(min(q.value(), maxDevices)) }

// LocalQueue leads the workloads of a namespace to a ClusterQueue.
type LocalQueue struct{ UID, Namespace, Name, ClusterQueue string }

// ID is the local queue's uid.
func (q LocalQueue) ID() string { return q.UID }

// DecodeLocalQueue reads a LocalQueue of Kueue's.
func DecodeLocalQueue(raw json.RawMessage) (LocalQueue, error) {
	var o struct {
		Metadata Meta
		Spec     struct{ ClusterQueue string }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return LocalQueue{}, notJSON(err)
	}
	return LocalQueue{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), ClusterQueue: name(o.Spec.ClusterQueue)}, nil
}
