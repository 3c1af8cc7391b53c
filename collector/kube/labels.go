package kube

import "encoding/json"

// Labels are the labels of a pod.
type Labels struct {
	UID, Namespace, Name string
	Labels               map[string]string
}

// ID is the pod's uid.
func (l Labels) ID() string { return l.UID }

// DecodeLabels reads a pod's metadata and keeps the labels that are named.
func DecodeLabels(allowed []string) func(json.RawMessage) (Labels, error) {
	return func(raw json.RawMessage) (Labels, error) {
		var o struct{ Metadata Meta }
		if err := json.Unmarshal(raw, &o); err != nil {
			return Labels{}, notJSON(err)
		}
		l := Labels{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name), Labels: map[string]string{}}
		for _, key := range allowed {
			if v, ok := o.Metadata.Labels[key]; ok {
				l.Labels[key] = name(v)
			}
		}
		return l, nil
	}
}
