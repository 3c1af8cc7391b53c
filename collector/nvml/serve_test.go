//go:build linux && cgo

package nvml

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

func TestServeIdentifiesGPUsAndVersions(t *testing.T) {
	n := newNode(t, 2)
	n.Set(fakenvml.GPU(1), "nvmlDeviceGetVbiosVersion", "96.00.74.00.01")
	n.Fault(fakenvml.GPU(1), "nvmlDeviceGetPcieThroughput/0", fakenvml.Delay(40*time.Millisecond))
	n.start()
	p := n.complete()

	type identity struct {
		Index                                 int
		UUID, Model, Bus, Serial, VBIOS, Arch string
		Present, Hung, MIG                    bool
		Unsupported                           string
	}
	var got []identity
	for _, g := range p.GPUs {
		got = append(got, identity{g.Index, g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture, g.Present, g.Hung, g.MIG, names(g.Unsupported)})
	}
	want := []identity{
		{0, uuid(0), "NVIDIA H100 80GB HBM3", "00000000:1B:00.0", "165000", "96.00.89.00.01", "Hopper", true, false, false, ""},
		{1, uuid(1), "NVIDIA H100 80GB HBM3", "00000000:1C:00.0", "165001", "96.00.74.00.01", "Hopper", true, false, false, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity of the GPUs (-want +got):\n%s", diff)
	}
	versions := []collector.Version{
		{Component: "cuda", Value: "13.0"}, {Component: "driver", Value: "580.65.06"}, {Component: "nvml", Value: "13.580.65.06"},
		{Component: "vbios", Value: "96.00.74.00.01,96.00.89.00.01"},
	}
	if diff := cmp.Diff(versions, p.Node.Versions); diff != "" {
		t.Errorf("versions of the node (-want +got):\n%s", diff)
	}
	n.await("a count of two", func(p *collector.Part) bool { return p.Node.Value(metric.GPUsSeen) == 2 })
	n.value("node", p.Node.Readings, metric.NVMLErrors, 0, 0)
	n.value("node", p.Node.Readings, metric.NVMLHung, 0, 0)
	if calls := p.Node.Value(metric.NVMLCalls); calls < 60 {
		t.Errorf("only %v NVML calls are counted for two GPUs", calls)
	}
	if s := p.Node.Value(metric.NVMLSeconds); !(s > 0.04) {
		t.Errorf("%v s are counted in NVML, and one call alone takes 0.04 s", s)
	}
}

func TestServeEndsWhenTold(t *testing.T) {
	n := newNode(t, 1)
	n.start()
	n.complete()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, said := n.exit(); status != 0 {
		t.Errorf("after SIGTERM the child exits with %d:\n%s", status, said)
	}
	if calls := n.calls(fakenvml.Sys); !slices.Contains(calls, "nvmlShutdown") || !slices.Contains(calls, "nvmlEventSetFree") {
		t.Errorf("NVML was not shut down: %v", calls)
	}
}

func TestServeWithoutGPUsIsNoError(t *testing.T) {
	n := newNode(t, 0)
	n.start()
	p := n.await("a count of none", func(p *collector.Part) bool { return p.Node.Value(metric.GPUsSeen) == 0 })
	if len(p.GPUs) != 0 || len(p.Node.Versions) != 3 {
		t.Errorf("a node without GPUs has %d GPUs and versions %v", len(p.GPUs), p.Node.Versions)
	}
}

func TestServeGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*node)
		say     string
	}{
		"version mismatch at init": {func(n *node) {
			n.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(nvml.ERROR_LIB_RM_VERSION_MISMATCH))
		}, "initialize NVML: nvmlInit: driver/library version mismatch; the driver was upgraded"},
		"driver not loaded": {func(n *node) {
			n.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(nvml.ERROR_DRIVER_NOT_LOADED))
		}, "driver not loaded; load the nvidia kernel module"},
		"init hangs": {func(n *node) {
			n.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Hang)
			n.initLimit = 100 * time.Millisecond
		}, "initialize NVML: the driver has not answered for 100ms"},
		"no library": {func(n *node) {
			n.library = "/nonexistent/libnvidia-ml.so.1"
		}, "load /nonexistent/libnvidia-ml.so.1:"},
		"no NVML": {func(n *node) {
			n.library = fakeLibrary(n.T, "nvmlInit_v2", "nvmlDeviceGetUUID")
		}, "has no function nvmlDeviceGetUUID"},
		"no procfs": {func(n *node) {
			n.procfs = "/nonexistent"
		}, "say where the host's procfs is mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			test.prepare(n)
			n.start()
			if status, said := n.exit(); status != 3 || !strings.Contains(said, test.say) {
				t.Errorf("the child exits with %d, want 3 and %q, and says:\n%s", status, test.say, said)
			}
		})
	}
}

func TestServeGivesUpWhenTheDriverGoes(t *testing.T) {
	for name, key := range map[string]string{"a GPU's call": "nvmlDeviceGetPowerUsage", "finding a GPU": "nvmlDeviceGetHandleByIndex_v2"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.start()
			n.complete()
			n.Fault(fakenvml.GPU(0), key, fakenvml.Error(nvml.ERROR_LIB_RM_VERSION_MISMATCH))
			n.write()
			if status, said := n.exit(); status != 3 || !strings.Contains(said, "driver/library version mismatch") {
				t.Errorf("the child exits with %d, want 3, and says:\n%s", status, said)
			}
		})
	}
}

