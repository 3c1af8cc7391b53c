package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuvigil/collector/child"
	"gpuvigil/detect"
	"gpuvigil/internal/fakenvml"
)

// What NVML returns.
const (
	gpuIsLost       = 15
	versionMismatch = 18
)

// TestDriverFaults breaks the driver under the agent, which must say so, count it
// and see again when the driver works.
func TestDriverFaults(t *testing.T) {
	t.Parallel()
	t.Run("mismatch", testMismatch)
	t.Run("initialisation hangs", testInitHangs)
	t.Run("missing symbol", testMissingSymbol)
	t.Run("GPU lost", testLost)
	t.Run("all GPUs hang", testAllHang)
	t.Run("no driver", testNoDriver)
}

// An upgrade of the driver's packages without a reload of the kernel module.
func testMismatch(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	d.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(versionMismatch))
	d.show()
	a := d.start(options{})
	a.said(t, "mismatch")
	eventually(t, "the agent is not ready because of nvml", func() error {
		if _, err := a.get("/-/ready"); err == nil || !strings.Contains(err.Error(), "nvml: ") {
			return fmt.Errorf("its readiness is %v", err)
		}
		return nil
	})
	a.awaits(t, "the host is seen without the driver", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_source_up", "source", "nvml"), m.expect(1, "vigil_source_up", "source", "host"))
	})
	d.Clear(fakenvml.Sys, "nvmlInit_v2")
	d.show()
	a.ready(t)
	a.awaits(t, "the GPUs are seen once versions match", power(0, 1, 2, 3))
}

func testInitHangs(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	d.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Hang)
	d.show()
	a := d.start(options{})
	a.awaits(t, "a child whose initialisation hangs is replaced and counted", func(m metrics) error {
		if n := m.sum("vigil_child_restarts_total"); n < 2 {
			return fmt.Errorf("%v restarts are counted", n)
		}
		return nil
	})
	if n := len(a.children(t)); n > 1 {
		t.Errorf("%d children exist, though the kernel can end each of them", n)
	}
	a.said(t, "initialize NVML")
	d.Clear(fakenvml.Sys, "nvmlInit_v2")
	d.show()
	a.awaits(t, "the GPUs are seen once the driver starts", power(0, 1, 2, 3))
}

// A driver that is older than what the agent asks it for. Calling what is not
// there kills a process.
func testMissingSymbol(t *testing.T) {
	t.Parallel()
	old, err := fakenvml.Build(t.Context(), t.TempDir(), fakenvml.Options{WithoutSymbols: []string{
		"nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons",
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, 4)
	d.Set(fakenvml.GPU(0), "nvmlDeviceGetMemoryInfo", 80<<30, 49<<30, 31<<30)
	d.show()
	a := d.start(options{args: []string{"--nvml.library-path=" + old}})
	a.ready(t)
	m := a.awaits(t, "what the old driver lacks is said, and the rest is read", func(m metrics) error {
		return errors.Join(
			m.expect(1, "vigil_gpu_unsupported", "gpu", "0", "metric", "vigil_gpu_power_draw_watts"),
			m.absent("vigil_gpu_power_draw_watts"),
			m.expect(31<<30, "vigil_gpu_memory_used_bytes", "gpu", "0"),
			m.expect(80<<30, "vigil_gpu_memory_capacity_bytes", "gpu", "0"),
		)
	})
	if len(m.find("vigil_gpu_utilization_ratio")) != 4 {
		t.Error("utilization, which the old driver has, is not read")
	}
	if n := m.sum("vigil_child_restarts_total"); n != 0 {
		t.Errorf("a missing symbol has cost the child %v times, though it can be looked up before", n)
	}
}

func testLost(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	a := d.start(options{config: quick + "rules: {gpu_lost: {for: 2s, hold: 2s}}\n"})
	a.ready(t)
	a.awaits(t, "all GPUs are present", power(0, 1, 2, 3))
	d.Fault(fakenvml.GPU(1), fakenvml.Every, fakenvml.Error(gpuIsLost))
	d.show()
	a.awaits(t, "the lost GPU is shown as lost, the others as before", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_gpu_present", "gpu", "1"), m.expect(1, "vigil_gpu_present", "gpu", "2"),
			m.absent("vigil_gpu_power_draw_watts", "gpu", "1"), power(0, 2, 3)(m))
	})
	eventually(t, "the lost GPU is a finding, without an Xid error", func() error { return a.finding("gone", detect.Firing) })
	if code, said := a.ask(t, "status"); code != 2 || !strings.Contains(said, "GPU lost") {
		t.Errorf("gpuvigil status exits %d and does not say that a GPU is lost:\n%s", code, said)
	}
	d.Clear(fakenvml.GPU(1), fakenvml.Every)
	d.show()
	a.awaits(t, "the GPU is present when it answers again, under its old index", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_gpu_present", "gpu", "1"), power(0, 1, 2, 3)(m))
	})
	eventually(t, "the finding ends once the GPU answers again", func() error { return a.finding("gone", detect.Resolved) })
}

