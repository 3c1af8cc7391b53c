package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gpuvigil/rules"
)

// exporters serves the recorded pages of dcgm-exporter and node_exporter, until told
// otherwise.
type exporters struct {
	*httptest.Server
	t *testing.T

	mu   sync.Mutex
	dcgm string
	down bool
}

func newExporters(t *testing.T) *exporters {
	t.Helper()
	e := &exporters{t: t, dcgm: pageOf(t, "dcgm-4.8")}
	host := pageOf(t, "node_exporter")
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case r.URL.Path == "/host":
			_, _ = w.Write([]byte(host))
		case e.down:
			http.Error(w, "down", http.StatusInternalServerError)
		default:
			_, _ = w.Write([]byte(e.dcgm))
		}
	}))
	t.Cleanup(e.Close)
	return e
}

func pageOf(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "collector", "scrape", "testdata", name+".prom"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// change changes the page of dcgm-exporter.
func (e *exporters) change(old, now string) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !strings.Contains(e.dcgm, old) {
		e.t.Fatalf("the page has no %q", old)
	}
	e.dcgm = strings.ReplaceAll(e.dcgm, old, now)
}

func (e *exporters) fail(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

const gpu6Xid = `DCGM_FI_DEV_XID_ERRORS{gpu="6",UUID="GPU-5ca1ab1e-0000-4000-8000-000000000006",pci_bus_id="00000000:BA:00.0",device="nvidia6",` +
	`modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-117",DCGM_FI_DRIVER_VERSION="570.124.06",container="",namespace="",pod="",err_code="0",err_msg="No Error"} `

// TestBesideOtherExporters runs an agent that touches no driver and no kernel file, and
// has everything from recorded pages.
func TestBesideOtherExporters(t *testing.T) {
	t.Parallel()
	e := newExporters(t)
	config := fmt.Sprintf("node: gpu-117\nnvml: {source: {url: %s/metrics, interval: 1s, timeout: 1s}}\nhost: {source: {url: %s/host, interval: 1s, timeout: 1s}, kmsg: \"\", fabric_manager_log: \"\"}\n"+
		"owners: {mapping: [{namespace: vision, team: vision}]}\nalerting: {shadow: 0s}\n", e.URL, e.URL)
	a := startAgent(t, options{config: config})
	a.ready(t)
	m := a.awaits(t, "GPUs, host and holders are those of the pages", func(m metrics) error {
		return errors.Join(
			m.expect(0.98, "vigil_gpu_utilization_ratio", "gpu", "0"), m.expect(8, "vigil_node_gpus_expected"),
			m.expect(1.98e9, "vigil_gpu_clock_hertz", "gpu", "0", "clock", "sm"),
			m.expect(2.16e12, "vigil_node_memory_capacity_bytes"), m.expect(5e10, "vigil_interface_speed_bytes_per_second", "device", "mlx5_0"),
			m.expect(1, "vigil_gpu_allocation_info", "gpu", "0", "owner", "vision/train-0", "team", "vision", "source", "dcgm-exporter"),
			m.expect(1, "vigil_source_page_info", "source", "gpu_exporter", "exporter", "dcgm-exporter", "names", "until 4.8", "utilization", "percent"),
			m.expect(1, "vigil_source_page_info", "source", "node_exporter", "exporter", "node_exporter"),
			m.expect(1, "vigil_node_version_info", "component", "driver", "version", "570.124.06"),
		)
	})
	if err := errors.Join(m.absent("vigil_gpu_processes"), m.absent("vigil_source_up", "source", "nvml"), m.absent("vigil_source_up", "source", "host"), m.absent("vigil_node_gpus")); err != nil {
		t.Errorf("something is told that no page tells: %v", err)
	}
	if left := a.children(t); len(left) > 0 {
		t.Errorf("the agent has started %v, though it is not to touch the driver", left)
	}

	e.change(gpu6Xid+"0", gpu6Xid+"79")
	eventually(t, "the error on the page pages", func() error {
		all, err := a.findings()
		if err != nil {
			return err
		}
		for _, f := range all.Findings {
			if f.Rule == rules.IDXid && f.GPUIndex == 6 && f.Severity == rules.Page && strings.Contains(f.Evidence.Why, "on the page of the GPU exporter") {
				return nil
			}
		}
		return fmt.Errorf("findings are %+v", all.Findings)
	})
	says := func(code int, want string, args ...string) {
		t.Helper()
		if got, said := a.ask(t, args...); got != code || !strings.Contains(said, want) {
			t.Errorf("gpuvigil %s exits %d, want %d and %q:\n%s", args[0], got, code, want, said)
		}
	}
	says(2, e.URL+"/metrics, dcgm-exporter, names until 4.8, utilization in percent", "status")
	says(1, "Xid 79", "health")
	eventually(t, "the inventory says why it is empty", func() error {
		if code, said := a.ask(t, "inventory"); code != 0 || !strings.Contains(said, "dcgm-exporter, which lists no processes") {
			return fmt.Errorf("it exits %d and says %s", code, said)
		}
		return nil
	})
	if code, said := runs(t, nil, binary, "doctor", "--config.file="+write(t, "doctor.yml", config), "--state.dir="+a.state); !strings.Contains(said, "8 GPUs; "+e.URL+"/metrics, dcgm-exporter") ||
		!strings.Contains(said, e.URL+"/host, node_exporter") {
		t.Errorf("gpuvigil doctor exits %d:\n%s", code, said)
	}

	e.fail(true)
	m = a.awaits(t, "what the page told is absent when it cannot be had", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_source_up", "source", "gpu_exporter"), m.expect(1, "vigil_source_up", "source", "node_exporter"),
			m.absent("vigil_gpu_utilization_ratio"), m.absent("vigil_source_page_info", "source", "gpu_exporter"))
	})
	if n := m.value("vigil_source_page_failures_total", "source", "gpu_exporter", "reason", "status"); !(n > 0) {
		t.Errorf("%v failures of the page are counted", n)
	}
	if n := m.sum("vigil_finding", "rule", "gpu_lost"); n != 0 {
		t.Error("GPUs are lost because a page cannot be had")
	}
	e.fail(false)
	a.awaits(t, "the GPUs are back with the page", func(m metrics) error { return m.expect(0.98, "vigil_gpu_utilization_ratio", "gpu", "0") })
}
