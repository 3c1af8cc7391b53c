package synth

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// see writes what the driver tells of the GPU at the end of a step.
func (g *gpu) see(now time.Time, dt float64) {
	r, b, w := g.readings, g.board, &g.work
	g.seen = now
	duty := g.sampled(w.duty, dt)
	used := g.used()
	r.Set(metric.Utilization, percent(duty))
	r.Set(metric.MemoryUtilization, percent(math.Min(1, 1.05*w.dram)))
	r.Set(metric.EncoderUtilization, percent(w.enc))
	r.Set(metric.DecoderUtilization, percent(0.8*w.enc))
	setAll(r, metric.MIGMode, bit(g.mig), bit(g.mig))
	if g.mig { // of a GPU in parts the driver tells none
		r.Set(metric.Utilization, math.NaN())
		r.Set(metric.MemoryUtilization, math.NaN())
	}
	r.Set(metric.MemoryUsed, used)
	r.Set(metric.MemoryFree, b.memory-b.reserved-used)
	r.Set(metric.PowerDraw, math.Round(g.power*1e3)/1e3)
	r.Set(metric.PowerAverage, g.power)
	r.Set(metric.PowerInstant, g.power)
	r.Set(metric.Energy, g.energy)
	r.Set(metric.Temperature, math.Round(g.core))
	r.Set(metric.MemoryTemperature, math.Round(g.mem))
	r.Set(metric.TemperatureMargin, math.Max(0, b.softLimit-math.Round(g.core)))
	setAll(r, metric.Clock, g.clock, g.clock, b.memoryClock, math.Floor(g.clock*0.78/clockStep)*clockStep)
	for i, active := range g.reasons {
		r.SetAt(metric.ClockEvent, i, bit(active))
	}
	setAll(r, metric.ClockHeld, g.held[:]...)
	limit := b.limit
	if g.ills.limit > 0 {
		limit = g.ills.limit
	}
	r.Set(metric.PowerLimit, limit)
	r.Set(metric.PowerRequestedLimit, limit)
	if b.activity {
		g.seeActivity()
	}
	g.seeBands(duty, limit, dt)
	g.seeLinks(dt)
	g.seeHealth()
	for t := range metric.Tiers {
		g.readings.Stamp(t, now)
	}
}

// sampled is the utilization of the last moments, which wanders about its average.
func (g *gpu) sampled(duty, dt float64) float64 {
	if duty == 0 || duty == 1 {
		return duty
	}
	return clamp(duty+g.unsettled.step(g.rng, dt)+g.work.wobble*g.rng.NormFloat64(), 0, 1)
}

// seeActivity tells how full the SMs are.
func (g *gpu) seeActivity() {
	r, w := g.readings, &g.work
	sm := w.duty * w.full
	tensor := w.duty * w.tensor
	r.Set(metric.GraphicsActivity, w.duty)
	r.Set(metric.SMActivity, sm)
	r.Set(metric.SMOccupancy, 0.4*sm)
	r.Set(metric.TensorActivity, tensor)
	setAll(r, metric.TensorKindActivity, 0, tensor, 0)
	r.Set(metric.DRAMActivity, w.dram)
	setAll(r, metric.PipeActivity, 0, 0.15*sm, 0.05*sm, 0.12*sm)
	setAll(r, metric.PCIeBytes, g.moved[0], g.moved[1])
}

// seeBands tells what happened between two samples.
func (g *gpu) seeBands(duty, limit, dt float64) {
	r, w := g.readings, &g.work
	for i, s := range [3]struct {
		share                float64
		bands                *metric.Def
		low, high, reach     float64
		lowRow, highRow, abs *metric.Def
	}{
		{duty, metric.UtilizationBands, duty, duty, w.wobble, metric.UtilizationLow, metric.UtilizationPeak, nil},
		{g.power / limit, metric.PowerBands, g.power, g.power, 0.02 * w.duty * w.power, metric.PowerLow, metric.PowerPeak, metric.PowerDraw},
		{w.duty * w.full, metric.SMActivityBands, w.duty * w.full, w.duty * w.full, w.wobble, metric.SMActivityLow, metric.SMActivityPeak, nil},
	} {
		if i == 2 && !g.board.activity {
			break
		}
		g.bandSeconds[i][bands.Of(s.share)] += dt
		for band, seconds := range g.bandSeconds[i] {
			r.SetAt(s.bands, band, seconds)
		}
		most := 1.0
		if s.abs != nil {
			s.reach, most = s.reach*limit, 1.02*limit
		}
		r.Set(s.lowRow, clamp(s.low-2*s.reach, 0, most))
		r.Set(s.highRow, clamp(s.high+2*s.reach, 0, most))
	}
}

