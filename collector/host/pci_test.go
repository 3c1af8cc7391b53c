package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// device puts a PCI device into a sysfs. driver "" leaves it without one.
func device(t *testing.T, sys, address, vendor, class, driver string) string {
	t.Helper()
	dir := filepath.Join(sys, pciFolder, address)
	write(t, dir, "vendor", vendor+"\n")
	write(t, dir, "class", class+"\n")
	if driver != "" {
		link(t, filepath.Join("..", "..", "..", "bus", "pci", "drivers", driver), filepath.Join(dir, "driver"))
	}
	return dir
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func TestGPUsOnBus(t *testing.T) {
	sys := t.TempDir()
	if got, err := GPUsOnBus(sys); got.Total() != 0 || err != nil {
		t.Errorf("a machine without PCI has %d GPUs, %v, want none", got.Total(), err)
	}
	device(t, sys, "0000:1b:00.0", "0x10de", "0x030200", "nvidia") // an H100
	device(t, sys, "0000:43:00.0", "0x10de", "0x030200", "nvidia")
	device(t, sys, "0000:52:00.0", "0x10de", "0x030200", "vfio-pci")
	device(t, sys, "0000:61:00.0", "0x10de", "0x030000", "nouveau")
	device(t, sys, "0000:9d:00.0", "0x10de", "0x030200", "")
	device(t, sys, "0000:05:00.0", "0x10de", "0x068000", "nvidia-nvswitch") // a bridge
	device(t, sys, "0000:61:00.1", "0x10de", "0x040300", "snd_hda_intel")   // the card's sound
	device(t, sys, "0000:02:00.0", "0x1a03", "0x030000", "ast")             // the board's own display
	part := device(t, sys, "0000:1b:00.4", "0x10de", "0x030200", "nvidia")
	link(t, "../0000:1b:00.0", filepath.Join(part, "physfn"))
	write(t, filepath.Join(sys, pciFolder, "0000:ff:00.0"), "uevent", "") // goes away just now

	got, err := GPUsOnBus(sys)
	if err != nil || got != (BusGPUs{2, 1, 1, 1}) || got.Total() != 4 {
		t.Errorf("GPUs on the bus are %v with a total of %d, %v, want %v and 4: by driver %v",
			got, got.Total(), err, BusGPUs{2, 1, 1, 1}, metric.PCIDriver.Values)
	}
}

func TestDriverOfEachGPU(t *testing.T) {
	proc, sys := goodNode(t)
	device(t, sys, "0000:1b:00.0", "0x10de", "0x030200", "nvidia")
	device(t, sys, "0000:52:00.0", "0x10de", "0x030200", "vfio-pci")
	device(t, sys, "0000:9d:00.0", "0x10de", "0x030200", "")
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	part, err := h.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"0000:1b:00.0": "nvidia", "0000:52:00.0": "vfio-pci", "0000:9d:00.0": collector.NoDriver}
	if diff := cmp.Diff(want, part.Bus); diff != "" {
		t.Errorf("which driver has which GPU (-want +got):\n%s", diff)
	}
}

func TestGPUsOnBusAreReadings(t *testing.T) {
	proc, sys := goodNode(t)
	device(t, sys, "0000:1b:00.0", "0x10de", "0x030200", "")
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	r := sample(t, h).Node.Readings
	for i, want := range []float64{0, 0, 0, 1} {
		if got := r.ValueAt(metric.PCIGPUs, i); got != want {
			t.Errorf("GPUs with driver %s: %v, want %v", metric.PCIDriver.Values[i], got, want)
		}
	}
}

func TestBusThatCannotBeReadIsAbsentAndSaid(t *testing.T) {
	proc, sys := goodNode(t)
	write(t, sys, pciFolder, "no folder")
	h, err := New(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		part, err := h.Sample(t.Context())
		if err == nil || !strings.Contains(err.Error(), "PCI bus") || part.Node.Has(metric.PCIGPUs) || !part.Node.Has(metric.CPUCount) {
			t.Errorf("a bus that cannot be read: error %v, GPUs %v", err, part.Node.Value(metric.PCIGPUs))
		}
	}
}
