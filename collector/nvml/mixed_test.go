//go:build linux && cgo

package nvml

import (
	"fmt"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// profile makes a GPU another model that answers only some of what fill gave it.
type profile struct {
	model        string
	architecture int
	lacks        []string // keys that are not supported
	gpm          bool
}

// What models of several generations do not tell.
var (
	t4 = profile{model: "Tesla T4", architecture: 6, lacks: []string{
		"nvmlDeviceGetFanSpeed", "field/82", "nvmlDeviceGetMigMode", mpsList,
	}}
	geForce = profile{model: "NVIDIA GeForce GT 730", architecture: 2, lacks: []string{
		"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
		"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEnforcedPowerLimit",
		"nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
		"nvmlDeviceGetTotalEccErrors/0/0", "nvmlDeviceGetTotalEccErrors/0/1", "nvmlDeviceGetTotalEccErrors/1/0", "nvmlDeviceGetTotalEccErrors/1/1",
		"nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPcieThroughput/0", "nvmlDeviceGetPcieThroughput/1",
		"nvmlDeviceGetSerial", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceGetMigMode", "field/82",
		computeList, graphicsList, mpsList, processUsage,
	}}
	gb10 = profile{model: "NVIDIA GB10", architecture: 10, gpm: true, lacks: []string{
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFanSpeed", "field/82",
		"nvmlDeviceGetTotalEccErrors/0/0", "nvmlDeviceGetTotalEccErrors/0/1", "nvmlDeviceGetTotalEccErrors/1/0", "nvmlDeviceGetTotalEccErrors/1/1",
	}}
)

func (n *node) become(i int, p profile) {
	gpu := fakenvml.GPU(i)
	n.Set(gpu, "nvmlDeviceGetName", p.model)
	n.Set(gpu, "nvmlDeviceGetArchitecture", p.architecture)
	for _, key := range p.lacks {
		n.Unset(gpu, key)
	}
	if !p.gpm {
		n.Unset(gpu, gpmSupport)
	}
}

// lacking checks that rows have no number and that the GPU says so.
func (n *node) lacking(g *collector.GPU, rows ...*metric.Def) {
	n.Helper()
	said := map[*metric.Def]bool{}
	for _, d := range g.Unsupported {
		said[d] = true
	}
	for _, d := range rows {
		for i := range d.Width() {
			n.value(g.Model, g.Readings, d, i, absent)
		}
		if !said[d] {
			n.Errorf("%s has no %s and does not say why", g.Model, d.Name)
		}
	}
}

// healthy checks that a GPU counts as present and that these rows have numbers.
func (n *node) healthy(g *collector.GPU, rows ...*metric.Def) {
	n.Helper()
	if !g.Present || g.Hung {
		n.Errorf("%s, which works, is present: %v, hung: %v", g.Model, g.Present, g.Hung)
	}
	for _, d := range rows {
		if !g.Has(d) {
			n.Errorf("%s does not tell %s because it lacks other things", g.Model, d.Name)
		}
	}
}

func TestGenerationsBesideEachOther(t *testing.T) {
	n := newNode(t, 4)
	n.become(1, t4)
	n.become(2, geForce)
	n.become(3, gb10)
	n.start()
	p := n.complete()
	for i, want := range []string{"Hopper", "Turing", "Kepler", "Blackwell"} {
		if got := p.GPUs[i].Architecture; got != want {
			t.Errorf("architecture of %s is %q, want %q", p.GPUs[i].Model, got, want)
		}
	}
	p = n.await("activity of the GPUs with GPM, and what the others lack", func(p *collector.Part) bool {
		return p.GPUs[0].Has(metric.SMActivity) && p.GPUs[3].Has(metric.SMActivity) && len(p.GPUs[1].Unsupported) > 0 && len(p.GPUs[2].Unsupported) > 0
	})
	n.healthy(&p.GPUs[0], metric.MemoryUsed, metric.PowerDraw, metric.FanSpeed, metric.SMActivity)
	n.healthy(&p.GPUs[1], metric.MemoryUsed, metric.PowerDraw, metric.Utilization, metric.ECCErrors)
	n.lacking(&p.GPUs[1], metric.FanSpeed, metric.MemoryTemperature, metric.SMActivity)
	n.healthy(&p.GPUs[2], metric.MemoryUsed, metric.FanSpeed, metric.Temperature)
	n.lacking(&p.GPUs[2], metric.Utilization, metric.PowerDraw, metric.Energy, metric.ECCErrors, metric.ClockEvent,
		metric.PCIeThroughput, metric.ProcessCount, metric.SMActivity)
	if errs := p.Node.Value(metric.NVMLErrors); errs != 0 {
		t.Errorf("what a GPU does not support counts as %v errors", errs)
	}
}

// A chip whose GPU has no memory of its own is asked twice and answers neither.
func TestUnifiedMemoryHasNoFramebuffer(t *testing.T) {
	n := newNode(t, 1)
	n.become(0, gb10)
	n.Add(fakenvml.GPU(0), computeList, 4711, 3<<30)
	n.start()
	n.complete()
	p := n.await("what the chip lacks", func(p *collector.Part) bool { return len(p.GPUs[0].Unsupported) > 0 })
	n.lacking(&p.GPUs[0], metric.MemoryCapacity, metric.MemoryUsed, metric.MemoryFree, metric.MemoryReserved)
	n.healthy(&p.GPUs[0], metric.Utilization, metric.PowerDraw, metric.Temperature)
	n.value("what processes use of the shared memory", p.GPUs[0].Readings, metric.ProcessMemory, 0, 3<<30)
	if errs := p.Node.Value(metric.NVMLErrors); errs != 0 {
		t.Errorf("a chip without a framebuffer counts as %v errors", errs)
	}
}

// The largest node: 16 GPUs, every other one cut into seven.
func TestSixteenGPUsSomeOfThemInMIGMode(t *testing.T) {
	n := newNode(t, 16)
	for gpu := range 16 {
		n.Set(fakenvml.GPU(gpu), "nvmlDeviceGetPowerUsage", 1000*(300+gpu))
		if gpu%2 == 0 {
			continue
		}
		for slot := range 7 {
			n.slice(gpu, slot)
		}
		for _, key := range []string{"nvmlDeviceGetUtilizationRates", processUsage} {
			n.Unset(fakenvml.GPU(gpu), key)
		}
	}
	n.start()
	n.complete()
	p := n.await("every instance", func(p *collector.Part) bool {
		if len(p.GPUs) != 16 || len(p.Instances) != 8*7 {
			return false
		}
		for i := range p.Instances {
			if !p.Instances[i].Has(metric.MIGMemoryUsed) {
				return false
			}
		}
		for i := 1; i < 16; i += 2 { // what a GPU lacks is told after its readings
			if len(p.GPUs[i].Unsupported) == 0 {
				return false
			}
		}
		return true
	})
	instances := map[string]int{}
	for i := range p.Instances {
		instances[p.Instances[i].UUID]++
	}
	for i := range p.GPUs {
		g, what := &p.GPUs[i], fmt.Sprintf("GPU %d", i)
		if g.Index != i || g.UUID != uuid(i) {
			t.Errorf("%s has index %d and is %s", what, g.Index, g.UUID)
		}
		n.value(what, g.Readings, metric.PowerDraw, 0, float64(300+i))
		cut, want := i%2 == 1, 0
		if cut {
			want = 7
			n.lacking(g, metric.Utilization)
		} else {
			n.healthy(g, metric.Utilization)
		}
		if g.MIG != cut || instances[g.UUID] != want {
			t.Errorf("%s: MIG mode is %v with %d instances, want %v with %d", what, g.MIG, instances[g.UUID], cut, want)
		}
	}
}
