package sim

import (
	"math"
	"time"

	"gpuvigil/internal/metric"
)

// What the board has beside what changes with the work.
const (
	nvlinks      = 18
	bar1Capacity = 128 << 30
	bar1Used     = 4 << 20
	remapBanks   = 2560
)

// observeActivity tells how full the GPU is: never fuller than it is busy.
// Kernels that draw much power fill the SMs and keep the tensor cores at work;
// those that spin on a dead collective hold one warp each and do nothing else.
func (g *gpu) observeActivity() {
	r, w := g.readings, g.work
	full := math.Min(1, w.intensity)
	sm := w.duty * math.Min(0.97, 0.1+0.9*full)
	tensor := 0.0
	if full > 0.2 {
		tensor = 0.5 * w.duty * (full - 0.2)
	}
	r.Set(metric.GraphicsActivity, w.duty)
	r.Set(metric.SMActivity, sm)
	r.Set(metric.SMOccupancy, 0.4*sm)
	r.Set(metric.TensorActivity, tensor)
	setAll(r, metric.TensorKindActivity, []float64{0, tensor, 0})
	r.Set(metric.DRAMActivity, 0.9*w.memory)
	setAll(r, metric.PipeActivity, []float64{0, 0.15 * sm * full, 0.05 * sm * full, 0.12 * sm})
}

// observeMore samples what else changes from second to second.
func (g *gpu) observeMore() {
	r := g.readings
	r.Set(metric.JPEGUtilization, 0)
	r.Set(metric.OFAUtilization, 0)
	r.Set(metric.PowerAverage, g.power)
	r.Set(metric.PowerInstant, g.power)
	r.Set(metric.TemperatureMargin, math.Max(0, softThermalLimit-math.Round(g.core)))
	setAll(r, metric.ClockHeld, g.held[:])
}

func (g *gpu) observeLinks(now time.Time) {
	r := g.readings
	setAll(r, metric.PCIeBytes, []float64{math.Round(g.moved[0]), math.Round(g.moved[1])})
	setAll(r, metric.PCIeErrors, make([]float64, metric.PCIeErrors.Width()))
	r.Set(metric.NVLinks, nvlinks)
	r.Set(metric.NVLinksUp, nvlinks)
	linked := 1024 * math.Floor(g.linked/1024)
	setAll(r, metric.NVLinkBytes, []float64{linked, linked})
	rate := 0.0
	if seconds := now.Sub(g.linkedAt).Seconds(); !g.linkedAt.IsZero() && seconds > 0 {
		rate = (linked - g.linkedThen) / seconds
	}
	g.linkedAt, g.linkedThen = now, linked
	setAll(r, metric.NVLinkThroughput, []float64{rate, rate})
	setAll(r, metric.NVLinkErrors, make([]float64, metric.NVLinkErrors.Width()))
	r.Set(metric.FabricState, 3)
	r.Set(metric.FabricHealth, 1)
	r.Set(metric.FabricHealthMask, 0)
	r.Set(metric.FabricClique, 1)
}

// observeHealth tells of memory errors by where they were: in DRAM, for this
// model knows no others.
func (g *gpu) observeHealth() {
	r := g.readings
	for i, v := range []float64{1, 0} {
		r.SetAt(metric.ECCCorrected, i, v*g.volatileECC[0])
		r.SetAt(metric.ECCUncorrected, i, v*g.volatileECC[1])
		r.SetAt(metric.ECCLifetimeCorrected, i, v*g.lifeECC[0])
		r.SetAt(metric.ECCLifetimeUncorrected, i, v*g.lifeECC[1])
	}
	r.Set(metric.RecoveryAction, 0)
	r.Set(metric.SRAMThreshold, 0)
	setAll(r, metric.SRAMErrors, make([]float64, metric.SRAMErrors.Width()))
	setAll(r, metric.RemappedRows, []float64{0, g.lifeECC[1]})
	r.Set(metric.RemapPending, bit(g.volatileECC[1] > 0))
	r.Set(metric.RemapFailed, 0)
	setAll(r, metric.RemapHistogram, []float64{remapBanks, 0, 0, 0, 0})
	setAll(r, metric.ClockPolicyHeld, make([]float64, metric.ClockPolicyHeld.Width()))
	r.Set(metric.BAR1Capacity, bar1Capacity)
	r.Set(metric.BAR1Used, bar1Used)
}

func (g *gpu) observeSettings() {
	r := g.readings
	r.Set(metric.PowerRequestedLimit, powerLimit)
	r.Set(metric.PowerMinLimit, 200)
	r.Set(metric.PowerMaxLimit, powerLimit)
	setAll(r, metric.TemperatureLimit, []float64{softThermalLimit + 8, hardThermalLimit, 95, softThermalLimit})
	setAll(r, metric.TemperatureLimitMargin, []float64{-8, softThermalLimit - hardThermalLimit, 0, 0})
	setAll(r, metric.ApplicationClock, []float64{smClockMax, memoryClock})
	setAll(r, metric.ECCMode, []float64{1, 1})
	setAll(r, metric.MIGMode, []float64{0, 0})
	r.Set(metric.PersistenceMode, 1)
	r.Set(metric.ComputeMode, 0)
	r.Set(metric.AccountingMode, 0)
	r.Set(metric.AccountingBuffer, 4000)
	r.Set(metric.DisplayActive, 0)
	r.Set(metric.DisplayAttached, 0)
	r.Set(metric.PCIeGPUGeneration, 5)
	setAll(r, metric.GSPMode, []float64{1, 1})
	for i := range metric.ClockEventKnown.Width() {
		r.SetAt(metric.ClockEventKnown, i, 1)
	}
}
