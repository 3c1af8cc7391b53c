package kubemeta

import (
	"slices"
	"strings"

	"gpuvigil/collector"
)

// known are the labels of nodes that say where they are, and what people call that.
var known = [...][2]string{
	{"topology.kubernetes.io/zone", "zone"}, {"topology.kubernetes.io/rack", "rack"}, {"topology.kubernetes.io/block", "block"},
	{"cloud.google.com/gce-topology-block", "block"}, {"cloud.google.com/gce-topology-subblock", "subblock"},
	{"topology.k8s.aws/network-node-layer-3", "network node"}, {"topology.k8s.aws/network-node-layer-2", "network layer 2"},
	{"nvidia.com/gpu.clique", "NVLink clique"},
}

// places are words for where a node is, as people name labels of their own.
var places = []string{"rack", "switch", "leaf", "spine", "pdu", "row", "room", "cage", "zone", "datacenter"}

// Places returns the words for where a node is that labels are looked at for.
func Places() []string { return slices.Clone(places) }

// Where returns what a node's labels say of where it is, by name. A label of one's own
// counts by its last word: example.com/rack.
func Where(labels map[string]string) []collector.Label {
	var out []collector.Label
	for key, v := range labels {
		name := ""
		for _, k := range known {
			if key == k[0] {
				name = k[1]
			}
		}
		if word := key[strings.LastIndexByte(key, '/')+1:]; name == "" && slices.Contains(places, word) {
			name = word
		}
		if name != "" && v != "" {
			out = append(out, collector.Label{Name: name, Value: v})
		}
	}
	return tidy(out)
}

// WhereTold does the same by labels as kube-state-metrics writes them.
func WhereTold(names []string, value func(string) string) []collector.Label {
	var out []collector.Label
	for _, key := range names {
		rest, ok := strings.CutPrefix(key, "label_")
		if !ok {
			continue
		}
		name := ""
		for _, k := range known {
			if key == ToldAs(k[0]) {
				name = k[1]
			}
		}
		if word := rest[strings.LastIndexByte(rest, '_')+1:]; name == "" && slices.Contains(places, word) {
			name = word
		}
		if v := value(key); name != "" && v != "" {
			out = append(out, collector.Label{Name: name, Value: v})
		}
	}
	return tidy(out)
}

// tidy puts labels in order; each is said once.
func tidy(all []collector.Label) []collector.Label {
	slices.SortFunc(all, func(a, b collector.Label) int { return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value) })
	return slices.Compact(all)
}

// ToldAs is how kube-state-metrics writes a label.
func ToldAs(label string) string {
	return "label_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, label)
}
