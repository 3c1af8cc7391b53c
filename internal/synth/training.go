package synth

import (
	"math"
	"time"
)

const (
	warmUp          = 4 * time.Minute
	checkpointEvery = time.Hour
	checkpointLasts = 90 * time.Second
	collectives     = 0.14 // of a step's time
	loader          = 0.03
)

// train gives each rank its work. Ranks wait for each other in every step, so that the
// slowest decides how long it takes.
func (t *tenant) train(n *Node, dt, mood float64) {
	age := n.now.Sub(t.since)
	lost := false
	for _, g := range t.gpus {
		lost = lost || g.ills.lost || g.ills.hung
	}
	switch {
	case t.woes.hung || lost:
		t.spin()
	case t.woes.stalled:
		t.crawl()
	case age < warmUp:
		t.load()
	case t.checkpoints(age, dt):
		t.save(n, age, dt)
	default:
		t.learn(dt, mood)
	}
}

// checkpoints reports whether the larger part of the step is a checkpoint.
func (t *tenant) checkpoints(age time.Duration, dt float64) bool {
	into := age % checkpointEvery
	return age > checkpointEvery && into < max(checkpointLasts, time.Duration(dt)*time.Second)
}

// spin is a collective that never ends: all ranks but the suspect wait in a kernel.
func (t *tenant) spin() {
	for _, g := range t.gpus {
		b := g.board
		g.work = work{duty: 1, full: 0.13, dram: 0.001, power: (b.spin - b.context) / (b.limit - b.context)}
		if g == t.woes.suspect {
			g.work = work{}
		}
	}
	t.ask = demandOnHost{cores: float64(len(t.gpus)), busiest: 0.5}
}

// crawl is a job whose ranks all wait for something outside.
func (t *tenant) crawl() {
	for _, g := range t.gpus {
		g.work = work{duty: noise(t.rng, 0.02, 0.008), full: 0.5, tensor: 0.1, dram: 0.01, power: 0.2, rx: 1e6, tx: 1e6, link: 1e6}
	}
	t.ask = demandOnHost{cores: 0.4, busiest: 0.2, read: 1e4, rx: 1e4, tx: 1e4}
}

// load is the beginning: libraries, weights, the first batches.
func (t *tenant) load() {
	k := float64(len(t.gpus))
	for _, g := range t.gpus {
		g.work = work{duty: noise(t.rng, 0.12, 0.04), full: 0.5, tensor: 0.1, dram: 0.1, power: 0.3, rx: noise(t.rng, 9e9, 1e9), tx: noise(t.rng, 2e8, 2e7), wobble: 0.03}
	}
	t.ask = demandOnHost{cores: 2 * k, busiest: 0.7, read: 6e8 * k, rx: 2e7}
}

// save writes a checkpoint. Nothing is learned meanwhile.
func (t *tenant) save(n *Node, age time.Duration, dt float64) {
	k := float64(len(t.gpus))
	for _, g := range t.gpus {
		g.work = work{duty: noise(t.rng, 0.03, 0.01), full: 0.4, dram: 0.02, power: 0.2, rx: noise(t.rng, 1e7, 1e6), tx: noise(t.rng, 3e9, 3e8)}
	}
	t.ask = demandOnHost{cores: 2 * k, busiest: 0.6, write: noise(t.rng, 7e8*k, 7e7)}
	t.learner.kept, t.learner.checkpoint = t.learner.step, n.now
}

// pace is how the time of one step is divided, in seconds.
type pace struct {
	compute    float64 // of the slowest rank
	collective float64
	loader     float64
}

func (p pace) total() float64 { return p.compute + p.collective + p.loader }

