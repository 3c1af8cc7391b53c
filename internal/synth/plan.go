package synth

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
)

// planner lets tenants come and go.
type planner interface{ step(n *Node) }

func planOf(n *Node) planner {
	switch n.cfg.Life {
	case Training:
		return &trainingLife{}
	case Serving:
		return &servingLife{}
	case Mixed:
		return &mixedLife{}
	case JobStage, PodStage:
		n.add(n.trainingJob(4711, n.cfg.Life == PodStage), all()...)
	case ChatStage:
		n.add(n.serverOf(0, 0.36), 0, 1, 2, 3)
		n.add(n.serverOf(1, 0.3), 4, 5, 6, 7)
	case TwinStage:
		n.add(n.serverOf(0, 0.36), 0, 1, 2, 3)
		n.add(n.serverOf(4, 0.36), 4, 5, 6, 7)
	case LabStage:
		for i := range 4 {
			n.add(n.notebook(i), i)
		}
		n.add(n.batch(0), 4, 5)
	}
	return nobody{}
}

type nobody struct{}

func (nobody) step(*Node) {}

func all() []int { return []int{0, 1, 2, 3, 4, 5, 6, 7} }

var teams = []string{"nlp", "vision", "speech", "agents"}

func (n *Node) trainingJob(number int, pod bool) *tenant {
	team := teams[number%len(teams)]
	t := &tenant{kind: trains, owner: collector.Owner{Kind: "job", ID: fmt.Sprintf("slurm/%d", number), Team: team}, name: "python3", stage: "training",
		uid: 2000 + number%7, told: number%10 < 7, mem: float64(52+number%18) * (1 << 30), software: softwareOf(trains)}
	if pod {
		t.owner = collector.Owner{Kind: "pod", ID: fmt.Sprintf("%s/train-%d-0", team, number), Team: team}
		t.container, t.uid = "trainer", 0
	}
	return t
}

func (n *Node) serverOf(i int, busy float64) *tenant {
	model := []string{"llama-3.3-70b", "qwen3-32b", "mistral-small", "gpt-oss-120b"}[i%4]
	return &tenant{kind: serves, owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("serving/chat-%d-%s", i, n.cfg.Name), Team: "platform"}, name: "VLLM::EngineCore", container: "vllm",
		stage: "inference", mem: 70 << 30, software: softwareOf(serves), server: newServer(fmt.Sprintf("http://10.0.%d.%d:8000/metrics", i, 1+i), model, busy)}
}

func (n *Node) notebook(i int) *tenant {
	team := teams[i%len(teams)]
	return &tenant{kind: explores, owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("lab/jupyter-%s-%d", team, i), Team: team}, name: "ipykernel_launcher", container: "notebook",
		stage: "notebook", uid: 1000, mem: 14 << 30, software: softwareOf(explores)}
}

func (n *Node) batch(i int) *tenant {
	return &tenant{kind: sweeps, owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("sweep/nightly-%d", i), Team: "vision"}, name: "embed.py", container: "main",
		stage: "data_preparation", mem: 22 << 30, software: softwareOf(sweeps)}
}

// maintenance drains the node once in some weeks, upgrades it and boots it.
type maintenance struct {
	next  time.Time
	until time.Time
	done  bool
}

// due reports whether no tenants may be on the node.
func (m *maintenance) due(n *Node) bool {
	if m.next.IsZero() {
		m.next = n.now.Add(time.Duration(float64(14*24*time.Hour) * (0.3 + n.rng.ExpFloat64())))
	}
	if n.now.Before(m.next) {
		return false
	}
	if m.until.IsZero() {
		m.until = n.now.Add(45 * time.Minute)
		n.cordoned = true
	}
	switch {
	case !m.done && n.now.After(m.next.Add(20*time.Minute)):
		m.done = true
		n.upgrade(fmt.Sprintf("570.%d.%02d", 130+n.rng.IntN(60), n.rng.IntN(10)))
		n.reboot(6 * time.Minute)
	case n.now.After(m.until):
		*m = maintenance{}
		n.cordoned = false
	}
	return true
}

