package kube

import (
	"encoding/json"
	"strings"
)

// Autoscaler is what decides how many replicas there are: a HorizontalPodAutoscaler, or
// a ScaledObject of KEDA's, which makes one for itself.
type Autoscaler struct {
	UID, Kind, Namespace, Name string
	TargetKind, Target         string
	Metrics                    []Metric
	Min, Max                   int
	Current, Desired           int  // Unknown if it is not told
	Unreadable                 bool // it cannot read a metric that it scales on
	AtMaximum                  bool // it wants more than its maximum
	Paused                     bool
	Made                       string // of a HorizontalPodAutoscaler: the ScaledObject that made it
	Makes                      string // of a ScaledObject: the HorizontalPodAutoscaler that it makes
}

// ID is the object's uid.
func (a Autoscaler) ID() string { return a.UID }

// Metric is something that an autoscaler scales on.
type Metric struct {
	Name     string // of the metric, or the trigger's type
	Resource bool   // CPU or memory of the pods, which say nothing of a GPU
}

// The kinds of autoscalers, as labels have them.
const (
	KindHPA          = "HorizontalPodAutoscaler"
	KindScaledObject = "ScaledObject"
)

const maxMetrics = 32 // of one autoscaler

// kedaOwner is the label that KEDA gives to what it makes.
const kedaOwner = "scaledobject.keda.sh/name"

// DecodeHPA reads a HorizontalPodAutoscaler.
func DecodeHPA(raw json.RawMessage) (Autoscaler, error) {
	type target struct{ Metric struct{ Name string } }
	var o struct {
		Metadata Meta
		Spec     struct {
			ScaleTargetRef           struct{ Kind, Name string }
			MinReplicas, MaxReplicas *int64
			Metrics                  []struct {
				Resource, ContainerResource *struct{ Name string }
				Pods, Object, External      *target
			}
		}
		Status struct {
			CurrentReplicas, DesiredReplicas *int
			Conditions                       []Condition
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Autoscaler{}, notJSON(err)
	}
	a := Autoscaler{UID: o.Metadata.UID, Kind: KindHPA, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name),
		TargetKind: name(o.Spec.ScaleTargetRef.Kind), Target: name(o.Spec.ScaleTargetRef.Name), Made: name(o.Metadata.Labels[kedaOwner]),
		Min: int(clamp(o.Spec.MinReplicas, 1)), Max: int(clamp(o.Spec.MaxReplicas, 0)), Current: told(o.Status.CurrentReplicas), Desired: told(o.Status.DesiredReplicas)}
	for _, m := range o.Spec.Metrics[:min(len(o.Spec.Metrics), maxMetrics)] {
		switch {
		case m.Resource != nil:
			a.Metrics = append(a.Metrics, resourceMetric(m.Resource.Name))
		case m.ContainerResource != nil:
			a.Metrics = append(a.Metrics, resourceMetric(m.ContainerResource.Name))
		default:
			for _, t := range []*target{m.Pods, m.Object, m.External} {
				if t != nil {
					a.Metrics = append(a.Metrics, Metric{Name: name(t.Metric.Name)})
				}
			}
		}
	}
	for _, c := range o.Status.Conditions {
		switch {
		case c.Type == "ScalingActive" && c.Status == "False" && c.Reason == "ScalingDisabled": // somebody set it to 0 replicas
			a.Paused = true
		case c.Type == "ScalingActive" && c.Status == "False":
			a.Unreadable = true
		case c.Type == "ScalingLimited" && c.Status == "True" && c.Reason == "TooManyReplicas":
			a.AtMaximum = true
		}
	}
	return a, nil
}

func resourceMetric(s string) Metric {
	return Metric{Name: name(s), Resource: s == "cpu" || s == "memory"}
}

// kedaPaused and kedaPausedAt are the annotations that keep KEDA from scaling, the latter
// with a number of replicas.
const (
	kedaPaused   = "autoscaling.keda.sh/paused"
	kedaPausedAt = "autoscaling.keda.sh/paused-replicas"
)

// DecodeScaledObject reads a ScaledObject of KEDA's.
func DecodeScaledObject(raw json.RawMessage) (Autoscaler, error) {
	var o struct {
		Metadata Meta
		Spec     struct {
			ScaleTargetRef                   struct{ Kind, Name string }
			MinReplicaCount, MaxReplicaCount *int64
			Triggers                         []struct{ Type string }
		}
		Status struct {
			HPAName    string
			Conditions []Condition
			Health     map[string]struct{ Status string }
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Autoscaler{}, notJSON(err)
	}
	a := Autoscaler{UID: o.Metadata.UID, Kind: KindScaledObject, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name),
		TargetKind: name(o.Spec.ScaleTargetRef.Kind), Target: name(o.Spec.ScaleTargetRef.Name), Makes: name(o.Status.HPAName),
		// The defaults are KEDA's.
		Min: int(clamp(o.Spec.MinReplicaCount, 0)), Max: int(clamp(o.Spec.MaxReplicaCount, 100)), Current: Unknown, Desired: Unknown}
	if a.TargetKind == "" {
		a.TargetKind = "Deployment"
	}
	for _, t := range o.Spec.Triggers[:min(len(o.Spec.Triggers), maxMetrics)] {
		a.Metrics = append(a.Metrics, resourceMetric(strings.ToLower(t.Type)))
	}
	for _, c := range o.Status.Conditions {
		switch {
		case c.Type == "Ready" && c.Status == "False", c.Type == "Fallback" && c.Status == "True":
			a.Unreadable = true
		case c.Type == "Paused" && c.Status == "True":
			a.Paused = true
		}
	}
	// KEDA obeys the annotations before its status tells of it, and older ones never tell.
	a.Paused = a.Paused || strings.EqualFold(o.Metadata.Annotations[kedaPaused], "true") || o.Metadata.Annotations[kedaPausedAt] != ""
	for _, h := range o.Status.Health {
		a.Unreadable = a.Unreadable || h.Status == "Failing"
	}
	return a, nil
}
