//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

func TestLostGPUStaysKnownAndComesBack(t *testing.T) {
	for name, code := range map[string]nvml.Return{"lost": nvml.ERROR_GPU_IS_LOST, "reset required": nvml.ERROR_RESET_REQUIRED} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			n.start()
			n.complete()
			n.Fault(fakenvml.GPU(0), fakenvml.Every, fakenvml.Error(code))
			n.write()
			p := n.await("GPU 0 to be gone", func(p *collector.Part) bool { return !p.GPUs[0].Present })
			g := p.GPUs[0]
			if g.UUID != uuid(0) || g.Index != 0 || g.Model == "" || g.Hung {
				t.Errorf("the lost GPU is not itself any more: %+v", g)
			}
			for i, v := range g.Vector() {
				if !math.IsNaN(v) {
					t.Errorf("the lost GPU has a reading in column %d: %v", i, v)
				}
			}
			from := p.GPUs[1].SampledAt(metric.Fast)
			n.await("GPU 1 to be sampled on", func(p *collector.Part) bool {
				return p.GPUs[1].Present && p.GPUs[1].SampledAt(metric.Fast).After(from)
			})
			n.Clear(fakenvml.GPU(0), fakenvml.Every)
			n.Set(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", 123_000)
			n.write()
			n.await("GPU 0 to be back", func(p *collector.Part) bool {
				return p.GPUs[0].Present && p.GPUs[0].UUID == uuid(0) && p.GPUs[0].Value(metric.PowerDraw) == 123
			})
		})
	}
}