// reboot boots the node, which nobody watches meanwhile.
func (n *Node) reboot(lasts time.Duration) {
	for _, t := range append([]*tenant(nil), n.tenants...) {
		t.stop()
	}
	n.dark = n.now.Add(lasts)
	n.boot = n.dark.Add(-2 * time.Minute)
	n.bootID++
	n.restarted = true
	n.sxids = nil
	for _, g := range n.gpus {
		g.reloadDriver()
		g.core, g.mem = ambient+4, ambient+6
	}
	rng, ports := n.host.rng, [nodeSize]float64{}
	n.host = newHost(rng, 0)
	n.host.read, n.host.write, n.host.rx, n.host.tx, n.host.ports = 0, 0, 0, 0, ports
}

// trainingLife is one job after the other.
type trainingLife struct {
	upkeep maintenance
	job    *tenant
	next   time.Time
	number int
}

func (l *trainingLife) step(n *Node) {
	drain := l.upkeep.due(n)
	if l.job != nil && (drain || n.now.After(l.job.until)) {
		n.remove(l.job)
		l.job, l.next = nil, n.now.Add(time.Duration(3+n.rng.IntN(40))*time.Minute)
	}
	if l.job == nil && !drain && !n.now.Before(l.next) {
		if l.number == 0 {
			l.number = 4000 + n.rng.IntN(1000)
		}
		l.number += 1 + n.rng.IntN(9)
		l.job = n.add(n.trainingJob(l.number, l.number%2 == 0), all()...)
		hours := clamp(20*math.Exp(1.1*n.rng.NormFloat64()), 1, 140)
		l.job.until = n.now.Add(time.Duration(hours * float64(time.Hour)))
	}
}

// servingLife is inference servers with a daily course; some are scaled up at noon.
type servingLife struct {
	upkeep  maintenance
	servers []*tenant
	extra   *tenant
	size    int
}

func (l *servingLife) step(n *Node) {
	if l.upkeep.due(n) {
		for len(n.tenants) > 0 {
			n.remove(n.tenants[0])
		}
		l.servers, l.extra = nil, nil
		return
	}
	if l.size == 0 {
		l.size = pick(n.rng, 1, 2, 4)
	}
	if l.servers == nil {
		for i := 0; (i+1)*l.size <= nodeSize-l.size; i++ {
			var gpus []int
			for j := range l.size {
				gpus = append(gpus, i*l.size+j)
			}
			l.servers = append(l.servers, n.add(n.serverOf(i, 0.2+0.2*n.rng.Float64()), gpus...))
		}
	}
	hour := n.now.Hour()
	switch wanted := hour >= 9 && hour < 20; {
	case wanted && l.extra == nil:
		var gpus []int
		for j := range l.size {
			gpus = append(gpus, nodeSize-l.size+j)
		}
		l.extra = n.add(n.serverOf(len(l.servers), 0.25), gpus...)
	case !wanted && l.extra != nil:
		n.remove(l.extra)
		l.extra = nil
	}
}

// mixedLife is notebooks by day and a batch by night.
type mixedLife struct {
	upkeep maintenance
	books  [5]*tenant
	wait   [5]time.Time
	batch  *tenant
	number int
}

func (l *mixedLife) step(n *Node) {
	drain := l.upkeep.due(n)
	hour := n.now.Hour()
	for i, t := range l.books {
		switch {
		case t != nil && (drain || n.now.After(t.until)):
			n.remove(t)
			l.books[i], l.wait[i] = nil, n.now.Add(time.Duration(20+n.rng.IntN(200))*time.Minute)
		case t == nil && !drain && hour >= 7 && hour < 19 && !n.now.Before(l.wait[i]):
			if l.wait[i].IsZero() {
				l.wait[i] = n.now.Add(time.Duration(n.rng.IntN(300)) * time.Minute)
				continue
			}
			l.number++
			t = n.add(n.notebook(10*i+l.number%4), i)
			t.until = n.now.Add(time.Duration(60+n.rng.IntN(240)) * time.Minute)
			l.books[i] = t
		}
	}
	switch night := hour >= 1 && hour < 4; {
	case night && l.batch == nil && !drain:
		l.batch = n.add(n.batch(0), 5, 6, 7)
	case l.batch != nil && (!night || drain):
		n.remove(l.batch)
		l.batch = nil
	}
}
