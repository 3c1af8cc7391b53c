package kubemeta

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
)

func TestWhereANodeIs(t *testing.T) {
	labels := map[string]string{
		"topology.kubernetes.io/zone": "eu-1a", "topology.k8s.aws/network-node-layer-3": "nn-7", "example.com/rack": "r7", "switch": "leaf-12",
		"kubernetes.io/hostname": "n1", "app": "x", "rack": "",
	}
	want := []collector.Label{{Name: "network node", Value: "nn-7"}, {Name: "rack", Value: "r7"}, {Name: "switch", Value: "leaf-12"}, {Name: "zone", Value: "eu-1a"}}
	if diff := cmp.Diff(want, Where(labels)); diff != "" {
		t.Errorf("by its labels a node is elsewhere (-want +got):\n%s", diff)
	}
	told, names := map[string]string{"node": "n1", "instance": "x"}, []string{"node", "instance"}
	for k, v := range labels {
		told[ToldAs(k)] = v
		names = append(names, ToldAs(k))
	}
	if diff := cmp.Diff(want, WhereTold(names, func(n string) string { return told[n] })); diff != "" {
		t.Errorf("by what kube-state-metrics says of its labels a node is elsewhere (-want +got):\n%s", diff)
	}
}
