package synth

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

// kind is what a tenant does.
type kind int

const (
	trains kind = iota
	serves
	explores // a notebook
	sweeps   // a batch
)

// woes are what a fault does to a tenant.
type woes struct {
	hung, stalled  bool
	suspect        *gpu    // the rank that a hang waits for
	waits          float64 // share of the time in which it waits for what follows
	cpu, disk, net bool
	slow           float64 // by how much a step takes longer, on all ranks
	slowRank       *gpu    // the rank that is slower
	slowBy         float64
	bound          string  // memory, communication, pcie, encoder: what limits it instead of the SMs
	idle           bool    // holds its GPUs and does nothing
	load           float64 // arrivals, times the usual ones; 0: 1
	over           float64 // arrivals, as a share of the capacity
	growth         float64 // arrivals grow by so many times the capacity an hour
	narrow         float64 // share of the requests that a server works on at once; 0: 1
	silent         bool    // works and nothing comes of it
	leakGPU        float64 // bytes a second
	leakHost       float64
	leakKV         float64 // share of the cache a second
	egress         float64 // bytes a second to a new public network
	remotes        float64 // new public addresses
	cost           float64 // of a request in GPU time, times the usual one; 0: 1
	lengths        float64 // of answers, times the usual ones; 0: 1
	prompts        float64 // of prompts, likewise
	errors         float64 // share of the requests that fail
	polls          bool    // waits for work by spinning
}

// tenant is who uses GPUs of the node.
type tenant struct {
	kind       kind
	owner      collector.Owner
	name       string // of its processes
	container  string
	stage      string
	uid        int
	told       bool // it tells of its progress
	gpus       []*gpu
	mem        float64 // of each process on the GPU
	from       time.Time
	until      time.Time // zero: stays
	rng        *rand.Rand
	up         bool
	since      time.Time
	woes       woes
	leakedGPU  float64
	leakedHost float64
	hungry     float64 // by how much more power than usual it would draw

	ask         demandOnHost
	sensitivity string // class of its data
	privileged  bool   // its container is
	labels      []collector.Label

	software software
	learner  learner
	server   *server
	visitor  visitor
	mood     drift // of all its GPUs

	block, network, files, pcie [2]float64 // bytes, in the order of the rows' dimensions
	nvlink, cpu, throttled      float64
	waiting                     [3]float64
	readings                    collector.Readings
}

// demandOnHost is what tenants ask of the host in a step, each second.
type demandOnHost struct {
	cores, busiest float64
	read, write    float64 // disk
	nfsRead        float64
	rx, tx         float64
	iowait, quota  float64 // share of the time that tasks wait for the disk, for CPU
}

func (a *demandOnHost) add(b demandOnHost) {
	a.cores += b.cores
	a.busiest = math.Max(a.busiest, b.busiest)
	a.read += b.read
	a.write += b.write
	a.rx += b.rx + b.nfsRead
	a.tx += b.tx
	a.iowait = math.Max(a.iowait, b.iowait)
	a.quota = math.Max(a.quota, b.quota)
}

// add puts a tenant on the node.
func (n *Node) add(t *tenant, gpus ...int) *tenant {
	t.rng = newRand(n.cfg.Seed, n.cfg.Name+"/"+t.owner.ID+"/"+strconv.FormatInt(n.now.Unix(), 10))
	t.readings = collector.NewReadings(metric.Workload)
	t.mood = drift{spread: 0.01, back: 1200}
	for _, i := range gpus {
		g := n.gpus[i]
		g.tenant = t
		t.gpus = append(t.gpus, g)
		n.tell(collector.Event{Kind: collector.OwnerEvent, UUID: g.uuid, From: collector.Owner{}.String(), To: t.owner.String()})
	}
	if t.from.IsZero() {
		t.from = n.now
	}
	n.tenants = append(n.tenants, t)
	n.stale = true
	t.start(n)
	return t
}

// remove ends a tenant and frees its GPUs.
func (n *Node) remove(t *tenant) {
	t.stop()
	for _, g := range t.gpus {
		g.tenant = nil
		n.tell(collector.Event{Kind: collector.OwnerEvent, UUID: g.uuid, From: t.owner.String(), To: collector.Owner{}.String()})
	}
	if i := slices.Index(n.tenants, t); i >= 0 {
		n.tenants = slices.Delete(n.tenants, i, i+1)
	}
	n.stale = true
}

