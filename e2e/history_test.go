package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBacktestOverPrometheus fills a real Prometheus with two days of two nodes, whose
// samples promtool makes blocks of, and replays them from its API and from its own dump.
func TestBacktestOverPrometheus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	file := filepath.Join(dir, "past.om")
	end := time.Now().Truncate(time.Hour).Add(-3 * time.Hour).UTC()
	begin := end.Add(-48 * time.Hour)
	fault := begin.Add(30 * time.Hour)
	writeHistory(t, file, begin, end, fault)
	run := func(name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s%s", filepath.Base(name), args, err, out, errs.String())
		}
		return string(out)
	}
	run(tool(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", file, data)
	address := startPast(t, dir, data)
	labels := filepath.Join(dir, "labels.csv")
	if err := os.WriteFile(labels, fmt.Appendf(nil, "rule,kind,node,from,to\nxid gpu_lost,Xid 79,gpu-0,%d,%d\n", fault.Add(-time.Minute).Unix(), fault.Add(10*time.Minute).Unix()), 0o600); err != nil {
		t.Fatal(err)
	}
	type result struct {
		Labels    []struct{ Found bool }
		Incidents []struct{ Rule, Node, Subject, Time string }
		History   struct{ GPUs int }
	}
	replay := func(args ...string) (r result) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out.json")
		run(binary, append([]string{"backtest", "--labels=" + labels, "--json=" + out}, args...)...)
		content, err := os.ReadFile(out)
		if err == nil {
			err = json.Unmarshal(content, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	asked := replay("--prometheus.url=http://"+address, "--from="+begin.Format(time.RFC3339), "--to="+end.Format(time.RFC3339))
	if len(asked.Labels) != 1 || !asked.Labels[0].Found || asked.History.GPUs != 4 {
		t.Errorf("over the API: %+v, want the Xid found among 4 GPUs", asked)
	}
	dump := filepath.Join(dir, "dump.om")
	if err := os.WriteFile(dump, []byte(run(tool(t, "promtool"), "tsdb", "dump-openmetrics", data)), 0o600); err != nil {
		t.Fatal(err)
	}
	dumped := replay("--openmetrics="+dump, "--from="+begin.Format(time.RFC3339), "--to="+end.Format(time.RFC3339))
	if fmt.Sprint(dumped) != fmt.Sprint(asked) {
		t.Errorf("over promtool's dump:\n%+v\nover the API:\n%+v", dumped, asked)
	}
}

// startPast starts a Prometheus over blocks that there are, which scrapes nothing and may
// take few samples into memory at once. It returns its address.
func startPast(t *testing.T, dir, data string) string {
	t.Helper()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := launch(tool(t, "prometheus"), []string{"--config.file=" + config, "--storage.tsdb.path=" + data, "--storage.tsdb.retention.time=30d", "--query.max-samples=2000", "--web.listen-address=127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", s.log)
		}
	})
	listens, err := s.address()
	if err != nil {
		t.Fatalf("start Prometheus: %v\n%s", err, s.log)
	}
	return listens
}

// writeHistory writes two nodes of two GPUs, with a sample each minute.
func writeHistory(t *testing.T, path string, begin, end, fault time.Time) {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"} {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
		for node := range 2 {
			for gpu := range 2 {
				for at := begin.Add(7 * time.Second); at.Before(end); at = at.Add(time.Minute) {
					v := map[bool]float64{true: 0, false: float64(50 + at.Minute()%7)}[name == "DCGM_FI_DEV_XID_ERRORS"]
					if name == "DCGM_FI_DEV_XID_ERRORS" && node == 0 && gpu == 1 && !at.Before(fault) {
						v = 79
					}
					fmt.Fprintf(&b, `%s{UUID="GPU-%d-%d",gpu="%d",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-%d",instance="gpu-%d:9400",job="dcgm"} %v %d`+"\n", name, node, gpu, gpu, node, node, v, at.Unix())
				}
			}
		}
	}
	b.WriteString("# EOF\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
