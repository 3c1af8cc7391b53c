package synth

import (
	"slices"
	"time"
)

// lookalikes are healthy: nobody may be told of anything but in a digest.
func lookalikes() []*Case {
	warm := 3 * time.Hour
	return []*Case{
		{Name: "rolling upgrade", Effect: "the job ends, the node is drained, has another driver and boots, and takes its next job", Life: JobStage, Warm: warm, Lasts: 4 * time.Hour,
			begin: func(n *Node) {
				n.vacate()
				n.cordoned = true
			},
			during: upgradeAndReturn},
		{Name: "checkpoint every hour", Effect: "90 s without a step, 45 GB/s of writes", Life: JobStage, Warm: time.Minute, Lasts: 12 * time.Hour},
		{Name: "nightly batch", Effect: "three GPUs at work from 1 to 4 o'clock, notebooks by day", Life: Mixed, Warm: time.Minute, Lasts: 48 * time.Hour},
		{Name: "planned drain", Effect: "the job ends and the node stays empty for 6 h", Life: JobStage, Warm: warm, Lasts: 6 * time.Hour,
			begin: func(n *Node) {
				n.vacate()
				n.cordoned = true
			}},
		{Name: "warm-up", Effect: "a job starts again: minutes of loading at 12 % utilization", Life: JobStage, Warm: warm, Lasts: 2 * time.Hour,
			begin: func(n *Node) {
				n.tenants[0].stop()
				n.tenants[0].start(n)
			}},
		{Name: "autoscaling", Effect: "servers come at 9 and go at 20 o'clock", Life: Serving, Warm: time.Minute, Lasts: 48 * time.Hour},
		{Name: "MIG partitioned anew", Effect: "a notebook's GPU is freed and put into MIG mode, and back an hour later", Life: LabStage, Warm: warm, Lasts: 3 * time.Hour,
			begin: func(n *Node) { n.remove(n.tenants[3]) },
			during: func(n *Node, since time.Duration) {
				n.gpus[3].mig = since > 10*time.Minute && since < 70*time.Minute
			}},
		{Name: "a job ends", Effect: "a job ends, and another begins 25 minutes later", Life: JobStage, Warm: warm, Lasts: 4 * time.Hour,
			begin: func(n *Node) { n.vacate() },
			during: func(n *Node, since time.Duration) {
				if since >= 25*time.Minute && len(n.tenants) == 0 {
					n.add(n.trainingJob(4720, false), all()...)
				}
			}},
		ill(Case{Name: "idle tensor-parallel server", Effect: "no requests; ranks wait for work by spinning: 100 % utilization at rest power", Life: ChatStage, Verdicts: []string{"request_starved", "idle_held", "healthy"},
			Warm: warm, Lasts: 8 * time.Hour}, func(_ *Node, t *tenant) { t.woes.polls = true }),
		{Name: "power cap at full power", Effect: "the software power cap holds the clocks, at 100 % of the limit", Life: JobStage, Warm: time.Minute, Lasts: 8 * time.Hour,
			begin: func(n *Node) { n.tenants[0].hungry = 0.2 }, Verdicts: []string{"compute_bound"}, Tenants: []int{0}, Activity: true},
		{Name: "model load", Effect: "a server starts again and reads its weights", Life: ChatStage, Warm: 14 * time.Hour, Lasts: 2 * time.Hour,
			begin: func(n *Node) {
				n.tenants[0].stop()
				n.tenants[0].start(n)
			}},
		{Name: "reboot", Effect: "the node boots; its job comes back", Life: JobStage, Warm: warm, Lasts: 3 * time.Hour,
			begin: func(n *Node) { n.reboot(8 * time.Minute) },
			during: func(n *Node, since time.Duration) {
				if since > 10*time.Minute && !n.tenants[0].up {
					n.tenants[0].start(n)
				}
			}},
		{Name: "exporter restarted", Effect: "nobody looks for 4 minutes, and the agent begins from its state file", Life: ChatStage, Warm: 14 * time.Hour, Lasts: 3 * time.Hour,
			begin: func(n *Node) { n.dark, n.restarted = n.now.Add(4*time.Minute), true }},
		{Name: "preallocating runtime", Effect: "a notebook's new process takes 90 % of the GPU's memory at once, and keeps it", Life: LabStage, Warm: 12 * time.Hour, Lasts: 8 * time.Hour,
			begin: func(n *Node) {
				t := n.tenants[1]
				t.stop()
				t.mem = 0.9 * n.gpus[1].board.memory
				t.start(n)
			}},
		{Name: "a shared file system is slow for a while", Effect: "a quarter of each step waits for data, for 8 minutes", Life: JobStage, Warm: 6 * time.Hour, Lasts: 8 * time.Minute, Tenants: []int{0},
			begin: func(n *Node) { n.tenants[0].woes.waits = 0.25 }, end: func(n *Node) { n.tenants[0].woes = woes{} }},
	}
}

// vacate ends all tenants.
func (n *Node) vacate() {
	for _, t := range slices.Clone(n.tenants) {
		n.remove(t)
	}
}

func upgradeAndReturn(n *Node, since time.Duration) {
	switch {
	case since >= 20*time.Minute && n.version("driver") == "570.124.06":
		n.upgrade("570.158.01")
		n.reboot(6 * time.Minute)
	case since >= 50*time.Minute && len(n.tenants) == 0:
		n.cordoned = false
		n.add(n.trainingJob(4720, false), all()...)
	}
}
