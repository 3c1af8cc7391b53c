package fleet

import (
	"fmt"
	"testing"
	"time"

	"gpuvigil/collector/kube"
)

// large is a cluster of 1,000 nodes with 8 GPUs, and 5,000 pods, of which 500 wait.
func large(t testing.TB) *objects {
	o := &objects{now: now, owners: teams(t)}
	for i := range 1000 {
		o.nodes = append(o.nodes, decoded(t, kube.DecodeNode, nodeJSON(fmt.Sprint("n", i), "", "", `"nvidia.com/gpu": "8"`)))
	}
	for i := range 4500 {
		o.pods = append(o.pods, decoded(t, kube.DecodePod, podOn(fmt.Sprint("p", i), fmt.Sprint("n", i%1000), `"nvidia.com/gpu": "1",`, "4")))
	}
	for i := range 500 {
		o.pods = append(o.pods, decoded(t, kube.DecodePod, waiting(fmt.Sprint("w", i), tolerant, fmt.Sprintf(`"nvidia.com/gpu": "8", "cpu": "%d"`, 1+i%50))))
	}
	return o
}

func BenchmarkCluster(b *testing.B) {
	o := large(b)
	b.ReportAllocs()
	for b.Loop() {
		o.cluster()
	}
}

// Whatever waits, one answer costs no more than a small part of the time between two.
func TestLargeClusterIsBounded(t *testing.T) {
	o := large(t)
	began := time.Now()
	c := o.cluster()
	if len(c.Nodes) != 1000 {
		t.Fatalf("%d nodes, want 1000", len(c.Nodes))
	}
	if n := len(o.wants); n != 500 {
		t.Errorf("%d pods were tried, want 500", n)
	}
	shapes := map[*want]bool{}
	for _, w := range o.wants {
		shapes[w] = true
	}
	if len(shapes) != 50 {
		t.Errorf("pods that want the same were tried %d times, want 50 for 500 pods", len(shapes))
	}
	t.Logf("an answer took %v", time.Since(began))
}