// learn is training as it should be, and what may limit it.
func (t *tenant) learn(dt, mood float64) {
	w := &t.woes
	p := pace{compute: stepSeconds * (1 - collectives - loader), collective: stepSeconds * collectives, loader: stepSeconds * loader}
	if w.waits > 0 {
		p.loader = stepSeconds * w.waits / (1 - w.waits)
	}
	if w.bound == "communication" {
		p.collective *= 8
	}
	slowest := 1 + w.slow
	own := func(g *gpu) float64 {
		s := (1 + w.slow) * g.slowness()
		if g == w.slowRank {
			s *= 1 + w.slowBy
		}
		return s
	}
	for _, g := range t.gpus {
		slowest = math.Max(slowest, own(g))
	}
	alone := p.compute
	p.compute *= slowest
	total := p.total() * (1 - mood)
	for _, g := range t.gpus {
		busy := alone * own(g) / total // the rest of a step it waits for the others
		g.work = t.rankWork(g, busy, (p.compute-alone*own(g)+p.collective)/total, p.collective/total, stepSeconds/total)
	}
	if !w.silent {
		t.learner.advance(dt, total, p.loader/total)
	}
	t.askForTraining(stepSeconds / total)
}

// slowness is by how much the GPU computes slower for its clock, of which it had so
// much in the step before.
func (g *gpu) slowness() float64 {
	if g.clock <= g.board.idleClock || !g.isHeld() {
		return 1
	}
	return g.board.smClock / g.clock
}

// isHeld reports whether something other than the power cap, which is usual at full
// work, holds the clock down.
func (g *gpu) isHeld() bool {
	return g.ills.slow > 0 || g.ills.brake > 0 || g.ills.dust > 0 || g.ills.limit > 0
}

// rankWork is what a rank does that computes for a share of the time, spins for
// another, and talks for a part of that. rate is how fast steps are, against the usual.
func (t *tenant) rankWork(g *gpu, busy, spins, talks, rate float64) work {
	full := work{duty: clamp(busy+spins, 0, 1), full: 0.93, tensor: 0.52, dram: 0.42, power: 1.02 + t.hungry,
		rx: 6e8 * rate, tx: 4e8 * rate, link: 0.47 * g.board.linkSpeed * rate, wobble: 0.008}
	switch t.woes.bound {
	case "memory":
		full.tensor, full.dram, full.power, full.full = 0.12, 0.93, 0.72, 0.8
	case "communication":
		full.link = 0.85 * g.board.linkSpeed
	case "pcie":
		full.tensor, full.dram, full.power, full.full = 0.1, 0.2, 0.4, 0.4
		full.rx, full.tx, full.link = 0.9*g.board.pcieSpeed, 0.5*g.board.pcieSpeed, full.link/4
	case "encoder":
		full.enc, full.tensor, full.power, full.full = 0.98, 0.03, 0.35, 0.3
	}
	if full.duty == 0 {
		return full
	}
	share := busy / full.duty // of the time with a kernel that is computing
	spin := (g.board.spin - g.board.context) / (g.board.limit - g.board.context)
	full.full = full.full*share + 0.13*(1-share)
	full.tensor *= share
	full.dram *= busy
	full.power = full.power*share + spin*(1-share)
	full.rx, full.tx, full.link = noise(t.rng, full.rx, full.rx/12), noise(t.rng, full.tx, full.tx/12), noise(t.rng, full.link, full.link/60)
	return full
}

// askForTraining is what the data loaders take.
func (t *tenant) askForTraining(rate float64) {
	k, w := float64(len(t.gpus)), &t.woes
	t.ask = demandOnHost{cores: noise(t.rng, 2.6*k*rate, 0.2), busiest: clamp(noise(t.rng, 0.5, 0.04), 0, 0.85),
		read: noise(t.rng, 4e7*k*rate, 3e6*k), rx: noise(t.rng, 2e7*rate, 2e6), tx: noise(t.rng, 2e6*rate, 2e5)}
	switch {
	case w.cpu && t.ownNetwork(): // a pod is held by its quota
		t.ask.cores, t.ask.busiest, t.ask.quota = podCPUs*k, 0.95, 0.6
	case w.cpu:
		t.ask.cores, t.ask.busiest = 0.96*cpusPerGPU*k, 1
	case w.disk:
		t.ask.read, t.ask.iowait = 0.99*diskSpeed, 0.7
	case w.net:
		t.ask.read, t.ask.nfsRead = 0, 0.97*networkSpeed
	}
}
