package synth

import (
	"time"

	"gpuvigil/rules"
)

// Case is a fault of a stated size, or what looks like one and is none. Its size is the
// least that has to be found; it was chosen from what matters to a user, not from what
// the detectors find.
type Case struct {
	Name   string
	Effect string // in physical terms, with its size
	Life   Life   // on which stage

	Rules    []rules.ID // any of them finds it; none: it is healthy, and nobody is told
	Also     []rules.ID // are right as well, and not asked for
	Verdicts []string   // of the GPUs concerned, any of them; none: not asked

	Alone  bool // the node is watched for itself, and not as one of a fleet: it has the alert budget alone
	Digest bool // a line in a digest is enough; else somebody has to be told

	Controlled bool          // the pool is declared to be one on which not everybody may do what he likes
	Objective  time.Duration // declared for queues of inference; 0: none
	Wait       time.Duration // declared for jobs; 0: none
	Budget     float64       // declared for the first tenant's team, USD a month; 0: none
	Late       bool          // the budget is only declared as the case begins
	Capped     bool          // what a pod may cost is declared by its label CapLabel

	Learn       time.Duration // of usual life before all, seen by the hour
	Warm, Lasts time.Duration // of usual life before it, and of itself

	GPUs     []int    // concerned
	Tenants  []int    // concerned, in the order in which they came
	Others   []string // owners concerned who were never given a GPU
	Activity bool     // needs a board that tells how full its SMs are

	setup  func(*Node) // before the first snapshot
	begin  func(*Node)
	during func(*Node, time.Duration)
	end    func(*Node)
}

// Healthy reports whether the case looks like a fault and is none.
func (c *Case) Healthy() bool { return len(c.Rules) == 0 }

// Cases returns the faults and then the look-alikes.
func Cases() []*Case {
	var out []*Case
	for _, group := range [][]*Case{jobFaults(), clockFaults(), boundCases(), queueFaults(), heldFaults(), softwareFaults(), sharingFaults(),
		moneyFaults(), budgetFaults(), leakFaults(), hardwareFaults(), isolationFaults(), clusterFaults(), lookalikes(), approved()} {
		out = append(out, group...)
	}
	for _, c := range out {
		if c.Warm == 0 && !c.Healthy() {
			c.Warm = 3 * time.Hour
		}
		if c.Lasts == 0 {
			c.Lasts = time.Hour
		}
	}
	return out
}

// Concerned returns the uuids of the GPUs and the owners that a trial is about. It is
// of the node as it was built: owners that come later are not among them.
func (n *Node) Concerned(c *Case) (gpus []string, owners []string) {
	for _, i := range c.GPUs {
		gpus = append(gpus, n.gpus[i].uuid)
	}
	owners = append(owners, c.Others...)
	if n.cfg.Life == ClusterStage {
		owners = append(owners, queueName)
	}
	for _, i := range c.Tenants {
		t := n.tenants[i]
		owners = append(owners, t.owner.ID, t.owner.Team)
		if t.server != nil {
			owners = append(owners, t.server.url)
		}
		for _, g := range t.gpus {
			gpus = append(gpus, g.uuid)
		}
	}
	return gpus, owners
}

// Team returns the first tenant's team, "" if there is none.
func (n *Node) Team() string {
	if len(n.tenants) == 0 {
		return ""
	}
	return n.tenants[0].owner.Team
}

// ill is a case in which a woe of a tenant is set and taken back.
func ill(c Case, set func(*Node, *tenant)) *Case {
	if c.Tenants == nil {
		c.Tenants = []int{0}
	}
	which := c.Tenants[0]
	c.begin = func(n *Node) { set(n, n.tenants[which]) }
	c.end = func(n *Node) {
		t := n.tenants[which]
		if w := t.woes; w.hung || w.stalled || w.leakGPU+w.leakHost+w.leakKV > 0 || w.silent { // somebody starts it again
			t.stop()
			t.start(n)
		}
		t.woes = woes{}
	}
	return &c
}

// broken is a case in which a GPU is not what it was.
func broken(c Case, set func(*Node, *gpu)) *Case {
	if c.GPUs == nil {
		c.GPUs = []int{2}
	}
	which := c.GPUs[0]
	c.begin = func(n *Node) { set(n, n.gpus[which]) }
	c.end = func(n *Node) {
		g := n.gpus[which]
		if g.ills.lost || g.ills.hung { // the node is repaired, and the job begins again
			g.tenant.stop()
			g.tenant.start(n)
		}
		g.ills = ills{}
		n.stale = true
	}
	return &c
}