func (t *tenant) start(n *Node) {
	t.up, t.since, t.leakedGPU, t.leakedHost = true, n.now, 0, 0
	t.learner.begin(n.now, t.rng)
	if t.server != nil {
		t.server.open()
	}
	for _, g := range t.gpus {
		n.lastPID += 1 + t.rng.IntN(40)
		g.procs = []*process{{pid: n.lastPID, start: uint64(n.now.Sub(n.boot).Seconds() * 100), name: t.name, uid: t.uid,
			owner: t.owner, container: t.container, mem: t.mem, privileged: t.privileged, mps: g.server != nil}}
	}
	n.stale = true
}

func (t *tenant) stop() {
	t.up, t.ask = false, demandOnHost{}
	for _, g := range t.gpus {
		g.procs, g.work = nil, work{}
	}
}

// live gives the tenant's GPUs their work for the next step.
func (t *tenant) live(n *Node, dt float64) {
	if !t.up {
		return
	}
	t.leakedGPU += t.woes.leakGPU * dt
	t.leakedHost += t.woes.leakHost * dt
	if t.woes.leakGPU > 0 {
		for _, g := range t.gpus {
			g.procs[0].mem = t.mem + t.leakedGPU
		}
	}
	mood := t.mood.step(t.rng, dt)
	switch {
	case t.woes.idle:
		t.rest()
	case t.kind == trains:
		t.train(n, dt, mood)
	case t.kind == serves:
		t.serve(n, dt)
	case t.kind == explores:
		t.explore(dt, mood)
	default:
		t.compute(0.7, 0.75, mood)
	}
	t.ask.tx += t.woes.egress
	t.move(dt)
}

func (t *tenant) rest() {
	for _, g := range t.gpus {
		g.work = work{}
	}
	t.ask = demandOnHost{cores: 0.02, busiest: 0.02}
}

// compute is steady work that is no training.
func (t *tenant) compute(duty, power, mood float64) {
	for _, g := range t.gpus {
		d := clamp(duty+3*mood, 0, 1)
		g.work = work{duty: d, full: 0.7, tensor: 0.25, dram: 0.35 * d, power: power, rx: noise(t.rng, 3e8, 4e7), tx: noise(t.rng, 5e7, 8e6), wobble: 0.05}
	}
	t.ask = demandOnHost{cores: noise(t.rng, 1.4, 0.2), busiest: clamp(noise(t.rng, 0.6, 0.05), 0, 0.85), read: noise(t.rng, 2e7, 4e6), rx: noise(t.rng, 1e6, 1e5), tx: noise(t.rng, 1e5, 1e4)}
}

// visitor is a person at a notebook: kernels in bursts, between them thought.
type visitor struct {
	busy bool
	left float64 // seconds
}

func (t *tenant) explore(dt, mood float64) {
	v := &t.visitor
	if v.left -= dt; v.left <= 0 {
		v.busy = !v.busy
		v.left = (8 + 12*t.rng.ExpFloat64()) * 60
		if v.left > 45*60 {
			v.left = 45 * 60
		}
	}
	if v.busy {
		t.compute(0.6, 0.55, mood)
		t.ask.nfsRead = noise(t.rng, 2e5, 3e4)
		return
	}
	t.rest()
}

// move counts what the tenant's control group counts.
func (t *tenant) move(dt float64) {
	a := &t.ask
	t.block[0] += math.Round(a.read * dt)
	t.block[1] += math.Round(a.write * dt)
	t.network[0] += math.Round((a.rx + a.nfsRead) * dt)
	t.network[1] += math.Round(a.tx * dt)
	t.files[0] += math.Round(a.nfsRead * dt)
	t.cpu += a.cores * dt
	t.throttled += a.quota * dt
	t.waiting[0] += a.quota * dt
	t.waiting[2] += a.iowait * dt
	for _, g := range t.gpus {
		if !g.ills.lost {
			t.pcie[0] += math.Round(g.work.rx * dt)
			t.pcie[1] += math.Round(g.work.tx * dt)
			t.nvlink += math.Round(g.work.link * dt)
		}
	}
}