func TestIndexIsKeptWhenGPUsChangePlaces(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.complete()
	// The first GPU falls off the bus and the second takes its place in the list.
	n.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", 1)
	n.Remove(fakenvml.GPU(0))
	n.Remove(fakenvml.GPU(1))
	n.fill(0)
	n.Set(fakenvml.GPU(0), "nvmlDeviceGetUUID", uuid(1))
	n.Set(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", 77_000)
	n.write()
	p := n.await("the second GPU in the first slot", func(p *collector.Part) bool {
		return !p.GPUs[0].Present && p.GPUs[1].Value(metric.PowerDraw) == 77
	})
	if a, b := p.GPUs[0], p.GPUs[1]; a.UUID != uuid(0) || a.Index != 0 || b.UUID != uuid(1) || b.Index != 1 || !b.Present {
		t.Errorf("GPUs are %s at %d and %s at %d, want them where they were first seen", a.UUID, a.Index, b.UUID, b.Index)
	}
	n.await("a count of one", func(p *collector.Part) bool { return p.Node.Value(metric.GPUsSeen) == 1 })

	// A third one is plugged in.
	n.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", 2)
	n.fill(1)
	n.Set(fakenvml.GPU(1), "nvmlDeviceGetUUID", uuid(2))
	n.write()
	n.await("the new GPU", func(p *collector.Part) bool {
		return len(p.GPUs) == 3 && slices.ContainsFunc(p.GPUs, func(g collector.GPU) bool { return g.UUID == uuid(2) && g.Has(metric.PowerDraw) })
	})
}

func TestHungGPUCostsOnlyItself(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.complete()
	n.Fault(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", fakenvml.Hang)
	n.write()
	p := n.await("GPU 0 to hang", func(p *collector.Part) bool { return p.GPUs[0].Hung })
	stuck, asked := p.GPUs[0].SampledAt(metric.Fast), len(n.calls(fakenvml.GPU(0)))
	for range 5 {
		from := p.GPUs[1].SampledAt(metric.Fast)
		p = n.await("GPU 1 to be sampled on", func(p *collector.Part) bool { return p.GPUs[1].SampledAt(metric.Fast).After(from) })
		if g := p.GPUs[0]; !g.Hung || !g.Present || !g.SampledAt(metric.Fast).Equal(stuck) {
			t.Errorf("the hung GPU: hung %v, present %v, sampled at %v, want true, true, %v", g.Hung, g.Present, g.SampledAt(metric.Fast), stuck)
		}
		n.value("node", p.Node.Readings, metric.NVMLHung, 0, 1)
		n.value("GPU 1", p.GPUs[1].Readings, metric.PowerDraw, 0, 350)
	}
	if now := len(n.calls(fakenvml.GPU(0))); now != asked {
		t.Errorf("%d more calls were made on a GPU that has one in flight", now-asked)
	}
	n.Clear(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage")
	n.write()
	n.await("GPU 0 to be sampled again", func(p *collector.Part) bool {
		return !p.GPUs[0].Hung && p.GPUs[0].SampledAt(metric.Fast).After(stuck) && p.GPUs[0].Value(metric.PowerDraw) == 350 &&
			p.Node.Value(metric.NVMLHung) == 0
	})
}

func TestHungFromTheStart(t *testing.T) {
	n := newNode(t, 2)
	n.Fault(fakenvml.GPU(0), "nvmlDeviceGetUUID", fakenvml.Hang)
	n.start()
	p := n.await("GPU 1", func(p *collector.Part) bool { return p.Node.Value(metric.NVMLHung) == 1 && len(p.GPUs) == 1 })
	if p.GPUs[0].UUID != uuid(1) || !p.GPUs[0].Has(metric.PowerDraw) {
		t.Errorf("GPU 1 is not sampled beside one that hangs: %+v", p.GPUs[0])
	}
	n.await("a count of two", func(p *collector.Part) bool { return p.Node.Value(metric.GPUsSeen) == 2 })
}

func TestFailingCallCostsItsValue(t *testing.T) {
	for name, code := range map[string]nvml.Return{"unknown": nvml.ERROR_UNKNOWN, "timeout": nvml.ERROR_TIMEOUT, "one from the future": 4242} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.start()
			before := n.complete().Node.Value(metric.NVMLErrors)
			n.Fault(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", fakenvml.Error(code))
			n.write()
			p := n.await("power to be absent", func(p *collector.Part) bool { return !p.GPUs[0].Has(metric.PowerDraw) })
			n.value("GPU", p.GPUs[0].Readings, metric.Temperature, 0, 55)
			if !p.GPUs[0].Present || len(p.GPUs[0].Unsupported) > 0 {
				t.Errorf("one failing call makes the GPU present %v and unsupported %s", p.GPUs[0].Present, names(p.GPUs[0].Unsupported))
			}
			n.await("errors to be counted", func(p *collector.Part) bool { return p.Node.Value(metric.NVMLErrors) >= before+3 })
			n.Clear(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage")
			n.write()
			n.await("power to be back", func(p *collector.Part) bool { return p.GPUs[0].Value(metric.PowerDraw) == 350 })
		})
	}
}

func TestValuesThatCannotBeAreDroppedAndCounted(t *testing.T) {
	n := newNode(t, 1)
	gpu := fakenvml.GPU(0)
	n.Set(gpu, "nvmlDeviceGetUtilizationRates", uint32(math.MaxUint32), 808)
	n.Set(gpu, "nvmlDeviceGetEncoderUtilization", 127, 100)
	n.Set(gpu, "nvmlDeviceGetPowerUsage", uint32(math.MaxUint32))
	n.Set(gpu, "nvmlDeviceGetTotalEnergyConsumption", uint64(math.MaxUint64))
	n.Set(gpu, "nvmlDeviceGetTemperatureV/0", 255)
	n.Set(gpu, "field/82", "double", 71)
	n.Set(gpu, "nvmlDeviceGetPcieReplayCounter", uint32(math.MaxUint32))
	n.Set(gpu, "nvmlDeviceGetTotalEccErrors/1/1", uint64(math.MaxUint64))
	n.Set(gpu, "nvmlDeviceGetPerformanceState", 32)
	n.Set(gpu, "nvmlDeviceGetCurrentClocksEventReasons", uint64(math.MaxUint64))
	n.start()
	n.complete()
	p := n.await("a few rounds", func(p *collector.Part) bool { return p.GPUs[0].Dropped[metric.Utilization] >= 3 })
	g := p.GPUs[0]
	for _, d := range []*metric.Def{
		metric.Utilization, metric.MemoryUtilization, metric.EncoderUtilization, metric.PowerDraw, metric.Energy,
		metric.Temperature, metric.PCIeReplays, metric.PerformanceState, metric.ClockEvent,
	} {
		n.value("GPU", g.Readings, d, 0, absent)
		if g.Dropped[d] == 0 {
			t.Errorf("the dropped value of %s is not counted", d)
		}
	}
	n.value("GPU", g.Readings, metric.ECCLifetimeErrors, 0, 1)
	n.value("GPU", g.Readings, metric.ECCLifetimeErrors, 1, absent)
	n.value("GPU", g.Readings, metric.DecoderUtilization, 0, 0.04)
	if len(g.Unsupported) > 0 {
		t.Errorf("values that cannot be make %s unsupported", names(g.Unsupported))
	}
}
