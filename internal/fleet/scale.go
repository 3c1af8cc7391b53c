package fleet

import (
	"cmp"
	"slices"
	"strings"

	"gpuvigil/collector/kube"
)

// maxMetricsShown bounds what a label says of what an autoscaler scales on.
const maxMetricsShown = 4

// scalers are the autoscalers of what has GPUs. Of a HorizontalPodAutoscaler that KEDA
// has made there are only the replicas: what it scales on is KEDA's.
func (o *objects) scalers() []Scaler {
	holders := o.holders()
	hpa := map[name]*kube.Autoscaler{}
	kept := map[name]bool{} // ScaledObjects
	for _, a := range o.hpas {
		hpa[name{a.Namespace, a.Name}] = a
	}
	for _, a := range o.scaledObjects {
		kept[name{a.Namespace, a.Name}] = true
	}
	var out []Scaler
	add := func(a *kube.Autoscaler) {
		if holders[target{a.Namespace, a.TargetKind, a.Target}] {
			out = append(out, scalerOf(a))
		}
	}
	for _, a := range o.hpas {
		if a.Made == "" || !kept[name{a.Namespace, a.Made}] {
			add(a)
		}
	}
	for _, a := range o.scaledObjects {
		if h := hpa[name{a.Namespace, a.Makes}]; h != nil {
			both := *a
			both.Current, both.Desired = h.Current, h.Desired
			both.AtMaximum = a.AtMaximum || h.AtMaximum
			both.Unreadable = a.Unreadable || h.Unreadable
			a = &both
		}
		add(a)
	}
	for _, r := range o.rayClusters {
		if r.Autoscaled && sum(r.GPUs) > 0 {
			out = append(out, Scaler{Kind: "RayCluster", Namespace: r.Namespace, Name: r.Name, TargetKind: "RayCluster", Target: r.Name, Metrics: "ray",
				Current: r.Available, Desired: r.Desired, Min: r.Min, Max: r.Max, AtMaximum: r.Max > 0 && r.Desired >= r.Max, Paused: r.Suspended})
		}
	}
	slices.SortFunc(out, func(a, b Scaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func scalerOf(a *kube.Autoscaler) Scaler {
	var metrics []string
	blind := len(a.Metrics) > 0
	for _, m := range a.Metrics {
		blind = blind && m.Resource
		if !slices.Contains(metrics, m.Name) {
			metrics = append(metrics, m.Name)
		}
	}
	if len(metrics) > maxMetricsShown {
		metrics = append(metrics[:maxMetricsShown], "…")
	}
	return Scaler{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name, TargetKind: a.TargetKind, Target: a.Target, Metrics: strings.Join(metrics, ","),
		Current: a.Current, Desired: a.Desired, Min: a.Min, Max: a.Max, Blind: blind, AtMaximum: a.AtMaximum, Unreadable: a.Unreadable, Paused: a.Paused}
}

// target is what an autoscaler scales.
type target struct{ namespace, kind, name string }

// holders are the makers of pods that have or ask for GPUs. A Deployment makes its pods
// through a ReplicaSet that is called like it, with the hash of the pods' template.
func (o *objects) holders() map[target]bool {
	out := map[target]bool{}
	for _, p := range o.pods {
		if p.Ended() || p.Owner == "" || len(o.asks(p)) == 0 {
			continue
		}
		out[target{p.Namespace, p.OwnerKind, p.Owner}] = true
		if hash := p.Labels["pod-template-hash"]; p.OwnerKind == "ReplicaSet" && hash != "" {
			if deployment, ok := strings.CutSuffix(p.Owner, "-"+hash); ok {
				out[target{p.Namespace, "Deployment", deployment}] = true
			}
		}
	}
	return out
}
