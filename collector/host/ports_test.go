package host

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// adapters copies the recorded sysfs tree to where a test may change it.
func adapters(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "sys"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func samplePorts(t *testing.T, sys string, full bool) []collector.Interface {
	t.Helper()
	part, err := NewPorts(sys, full).Sample(context.Background())
	if err != nil {
		t.Fatalf("healthy ports give an error: %v", err)
	}
	return part.Interfaces
}

func TestPorts(t *testing.T) {
	ports := samplePorts(t, adapters(t), true)
	if len(ports) != 2 {
		t.Fatalf("found %d ports, want one of each adapter", len(ports))
	}
	roce := ports[1]
	roce.Readings = collector.Readings{}
	want := collector.Interface{Device: "mlx5_1", Port: 1, LinkLayer: "Ethernet", State: "DOWN", PhysicalState: "Disabled"}
	if diff := cmp.Diff(want, roce, cmp.Comparer(func(a, b collector.Readings) bool { return true })); diff != "" {
		t.Errorf("the RoCE port is not told as it is (-want +got):\n%s", diff)
	}
	for _, f := range []struct {
		port  int
		d     *metric.Def
		i     int
		value float64
	}{
		{0, metric.InterfaceUp, 0, 1},
		{0, metric.InterfaceSpeed, 0, 50e9},
		{0, metric.InterfaceBytes, 0, 4 * 18126345378},
		{0, metric.InterfaceBytes, 1, 4 * 2880761508848},
		{0, metric.InterfaceErrors, 0, 3},
		{0, metric.InterfaceLinkDowned, 0, 1},
		{0, metric.InterfaceFaults, metric.PortFault.Index("receive"), 1},
		{0, metric.InterfaceFaults, metric.PortFault.Index("transmit_discard"), 2},
		{0, metric.InterfaceWaits, 0, 3599},
		{0, metric.InterfaceRepeats, metric.PortRepeat.Index("ack_timeout"), 131},
		{0, metric.InterfaceRepeats, metric.PortRepeat.Index("duplicate_request"), 41},
		{0, metric.InterfaceRepeats, metric.PortRepeat.Index("adaptive"), 99},
		{0, metric.InterfaceCongestion, 0, math.NaN()},
		{1, metric.InterfaceUp, 0, 0},
		{1, metric.InterfaceSpeed, 0, 25e9},
		{1, metric.InterfaceBytes, 0, 0},
		{1, metric.InterfaceErrors, 0, math.NaN()}, // it does not count any
		{1, metric.InterfaceLinkDowned, 0, math.NaN()},
		{1, metric.InterfaceCongestion, metric.PortCongestion.Index("notified"), 0},
	} {
		if got := ports[f.port].ValueAt(f.d, f.i); got != f.value && !(math.IsNaN(got) && math.IsNaN(f.value)) {
			t.Errorf("%s: %s[%d] = %v, want %v", ports[f.port].Device, f.d, f.i, got, f.value)
		}
	}
	if got := samplePorts(t, adapters(t), false)[0]; got.Has(metric.InterfaceWaits) || got.Has(metric.InterfaceRepeats) {
		t.Error("the default profile asks the adapter for details that it does not show")
	}
}

// What one port does not tell, or tells as text, costs no other reading and is no
// error; what makes no sense is named and costs itself.
func TestOddPortsCostOnlyThemselves(t *testing.T) {
	sys := adapters(t)
	counters := "class/infiniband/mlx5_0/ports/1/counters/"
	write(t, sys, counters+"port_rcv_data", "N/A (no PMA)\n")
	if err := os.RemoveAll(filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/counters")); err != nil {
		t.Fatal(err)
	}
	write(t, sys, "class/infiniband/irdma0/ports/1/state", "4: ACTIVE\n")
	write(t, sys, "class/infiniband/odd/ports/1/rate", "fast\n")
	ports := samplePorts(t, sys, true)
	if len(ports) != 4 {
		t.Fatalf("found %d ports, want 4: an adapter that tells little hides others", len(ports))
	}
	byName := map[string]collector.Interface{}
	for _, p := range ports {
		byName[p.Device] = p
	}
	first := byName["mlx5_0"]
	if first.Has(metric.InterfaceBytes) {
		t.Error("a counter that reads N/A has a value")
	}
	if got := first.ValueAt(metric.InterfaceBytes, 1); got != 4*2880761508848 {
		t.Errorf("beside a counter that reads N/A the other is %v", got)
	}
	if p := byName["mlx5_1"]; p.Has(metric.InterfaceBytes) || p.State != "DOWN" {
		t.Error("a port without counters has some, or no state")
	}
	if p := byName["odd"]; p.Has(metric.InterfaceSpeed) || p.Has(metric.InterfaceUp) {
		t.Error("a port without state or with an unknown rate has one")
	}

	write(t, sys, counters+"link_downed", "many\n")
	part, err := NewPorts(sys, true).Sample(context.Background())
	if err == nil || !strings.Contains(err.Error(), "link_downed") {
		t.Errorf("a counter that is no number gives %v, want its name", err)
	}
	if len(part.Interfaces) != 4 || part.Interfaces[1].Value(metric.InterfaceErrors) != 3 {
		t.Error("a counter that is no number takes others away")
	}
}

// The kernel refuses to read the counters of a port in switch mode.
func TestRefusedCountersAreAbsent(t *testing.T) {
	p := NewPorts(adapters(t), true)
	p.read = func(path string) ([]byte, error) {
		if strings.Contains(path, "mlx5_0") && strings.Contains(path, "counters") {
			return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EINVAL}
		}
		return readSmall(path)
	}
	part, err := p.Sample(context.Background())
	if err != nil || len(part.Interfaces) != 2 {
		t.Fatalf("a port that refuses its counters: %d ports, %v", len(part.Interfaces), err)
	}
	if i := part.Interfaces[0]; i.Has(metric.InterfaceBytes) || i.Has(metric.InterfaceErrors) || i.Value(metric.InterfaceUp) != 1 {
		t.Error("a port that refuses its counters has some, or has lost its state")
	}
	if !part.Interfaces[1].Has(metric.InterfaceBytes) {
		t.Error("a port that refuses its counters costs the other port's")
	}
}