func TestUnsupportedFieldIsAskedOnceAndAbsent(t *testing.T) {
	n := newNode(t, 2)
	n.Unset(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage")
	n.Fault(fakenvml.GPU(0), "nvmlDeviceGetTotalEccErrors", fakenvml.Error(nvml.ERROR_NO_PERMISSION))
	n.Unset(fakenvml.GPU(0), "nvmlDeviceGetClockInfo/3")
	n.Set(fakenvml.GPU(0), "nvmlDeviceGetSupportedEventTypes", 0)
	n.start()
	n.complete()
	p := n.await("some rounds more", func(p *collector.Part) bool { return p.Node.Value(metric.NVMLCalls) > 500 })

	want := []*metric.Def{metric.ECCErrors, metric.ECCLifetimeErrors, metric.PowerDraw, metric.XidErrors}
	if diff := cmp.Diff(names(want), names(p.GPUs[0].Unsupported)); diff != "" {
		t.Errorf("unsupported on GPU 0 (-want +got):\n%s", diff)
	}
	if len(p.GPUs[1].Unsupported) != 0 {
		t.Errorf("GPU 1 supports everything, but says it lacks %s", names(p.GPUs[1].Unsupported))
	}
	n.value("GPU 0", p.GPUs[0].Readings, metric.PowerDraw, 0, absent)
	n.value("GPU 0", p.GPUs[0].Readings, metric.Clock, 3, absent)
	n.value("GPU 0", p.GPUs[0].Readings, metric.Clock, 2, 1002e6)
	n.value("GPU 0", p.GPUs[0].Readings, metric.ECCErrors, 0, absent)
	n.value("GPU 1", p.GPUs[1].Readings, metric.PowerDraw, 0, 350)
	n.value("node", p.Node.Readings, metric.NVMLErrors, 0, 4) // no permission is counted, not supported is not
	asked := 0
	for _, key := range n.calls(fakenvml.GPU(0)) {
		if key == "nvmlDeviceGetPowerUsage" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the call that is not supported was made %d times, want once", asked)
	}
}

func TestOlderDriverIsAskedTheOlderQuestion(t *testing.T) {
	n := newNode(t, 1)
	n.library = fakeLibrary(t, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTotalEnergyConsumption",
		computeList+"_v3", "nvmlDeviceGetPciInfo_v3")
	n.Set(fakenvml.GPU(0), computeList, []any{4711, 1 << 30}...)
	n.start()
	p := n.complete()
	g := p.GPUs[0]
	n.value("GPU", g.Readings, metric.MemoryUsed, 0, 31<<30)
	n.value("GPU", g.Readings, metric.MemoryReserved, 0, absent)
	n.value("GPU", g.Readings, metric.ClockEvent, metric.ClockReason.Index("sw_thermal"), 1)
	n.value("GPU", g.Readings, metric.Energy, 0, absent)
	n.value("GPU", g.Readings, metric.ProcessCount, 0, 1)
	if got, want := names(g.Unsupported), names([]*metric.Def{metric.MemoryReserved, metric.Energy}); got != want {
		t.Errorf("unsupported: %s, want %s", got, want)
	}
}

// Any function may be missing: the process must not call it, and must go on.
func TestEveryFunctionMayBeMissing(t *testing.T) {
	whole := everything(t)
	whole.start()
	whole.complete()
	whole.await("an Xid event", func(p *collector.Part) bool { return whole.xid(p) })
	seen := map[string]bool{}
	for _, entity := range []string{fakenvml.Sys, fakenvml.GPU(0), fakenvml.GPU(1), fakenvml.MIG(1, 0)} {
		for _, key := range whole.calls(entity) {
			function, _, _ := strings.Cut(key, "/")
			seen[function] = true
		}
	}
	const groups = 4
	without := make([][]string, groups)
	i := 0
	for function := range seen {
		if slices.Contains(required, function) {
			continue
		}
		function = strings.TrimSuffix(strings.TrimSuffix(function, "_v3"), "_v2")
		if function == "nvmlDeviceGetMemoryInfo" {
			function += "_v2"
		}
		without[i%groups] = append(without[i%groups], symbols(function)...)
		i++
	}
	if i < 35 {
		t.Fatalf("only %d functions were called: %v", i, seen)
	}
	for _, missing := range without {
		t.Run("", func(t *testing.T) {
			n := everything(t)
			n.library = fakeLibrary(t, missing...)
			n.start()
			for range 30 {
				n.next()
			}
			p := n.await("both GPUs", func(p *collector.Part) bool { return len(p.GPUs) == 2 })
			if !p.GPUs[0].Present || !p.GPUs[1].Present {
				t.Errorf("without %v a GPU is not present", missing)
			}
		})
	}
}

// symbols returns what a driver without the function lacks.
func symbols(function string) []string {
	switch function {
	case "nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetMemoryInfo_v2":
		return []string{strings.TrimSuffix(function, "_v2") + "_v2"}
	}
	return versions(function)
}

// everything is a node that makes the child use all that it knows.
func everything(t *testing.T) *node {
	t.Helper()
	n := newNode(t, 2)
	n.slice(1, 0)
	n.Set(fakenvml.MIG(1, 0), "nvmlDeviceGetName", "a name without a profile")
	n.Set(fakenvml.MIG(1, 0), "nvmlDeviceGetAttributes_v2", 16, 1, 1, 0, 1, 0, 1, 1, 9856)
	return n
}

// xid lets an Xid error fall on GPU 0 until one was seen: one that falls before
// the child listens is lost.
func (n *node) xid(p *collector.Part) bool {
	if len(p.GPUs) > 0 && len(p.GPUs[0].Xids) > 0 {
		return true
	}
	n.Event(fakenvml.GPU(0), nvml.EventTypeXidCriticalError, 31)
	n.write()
	return false
}
