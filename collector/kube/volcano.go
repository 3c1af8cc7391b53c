package kube

import (
	"encoding/json"
	"time"
)

// PodGroup is pods that Volcano starts together or not at all.
type PodGroup struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string
	Queue                string
	OwnerKind, Owner     string
	Phase                string // Pending, Inqueue, Running, Unknown, Completed
	GPUs                 map[string]int
	Unschedulable        Condition
}

// ID is the group's uid.
func (g PodGroup) ID() string { return g.UID }

// DecodePodGroup reads a group of Volcano's.
func DecodePodGroup(raw json.RawMessage) (PodGroup, error) {
	var o struct {
		Metadata Meta
		Spec     struct {
			Queue        string
			MinResources map[string]quantity
		}
		Status struct {
			Phase      string
			Conditions []Condition
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return PodGroup{}, notJSON(err)
	}
	g := PodGroup{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), Created: o.Metadata.Created,
		Labels: boundedLabels(o.Metadata.Labels), Queue: name(o.Spec.Queue), Phase: o.Status.Phase, GPUs: resourcesOf(o.Spec.MinResources).GPUs}
	g.OwnerKind, g.Owner = o.Metadata.Controller()
	g.OwnerKind, g.Owner = name(g.OwnerKind), name(g.Owner)
	for _, c := range o.Status.Conditions {
		if c.Type == "Unschedulable" && c.Status == "True" {
			c.Message = shown(c.Message, maxMessage)
			g.Unschedulable = c
		}
	}
	return g, nil
}

// DecodeVolcanoQueue reads a queue of Volcano's.
func DecodeVolcanoQueue(raw json.RawMessage) (Queue, error) {
	var o struct {
		Metadata Meta
		Spec     struct{ Capability map[string]quantity }
		Status   struct {
			State                     string
			Pending, Inqueue, Running *int
			Allocated                 map[string]quantity
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Queue{}, notJSON(err)
	}
	// What it does not say of groups is none: it leaves zeros out.
	zero := 0
	count := func(n *int) int {
		if n == nil {
			n = &zero
		}
		return told(n)
	}
	q := Queue{UID: o.Metadata.UID, Name: name(o.Metadata.Name), Pending: count(o.Status.Pending), Inqueue: count(o.Status.Inqueue),
		Admitted: count(o.Status.Running), Inadmissible: Unknown, Limit: Unknown, Used: Unknown, Stopped: o.Status.State == "Closed" || o.Status.State == "Closing"}
	if limit := resourcesOf(o.Spec.Capability); len(limit.GPUs) > 0 {
		q.Limit = limit.Devices()
	}
	if o.Status.Allocated != nil {
		q.Used = resourcesOf(o.Status.Allocated).Devices()
	}
	return q, nil
}
