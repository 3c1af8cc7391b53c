// Package synth makes synthetic fleets of GPU nodes: nodes of eight GPUs on which
// training jobs, inference servers, notebooks and nightly batches live, with faults of
// stated size put in, and with what looks like a fault and is none. Everything that it
// makes is marked as simulated.
//
// It differs from package sim in what it is for. sim lives second by second and feeds
// the demo; synth makes months of whole nodes at the interval of a scrape, fast enough
// to count false alarms per GPU-week.
//
// The marginals follow what is published:
//
//   - power of an idle H100 with an open context 109 to 134 W, of one that spins on a
//     dead collective 152 of 700 W (captures quoted in public issue trackers); of an idle
//     A100 about 60 of 400 W, with a fifth of the busy ones at or above their limit;
//   - the utilization of GPUs in training is near 0 or near 1, with a median of 97 to 99 %
//     (Hu et al., Characterization of Large Language Model Development in the Datacenter,
//     NSDI 2024, whose trace is AcmeTrace);
//   - servers have a daily course and bursts, and are busy for a small part of the time
//     (Alibaba Cluster Trace Program, cluster-trace-v2026-GenAI); arrivals come in bursts,
//     as in AzurePublicDataset's traces of inference.
//
// What is not published is a guess: how noise is correlated, how often jobs change.
// A node is a function of its Config alone: it reads no clock and ranges over no map.
package synth

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Config says which node is made.
type Config struct {
	Seed  uint64
	Name  string        // of the node; with the seed it decides everything that is random
	Start time.Time     // of the first snapshot's interval
	Step  time.Duration // between snapshots; 60 s
	Board Board         // of its GPUs
	Life  Life          // who lives there
	Trial *Trial        // a fault or a look-alike; nil: none
}

// Life is what a node is used for.
type Life int

// The lives. The first four are a part of a fleet and change as weeks pass; the others
// are a stage for one trial, with tenants that stay.
const (
	Training     Life = iota // one job after the other on all GPUs
	Serving                  // inference servers with a daily course
	Mixed                    // notebooks, and a batch each night
	Empty                    // nobody
	JobStage                 // one training job on all GPUs
	PodStage                 // the same in a pod of Kubernetes
	ChatStage                // an inference server on each half of the GPUs
	LabStage                 // notebooks and batches
	TwinStage                // two servers of one model
	ClusterStage             // no node: the queues of a cluster's scheduler
)

// Trial is a fault or a look-alike on a node.
type Trial struct {
	*Case
	From, To time.Time
}

// Node is one synthetic node. It belongs to one goroutine.
type Node struct {
	cfg       Config
	rng       *rand.Rand
	now, boot time.Time
	step      time.Duration // that the newest snapshot ends
	bootID    int
	gpus      []*gpu
	tenants   []*tenant
	host      host
	versions  []collector.Version
	plan      planner
	dark      time.Time // nobody looks until then
	restarted bool      // the agent is a new one
	frozen    bool      // the source repeats what it said
	cordoned  bool
	lastPID   int
	samples   uint64

	events    []collector.Event
	sxids     []collector.SXidCount
	inventory *collector.Inventory // as of the last change of the tenants
	stale     bool                 // tenants have changed since
	trial     bool                 // the trial is on
	cluster   cluster
	last      *collector.Snapshot
}

// nodeSize is how many GPUs a node has.
const nodeSize = 8

// New returns the node before its first snapshot.
func New(cfg Config) *Node {
	if cfg.Step <= 0 {
		cfg.Step = time.Minute
	}
	n := &Node{cfg: cfg, rng: newRand(cfg.Seed, cfg.Name), now: cfg.Start, lastPID: 2000, stale: true}
	n.boot = cfg.Start.Add(-time.Duration(3+n.rng.IntN(40)) * 24 * time.Hour)
	for i := range nodeSize {
		n.gpus = append(n.gpus, newGPU(cfg, i))
	}
	n.host = newHost(newRand(cfg.Seed, cfg.Name+"/host"), n.now.Sub(n.boot).Seconds())
	n.versions = firstVersions(cfg.Board)
	n.plan = planOf(n)
	if t := cfg.Trial; t != nil && t.setup != nil {
		t.setup(n)
	}
	return n
}