// Any other failure is told.
func TestUnreadablePortIsNamed(t *testing.T) {
	sys := adapters(t)
	write(t, sys, "class/infiniband/bad/ports/1/state/x", "")
	part, err := NewPorts(sys, false).Sample(context.Background())
	if err == nil || !strings.Contains(err.Error(), "bad/ports/1/state") || len(part.Interfaces) != 3 {
		t.Errorf("a port that cannot be read: %v, %d ports", err, len(part.Interfaces))
	}
}

func TestNoAdapter(t *testing.T) {
	if ports := samplePorts(t, t.TempDir(), true); len(ports) != 0 {
		t.Errorf("a node without adapters has %d ports", len(ports))
	}
}

func FuzzPort(f *testing.F) {
	for _, s := range []string{"4: ACTIVE", "400 Gb/sec (4X NDR)", "N/A (no PMA)", "18446744073709551615", "-1", "\xff", ""} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		for _, name := range []string{"state", "rate", "link_layer", "counters/port_rcv_data", "counters/symbol_error"} {
			write(t, dir, "class/infiniband/x/ports/1/"+name, content)
		}
		part, _ := NewPorts(dir, true).Sample(context.Background()) // what is odd is named in the error
		if len(part.Interfaces) != 1 {
			t.Fatalf("%q costs the port", content)
		}
		for _, d := range metric.Of(metric.Interface) {
			for i := range d.Width() {
				if v := part.Interfaces[0].ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
					t.Errorf("%q gives %s = %v", content, d, v)
				}
			}
		}
	})
}
