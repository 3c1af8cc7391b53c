package synth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// The clock event reasons that the model knows, as positions in metric.ClockReason.
var (
	reasonIdle        = metric.ClockReason.Index("idle")
	reasonPowerCap    = metric.ClockReason.Index("sw_power_cap")
	reasonHWSlowdown  = metric.ClockReason.Index("hw_slowdown")
	reasonSoftThermal = metric.ClockReason.Index("sw_thermal")
	reasonHardThermal = metric.ClockReason.Index("hw_thermal")
	reasonPowerBrake  = metric.ClockReason.Index("hw_power_brake")
)

// work is what a GPU does in a step, on average.
type work struct {
	duty   float64 // share of the time in which a kernel runs
	full   float64 // how full the SMs are meanwhile
	tensor float64 // of the cycles, at full clock
	dram   float64 // of the memory bandwidth
	power  float64 // dynamic power that the kernels want, as a share of what the limit leaves
	rx, tx float64 // PCIe, bytes per second
	link   float64 // NVLink, bytes per second each way
	enc    float64
	wobble float64 // by how much a sample differs from the average
}

type process struct {
	pid       int
	start     uint64
	name      string
	uid       int
	owner     collector.Owner
	container string
	mem       float64
	share     float64 // of the GPU's work

	privileged bool
	mps        bool // a client of MPS
}

// ills are what a fault does to a board.
type ills struct {
	dust         float64 // by how much more heat stays, 0: none
	slow         float64 // share of the clock that is lost without a reason given
	brake        float64 // share of the clock that hardware takes
	limit        float64 // power limit that was set, W; 0: the board's own
	corrected    float64 // ECC errors an hour
	pending      bool    // a row waits for its replacement
	failed       bool    // and cannot be replaced
	uncorrected  float64 // ECC errors an hour
	width, gen   float64 // of the PCIe link; 0: all
	replays      float64 // an hour
	linksDown    float64
	linkErrors   float64 // CRC errors an hour
	lost, hung   bool
	orphan       float64 // bytes of memory without a process
	foreign      *process
	unattributed float64 // utilization that no process accounts for
}

// gpu is one board with its physics.
type gpu struct {
	rng   *rand.Rand
	board *board
	identity
	trait float64 // how this board differs from the next, around 1
	ills  ills

	tenant *tenant  // who was given it
	guest  *process // of another owner who was given a share of it
	server *process // of MPS
	procs  []*process
	work   work
	mig    bool

	power, core, mem     float64
	clock                float64
	reasons              [11]bool
	held                 [6]float64 // in the order of metric.HeldReason
	energy, linked       float64
	moved                [2]float64
	replays, linkErrors  float64
	ecc, lifeECC         [2]float64
	remapped             float64
	bandSeconds          [3][bands.Count]float64
	xids                 []collector.XidCount
	uncertain, unsettled drift // of power and of duty
	readings             collector.Readings
	seen                 time.Time // when it answered last
}

// identity is what a GPU is known by.
type identity struct {
	index             int
	uuid, serial, bus string
	vbios             string
}

func newGPU(cfg Config, index int) *gpu {
	r := newRand(cfg.Seed, fmt.Sprintf("%s/gpu%d", cfg.Name, index))
	b := &boards[cfg.Board]
	g := &gpu{
		rng: r, board: b,
		identity: identity{index: index, uuid: uuidOf(r), serial: fmt.Sprintf("16%011d", r.Uint64N(1e11)),
			bus: fmt.Sprintf("00000000:%02X:00.0", 0x1b+0x12*index), vbios: b.vbios},
		trait:  1 + 0.02*clamp(r.NormFloat64(), -2, 2),
		energy: math.Round(3e8 * (0.8 + 0.4*r.Float64())), core: 34, mem: 36,
		uncertain: drift{spread: 0.012, back: 600}, unsettled: drift{spread: 0.006, back: 300},
		readings: collector.NewReadings(metric.GPU),
	}
	g.lifeECC[0] = float64(r.IntN(40))
	g.replays = float64(r.IntN(4))
	g.settings()
	return g
}

// step lives through dt seconds of the work that the GPU was given.
func (g *gpu) step(n *Node, dt float64) {
	b := g.board
	g.reasons = [11]bool{}
	if g.ills.lost {
		g.power, g.procs = 0, nil
		return
	}
	others := g.others()
	if len(g.procs) == 0 && len(others) == 0 {
		g.work = work{}
	}
	for _, p := range others {
		if p.share > 0 && g.work.duty < p.share {
			g.work = work{duty: p.share, full: 0.9, tensor: 0.02, dram: 0.5, power: 0.8, rx: 1e6, tx: 1e6, wobble: 0.005}
		}
	}
	base, ceiling := b.free, b.idleClock
	if len(g.procs) > 0 || len(others) > 0 {
		base, ceiling = b.context, b.smClock
	}
	base *= g.trait
	g.reasons[reasonIdle] = g.work.duty < 0.005
	limit := b.limit
	if g.ills.limit > 0 {
		limit = g.ills.limit
	}
	want := g.work.duty * g.work.power * (b.limit - base)
	g.clock = math.Min(ceiling, g.limitClock(want, limit-base))
	g.power = base + want*math.Pow(g.clock/b.smClock, clockExponent)
	g.power = math.Min(g.power*(1+g.uncertain.step(g.rng, dt)*math.Min(1, 4*g.work.duty+0.1)), limit*1.01)
	g.energy += math.Round(g.power * dt)
	g.hold(dt)

	target := ambient + b.resistance*(1+g.ills.dust)*g.trait*g.power
	g.core += (target - g.core) * (1 - math.Exp(-dt/coreLag))
	g.mem += (target + 6 + 9*g.work.dram - g.mem) * (1 - math.Exp(-dt/memoryLag))
	g.count(dt)
}

