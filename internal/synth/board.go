package synth

import (
	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Board is a kind of GPU.
type Board int

// The boards.
const (
	H100 Board = iota
	A100
)

// board is what is constant of a Board, in base units.
type board struct {
	model, architecture, capability, vbios string
	memory, reserved                       float64
	limit, free, context, spin             float64 // W: limit, without and with an idle context, on a dead collective
	smClock, idleClock, memoryClock        float64
	softLimit, hardLimit                   float64 // °C
	resistance                             float64 // °C per watt
	pcieGen                                float64
	pcieSpeed, linkSpeed                   float64 // bytes per second and way
	links                                  float64
	activity                               bool // tells how full its SMs are (NVML does from Hopper on)
}

var boards = [...]board{
	H100: {
		model: "NVIDIA H100 80GB HBM3", architecture: "Hopper", capability: "9.0", vbios: "96.00.89.00.01",
		memory: 81559 << 20, reserved: 551 << 20, limit: 700, free: 71, context: 118, spin: 152,
		smClock: 1980e6, idleClock: 345e6, memoryClock: 2619e6, softLimit: 87, hardLimit: 90, resistance: 0.052,
		pcieGen: 5, pcieSpeed: 6.3e10, linkSpeed: 4.5e11, links: 18, activity: true,
	},
	A100: {
		model: "NVIDIA A100-SXM4-80GB", architecture: "Ampere", capability: "8.0", vbios: "92.00.45.00.03",
		memory: 81920 << 20, reserved: 600 << 20, limit: 400, free: 48, context: 60, spin: 96,
		smClock: 1410e6, idleClock: 210e6, memoryClock: 1593e6, softLimit: 85, hardLimit: 90, resistance: 0.09,
		pcieGen: 4, pcieSpeed: 3.15e10, linkSpeed: 3e11, links: 12,
	},
}

const (
	clockStep     = 15e6
	clockExponent = 2.2 // of dynamic power over clock
	ambient       = 30.0
	coreLag       = 45.0 // seconds
	memoryLag     = 70.0
	remapBanks    = 2560
)

// unsupported is what no such board tells.
var unsupported = []*metric.Def{
	metric.FanSpeed, metric.EncoderSessions, metric.EncoderFrames, metric.EncoderLatency,
	metric.RetiredPages, metric.RetiredPending, metric.RemapInactive, metric.BankRemapPending, metric.RepairPending,
	metric.NVLink5Errors, metric.NVLink5Drops, metric.NVLinkBER, metric.NVLinkFEC, metric.C2CLinks, metric.C2CErrors,
	metric.C2CMode, metric.CaptureSessions, metric.CaptureFrames, metric.CaptureLatency, metric.ProtectedCapacity, metric.ProtectedUsed,
	metric.EDPPMultiplier, metric.NUMANode, metric.VGPULicensed, metric.VGPUs,
}

// unsupportedBefore is what a board before Hopper does not tell either.
var unsupportedBefore = append([]*metric.Def{
	metric.GraphicsActivity, metric.SMActivity, metric.SMOccupancy, metric.TensorActivity, metric.TensorKindActivity, metric.DRAMActivity,
	metric.PipeActivity, metric.PCIeBytes, metric.FabricState, metric.FabricHealth, metric.FabricHealthMask, metric.FabricClique,
}, unsupported...)

// settings writes what hardly ever changes.
func (g *gpu) settings() {
	r, b := g.readings, g.board
	r.Set(metric.MemoryCapacity, b.memory)
	r.Set(metric.MemoryReserved, b.reserved)
	r.Set(metric.PowerDefaultLimit, b.limit)
	r.Set(metric.PowerMinLimit, 0.3*b.limit)
	r.Set(metric.PowerMaxLimit, b.limit)
	setAll(r, metric.MaxClock, b.smClock, b.smClock, b.memoryClock, 0.78*b.smClock)
	setAll(r, metric.TemperatureLimit, b.softLimit+8, b.hardLimit, 95, b.softLimit)
	setAll(r, metric.TemperatureLimitMargin, -8, b.softLimit-b.hardLimit, 0, 0)
	setAll(r, metric.ApplicationClock, b.smClock, b.memoryClock)
	setAll(r, metric.ECCMode, 1, 1)
	setAll(r, metric.MIGMode, 0, 0)
	r.Set(metric.PersistenceMode, 1)
	r.Set(metric.AccountingBuffer, 4000)
	r.Set(metric.PCIeMaxGeneration, b.pcieGen)
	r.Set(metric.PCIeGPUGeneration, b.pcieGen)
	r.Set(metric.PCIeMaxWidth, 16)
	r.Set(metric.NVLinks, b.links)
	r.Set(metric.BAR1Capacity, 128<<30)
	r.Set(metric.BAR1Used, 4<<20)
	r.Set(metric.PerformanceState, 0)
	setAll(r, metric.GSPMode, 1, 1)
	setAll(r, metric.GPUSlowdown, 1, 1, 1, 1)
	for i := range metric.ClockEventKnown.Width() {
		r.SetAt(metric.ClockEventKnown, i, 1)
	}
	zero(r, metric.ComputeMode, metric.AccountingMode, metric.DisplayActive, metric.DisplayAttached, metric.JPEGUtilization, metric.OFAUtilization,
		metric.MPSClients, metric.SRAMThreshold, metric.SRAMErrors, metric.PCIeErrors, metric.NVLinkErrors, metric.ClockPolicyHeld, metric.RecoveryAction,
		metric.ClockEvent, metric.ClockHeld)
	if b.activity {
		r.Set(metric.FabricState, 3)
		r.Set(metric.FabricHealth, 1)
		r.Set(metric.FabricHealthMask, 0)
		r.Set(metric.FabricClique, 1)
	}
}

// firstVersions are those of a node before anything happens, sorted.
func firstVersions(b Board) []collector.Version {
	return []collector.Version{
		{Component: "container_toolkit", Value: "1.17.8"},
		{Component: "containerd", Value: "1.7.27"},
		{Component: "cuda", Value: "12.8"},
		{Component: "driver", Value: "570.124.06"},
		{Component: "fabric_manager", Value: "570.124.06"},
		{Component: "kernel", Value: "6.8.0-60-generic"},
		{Component: "kubelet", Value: "1.33.4"},
		{Component: "nvml", Value: "12.570.124.06"},
		{Component: "vbios", Value: boards[b].vbios},
	}
}
