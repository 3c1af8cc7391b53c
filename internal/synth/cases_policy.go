package synth

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// isolationFaults are of a pool on which not everybody may do what he likes.
func isolationFaults() []*Case {
	return []*Case{
		ill(Case{Name: "privileged container", Effect: "a notebook is started again with every capability on the node", Life: LabStage, Controlled: true,
			Rules: []rules.ID{"isolation"}},
			func(n *Node, t *tenant) { t.again(n, func() { t.privileged = true }) }),
		broken(Case{Name: "sensitive beside public", Effect: "a process of a notebook with public data on the GPU of one with patients' data", Life: LabStage, Controlled: true,
			Rules: []rules.ID{"isolation"}, Also: []rules.ID{"hidden_sharing"}, GPUs: []int{1}},
			func(n *Node, g *gpu) {
				g.tenant.sensitivity, n.tenants[2].sensitivity = "patients", "public"
				g.ills.foreign = n.foreign("ipykernel_launcher", 1000, n.tenants[2].owner, 3<<30, 0.05)
			}),
		{Name: "MPS across owners", Effect: "pods of two teams become clients of one MPS server, on a GPU that was given to both", Life: LabStage, Controlled: true,
			Rules: []rules.ID{"isolation"}, GPUs: []int{1},
			begin: func(n *Node) { n.shareByMPS(n.gpus[1]) }, end: func(n *Node) { n.unshare(n.gpus[1]) }},
		{Name: "confidential computing changed", Effect: "confidential computing is off on a node that had it on", Life: JobStage, Controlled: true,
			Rules: []rules.ID{"isolation"},
			setup: func(n *Node) { n.host.confidential = true },
			begin: func(n *Node) { n.host.confidential = false }},
		ill(Case{Name: "program never seen", Effect: "in a notebook's pod runs a program that was never seen on the node's GPUs in 8 days", Life: LabStage, Controlled: true,
			Rules: []rules.ID{"unknown_use"}, Learn: 8 * 24 * time.Hour},
			func(n *Node, t *tenant) { t.again(n, func() { t.name = "xmr-stak" }) }),
		broken(Case{Name: "user never seen", Effect: "a user who never used the node's GPUs in 8 days has a process on a free one", Life: LabStage, Controlled: true,
			Rules: []rules.ID{"unknown_use"}, Also: []rules.ID{"hidden_sharing"}, GPUs: []int{7}, Others: []string{"5005"}, Learn: 8 * 24 * time.Hour},
			func(n *Node, g *gpu) {
				g.ills.foreign = n.foreign("python3", 5005, collector.Owner{Kind: "user", ID: "5005"}, 400<<20, 0.01)
			}),
	}
}

// again starts a tenant's processes again with something changed.
func (t *tenant) again(n *Node, change func()) {
	t.stop()
	change()
	t.start(n)
}

// clusterFaults are of a scheduler's queue, which no node sees.
func clusterFaults() []*Case {
	return []*Case{
		{Name: "jobs wait beside free GPUs", Effect: "jobs for 8 GPUs wait while 8 right ones are free on a tainted node", Life: ClusterStage, Rules: []rules.ID{"waiting_jobs"},
			begin: func(n *Node) { n.cluster.tainted = 8 }, end: func(n *Node) { n.cluster.tainted = 0 }},
		{Name: "jobs wait longer than declared", Effect: "one in ten jobs waits for more than 5 h, where 4 h are declared", Life: ClusterStage, Wait: 4 * time.Hour, Rules: []rules.ID{"waiting_jobs"},
			begin: func(n *Node) { n.cluster.backlog = 5 * time.Hour }, end: func(n *Node) { n.cluster.backlog = 0 }},
		{Name: "backlog of a full cluster", Effect: "hundreds of jobs wait for a day because no GPU is free", Life: ClusterStage, Warm: time.Hour, Lasts: 24 * time.Hour,
			begin: func(n *Node) { n.cluster.backlog = 24 * time.Hour }},
	}
}