// limitClock returns the clock to which the power cap, the temperature and faults hold
// kernels that want so much dynamic power at full clock.
func (g *gpu) limitClock(want, available float64) float64 {
	b := g.board
	clock := b.smClock
	if want > available {
		clock *= math.Pow(available/want, 1/clockExponent)
		g.reasons[reasonPowerCap] = true
	}
	// At a step of a minute the regulator has settled: the clock is the one at which the
	// temperature stays at the limit.
	if hot := ambient + b.resistance*(1+g.ills.dust)*g.trait*(b.context+math.Min(want, available)); hot > b.softLimit && g.core >= b.softLimit-2 {
		room := (b.softLimit-ambient)/(b.resistance*(1+g.ills.dust)*g.trait) - b.context
		clock = math.Min(clock, b.smClock*math.Pow(clamp(room/want, 0.05, 1), 1/clockExponent))
		g.reasons[reasonSoftThermal] = true
	}
	if g.core >= b.hardLimit {
		g.reasons[reasonHardThermal], g.reasons[reasonHWSlowdown] = true, true
		clock /= 2
	}
	if g.ills.brake > 0 {
		g.reasons[reasonPowerBrake], g.reasons[reasonHWSlowdown] = true, true
		clock *= 1 - g.ills.brake
	}
	clock = math.Min(clock, b.smClock*(1-g.ills.slow))
	return math.Floor(clock/clockStep) * clockStep
}

func (g *gpu) hold(dt float64) {
	soft, hard := g.reasons[reasonSoftThermal], g.reasons[reasonHardThermal]
	for i, on := range [6]bool{g.reasons[reasonPowerCap], soft || hard, false, soft, hard, g.reasons[reasonPowerBrake]} {
		g.held[i] += dt * bit(on)
	}
}

// count adds what the board's counters count.
func (g *gpu) count(dt float64) {
	w := g.work
	g.moved[0] += math.Round(w.rx * dt)
	g.moved[1] += math.Round(w.tx * dt)
	g.linked += math.Round(w.link * dt)
	if g.ills.replays > 0 {
		g.replays += poisson(g.rng, g.ills.replays*dt/3600)
	}
	if g.ills.linkErrors > 0 {
		g.linkErrors += poisson(g.rng, g.ills.linkErrors*dt/3600)
	}
	// A healthy board corrects an error in a few days.
	g.addECC(0, poisson(g.rng, (g.ills.corrected+0.008)*dt/3600))
	if g.ills.uncorrected > 0 {
		g.addECC(1, poisson(g.rng, g.ills.uncorrected*dt/3600))
	}
}

func (g *gpu) addECC(kind int, errors float64) {
	g.ecc[kind] += errors
	g.lifeECC[kind] += errors
}

// reloadDriver forgets what the driver only knows since it was loaded.
func (g *gpu) reloadDriver() {
	g.energy, g.replays, g.linked, g.linkErrors = 0, 0, 0, 0
	g.ecc, g.held, g.moved = [2]float64{}, [6]float64{}, [2]float64{}
	g.bandSeconds = [3][bands.Count]float64{}
	g.xids = nil
}

// xid lets an Xid fall on the GPU.
func (n *Node) xid(g *gpu, code int) {
	n.tell(collector.Event{Kind: collector.XidEvent, UUID: g.uuid, Code: code})
	counts := slices.Clone(g.xids) // the old ones are in snapshots
	i := slices.IndexFunc(counts, func(c collector.XidCount) bool { return c.Code == code })
	if i < 0 {
		i = len(counts)
		counts = append(counts, collector.XidCount{Code: code})
	}
	counts[i].Count++
	counts[i].Last = n.now
	g.xids = counts
}

// others are the processes that are not the tenant's.
func (g *gpu) others() (out []*process) {
	for _, p := range [...]*process{g.guest, g.ills.foreign} {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// listed are the processes that the driver lists.
func (g *gpu) listed() []*process {
	list := append(slices.Clip(g.procs), g.others()...)
	if g.server != nil {
		list = append(list, g.server)
	}
	return list
}

func (g *gpu) used() float64 {
	sum := g.ills.orphan
	for _, p := range g.listed() {
		sum += p.mem
	}
	return math.Min(sum, g.board.memory-g.board.reserved)
}