func (g *gpu) seeLinks(dt float64) {
	r, b, w := g.readings, g.board, &g.work
	width, gen := 16.0, b.pcieGen
	if g.ills.width > 0 {
		width = g.ills.width
	}
	if g.ills.gen > 0 {
		gen = g.ills.gen
	}
	if w.duty < 0.005 && len(g.procs) == 0 {
		gen = 1 // an idle link is slowed down to save power
	}
	r.Set(metric.PCIeReplays, g.replays)
	setAll(r, metric.PCIeThroughput, math.Round(w.rx/1e3)*1e3, math.Round(w.tx/1e3)*1e3)
	r.Set(metric.PCIeGeneration, gen)
	r.Set(metric.PCIeWidth, width)
	r.Set(metric.NVLinksUp, b.links-g.ills.linksDown)
	setAll(r, metric.NVLinkBytes, g.linked, g.linked)
	setAll(r, metric.NVLinkThroughput, w.link, w.link)
	r.SetAt(metric.NVLinkErrors, 1, g.linkErrors)
	r.SetAt(metric.NVLinkErrors, 2, math.Floor(g.linkErrors/8))
}

func (g *gpu) seeHealth() {
	r := g.readings
	setAll(r, metric.ECCErrors, g.ecc[:]...)
	setAll(r, metric.ECCLifetimeErrors, g.lifeECC[:]...)
	for i := range metric.ECCLocation.Values {
		here := bit(i == 0) // all in DRAM
		r.SetAt(metric.ECCCorrected, i, here*g.ecc[0])
		r.SetAt(metric.ECCUncorrected, i, here*g.ecc[1])
		r.SetAt(metric.ECCLifetimeCorrected, i, here*g.lifeECC[0])
		r.SetAt(metric.ECCLifetimeUncorrected, i, here*g.lifeECC[1])
	}
	setAll(r, metric.RemappedRows, 0, g.remapped)
	r.Set(metric.RemapPending, bit(g.ills.pending))
	r.Set(metric.RemapFailed, bit(g.ills.failed))
	if g.ills.failed {
		setAll(r, metric.RemapHistogram, remapBanks-1, 0, 0, 0, 1)
	} else {
		setAll(r, metric.RemapHistogram, remapBanks-math.Min(1, g.remapped), math.Min(1, g.remapped), 0, 0, 0)
	}
}

// seeProcesses tells of the processes on the GPU.
func (g *gpu) seeProcesses(now time.Time, out []collector.Process) []collector.Process {
	list := g.listed()
	rest := 1.0
	for _, p := range g.others() {
		rest -= p.share
	}
	mem := 0.0
	for _, p := range list {
		share := rest / math.Max(1, float64(len(g.procs)))
		if !slices.Contains(g.procs, p) {
			share = p.share
		}
		r := collector.NewReadings(metric.Process)
		r.Set(metric.ProcessMemoryUsed, p.mem)
		r.Set(metric.ProcessUtilization, percent(g.work.duty*share))
		r.Set(metric.ProcessMemoryUtilization, percent(g.work.dram*share))
		r.Set(metric.ProcessEncoder, percent(g.work.enc*share))
		r.Set(metric.ProcessDecoder, 0)
		r.Set(metric.ProcessMPS, bit(p.mps))
		r.Stamp(metric.Processes, now)
		mem += p.mem
		out = append(out, collector.Process{PID: p.pid, Start: p.start, Name: p.name, UID: p.uid, GPU: g.index, UUID: g.uuid,
			Owner: p.owner, Container: p.container, Privileged: p.privileged, Readings: r})
	}
	r := g.readings
	r.Set(metric.ProcessCount, float64(len(list)))
	r.Set(metric.ProcessMemory, mem)
	r.Set(metric.UnattributedMemory, g.ills.orphan)
	setAll(r, metric.UnattributedUtilization, percent(g.ills.unattributed), 0, 0, 0)
	return out
}

func percent(ratio float64) float64 { return math.Round(100*clamp(ratio, 0, 1)) / 100 }

// seeInstances tells of the two halves of a GPU in MIG mode.
func (g *gpu) seeInstances(now time.Time, out []collector.Instance) []collector.Instance {
	for i := range 2 {
		r := collector.NewReadings(metric.Instance)
		half := g.board.memory / 2
		r.Set(metric.MIGMemoryCapacity, half)
		r.Set(metric.MIGMemoryUsed, 60<<20)
		r.Set(metric.MIGMemoryFree, half-(60<<20))
		r.Set(metric.MIGProcesses, 0)
		for t := range metric.Tiers {
			r.Stamp(t, now)
		}
		out = append(out, collector.Instance{GPU: g.index, UUID: g.uuid, MIGUUID: "MIG-" + g.uuid[4:] + string(rune('a'+i)), GI: i + 1, Profile: "3g.40gb", Readings: r})
	}
	return out
}