// When nothing answers any more a new child is tried, once for all GPUs.
func testAllHang(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	a := d.start(options{})
	a.ready(t)
	a.awaits(t, "all GPUs are seen", power(0, 1, 2, 3))
	for gpu := range 4 {
		d.Fault(fakenvml.GPU(gpu), fakenvml.Every, fakenvml.Hang)
	}
	d.show()
	a.awaits(t, "a child of which no GPU answers is replaced, and that is counted", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_child_restarts_total", "reason", "all_gpus_hung"), m.absent("vigil_gpu_power_draw_watts"))
	})
	if n := len(a.children(t)); n > 1 {
		t.Errorf("%d children exist, though the kernel can end each of them", n)
	}
	for gpu := range 4 {
		d.Clear(fakenvml.GPU(gpu), fakenvml.Every)
	}
	d.show()
	m := a.awaits(t, "all GPUs are back once they answer, under their old indices", power(0, 1, 2, 3))
	if n := m.value("vigil_node_gpus_expected"); n != 4 {
		t.Errorf("after a new child the agent expects %v GPUs, want the 4 that there are", n)
	}
}

// A machine without a GPU is watched all the same, and says so in one line.
func testNoDriver(t *testing.T) {
	t.Parallel()
	for _, file := range child.DefaultWatch() {
		if _, err := os.Stat(file); err == nil {
			t.Skipf("this machine has an NVIDIA driver: %s", file)
		}
	}
	a := startAgent(t, options{config: quick})
	a.said(t, "there is no NVIDIA driver here")
	a.ready(t)
	m := a.awaits(t, "the host is seen on a machine without a GPU", func(m metrics) error {
		return m.expect(1, "vigil_source_up", "source", "host")
	})
	if n := m.sum("vigil_child_restarts_total"); n != 0 {
		t.Errorf("a machine without a driver counts as %v restarts of the child", n)
	}
	if n := strings.Count(a.log.String(), "no NVIDIA driver is installed"); n != 1 {
		t.Errorf("the agent says in %d lines that there is no driver, want one", n)
	}
}

// TestRelease lets a driver be replaced under a running agent.
func TestRelease(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	a := d.start(options{})
	a.ready(t)
	a.awaits(t, "all GPUs are seen", power(0, 1, 2, 3))
	if len(mapping(t)) == 0 {
		t.Fatal("no process has the driver's library mapped: the test would prove nothing")
	}

	code, said := a.ask(t, "release", "--for=15m")
	if code != 0 || !strings.Contains(said, "until") {
		t.Fatalf("gpuvigil release exits %d and says %s", code, said)
	}
	// The command promises that the driver is free when it returns.
	for _, pid := range mapping(t) {
		if pid == a.cmd.Process.Pid || slices.Contains(a.children(t), pid) {
			t.Errorf("after gpuvigil release process %d still has the driver's library mapped", pid)
		}
	}
	if left := a.children(t); len(left) > 0 {
		t.Errorf("after gpuvigil release the child %v is still there", left)
	}
	a.awaits(t, "the GPUs are absent while the driver is released", func(m metrics) error { return m.absent("vigil_gpu_power_draw_watts") })
	if _, said := a.ask(t, "status"); !strings.Contains(said, "released until") {
		t.Errorf("gpuvigil status does not say that the driver is released:\n%s", said)
	}

	if code, said := a.ask(t, "release", "--for=0s"); code != 0 {
		t.Fatalf("gpuvigil release --for=0s exits %d and says %s", code, said)
	}
	a.awaits(t, "the GPUs are seen again", power(0, 1, 2, 3))
}

// mapping returns the processes that have the fake library mapped.
func mapping(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/maps")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		maps, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(maps), library) {
			continue // it has ended, or it is somebody else's
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/maps", &pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
