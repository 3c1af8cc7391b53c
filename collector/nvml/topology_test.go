//go:build linux && cgo

package nvml

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

func TestPlaceOfAGPU(t *testing.T) {
	for _, full := range []bool{true, false} {
		n := newNode(t, 3)
		n.full = full
		n.Set(fakenvml.GPU(0), "nvmlDeviceGetCudaComputeCapability", 9, 0)
		n.Set(fakenvml.GPU(0), "nvmlDeviceGetCpuAffinity", "0xffffffff", 0b1011)
		n.Set(fakenvml.GPU(0), "nvmlDeviceGetMemoryAffinity/0", 0b10)
		n.Set(fakenvml.GPU(0), fakenvml.Key("nvmlDeviceGetTopologyCommonAncestor", 1), int(nvml.TOPOLOGY_MULTIPLE))
		n.Set(fakenvml.GPU(0), fakenvml.Key("nvmlDeviceGetTopologyCommonAncestor", 2), int(nvml.TOPOLOGY_SYSTEM))
		n.Set(fakenvml.GPU(1), fakenvml.Key("nvmlDeviceGetTopologyCommonAncestor", 2), 4711) // of a later driver
		n.Set(fakenvml.GPU(1), "nvmlDeviceGetCpuAffinity", 0)
		n.start()
		n.complete()
		p := n.await("the GPU's place", func(p *collector.Part) bool { return !full || len(p.GPUs[0].Paths) == 2 })
		g := p.GPUs[0]
		if got, want := [3]string{g.ComputeCapability, g.CPUs, g.NUMANodes}, [3]string{"9.0", "0-31,64-65,67", "1"}; got != want {
			t.Errorf("compute capability, CPUs and NUMA nodes are %q, want %q", got, want)
		}
		if g := p.GPUs[1]; g.ComputeCapability != "" || g.CPUs != "" || g.NUMANodes != "" || g.Paths != nil {
			t.Errorf("of a GPU of which the driver tells nothing is told %q %q %q %v", g.ComputeCapability, g.CPUs, g.NUMANodes, g.Paths)
		}
		var want []collector.Path
		if full {
			want = []collector.Path{{UUID: uuid(1), Level: "multiple"}, {UUID: uuid(2), Level: "system"}}
		}
		if diff := cmp.Diff(want, g.Paths); diff != "" {
			t.Errorf("full profile %v: paths to the other GPUs (-want +got):\n%s", full, diff)
		}
		if !full {
			continue
		}
		at := g.SampledAt(metric.Inventory)
		n.await("two more inventories", func(p *collector.Part) bool {
			return p.GPUs[0].SampledAt(metric.Inventory).Sub(at) > inventoryEvery*2
		})
		for _, key := range []string{"nvmlDeviceGetCpuAffinity", "nvmlDeviceGetTopologyCommonAncestor/1"} {
			if asked := strings.Count(strings.Join(n.calls(fakenvml.GPU(0)), " ")+" ", key+" "); asked != 1 {
				t.Errorf("%s is asked %d times, and the answer does not change", key, asked)
			}
		}
	}
}

func TestSetsAreWrittenForALabel(t *testing.T) {
	every := func(n int) []uint {
		words := make([]uint, 4)
		for i := 0; i < 256; i += n {
			words[i/64] |= 1 << (i % 64)
		}
		return words
	}
	for want, words := range map[string][]uint{
		"":                             {0, 0},
		"0":                            {1},
		"63-64":                        {1 << 63, 1},
		"0-127":                        {^uint(0), ^uint(0)},
		"0,2,64,100":                   {5, 1 | 1<<36, 0},
		"0x" + strings.Repeat("5", 64): every(2),
	} {
		if got := setOf(words); got != want {
			t.Errorf("the set %x is written %q, want %q", words, got, want)
		}
	}
}

// The newer question is asked first, and the older one where a driver refuses it.
func TestTemperatureOfOlderDrivers(t *testing.T) {
	for name, prepare := range map[string]func(*node){
		"refuses":  func(n *node) { n.Unset(fakenvml.GPU(0), "nvmlDeviceGetTemperatureV/0") },
		"lacks it": func(n *node) { n.library = fakeLibrary(n.T, "nvmlDeviceGetTemperatureV") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.Set(fakenvml.GPU(0), "nvmlDeviceGetTemperature/0", 48)
			prepare(n)
			n.start()
			p := n.await("the temperature", func(p *collector.Part) bool { return len(p.GPUs) > 0 && p.GPUs[0].Has(metric.Temperature) })
			n.value("GPU", p.GPUs[0].Readings, metric.Temperature, 0, 48)
			if got := names(p.GPUs[0].Unsupported); strings.Contains(got, metric.Temperature.Name) {
				t.Errorf("unsupported: %s", got)
			}
		})
	}
}
