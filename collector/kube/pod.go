package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// Phases of a pod that end it.
const (
	Succeeded = "Succeeded"
	Failed    = "Failed"
)

// Pod is what is kept of a pod. Of one that asks for no GPU it is only what it takes of
// its node.
type Pod struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string // bounded; must not be changed
	Annotations          map[string]string // only those that name its queue, group or workload
	OwnerKind, Owner     string            // what made it: ReplicaSet, Job, …; empty if nothing did

	Node      string // that it is on; empty while it is on none
	Phase     string
	Deleting  bool
	Requests  Resources
	Claims    []string // names of its resource claims, which may not be made yet
	Gates     []string // what must allow it before it is scheduled
	Selector  map[string]string
	Affinity  []Term // one of them must fit the node; none: any does
	Tolerates []Toleration
	Scheduler string // that it waits for

	Scheduled Condition // what the scheduler says; its Status is empty while it said nothing
	Nominated string    // the node that is being freed for it
}

// ID is the pod's uid.
func (p Pod) ID() string { return p.UID }

// AsksGPU reports whether the pod asks for a device that may be a GPU.
func (p *Pod) AsksGPU() bool { return len(p.Requests.GPUs) > 0 || len(p.Claims) > 0 }

// Ended reports whether the pod holds nothing any more.
func (p *Pod) Ended() bool { return p.Phase == Succeeded || p.Phase == Failed }

// Condition is one of an object's conditions.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time `json:"lastTransitionTime"`
}

// Toleration is what a pod puts up with.
type Toleration struct{ Key, Operator, Value, Effect string }

// Term is a term of a node affinity: all of it must fit.
type Term struct{ Labels, Fields []Expression }

// Expression is one condition on a label or field of a node.
type Expression struct {
	Key, Operator string
	Values        []string
}

type podObject struct {
	Metadata struct {
		Meta
		Deleted *time.Time `json:"deletionTimestamp"`
	}
	Spec   podSpec
	Status struct {
		Phase             string
		NominatedNodeName string
		Conditions        []Condition
		Claims            []struct {
			Name  string
			Claim string `json:"resourceClaimName"`
		} `json:"resourceClaimStatuses"`
	}
}

type podSpec struct {
	NodeName, SchedulerName string
	Containers              []container
	InitContainers          []container
	Overhead                map[string]quantity
	Resources               *requirements
	Gates                   []struct{ Name string } `json:"schedulingGates"`
	NodeSelector            map[string]string
	Tolerations             []Toleration
	Affinity                struct {
		NodeAffinity struct {
			Required struct {
				Terms []struct {
					Labels []Expression `json:"matchExpressions"`
					Fields []Expression `json:"matchFields"`
				} `json:"nodeSelectorTerms"`
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		}
	}
	Claims []struct {
		Name  string
		Claim string `json:"resourceClaimName"`
	} `json:"resourceClaims"`
}

type container struct {
	RestartPolicy string
	Resources     requirements
}

type requirements struct{ Requests, Limits map[string]quantity }

// The annotations of a pod that say which queue, group or workload it is of.
const (
	AnnotationWorkload     = "kueue.x-k8s.io/workload"
	AnnotationGroup        = "scheduling.k8s.io/group-name"
	AnnotationVolcanoQueue = "scheduling.volcano.sh/queue-name"
)

// DecodePod reads a pod.
func DecodePod(raw json.RawMessage) (Pod, error) {
	var o podObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return Pod{}, notJSON(err)
	}
	m, s := &o.Metadata, &o.Spec
	p := Pod{UID: m.UID, Namespace: name(m.Namespace), Name: name(m.Name), Node: name(s.NodeName), Phase: o.Status.Phase,
		Deleting: m.Deleted != nil, Requests: s.requests()}
	p.Claims = claimsOf(&o)
	if !p.AsksGPU() {
		return p, nil
	}
	p.Created, p.Labels = m.Created, boundedLabels(m.Labels)
	p.OwnerKind, p.Owner = m.Controller()
	p.OwnerKind, p.Owner = name(p.OwnerKind), name(p.Owner)
	for _, key := range []string{AnnotationWorkload, AnnotationGroup, AnnotationVolcanoQueue} {
		if v := m.Annotations[key]; v != "" {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[key] = name(v)
		}
	}
	for _, g := range s.Gates {
		p.Gates = append(p.Gates, name(g.Name))
	}
	p.Selector, p.Tolerates, p.Scheduler = boundedLabels(s.NodeSelector), s.Tolerations, name(s.SchedulerName)
	for _, t := range s.Affinity.NodeAffinity.Required.Terms {
		p.Affinity = append(p.Affinity, Term{t.Labels, t.Fields})
	}
	p.Nominated = name(o.Status.NominatedNodeName)
	for _, c := range o.Status.Conditions {
		if c.Type == "PodScheduled" {
			c.Message = shown(c.Message, maxMessage)
			p.Scheduled = c
		}
	}
	return p, nil
}

// claimsOf names the claims of a pod as they are called in its namespace. One that is
// made for the pod has no name before it is there.
func claimsOf(o *podObject) []string {
	var out []string
	for _, c := range o.Spec.Claims {
		claim := c.Claim
		for _, s := range o.Status.Claims {
			if s.Name == c.Name && s.Claim != "" {
				claim = s.Claim
			}
		}
		out = append(out, name(claim))
	}
	return out
}

// requests is what the pod takes of its node, as the scheduler counts it: init
// containers run one after the other, before the rest, and sidecars stay.
func (s *podSpec) requests() Resources {
	var all, sidecars, peak Resources
	for _, c := range s.InitContainers {
		r := c.Resources.resources()
		if c.RestartPolicy == "Always" {
			sidecars = sidecars.plus(r)
			r = sidecars
		} else {
			r = r.plus(sidecars)
		}
		peak = peak.most(r)
	}
	all = sidecars
	for _, c := range s.Containers {
		all = all.plus(c.Resources.resources())
	}
	all = all.most(peak)
	if s.Resources != nil { // of the pod as a whole
		whole := s.Resources.resources()
		if whole.CPU > 0 {
			all.CPU = whole.CPU
		}
		if whole.Memory > 0 {
			all.Memory = whole.Memory
		}
	}
	return all.plus(resourcesOf(s.Overhead))
}

// resources are the requests. Of a GPU the limit is the request if only that is given.
func (r *requirements) resources() Resources {
	out := resourcesOf(r.Requests)
	for resource, n := range resourcesOf(r.Limits).GPUs {
		if _, given := out.GPUs[resource]; !given {
			if out.GPUs == nil {
				out.GPUs = map[string]int{}
			}
			out.GPUs[resource] = n
		}
	}
	return out
}

const (
	maxLabels  = 128 // of one object
	maxMessage = 1000
)

// boundedLabels are the labels of an object, of too many those that come first. The API
// server allows no long ones.
func boundedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, min(len(labels), maxLabels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if len(out) >= maxLabels {
			break
		}
		if len(k) <= 320 && len(labels[k]) <= 256 {
			out[strings.Clone(k)] = name(labels[k])
		}
	}
	return out
}

// name makes a name that others chose safe to show.
func name(s string) string { return text.Clean(s, maxName) }

func shown(s string, most int) string { return text.Clean(s, most) }