func jobFaults() []*Case {
	return []*Case{
		ill(Case{Name: "job hung", Effect: "7 of 8 ranks spin in a collective (152 of 700 W, 96 of 400 W), one does nothing", Life: JobStage,
			Rules: []rules.ID{"job_hung"}, Also: []rules.ID{"job_stalled", "spend", "idle_gpu"}, Verdicts: []string{"hung"}, Lasts: 40 * time.Minute},
			func(n *Node, t *tenant) { t.woes.hung, t.woes.suspect = true, t.gpus[5] }),
		ill(Case{Name: "job hung, in a pod", Effect: "all 8 ranks spin in a collective whose other ranks are on other nodes", Life: PodStage,
			Rules: []rules.ID{"job_hung"}, Also: []rules.ID{"job_stalled", "spend"}, Verdicts: []string{"hung"}, Lasts: 40 * time.Minute},
			func(_ *Node, t *tenant) { t.woes.hung = true }),
		ill(Case{Name: "job stalled", Effect: "all ranks at 2 % utilization, no step ends, nothing is written", Life: JobStage,
			Rules: []rules.ID{"job_stalled"}, Also: []rules.ID{"slow_training", "spend", "idle_gpu"}, Verdicts: []string{"stalled"}},
			func(_ *Node, t *tenant) { t.woes.stalled = true }),
		ill(Case{Name: "straggler", Effect: "one rank computes 20 % longer in each step, at the usual clock", Life: JobStage,
			Rules: []rules.ID{"straggler"}, Also: []rules.ID{"slow_training"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour, Activity: true},
			func(_ *Node, t *tenant) { t.woes.slowRank, t.woes.slowBy = t.gpus[4], 0.2 }),
		ill(Case{Name: "steps slower", Effect: "all ranks compute 20 % longer in each step", Life: JobStage,
			Rules: []rules.ID{"slow_training"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.slow = 0.2 }),
		ill(Case{Name: "starved by CPU", Effect: "45 % of each step waits for data, all CPUs at work", Life: JobStage,
			Rules: []rules.ID{"slow_training"}, Verdicts: []string{"cpu_starved"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.waits, t.woes.cpu = 0.45, true }),
		ill(Case{Name: "starved by the CPU quota", Effect: "45 % of each step waits for data, 60 % of the time kept off the CPU by the quota", Life: PodStage,
			Rules: []rules.ID{"slow_training"}, Verdicts: []string{"cpu_starved"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.waits, t.woes.cpu = 0.45, true }),
		ill(Case{Name: "starved by disk", Effect: "45 % of each step waits for data, the disks at their limit", Life: JobStage,
			Rules: []rules.ID{"slow_training"}, Verdicts: []string{"disk_starved"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.waits, t.woes.disk = 0.45, true }),
		ill(Case{Name: "starved by network", Effect: "45 % of each step waits for data, NFS at the speed of the network", Life: PodStage,
			Rules: []rules.ID{"slow_training"}, Verdicts: []string{"network_starved"}, Warm: 6 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.waits, t.woes.net = 0.45, true }),
	}
}

func clockFaults() []*Case {
	slows := []rules.ID{"straggler", "slow_training", "hot_gpu"}
	return []*Case{
		broken(Case{Name: "power brake", Effect: "hardware takes 30 % of a GPU's clock", Life: JobStage,
			Rules: []rules.ID{"throttled_gpu"}, Also: slows, Verdicts: []string{"throttled_power", "throttled_hardware"}},
			func(_ *Node, g *gpu) { g.ills.brake = 0.3 }),
		broken(Case{Name: "cooling failed", Effect: "a GPU gives off heat 90 % worse and is held at its thermal limit", Life: JobStage,
			Rules: []rules.ID{"throttled_gpu", "hot_gpu"}, Also: slows, Verdicts: []string{"throttled_thermal"}},
			func(_ *Node, g *gpu) { g.ills.dust = 0.9 }),
		broken(Case{Name: "hot GPU", Effect: "a GPU gives off heat 35 % worse: 12 °C above its peers, not yet throttled", Life: JobStage,
			Rules: []rules.ID{"hot_gpu"}, Warm: 8 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.dust = 0.35 }),
		broken(Case{Name: "clock low", Effect: "a GPU's clock is 20 % below its peers' at the same load, no reason given", Life: JobStage,
			Rules: []rules.ID{"throttled_gpu", "straggler"}, Also: slows, Lasts: 2 * time.Hour, Warm: 6 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.slow = 0.2 }),
		broken(Case{Name: "power limit lowered", Effect: "a GPU's power limit is 70 % of its default", Life: JobStage, Digest: true,
			Rules: []rules.ID{"throttled_gpu"}, Also: slows, Verdicts: []string{"throttled_power"}, Lasts: 2 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.limit = 0.7 * g.board.limit }),
	}
}

// boundCases are healthy work with another limit than the SMs: only their verdict is
// asked for.
func boundCases() []*Case {
	bound := func(name, effect, by string, verdicts ...string) *Case {
		c := ill(Case{Name: name, Effect: effect, Life: JobStage, Verdicts: verdicts, Warm: time.Minute, Lasts: 3 * time.Hour, Activity: true},
			func(_ *Node, t *tenant) { t.woes.bound = by })
		return c
	}
	return []*Case{
		bound("training at full speed", "tensor cores at 45 %, power at its limit", "", "compute_bound"),
		bound("bound by memory bandwidth", "93 % of the memory bandwidth, tensor cores at 12 %", "memory", "memory_bound"),
		bound("bound by communication", "half of each step is collectives", "communication", "communication_bound"),
		bound("bound by PCIe", "90 % of the link's speed, SMs 40 % full", "pcie", "pcie_bound"),
		bound("bound by the encoder", "encoder at 98 %", "encoder", "encoder_bound"),
	}
}

func queueFaults() []*Case {
	return []*Case{
		ill(Case{Name: "saturated with a queue", Effect: "arrivals of 1.3 times the capacity", Life: ChatStage,
			Rules: []rules.ID{"saturated_gpu"}, Also: []rules.ID{"queueing", "unusual_model_use"}, Verdicts: []string{"vram_bound", "compute_bound", "memory_bound"}, Warm: 14 * time.Hour, Lasts: 90 * time.Minute},
			func(_ *Node, t *tenant) { t.woes.over = 1.3 }),
		ill(Case{Name: "queue before a GPU that is not busy", Effect: "a server works on a quarter as many requests at once, and 1.2 times as many arrive as it can serve", Life: ChatStage,
			Rules: []rules.ID{"queueing"}, Also: []rules.ID{"saturated_gpu", "unusual_model_use"}, Warm: 14 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.narrow, t.woes.over = 0.25, 1.2 }),
		ill(Case{Name: "queue grows", Effect: "arrivals grow by 60 % of capacity an hour", Life: ChatStage,
			Rules: []rules.ID{"saturated_gpu", "queueing"}, Also: []rules.ID{"unusual_model_use"}, Warm: 14 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.growth = 0.6 }),
		ill(Case{Name: "queue beside an idle sibling", Effect: "all requests go to one of two servers of a model, which works on a quarter as many at once and has 1.2 times as many as it can serve", Life: TwinStage,
			Rules: []rules.ID{"queueing"}, Also: []rules.ID{"saturated_gpu", "unusual_model_use"}, Warm: 14 * time.Hour, Lasts: time.Hour},
			func(n *Node, t *tenant) {
				t.woes.narrow, t.woes.over = 0.25, 1.2
				n.tenants[1].woes.polls = true
			}),
		ill(Case{Name: "queue above its objective", Effect: "a server works on a quarter as many requests at once, and 97 % of what it can serve arrive: queue-time p95 above 5 s, where 2 s are declared", Life: ChatStage, Objective: 2 * time.Second,
			Rules: []rules.ID{"queueing"}, Also: []rules.ID{"saturated_gpu", "unusual_model_use"}, Warm: time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.narrow, t.woes.over = 0.25, 0.97 }),
		ill(Case{Name: "model used unlike its habit", Effect: "answers 5 times as long, prompts a quarter", Life: ChatStage,
			Rules: []rules.ID{"unusual_model_use"}, Also: []rules.ID{"queueing", "saturated_gpu", "data_movement"}, Warm: 80 * time.Hour, Lasts: 6 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.lengths, t.woes.prompts, t.woes.load = 5, 0.25, 0.5 }),
		ill(Case{Name: "requests cost more", Effect: "a request takes twice the GPU time and power that it took, on a node that has the alert budget alone", Life: ChatStage, Alone: true,
			Rules: []rules.ID{"unusual"}, Also: []rules.ID{"unusual_model_use", "hot_gpu", "spend"}, Warm: 80 * time.Hour, Lasts: 12 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.cost = 2 }),
		ill(Case{Name: "requests fail", Effect: "30 % of the requests end with an error", Life: ChatStage,
			Rules: []rules.ID{"unusual_model_use"}, Warm: 80 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.errors = 0.3 }),
	}
}

func heldFaults() []*Case {
	return []*Case{
		ill(Case{Name: "idle and held", Effect: "a job keeps 8 GPUs and does nothing with them from its beginning on", Life: JobStage,
			Rules: []rules.ID{"idle_gpu"}, Also: []rules.ID{"spend"}, Verdicts: []string{"idle_held"}, Warm: time.Minute, Lasts: 4 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.idle = true }),
		ill(Case{Name: "notebook forgotten", Effect: "a notebook keeps a GPU for 14 h and does nothing with it", Life: LabStage,
			Rules: []rules.ID{"idle_gpu"}, Also: []rules.ID{"spend"}, Verdicts: []string{"idle_held"}, Lasts: 14 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.idle = true }),
		{Name: "held without a process", Effect: "a job's processes are gone, its 8 GPUs stay allocated", Life: JobStage,
			Rules: []rules.ID{"idle_gpu"}, Also: []rules.ID{"spend", "job_stalled"}, Verdicts: []string{"held_without_process"}, Lasts: 4 * time.Hour, Tenants: []int{0},
			begin: func(n *Node) { n.tenants[0].stop() }, end: func(n *Node) { n.tenants[0].start(n) }},
	}
}