// Of a tenant in the host's network namespace the kernel counts no traffic.
func (t *tenant) ownNetwork() bool { return t.owner.Kind == "pod" }

const cpusPerGPU, podCPUs, memoryPerGPU = 24.0, 16.0, 256 << 30

// describe writes what is known of the tenant as a workload.
func (t *tenant) describe(now time.Time) collector.Workload {
	r, n := t.readings, float64(len(t.gpus))
	w := collector.Workload{Owner: t.owner, Stage: t.stage, Sensitivity: t.sensitivity, Labels: t.labels}
	setAll(r, metric.WorkloadBlockBytes, t.block[:]...)
	if t.container != "" {
		w.Containers = []string{t.container}
	}
	if t.ownNetwork() {
		setAll(r, metric.WorkloadNetworkBytes, t.network[:]...)
		private := map[kind]float64{trains: 4, serves: 9, explores: 3, sweeps: 2}[t.kind]
		setAll(r, metric.WorkloadRemotes, private, bit(t.kind == explores)+t.woes.remotes)
		if t.kind == explores {
			w.Networks = knownNetworks
			if t.woes.remotes > 0 {
				w.Networks = newNetworks
			}
		}
		r.Set(metric.WorkloadCPULimit, podCPUs*n)
		r.Set(metric.WorkloadMemoryLimit, n*memoryPerGPU)
	} else {
		w.Caveats = hostNetwork
	}
	if t.kind == explores || t.woes.net || t.files[0] > 0 {
		setAll(r, metric.WorkloadNetworkFileBytes, t.files[:]...)
	}
	setAll(r, metric.WorkloadPCIeBytes, t.pcie[:]...)
	setAll(r, metric.WorkloadNVLinkBytes, t.nvlink, t.nvlink)
	r.Set(metric.WorkloadCPUSeconds, t.cpu)
	r.Set(metric.WorkloadCPUThrottled, t.throttled)
	setAll(r, metric.WorkloadMemory, n*(52<<30)*(1+0.004*t.rng.NormFloat64())+t.leakedHost, n*(4<<30))
	setAll(r, metric.WorkloadPressure, t.waiting[:]...)
	r.Set(metric.WorkloadOOMKills, 0)
	if t.kind == trains && t.told {
		w.Quality = t.learner.observe(now, r)
	}
	r.Stamp(metric.Slow, now)
	w.Readings = r.Clone()
	return w
}

// What notebooks talk to, and what one does that it never did; both are for documentation.
var (
	knownNetworks = []netip.Prefix{netip.MustParsePrefix("198.51.0.0/16")}
	newNetworks   = append(knownNetworks[:1:1], netip.MustParsePrefix("203.0.0.0/16"))
)

var hostNetwork = []collector.Caveat{{Fact: "network", Reason: "host_network"}}

// learner is how far a training has come.
type learner struct {
	step, kept     float64
	checkpoint     time.Time
	worked, waited float64 // seconds of steps; of these for data
	stepTime       float64
	progress       demand.Progress
}

const stepSeconds = 1.25

func (l *learner) begin(now time.Time, r *rand.Rand) {
	if l.kept == 0 {
		l.kept, l.checkpoint, l.stepTime = 1000+float64(r.IntN(40000)), now, stepSeconds
	}
	l.step = l.kept
}

// advance adds dt seconds of steps that take so long.
func (l *learner) advance(dt, stepTime, waits float64) {
	l.step += dt / stepTime
	l.worked += dt
	l.waited += dt * waits
	l.stepTime = stepTime
}

// observe tells of the training as a file that it wrote now would.
func (l *learner) observe(now time.Time, r collector.Readings) []collector.Figure {
	s := demand.NoSignals(now)
	s.Steps = math.Floor(l.step)
	s.Samples = 512 * s.Steps
	s.Tokens = 4096 * s.Samples
	s.Epoch = l.step / 60000
	s.Loss = 1.6 + 7*math.Exp(-l.step/2e4) + 0.02*math.Sin(l.step)
	s.LoaderWait = l.waited
	s.Checkpoint = float64(l.checkpoint.Unix())
	s.Finished = 0
	l.progress.Add(s)
	l.progress.Set(r, true)
	r.Set(metric.WorkloadSignalAge, 0)
	return nil
}
