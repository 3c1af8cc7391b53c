package synth

import (
	"gpuvigil/collector"
)

// lend gives a share of a GPU to a second pod, which uses a tenth of it.
func (n *Node) lend(g *gpu) {
	g.guest = n.foreign("python3", 1004, collector.Owner{Kind: "pod", ID: "research/small-model-0", Team: "agents"}, 5<<30, 0.1)
}

// shareByMPS does so by an MPS server, as NVIDIA's device plugin for Kubernetes starts one.
func (n *Node) shareByMPS(g *gpu) {
	n.lend(g)
	g.guest.mps = true
	for _, p := range g.procs {
		p.mps = true
	}
	g.server = n.foreign("nvidia-cuda-mps-server", 0, collector.Owner{Kind: "pod", ID: "gpu-operator/mps-control-daemon-7xk2p"}, 30<<20, 0)
}

// unshare leaves the GPU to its tenant.
func (n *Node) unshare(g *gpu) {
	g.guest, g.server = nil, nil
	for _, p := range g.procs {
		p.mps = false
	}
	n.stale = true
}
