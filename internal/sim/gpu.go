package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// The board: an H100 SXM5 with 80 GB. Hardware at the work that is simulated here
// was published with 109 to 134 W with an idle context, 152 W of 700 W while it
// spins on a dead collective, and 700 W under the software power cap in training.
const (
	model        = "NVIDIA H100 80GB HBM3"
	architecture = "Hopper"
	vbios        = "96.00.89.00.01"
	boardPart    = "692-2G520-0200-000"

	memoryCapacity = 81559 << 20
	memoryReserved = 551 << 20

	powerLimit   = 700.0
	powerFree    = 71.0  // without a context
	powerContext = 118.0 // with an idle one: clocks stay up

	smClockMax    = 1980e6
	smClockIdle   = 345e6
	memoryClock   = 2619e6
	videoClockMax = 1545e6
	clockStep     = 15e6
	clockExponent = 2.2 // of dynamic power over clock

	ambient           = 30.0
	thermalResistance = 0.052 // °C per watt
	coreLag           = 45.0  // seconds
	memoryLag         = 70.0
	softThermalLimit  = 87.0
	hardThermalLimit  = 90.0
	thermalMargin     = 3.0  // below the limit before clocks rise again
	thermalCut        = 45e6 // of the clock, per second above the limit
	thermalFloor      = 900e6
)

// The clock event reasons that the model knows, as positions in metric.ClockReason.
var (
	reasonIdle        = metric.ClockReason.Index("idle")
	reasonPowerCap    = metric.ClockReason.Index("sw_power_cap")
	reasonHWSlowdown  = metric.ClockReason.Index("hw_slowdown")
	reasonSoftThermal = metric.ClockReason.Index("sw_thermal")
	reasonHardThermal = metric.ClockReason.Index("hw_thermal")
)

// work is what a GPU is asked to do for one second.
type work struct {
	duty      float64 // share of the time in which a kernel runs
	intensity float64 // dynamic power that the kernels want, as a share of what the limit leaves
	memory    float64 // share of the time in which memory is read or written
	rx, tx    float64 // PCIe, bytes per second
	link      float64 // NVLink, bytes per second each way
}

type process struct {
	pid   int
	start uint64
	name  string
	uid   int
	owner collector.Owner
	mem   float64
	share float64 // of the GPU's work
}

// gpu is one board: physics in SI units, advanced second by second.
type gpu struct {
	rng    *rand.Rand
	index  int
	uuid   string
	serial string
	bus    string
	trait  float64 // how this board differs from the next, around 1

	owner  collector.Owner
	procs  []*process
	guests []*process
	gifts  []Gift
	work   work

	power, energy        float64
	core, memoryTemp     float64
	clock, thermalCap    float64
	reasons              [11]bool
	held                 [3]float64 // seconds of the first of metric.HeldReason, which are all that this driver tells
	moved                [2]float64 // bytes over PCIe, in the order of metric.Direction
	linked               float64    // bytes over NVLink, each way
	carried              float64    // the same since the node was made, whatever the driver forgets
	linkedAt             time.Time  // when it was last told
	linkedThen           float64
	bands                bands.GPU
	replays              float64
	volatileECC, lifeECC [2]float64
	xids                 []collector.XidCount

	lost, hung bool
	resistance float64 // relative to a clean heat sink
	replayRate float64

	readings collector.Readings
	// As of the last time that the tier was sampled.
	processes    []collector.Process
	attributions []collector.Attribution
}

func newGPU(seed uint64, node string, index int) *gpu {
	r := newRand(seed, fmt.Sprintf("%s/gpu%d", node, index))
	g := &gpu{
		rng: r, index: index, resistance: 1,
		uuid: fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, 0x4000|r.Uint32()&0xfff,
			0x8000|r.Uint32()&0x3fff, r.Uint64()&0xffffffffffff),
		serial: fmt.Sprintf("16%011d", r.Uint64N(1e11)),
		bus:    fmt.Sprintf("00000000:%02X:00.0", 0x1b+0x12*index),
		trait:  1 + 0.02*math.Max(-2, math.Min(2, r.NormFloat64())),
		energy: math.Round(3e8*(0.8+0.4*r.Float64())*1e3) / 1e3,
		core:   34, memoryTemp: 36,
		thermalCap: smClockMax,
	}
	g.lifeECC[0] = float64(r.IntN(40))
	g.replays = float64(r.IntN(4))
	return g
}

