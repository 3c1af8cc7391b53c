package scrape

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

func TestPagesOfTheHostThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ page, reason, says string }{
		"of the GPUs":      {"DCGM_FI_DEV_GPU_UTIL" + gpuA + "9\n", "unknown_page", "DCGM_FI_DEV_GPU_UTIL"},
		"before 0.16":      {"node_cpu{cpu=\"cpu0\",mode=\"idle\"} 3\nnode_memory_MemTotal 3\n", "unknown_page", "node_cpu, node_memory_MemTotal"},
		"of several nodes": {`node_cpu_seconds_total{cpu="0",mode="idle",instance="a"} 3` + "\n" + `node_cpu_seconds_total{cpu="0",mode="idle",instance="b"} 4` + "\n", "several_nodes", "CPU 0 twice"},
		"of two kernels":   {`node_uname_info{release="6.8"} 1` + "\n" + `node_uname_info{release="5.15"} 1` + "\n", "several_nodes", "this node"},
	} {
		part, err := node(t).take(strings.NewReader(c.page), noon)
		if part != nil || page.Reason(err) != c.reason || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: part %v, reason %s, want %s and %q: %v", name, part != nil, page.Reason(err), c.reason, c.says, err)
		}
	}
}

// A page that leaves a mode out leaves the sum of that mode out, and still says how busy
// the CPUs are.
func TestWhatThePageOfTheHostLeavesOut(t *testing.T) {
	s := node(t)
	for i, cpu := range []string{"100", "110"} {
		part, err := s.take(strings.NewReader(`node_cpu_seconds_total{cpu="0",mode="idle"} `+cpu+"\n"+`node_cpu_seconds_total{cpu="0",mode="user"} 5`+"\n"), noon.Add(time.Duration(i)*15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		r := part.Node.Readings
		if r.ValueAt(metric.CPUSeconds, 0) != 5 || !isNaN(r.ValueAt(metric.CPUSeconds, 2)) || r.Has(metric.HostMemoryCapacity) || r.Has(metric.HostSwapUsed) || r.Has(metric.Drained) {
			t.Errorf("page %d: what it does not tell is shown: %v", i, dump(part))
		}
		if busy := r.Value(metric.CPUBusy); i == 0 && !isNaN(busy) || i == 1 && busy != 0 {
			t.Errorf("page %d: the CPUs are busy for %v", i, busy)
		}
	}
}

func TestDrainedBesideAPage(t *testing.T) {
	s := node(t)
	s.cfg.DrainedFile = filepath.Join("testdata", "node_exporter.prom") // any file that is there
	part, err := s.take(strings.NewReader("node_load1 1\n"), noon)
	if err != nil || part.Node.Value(metric.Drained) != 1 {
		t.Errorf("drained is %v, %v, want 1", part.Node.Value(metric.Drained), err)
	}
}

func isNaN(v float64) bool { return v != v }
