package collector

import (
	"testing"
	"time"
)

func TestKernelDriverOfAGPU(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	listed := []GPU{
		{UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", Present: true},
		{UUID: "GPU-2", PCIBusID: "00000000:52:00.0", Present: true},
		{UUID: "GPU-3", PCIBusID: "00000000:9D:00.0", Present: true},
		{UUID: "GPU-4", Present: true}, // its address is not told
	}
	driver := &Part{Time: noon, GPUs: listed}
	bus := &Part{Time: noon, Bus: map[string]string{"0000:1b:00.0": "nvidia", "0000:52:00.0": "vfio-pci"}}
	c := newComposer(SamplerConfig{Node: "n"})
	c.snapshot(noon, []view{{part: driver, interval: time.Second}, {part: bus, interval: time.Second}})
	driver.GPUs = listed[:1]
	s := c.snapshot(noon.Add(time.Second), []view{{part: driver, interval: time.Second}, {part: bus, interval: time.Second}})
	for i, want := range []struct {
		bound string
		given bool
	}{{"nvidia", false}, {"vfio-pci", true}, {NoDevice, false}, {"", false}} {
		if g := &s.GPUs[i]; g.Bound != want.bound || g.GivenAway() != want.given {
			t.Errorf("%s is bound to %q, given away: %t; want %q and %t", g.UUID, g.Bound, g.GivenAway(), want.bound, want.given)
		}
	}
	s = c.snapshot(noon.Add(2*time.Second), []view{{part: driver, interval: time.Second}, {part: &Part{Time: noon}, interval: time.Second}})
	if got := s.GPUs[1].Bound; got != "" {
		t.Errorf("nobody looks at the bus any more, and the GPU is bound to %q", got)
	}
}
