package host

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// tree writes files below a new directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const statBefore = `cpu  100 0 100 1000 0 0 0 0 0 0
cpu0 100 0 100 500 0 0 0 0 0 0
cpu1 0 0 0 500 0 0 0 0 0 0
btime 1760000000
`

// Half a second later cpu0 was busy all the time, cpu1 not at all.
const statAfter = `cpu  150 0 100 1050 0 0 0 0 0 0
cpu0 150 0 100 500 0 0 0 0 0 0
cpu1 0 0 0 550 0 0 0 0 0 0
btime 1760000000
`

func goodNode(t *testing.T) (proc, sys string) {
	t.Helper()
	proc = tree(t, map[string]string{
		"stat":                 statBefore,
		"loadavg":              "1.50 2.50 3.50 2/345 6789\n",
		"meminfo":              "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 200 kB\nSwapFree: 150 kB\n",
		"pressure/cpu":         read(t, "psi-cpu.txt"),
		"pressure/memory":      read(t, "psi-memory.txt"),
		"pressure/io":          read(t, "psi-io.txt"),
		"pressure/irq":         read(t, "psi-irq.txt"),
		"diskstats":            "259 0 nvme0n1 1 0 8 0 1 0 16 0 0 2000 0 0 0 0 0\n259 1 nvme0n1p1 1 0 8 0 1 0 16 0 0 2000 0 0 0 0 0\n7 0 loop0 1 0 800 0 0 0 0 0 0 0 0 0 0 0 0\n",
		"1/net/dev":            read(t, "proc-net-dev.txt"),
		"1/stat":               "1 (init) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n",
		"sys/kernel/osrelease": "6.8.0-1021-nvidia\n",
	})
	sys = tree(t, map[string]string{
		"block/nvme0n1/device/model":    "x",
		"block/loop0/size":              "8",
		"class/net/ib0/device/vendor":   "x",
		"class/net/bond0/address":       "x",
		"class/net/eth0.100/address":    "x",
		"class/net/veth0a1b2c3/address": "x",
		"class/net/lo/address":          "x",
	})
	return proc, sys
}

func sample(t *testing.T, h *Host) *collector.Part {
	t.Helper()
	part, err := h.Sample(context.Background())
	if err != nil {
		t.Fatalf("a healthy node gives an error: %v", err)
	}
	return part
}

func TestHealthyNode(t *testing.T) {
	proc, sys := goodNode(t)
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	first := sample(t, h)
	if first.Node.Has(metric.CPUBusy) {
		t.Error("the first sample has a CPU share, but there is no interval yet to take it over")
	}
	write(t, proc, "stat", statAfter)
	part := sample(t, h)
	r := part.Node.Readings
	for _, want := range []struct {
		d     *metric.Def
		i     int
		value float64
	}{
		{metric.CPUBusy, 0, 0.5},
		{metric.CPUBusiest, 0, 1},
		{metric.CPUCount, 0, 2},
		{metric.CPUSeconds, metric.CPUMode.Index("user"), 1.5},
		{metric.CPUSeconds, metric.CPUMode.Index("idle"), 10.5},
		{metric.Load, 0, 1.5},
		{metric.Load, 2, 3.5},
		{metric.HostMemoryCapacity, 0, 1000 * 1024},
		{metric.HostMemoryAvailable, 0, 400 * 1024},
		{metric.HostSwapUsed, 0, 50 * 1024},
		{metric.PressureSome, 0, 15e-6},
		{metric.PressureSome, 2, 91827.364512},
		{metric.PressureFull, 2, 88112.233445},
		{metric.PressureFull, metric.PSIResource.Index("irq"), 8494e-6}, // the one line that there is
		{metric.DiskBytes, 0, 8 * 512},                                  // the whole device once: no partition, no loop
		{metric.DiskBytes, 1, 16 * 512},
		{metric.DiskIOTime, 0, 2},
		{metric.NetworkBytes, 0, 5000000000}, // ib0 only: no bond, VLAN, veth or lo
		{metric.NetworkBytes, 1, 7000000000},
	} {
		if got := r.ValueAt(want.d, want.i); math.Abs(got-want.value) > 1e-9*math.Abs(want.value) {
			t.Errorf("%s[%d] = %v, want %v", want.d, want.i, got, want.value)
		}
	}
	for _, d := range metric.Of(metric.Node) {
		for i := range d.Width() {
			if v := r.ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
				t.Errorf("%s[%d] = %v is outside of its own range", d, i, v)
			}
		}
	}
	if got := part.Node.Versions; len(got) != 1 || got[0].Value != "6.8.0-1021-nvidia" {
		t.Errorf("versions = %v, want the kernel's", got)
	}
	if want := time.Unix(1760000000, 0); !part.Boot.Equal(want) {
		t.Errorf("boot = %v, want %v", part.Boot, want)
	}
}

func TestWhatTheKernelDoesNotHaveIsAbsent(t *testing.T) {
	proc, sys := goodNode(t)
	if err := os.RemoveAll(filepath.Join(proc, "pressure")); err != nil {
		t.Fatal(err)
	}
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	part := sample(t, h)
	if part.Node.Has(metric.PressureSome) {
		t.Error("a kernel without pressure information shows some")
	}

	proc, sys = goodNode(t)
	if err := os.Remove(filepath.Join(proc, "pressure", "irq")); err != nil {
		t.Fatal(err)
	}
	if h, err = New(proc, sys); err != nil {
		t.Fatal(err)
	}
	irq := metric.PSIResource.Index("irq")
	if r := sample(t, h).Node.Readings; !math.IsNaN(r.ValueAt(metric.PressureFull, irq)) || math.IsNaN(r.ValueAt(metric.PressureFull, irq-1)) {
		t.Error("an older kernel, which does not tell of interrupts, shows their pressure or loses the others'")
	}
}

// A half-written or odd file costs what is in it and nothing else.
func TestOneBadFileCostsOnlyItself(t *testing.T) {
	proc, sys := goodNode(t)
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	write(t, proc, "loadavg", "nonsense")
	part, err := h.Sample(context.Background())
	if err == nil || !strings.Contains(err.Error(), "load average") {
		t.Errorf("the error does not name what could not be read: %v", err)
	}
	if part == nil || !part.Node.Has(metric.HostMemoryCapacity) || part.Node.Has(metric.Load) {
		t.Error("one unreadable file took more than its own readings away")
	}
}

func TestAbsentMountPointsAreNamed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "nothing")
	if _, err := New(absent, absent); err == nil || !strings.Contains(err.Error(), "--path.procfs") {
		t.Errorf("a missing /proc gives %v, want an error that says what to do", err)
	}
}

func TestSumNeverFalls(t *testing.T) {
	var s Sum
	round := func(devices map[string]float64) float64 {
		s.Begin()
		for name, v := range devices {
			s.Add(name, v)
		}
		total, _ := s.End()
		return total
	}
	if got := round(map[string]float64{"a": 100, "b": 50}); got != 150 {
		t.Errorf("first round = %v, want 150", got)
	}
	if got := round(map[string]float64{"a": 110}); got != 160 {
		t.Errorf("b unplugged, a +10: %v, want 160", got)
	}
	if got := round(map[string]float64{"a": 5, "b": 60}); got != 160 {
		t.Errorf("a restarted, b back: %v, want 160", got)
	}
	if got := round(map[string]float64{"a": 6, "b": 61}); got != 162 {
		t.Errorf("both +1: %v, want 162", got)
	}
}

func TestThisMachine(t *testing.T) {
	h, err := New("/proc", "/sys")
	if err != nil {
		t.Fatal(err)
	}
	sample(t, h)
	part := sample(t, h)
	for _, d := range []*metric.Def{metric.CPUSeconds, metric.HostMemoryCapacity, metric.HostMemoryAvailable, metric.CPUCount} {
		if v := part.Node.Value(d); !d.Plausible(v) || v == 0 {
			t.Errorf("%s = %v on the machine that runs this test", d, v)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("stat", statBefore)
	f.Add("loadavg", "1 2 3 4/5 6")
	f.Add("meminfo", "MemTotal: 1 kB")
	f.Add("diskstats", "8 0 sda 1 2 3 4 5 6 7 8 9 10 11")
	f.Add("1/net/dev", "a\nb\neth0: 1 2 3")
	f.Add("pressure/io", "some avg10=1 total=2")
	f.Fuzz(func(t *testing.T, name, content string) {
		switch name {
		case "stat", "loadavg", "meminfo", "diskstats", "1/net/dev", "pressure/io":
		default:
			t.Skip("not a file that is read")
		}
		proc, sys := goodNode(t)
		write(t, proc, name, content)
		h, err := New(proc, sys)
		if err != nil {
			t.Fatal(err)
		}
		part, err := h.Sample(context.Background())
		if part == nil {
			t.Fatalf("no part beside the error %v", err)
		}
	})
}

func BenchmarkSample(b *testing.B) {
	h, err := New("/proc", "/sys")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Sample(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
