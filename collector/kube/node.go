package kube

import (
	"encoding/json"
)

// Node is what is kept of a node.
type Node struct {
	UID, Name     string
	Labels        map[string]string // bounded; must not be changed
	Taints        []Taint
	Unschedulable bool   // cordoned
	Ready         string // True, False, Unknown, or empty while it is not told
	Allocatable   Resources
	Capacity      Resources
}

// ID is the node's uid.
func (n Node) ID() string { return n.UID }

// Taint keeps pods away that do not tolerate it.
type Taint struct{ Key, Value, Effect string }

// DecodeNode reads a node.
func DecodeNode(raw json.RawMessage) (Node, error) {
	var o struct {
		Metadata Meta
		Spec     struct {
			Unschedulable bool
			Taints        []Taint
		}
		Status struct {
			Allocatable, Capacity map[string]quantity
			Conditions            []Condition
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Node{}, notJSON(err)
	}
	n := Node{UID: o.Metadata.UID, Name: name(o.Metadata.Name), Labels: boundedLabels(o.Metadata.Labels), Taints: o.Spec.Taints,
		Unschedulable: o.Spec.Unschedulable, Allocatable: resourcesOf(o.Status.Allocatable), Capacity: resourcesOf(o.Status.Capacity)}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			n.Ready = c.Status
		}
	}
	return n, nil
}