// Next lives through one step and returns what an agent sees at its end; nil if none
// looked, as while the node boots.
func (n *Node) Next() *collector.Snapshot {
	n.step = n.nextStep()
	n.now = n.now.Add(n.step)
	n.plan.step(n)
	n.try()
	if n.cfg.Life == ClusterStage {
		return n.cluster.snapshot(n)
	}
	dt := n.step.Seconds()
	ask := demandOnHost{}
	for _, t := range n.tenants {
		t.live(n, dt)
		ask.add(t.ask)
	}
	for _, g := range n.gpus {
		g.step(n, dt)
	}
	n.host.step(ask, n, dt)
	if n.now.Before(n.dark) {
		n.events = nil
		return nil
	}
	return n.snapshot()
}

// nextStep is the time until the next snapshot: coarse, by the hours of the clock, for as
// long as a trial's node is only learned.
func (n *Node) nextStep() time.Duration {
	t := n.cfg.Trial
	if t == nil || t.Learn == 0 || n.now.Equal(n.cfg.Start) {
		return n.cfg.Step
	}
	begin := t.From.Add(-t.Warm)
	next := n.now.Truncate(coarse).Add(coarse)
	if begin.Before(next) {
		next = begin
	}
	if next.After(n.now) {
		return next.Sub(n.now)
	}
	return n.cfg.Step
}

// coarse is as an agent reads what it is given by the hour.
const coarse = time.Hour

// Now is the time of the newest snapshot.
func (n *Node) Now() time.Time { return n.now }

// Restarted reports whether the agent that takes the newest snapshot has just been
// started: it knows what the one before has saved.
func (n *Node) Restarted() bool {
	r := n.restarted
	n.restarted = false
	return r
}

// try begins and ends the trial.
func (n *Node) try() {
	t := n.cfg.Trial
	if t == nil {
		return
	}
	switch on := !n.now.Before(t.From) && n.now.Before(t.To); {
	case on && !n.trial:
		n.trial = true
		if t.begin != nil {
			t.begin(n)
		}
	case on:
		if t.during != nil {
			t.during(n, n.now.Sub(t.From))
		}
	case n.trial:
		n.trial = false
		if t.end != nil {
			t.end(n)
		}
	}
}

func (n *Node) tell(e collector.Event) {
	e.Time, e.Source = n.now, sourceName
	n.events = append(n.events, e)
}

// sourceName stands where a real agent's source does.
const sourceName = "synthetic"

// newRand returns a generator of its own for each thing, so that one more does not
// change the others.
func newRand(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func uuidOf(r *rand.Rand) string {
	return fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, 0x4000|r.Uint32()&0xfff,
		0x8000|r.Uint32()&0x3fff, r.Uint64()&0xffffffffffff)
}

// drift is a number that wanders around 0 with the given spread and returns in about
// the given time (an Ornstein-Uhlenbeck process).
type drift struct {
	x, spread, back float64 // back in seconds
}

func (d *drift) step(r *rand.Rand, dt float64) float64 {
	keep := math.Exp(-dt / d.back)
	d.x = d.x*keep + d.spread*math.Sqrt(1-keep*keep)*r.NormFloat64()
	return d.x
}

// noise returns a normal number that is not negative.
func noise(r *rand.Rand, mean, sigma float64) float64 {
	return math.Max(0, mean+sigma*r.NormFloat64())
}

// poisson returns how many events of the given mean number there are.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 30 {
		return math.Round(noise(r, mean, math.Sqrt(mean)))
	}
	n, limit := 0.0, math.Exp(-mean)
	for p := r.Float64(); p > limit; p *= r.Float64() {
		n++
	}
	return n
}

func clamp(x, low, high float64) float64 { return math.Min(high, math.Max(low, x)) }

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func setAll(r collector.Readings, d *metric.Def, values ...float64) {
	for i, v := range values {
		r.SetAt(d, i, v)
	}
}

// zero sets all values of a row's dimension to zero.
func zero(r collector.Readings, rows ...*metric.Def) {
	for _, d := range rows {
		for i := range d.Width() {
			r.SetAt(d, i, 0)
		}
	}
}
