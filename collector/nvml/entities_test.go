//go:build linux && cgo

package nvml

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

func TestMIG(t *testing.T) {
	n := newNode(t, 2)
	gpu := fakenvml.GPU(1)
	for _, slot := range []int{0, 2, 3} { // a hole at 1
		n.slice(1, slot)
	}
	n.Set(fakenvml.MIG(1, 2), "nvmlDeviceGetName", "a name without a profile")
	n.Set(fakenvml.MIG(1, 2), "nvmlDeviceGetAttributes_v2", 32, 2, 2, 0, 2, 0, 2, 1, 19968)
	n.Fault(fakenvml.MIG(1, 3), "nvmlDeviceGetUUID", fakenvml.Error(nvml.ERROR_UNKNOWN))
	for _, function := range []string{"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization", processUsage} {
		n.Unset(gpu, function)
	}
	n.Add(fakenvml.MIG(1, 0), computeList, 4711, 5<<30, 7, 0)
	n.Add(fakenvml.MIG(1, 0), computeList, 4712, -1, 7, 0)
	n.start()
	n.complete()
	p := n.await("what GPU 1 lacks, which is told after the readings", func(p *collector.Part) bool { return len(p.GPUs[1].Unsupported) > 0 })

	type instance struct {
		GPU, GI, CI            int
		UUID, MIGUUID, Profile string
		Used, Processes        float64
	}
	var got []instance
	for _, i := range p.Instances {
		got = append(got, instance{i.GPU, i.GI, i.CI, i.UUID, i.MIGUUID, i.Profile, i.Value(metric.MIGMemoryUsed), i.Value(metric.MIGProcesses)})
	}
	want := []instance{
		{1, 7, 0, uuid(1), migUUID(1, 0), "1g.10gb", 2 << 30, 2},
		{1, 9, 0, uuid(1), migUUID(1, 2), "1c.2g.20gb", 2 << 30, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MIG instances (-want +got):\n%s", diff)
	}
	g := p.GPUs[1]
	if !g.MIG || p.GPUs[0].MIG {
		t.Errorf("MIG mode is %v and %v, want it on GPU 1 only", p.GPUs[0].MIG, g.MIG)
	}
	if got, want := names(g.Unsupported), names(append(usageRows[:], metric.Utilization, metric.MemoryUtilization,
		metric.EncoderUtilization, metric.DecoderUtilization)); got != want {
		t.Errorf("unsupported in MIG mode: %s, want %s", got, want)
	}
	n.value("GPU in MIG mode", g.Readings, metric.Utilization, 0, absent)
	n.value("GPU in MIG mode", g.Readings, metric.PowerDraw, 0, 350)
	n.value("GPU with an instance that cannot be read", g.Readings, metric.ProcessCount, 0, absent)
	if len(p.Processes) != 2 || p.Processes[0].MIG != "7/0" || p.Processes[0].UUID != uuid(1) {
		t.Errorf("processes of the instances: %+v", p.Processes)
	}
	if p.Node.Value(metric.NVMLErrors) == 0 {
		t.Error("the instance that cannot be read is not counted")
	}

	// MIG is reconfigured while we look, and then switched off.
	n.Clear(fakenvml.MIG(1, 3), "nvmlDeviceGetUUID")
	n.Remove(fakenvml.MIG(1, 0))
	n.write()
	n.await("the other instances", func(p *collector.Part) bool {
		return len(p.Instances) == 2 && p.Instances[0].GI == 9 && p.Instances[1].GI == 10 && p.Instances[1].Has(metric.MIGMemoryUsed)
	})
	n.Set(gpu, "nvmlDeviceGetMigMode", 0, 0)
	n.Set(gpu, "nvmlDeviceGetUtilizationRates", 50, 51)
	n.write()
	n.await("a whole GPU", func(p *collector.Part) bool {
		return !p.GPUs[1].MIG && len(p.Instances) == 0 && p.GPUs[1].Value(metric.Utilization) == metric.Utilization.FromRaw(50)
	})
}

func TestProcesses(t *testing.T) {
	n := newNode(t, 2)
	gpu := fakenvml.GPU(0)
	n.Add(gpu, computeList, 4711, 8<<30)
	n.Add(gpu, computeList, 99, -1)
	n.Add(gpu, graphicsList, 4711, 9<<30)
	n.Add(gpu, mpsList, 4712, 1<<30)
	n.Add(fakenvml.GPU(1), computeList, 4711, 2<<30)
	n.Set(gpu, processUsage, 4711, 30, 1, 2, 3, "now")
	n.Add(gpu, processUsage, 4711, 50, 1, 2, 3, "now")
	n.Add(gpu, processUsage, 4712, 3_000_000, 1, 2, 3, "now")
	n.start()
	p := n.complete()

	type process struct {
		PID, GPU, UID int
		Start         uint64
		Name, UUID    string
		Memory, Usage float64
	}
	var got []process
	for _, p := range p.Processes {
		got = append(got, process{p.PID, p.GPU, p.UID, p.Start, p.Name, p.UUID, p.Value(metric.ProcessMemoryUsed), p.Value(metric.ProcessUtilization)})
	}
	want := []process{
		{99, 0, -1, 0, "", uuid(0), absent, absent},
		{4711, 0, 1001, 123456, "python3", uuid(0), 9 << 30, metric.ProcessUtilization.FromRaw(40)},
		{4712, 0, 0, 777, "e [31m\uFFFDvil", uuid(0), 1 << 30, absent},
		{4711, 1, 1001, 123456, "python3", uuid(1), 2 << 30, absent},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	n.value("GPU 0", p.GPUs[0].Readings, metric.ProcessCount, 0, 3)
	n.value("GPU 0, where a process does not tell its memory", p.GPUs[0].Readings, metric.ProcessMemory, 0, absent)
	n.value("GPU 1", p.GPUs[1].Readings, metric.ProcessMemory, 0, 2<<30)
	if dropped := p.GPUs[0].Dropped[metric.ProcessUtilization]; dropped != 1 {
		t.Errorf("%d junk utilizations are counted, want 1", dropped)
	}
	if at := p.GPUs[0].SampledAt(metric.Processes); time.Since(at) > patience || !p.Processes[0].SampledAt(metric.Processes).Equal(at) {
		t.Errorf("processes were listed at %v, and the process says %v", at, p.Processes[0].SampledAt(metric.Processes))
	}
}

func TestDriverWithBadProcessListsHasNone(t *testing.T) {
	n := newNode(t, 1)
	n.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", "535.54.03")
	n.Add(fakenvml.GPU(0), computeList, 4711, 8<<30)
	n.start()
	n.complete()
	p := n.await("what the GPU lacks, which is told after the readings", func(p *collector.Part) bool { return len(p.GPUs[0].Unsupported) > 0 })
	if len(p.Processes) != 0 {
		t.Errorf("a driver that writes garbage is believed: %+v", p.Processes)
	}
	want := names(append([]*metric.Def{metric.ProcessCount, metric.ProcessMemory, metric.ProcessMemoryUsed}, usageRows[:]...))
	if got := names(p.GPUs[0].Unsupported); got != want {
		t.Errorf("unsupported: %s, want %s", got, want)
	}
	for _, key := range n.calls(fakenvml.GPU(0)) {
		if strings.Contains(key, "Process") {
			t.Errorf("the driver is asked %s", key)
		}
	}
}

func TestXidsAreCountedAndDeliveredOnce(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.complete()
	delivered := map[int]int{}
	uuids := map[string]bool{}
	seen := func(p *collector.Part) bool {
		for _, e := range p.Events {
			if e.Kind == collector.XidEvent {
				delivered[e.Code]++
				uuids[e.UUID] = true
			}
		}
		return len(p.GPUs[1].Xids) == 2 && p.GPUs[1].Xids[1].Count == 2
	}
	n.Event(fakenvml.GPU(1), nvml.EventTypeXidCriticalError, 13)
	n.Event(fakenvml.GPU(1), nvml.EventTypePState, 5) // not asked for
	n.Event(fakenvml.GPU(1), nvml.EventTypeXidCriticalError, 79)
	n.Event(fakenvml.GPU(1), nvml.EventTypeXidCriticalError, 79)
	n.write()
	p := n.await("three Xid errors", seen)
	for range 20 {
		seen(n.next())
	}
	if diff := cmp.Diff(map[int]int{13: 1, 79: 2}, delivered); diff != "" {
		t.Errorf("Xid events over all parts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{uuid(1): true}, uuids); diff != "" {
		t.Errorf("GPUs of the Xid events (-want +got):\n%s", diff)
	}
	if x := p.GPUs[1].Xids; x[0].Code != 13 || x[0].Count != 1 || x[1].Code != 79 || time.Since(x[1].Last).Abs() > patience || len(p.GPUs[0].Xids) != 0 {
		t.Errorf("Xids of GPU 1: %+v, of GPU 0: %+v", x, p.GPUs[0].Xids)
	}
}