// step lives through one second of the work that it was given.
func (g *gpu) step() {
	g.reasons = [11]bool{}
	if g.lost {
		g.power = 0
		return
	}
	base, ceiling := powerFree, smClockIdle
	if len(g.procs) > 0 {
		base, ceiling = powerContext, smClockMax
	}
	base *= g.trait
	if g.work.duty == 0 {
		g.reasons[reasonIdle] = true
	}
	want := g.work.duty * g.work.intensity * (powerLimit - base)
	g.clock = math.Min(ceiling, g.limitClock(want, powerLimit-base))
	g.power = base + want*math.Pow(g.clock/smClockMax, clockExponent)
	g.power = math.Min(g.power*(1+0.006*g.rng.NormFloat64()), powerLimit*1.01)
	g.power = math.Round(g.power*1e3) / 1e3
	g.energy += g.power
	g.held[0] += bit(g.reasons[reasonPowerCap])
	g.held[1] += bit(g.reasons[reasonSoftThermal] || g.reasons[reasonHardThermal])
	g.moved[0] += g.work.rx
	g.moved[1] += g.work.tx
	g.linked += g.work.link
	g.carried += g.work.link

	target := ambient + thermalResistance*g.resistance*g.trait*g.power
	g.core += (target - g.core) * (1 - math.Exp(-1/coreLag))
	g.memoryTemp += (target + 6 + 9*g.work.memory - g.memoryTemp) * (1 - math.Exp(-1/memoryLag))

	g.replays += poisson(g.rng, g.replayRate)
	if g.rng.Float64() < 2e-6 {
		g.countECC(0)
	}
}

// limitClock returns the clock to which the power cap and the temperature hold
// kernels that want so much dynamic power at full clock.
func (g *gpu) limitClock(want, available float64) float64 {
	clock := smClockMax
	if want > available {
		clock *= math.Pow(available/want, 1/clockExponent)
		g.reasons[reasonPowerCap] = true
	}
	switch {
	case g.core >= softThermalLimit:
		g.thermalCap = math.Max(thermalFloor, g.thermalCap-thermalCut)
	case g.core < softThermalLimit-thermalMargin:
		g.thermalCap = math.Min(smClockMax, g.thermalCap+clockStep)
	}
	g.reasons[reasonSoftThermal] = g.thermalCap < smClockMax
	if g.core >= hardThermalLimit {
		g.reasons[reasonHardThermal], g.reasons[reasonHWSlowdown] = true, true
		clock /= 2
	}
	return math.Floor(math.Min(clock, g.thermalCap)/clockStep) * clockStep
}

func (g *gpu) countECC(kind int) {
	g.volatileECC[kind]++
	g.lifeECC[kind]++
}

// reloadDriver forgets what the driver only knows since it was loaded.
func (g *gpu) reloadDriver() {
	g.energy, g.replays = 0, 0
	g.volatileECC, g.held, g.moved = [2]float64{}, [3]float64{}, [2]float64{}
	g.linked, g.linkedThen = 0, 0
}

// countXid counts an Xid. The slice is in parts that were handed out, so it is replaced.
func (g *gpu) countXid(code int, at time.Time) {
	counts := append([]collector.XidCount(nil), g.xids...)
	for i := range counts {
		if counts[i].Code == code {
			counts[i].Count++
			counts[i].Last = at
			g.xids = counts
			return
		}
	}
	i := 0
	for i < len(counts) && counts[i].Code < code {
		i++
	}
	g.xids = append(counts[:i:i], append([]collector.XidCount{{Code: code, Count: 1, Last: at}}, counts[i:]...)...)
}

func (g *gpu) memoryUsed() float64 {
	if g.lost {
		return 0
	}
	sum := 0.0
	for _, list := range [2][]*process{g.procs, g.guests} {
		for _, p := range list {
			sum += p.mem
		}
	}
	return sum
}
