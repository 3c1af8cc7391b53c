package synth

import (
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

func softwareFaults() []*Case {
	return []*Case{
		{Name: "version changed", Effect: "another containerd", Life: JobStage, Digest: true, Rules: []rules.ID{"version_changed"},
			begin: func(n *Node) { n.setVersion("containerd", "1.7.28") }},
		{Name: "version flaps", Effect: "containerd changes every 20 minutes", Life: JobStage, Rules: []rules.ID{"version_changed"}, Lasts: 3 * time.Hour,
			begin: func(n *Node) { n.setVersion("containerd", "1.7.28") },
			during: func(n *Node, since time.Duration) {
				n.setVersion("containerd", fmt.Sprintf("1.7.%d", 27+(since/(20*time.Minute)+1)%2))
			}},
		{Name: "ranks differ", Effect: "two of a job's 8 processes have loaded another NCCL", Life: JobStage, Rules: []rules.ID{"version_mismatch"},
			Also: []rules.ID{"version_changed"}, Tenants: []int{0},
			begin: func(n *Node) {
				n.tenants[0].software.odd = collector.Version{Component: "nccl", Value: "2.21.5"}
				n.stale = true
			},
			end: func(n *Node) {
				n.tenants[0].software.odd = collector.Version{}
				n.stale = true
			}},
		{Name: "runtime newer than the driver", Effect: "a job loads CUDA 13.0 beside a driver for 12.8", Life: JobStage, Rules: []rules.ID{"version_mismatch"},
			Also: []rules.ID{"version_changed"}, Tenants: []int{0},
			begin: func(n *Node) { n.runtime(n.tenants[0], "cuda_runtime", "13.0.48") },
			end:   func(n *Node) { n.runtime(n.tenants[0], "cuda_runtime", "12.8.90") }},
	}
}

// runtime gives a tenant another version of a library.
func (n *Node) runtime(t *tenant, component, version string) {
	t.software.runtimes = slices.Clone(t.software.runtimes)
	for i := range t.software.runtimes {
		if t.software.runtimes[i].Component == component {
			t.software.runtimes[i].Value = version
		}
	}
	n.stale = true
}

func (n *Node) foreign(name string, uid int, owner collector.Owner, mem, share float64) *process {
	n.lastPID++
	n.stale = true
	return &process{pid: n.lastPID, start: uint64(n.now.Sub(n.boot).Seconds() * 100), name: name, uid: uid, owner: owner, mem: mem, share: share}
}

func sharingFaults() []*Case {
	return []*Case{
		broken(Case{Name: "hidden sharing", Effect: "a process of another pod holds 6 GiB of a GPU that was given to somebody else, and uses 20 % of it", Life: LabStage,
			Rules: []rules.ID{"hidden_sharing"}, Also: []rules.ID{"unknown_use"}, GPUs: []int{1}},
			func(n *Node, g *gpu) {
				g.ills.foreign = n.foreign("python3", 1003, collector.Owner{Kind: "pod", ID: "research/side-job", Team: "speech"}, 6<<30, 0.2)
			}),
		broken(Case{Name: "process outside its allocation", Effect: "a user's process holds 2 GiB of a GPU of a job", Life: JobStage,
			Rules: []rules.ID{"hidden_sharing", "unknown_use"}, GPUs: []int{1}},
			func(n *Node, g *gpu) {
				g.ills.foreign = n.foreign("python3", 4001, collector.Owner{Kind: "user", ID: "4001"}, 2<<30, 0.05)
			}),
		broken(Case{Name: "MPS used by who was not given it", Effect: "a process of another pod is a client of the MPS server of a GPU that was given to two others, holds 6 GiB and uses 20 % of it", Life: LabStage,
			Rules: []rules.ID{"hidden_sharing"}, Also: []rules.ID{"unknown_use"}, GPUs: []int{1}, setup: func(n *Node) { n.shareByMPS(n.gpus[1]) }},
			func(n *Node, g *gpu) {
				p := n.foreign("python3", 1003, collector.Owner{Kind: "pod", ID: "research/side-job", Team: "speech"}, 6<<30, 0.2)
				p.mps = true
				g.ills.foreign = p
			}),
		broken(Case{Name: "memory of dead processes", Effect: "8 GiB in use on a GPU that no process holds", Life: LabStage,
			Rules: []rules.ID{"hidden_sharing"}, GPUs: []int{7}},
			func(_ *Node, g *gpu) { g.ills.orphan = 8 << 30 }),
		broken(Case{Name: "compute outside any allocation", Effect: "a process of nobody's keeps a free GPU at 98 %, steadily, for 3 h", Life: LabStage,
			Rules: []rules.ID{"unallocated_compute"}, Also: []rules.ID{"hidden_sharing", "unknown_use"}, GPUs: []int{7}, Lasts: 3 * time.Hour},
			func(n *Node, g *gpu) {
				g.ills.foreign = n.foreign("kworkerds", 33, collector.Owner{Kind: "service", ID: "cron.service"}, 3<<30, 0.98)
			}),
	}
}

func moneyFaults() []*Case {
	return []*Case{
		ill(Case{Name: "exfiltration, fast", Effect: "a notebook sends 100 MB/s to a public network that it never talked to", Life: LabStage,
			Rules: []rules.ID{"data_movement"}, Warm: 30 * time.Hour, Lasts: 2 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.egress, t.woes.remotes = 1e8, 1 }),
		ill(Case{Name: "exfiltration, slow", Effect: "a notebook sends 20 MB/s to a public network that it never talked to", Life: LabStage,
			Rules: []rules.ID{"data_movement"}, Warm: 30 * time.Hour, Lasts: 4 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.egress, t.woes.remotes = 2e7, 1 }),
		ill(Case{Name: "spend without output", Effect: "a job works at full power, and no step ends", Life: JobStage,
			Rules: []rules.ID{"spend"}, Also: []rules.ID{"job_hung", "job_stalled", "slow_training"}, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.silent = true }),
		ill(Case{Name: "server answers nobody", Effect: "a server keeps 4 GPUs at 98 %, and no request ends or makes a token", Life: ChatStage,
			Rules: []rules.ID{"spend"}, Also: []rules.ID{"queueing", "job_hung", "job_stalled", "saturated_gpu", "unusual_model_use"}, Warm: 14 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.silent = true }),
	}
}

func leakFaults() []*Case {
	hour := 1 / 3600.0
	return []*Case{
		ill(Case{Name: "leak of GPU memory", Effect: "GPU memory grows by 2.4 GiB an hour", Life: LabStage,
			Rules: []rules.ID{"memory_leak"}, Warm: 12 * time.Hour, Lasts: 8 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.leakGPU = 2.4 * (1 << 30) * hour }),
		ill(Case{Name: "leak of host memory", Effect: "memory grows by 5 % of its limit an hour", Life: LabStage,
			Rules: []rules.ID{"memory_leak"}, Warm: 12 * time.Hour, Lasts: 8 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.leakHost = 0.05 * memoryPerGPU * hour }),
		ill(Case{Name: "leak of the KV cache", Effect: "8 % of the KV cache an hour is never given back", Life: ChatStage,
			Rules: []rules.ID{"memory_leak"}, Also: []rules.ID{"queueing", "saturated_gpu"}, Warm: 14 * time.Hour, Lasts: 8 * time.Hour},
			func(_ *Node, t *tenant) { t.woes.leakKV = 0.08 * hour }),
	}
}

func hardwareFaults() []*Case {
	memory := []rules.ID{"gpu_memory_errors"}
	return []*Case{
		broken(Case{Name: "row waits for its replacement", Effect: "one uncorrected error in DRAM, a remap is pending", Life: JobStage, Rules: memory, Also: []rules.ID{"xid"}},
			func(_ *Node, g *gpu) {
				g.addECC(1, 1)
				g.remapped++
				g.ills.pending = true
			}),
		broken(Case{Name: "row cannot be replaced", Effect: "a remap has failed: a bank has no spare rows", Life: JobStage, Rules: memory, Also: []rules.ID{"xid"}},
			func(_ *Node, g *gpu) { g.ills.failed = true }),
		broken(Case{Name: "corrected errors in a storm", Effect: "1,000 corrected ECC errors an hour", Life: JobStage, Rules: memory, Warm: 30 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.corrected = 1000 }),
		broken(Case{Name: "uncorrected errors", Effect: "4 uncorrected ECC errors an hour", Life: JobStage, Rules: memory, Also: []rules.ID{"xid"}, Lasts: 3 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.uncorrected = 4 }),
		broken(Case{Name: "PCIe link half as wide", Effect: "8 of 16 lanes, under load", Life: JobStage, Rules: []rules.ID{"pcie_link"}, Also: []rules.ID{"straggler", "slow_training"}},
			func(_ *Node, g *gpu) { g.ills.width = 8 }),
		broken(Case{Name: "PCIe link slower", Effect: "generation 3, under load", Life: JobStage, Rules: []rules.ID{"pcie_link"}, Also: []rules.ID{"straggler", "slow_training"}},
			func(_ *Node, g *gpu) { g.ills.gen = 3 }),
		broken(Case{Name: "PCIe replays", Effect: "1,200 replays an hour", Life: JobStage, Rules: []rules.ID{"pcie_link"}, Warm: 30 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.replays = 1200 }),
		broken(Case{Name: "NVLink down", Effect: "2 links of a GPU are down", Life: JobStage, Rules: []rules.ID{"nvlink"}, Also: []rules.ID{"straggler", "slow_training"}},
			func(_ *Node, g *gpu) { g.ills.linksDown = 2 }),
		broken(Case{Name: "NVLink errors", Effect: "600 CRC errors an hour", Life: JobStage, Rules: []rules.ID{"nvlink"}, Warm: 30 * time.Hour, Lasts: 3 * time.Hour},
			func(_ *Node, g *gpu) { g.ills.linkErrors = 600 }),
		{Name: "driver does not answer", Effect: "calls on all GPUs hang", Life: JobStage, Rules: []rules.ID{"suspect_monitor", "driver_unresponsive"}, Also: []rules.ID{"gpu_lost", "spend", "job_hung", "job_stalled"}, Lasts: 30 * time.Minute,
			GPUs: all(), begin: func(n *Node) { n.hangAll(true) }, end: func(n *Node) { n.hangAll(false) }},
		{Name: "driver slow", Effect: "calls take 500 times as long (90 ms), so that GPUs are sampled 6 times less often", Life: JobStage, Rules: []rules.ID{"driver_unresponsive"}, Also: []rules.ID{"suspect_monitor"},
			begin: func(n *Node) { n.slowDriver(500, 6) }, end: func(n *Node) { n.slowDriver(1, 1) }},
		{Name: "port down", Effect: "an InfiniBand port is down", Life: JobStage, Rules: []rules.ID{"network_port"}, Also: []rules.ID{"job_hung", "job_stalled"},
			begin: func(n *Node) { n.host.portDown = 3 }, end: func(n *Node) { n.host.portDown = 0 }},
		{Name: "drained and still occupied", Effect: "the node is drained, and its job runs on", Life: JobStage, Rules: []rules.ID{"drained_occupied"}, Lasts: 3 * time.Hour,
			begin: func(n *Node) { n.cordoned = true }, end: func(n *Node) { n.cordoned = false }},
		broken(Case{Name: "GPU hangs", Effect: "calls on one GPU do not return", Life: JobStage, Rules: []rules.ID{"gpu_lost", "driver_unresponsive"}, Also: []rules.ID{"job_hung", "job_stalled", "suspect_monitor", "spend"}},
			func(_ *Node, g *gpu) { g.ills.hung = true }),
		broken(Case{Name: "GPU off the bus", Effect: "Xid 79, the GPU does not answer any more; the others spin", Life: JobStage, Rules: []rules.ID{"xid", "gpu_lost"}, Also: []rules.ID{"job_hung", "job_stalled", "spend"}},
			func(n *Node, g *gpu) {
				n.xid(g, 79)
				g.ills.lost = true
			}),
		broken(Case{Name: "GPU gone without a word", Effect: "the GPU does not answer any more; the others spin", Life: JobStage, Rules: []rules.ID{"gpu_lost"}, Also: []rules.ID{"job_hung", "job_stalled", "spend"}},
			func(_ *Node, g *gpu) { g.ills.lost = true }),
		broken(Case{Name: "uncorrectable error reported", Effect: "Xid 48", Life: JobStage, Rules: []rules.ID{"xid"}, Also: memory},
			func(n *Node, g *gpu) {
				n.xid(g, 48)
				g.addECC(1, 1)
			}),
		{Name: "NVSwitch error", Effect: "a fatal SXid", Life: JobStage, Rules: []rules.ID{"sxid"}, Also: []rules.ID{"nvlink"}, Lasts: 10 * time.Minute,
			begin: func(n *Node) {
				n.events = append(n.events, collector.Event{Time: n.now, Kind: collector.SXidEvent, PCI: "0000:84:00.0", Code: 20034, Fatal: true, Source: sourceName, Text: "Link 30"})
				n.sxids = []collector.SXidCount{{Switch: "0000:84:00.0", Code: 20034, Fatal: true, Count: 1, Last: n.now}}
			}},
		{Name: "monitor frozen", Effect: "the driver's readings of all GPUs repeat, to the last digit, for 40 minutes of work", Life: JobStage, Rules: []rules.ID{"suspect_monitor"}, Also: []rules.ID{"driver_unresponsive"},
			GPUs: all(), Lasts: 40 * time.Minute, begin: func(n *Node) { n.frozen = true }, end: func(n *Node) { n.frozen = false }},
	}
}

// slowDriver makes calls take so many times as long, and the agent ask so many times less
// often.
func (n *Node) slowDriver(calls, sampling float64) {
	n.host.slowCalls = calls
	for _, g := range n.gpus {
		setAll(g.readings, metric.GPUSlowdown, sampling, sampling, sampling, sampling)
	}
}

func (n *Node) hangAll(hung bool) {
	for _, g := range n.gpus {
		g.ills.hung = hung
	}
	if hung {
		n.tell(collector.Event{Kind: collector.ChildRestart, Text: "all_gpus_hung"})
	}
}
