package sim

import (
	"fmt"
	"math"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	anonPerProcess  = 52 << 30 // host memory of a process that uses a GPU
	shmemPerProcess = 4 << 30
	filesPerProcess = 160
	filesLimit      = 1 << 20 // as containers get it
	podPerGPU       = 16      // CPUs that a pod may use for each of its GPUs
	portSpeed       = 50e9    // bytes per second
	portShare       = 0.05    // of the NVLink traffic that also goes to other nodes
	portQuiet       = 2e4     // bytes per second of a port that nobody uses
	homeRead        = 2e5     // bytes per second that a notebook reads from its home, which is on NFS
	homeWritten     = 3e4
	wire            = 4 // bytes of the words that a port counts
)

// movement is what a workload has moved and used since it was first on the node.
type movement struct {
	block, network [2]float64 // in the order of the rows' dimensions
	pcie           [2]float64
	nvlink         float64
	cpu, throttled float64
	waiting        [3]float64
	up             float64 // seconds
}

// move adds a second's work.
func (w *workload) move(ask hostWork) {
	m := &w.moved
	m.up += bit(w.up)
	m.block[0] += math.Round(ask.read)
	m.block[1] += math.Round(ask.write)
	m.network[0] += math.Round(ask.rx)
	m.network[1] += math.Round(ask.tx)
	cores := ask.cores
	if limit := w.cpuLimit(); cores > limit {
		m.throttled += (cores - limit) / limit
		cores = limit
	}
	m.cpu += cores
	m.waiting[2] += math.Min(1, (ask.read+ask.write)/diskSpeed)
	for _, g := range w.gpus {
		if g.lost || !w.up {
			continue
		}
		m.pcie[0] += math.Round(g.work.rx)
		m.pcie[1] += math.Round(g.work.tx)
		m.nvlink += math.Round(g.work.link)
	}
}

// cpuLimit is the quota of a pod; a job has all CPUs.
func (w *workload) cpuLimit() float64 {
	if w.Owner.Kind != "pod" {
		return math.Inf(1)
	}
	return float64(podPerGPU * len(w.gpus))
}

// remotes are private and public addresses that each kind of workload talks to.
var remotes = map[WorkloadKind][2]float64{Inference: {9, 0}, Notebook: {3, 1}, Batch: {2, 0}, Training: {4, 0}}

// observeMovement tells what the workloads that are up have moved, and the ports.
func (s *Sim) observeMovement() {
	s.moves = make([]collector.Workload, 0, len(s.workloads))
	for _, w := range s.workloads {
		if !w.up {
			if w.Kind == Training {
				s.moves = append(s.moves, w.left(s.now))
			}
			continue
		}
		m, r, n := &w.moved, collector.NewReadings(metric.Workload), float64(len(w.gpus))
		out := collector.Workload{Owner: w.Owner, Readings: r}
		setAll(r, metric.WorkloadBlockBytes, m.block[:])
		if w.Owner.Kind == "job" { // its steps run in the host's namespaces
			out.Caveats = []collector.Caveat{{Fact: "network", Reason: "host_network"}}
		} else {
			two := remotes[w.Kind]
			setAll(r, metric.WorkloadNetworkBytes, m.network[:])
			setAll(r, metric.WorkloadRemotes, two[:])
			r.Set(metric.WorkloadCPULimit, w.cpuLimit())
			r.Set(metric.WorkloadMemoryLimit, n*memoryPerGPU)
		}
		if w.Kind == Notebook {
			out.Caveats = append(out.Caveats, collector.Caveat{Fact: "block", Reason: "network_file_systems"})
			setAll(r, metric.WorkloadNetworkFileBytes, []float64{homeRead * m.up, homeWritten * m.up})
		}
		setAll(r, metric.WorkloadPCIeBytes, m.pcie[:])
		setAll(r, metric.WorkloadNVLinkBytes, []float64{m.nvlink, m.nvlink})
		r.Set(metric.WorkloadCPUSeconds, m.cpu)
		r.Set(metric.WorkloadCPUThrottled, m.throttled)
		setAll(r, metric.WorkloadMemory, []float64{n * anonPerProcess, n * shmemPerProcess})
		r.Set(metric.WorkloadOpenFiles, filesPerProcess)
		r.Set(metric.WorkloadOpenFilesLimit, filesLimit)
		setAll(r, metric.WorkloadPressure, m.waiting[:])
		r.Set(metric.WorkloadOOMKills, 0)
		if w.Kind == Training {
			out.Quality = w.learner.observe(s.now, r)
		}
		out.Stamp(metric.Slow, s.now)
		s.moves = append(s.moves, out)
	}
	s.ports = s.observePorts()
	s.observeFiles()
}

// observePorts tells of an adapter beside each GPU, which moves what goes to other
// nodes.
func (s *Sim) observePorts() []collector.Interface {
	up := s.now.Sub(s.begin.Add(-settle)).Seconds()
	ports := make([]collector.Interface, 0, len(s.gpus))
	for i, g := range s.gpus {
		r := collector.NewReadings(metric.Interface)
		r.Set(metric.InterfaceUp, 1)
		r.Set(metric.InterfaceSpeed, portSpeed)
		bytes := wire * math.Round((portShare*g.carried+portQuiet*up)/wire)
		setAll(r, metric.InterfaceBytes, []float64{bytes, bytes})
		r.Set(metric.InterfaceErrors, 0)
		r.Set(metric.InterfaceLinkDowned, 0)
		r.Set(metric.InterfaceWaits, 0)
		for _, d := range []*metric.Def{metric.InterfaceFaults, metric.InterfaceRepeats, metric.InterfaceCongestion} {
			setAll(r, d, make([]float64, d.Width()))
		}
		p := collector.Interface{Device: fmt.Sprintf("mlx5_%d", i), Port: 1, LinkLayer: "InfiniBand", State: "ACTIVE", PhysicalState: "LinkUp", Readings: r}
		p.Stamp(metric.Slow, s.now)
		ports = append(ports, p)
	}
	return ports
}

// addMovement puts what was told last into the part, beside what it knows of the
// owners already.
func (s *Sim) addMovement(p *collector.Part) {
	p.Interfaces = s.ports
	if len(p.Workloads) == 0 {
		p.Workloads = s.moves
		return
	}
	p.Workloads = slices.Clone(p.Workloads)
	for _, m := range s.moves {
		i := slices.IndexFunc(p.Workloads, func(w collector.Workload) bool { return w.Owner == m.Owner })
		if i < 0 {
			p.Workloads = append(p.Workloads, m)
			continue
		}
		p.Workloads[i].Readings, p.Workloads[i].Caveats, p.Workloads[i].Quality = m.Readings, m.Caveats, m.Quality
	}
}
