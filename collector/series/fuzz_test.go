package series

import (
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
)

// Whatever series come, in whatever order: no snapshot is of another time, none has two
// nodes' names or GPUs, and the bounds hold.
func FuzzAssembler(f *testing.F) {
	f.Add("DCGM_FI_DEV_POWER_USAGE\x00UUID=GPU-a,Hostname=n1,instance=n1:9400,job=d\x001\n+\nDCGM_FI_DEV_XID_ERRORS\x00UUID=GPU-a,Hostname=n1,instance=n1:9400,job=d\x0079\n+")
	f.Add("node_cpu_seconds_total\x00mode=idle,instance=n1:9100\x005\ninstance:node_num_cpu:sum\x00instance=n1:9100\x0064\n+\n-")
	f.Add("kube_pod_info\x00namespace=a,pod=b,node=n1,pod_ip=10.0.0.1\x001\nvllm:num_requests_running\x00pod=b,namespace=a,instance=10.0.0.1:8000\x00NaN\n+")
	f.Add("vigil_gpu_power_draw_watts\x00gpu=0,uuid=GPU-a,node=n1,instance=n1:9836\x00300\nvigil_finding\x00rule=xid,node=n1,instance=n1:9836\x001\n+")
	names := New(Config{}).Metrics()
	f.Fuzz(func(t *testing.T, script string) {
		a := New(Config{MaxSeries: 64, MaxNodes: 8})
		now := noon
		for line := range strings.SplitSeq(script, "\n") {
			switch line {
			case "+":
				now = now.Add(15 * time.Second)
				checkSnapshots(t, a, a.Snapshots(now), now)
				continue
			case "-":
				now = now.Add(3 * time.Hour)
				continue
			}
			parts := strings.SplitN(line, "\x00", 3)
			if len(parts) != 3 {
				continue
			}
			name := parts[0]
			if len(name) == 1 { // so that the fuzzer need not spell names
				name = names[int(name[0])*len(names)/256]
			}
			labels := []Label{{"__name__", name}}
			for l := range strings.SplitSeq(parts[1], ",") {
				if key, v, ok := strings.Cut(l, "="); ok {
					labels = append(labels, Label{key, v})
				}
			}
			v := float64(len(parts[2]))
			switch parts[2] {
			case "NaN":
				v = math.NaN()
			case "stale":
				v = math.Float64frombits(staleMarker)
			case "inf":
				v = math.Inf(1)
			}
			a.Add(a.Series(labels), now.Add(time.Duration(len(script)%7-3)*time.Second), v)
		}
		checkSnapshots(t, a, a.Snapshots(now), now)
	})
}

func checkSnapshots(t *testing.T, a *Assembler, all []*collector.Snapshot, now time.Time) {
	t.Helper()
	if a.index.series > 64 || len(a.nodes) > 8 {
		t.Fatalf("%d series of %d nodes are kept, the limits are 64 and 8", a.index.series, len(a.nodes))
	}
	seen, before := map[string]bool{}, ""
	for _, s := range all {
		if !s.Time.Equal(now) || s.Node.Name <= before && before != "" || s.Node.Name == "" {
			t.Errorf("a snapshot of node %q after %q is of %v, asked for at %v", s.Node.Name, before, s.Time, now)
		}
		before = s.Node.Name
		for i := range s.GPUs {
			if g := &s.GPUs[i]; g.Present && seen[g.UUID] {
				t.Errorf("GPU %q is in two nodes", g.UUID)
			} else if g.Present {
				seen[g.UUID] = true
			}
		}
	}
}
