package fleet

import (
	"cmp"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/collector/kubemeta"
)

// place is a node that has or should have GPUs, with what is free on it.
type place struct {
	node  *kube.Node
	pools []string
	model string
	state string // of metric.NodeState

	have, used map[string]int // devices by resource
	sick       int
	cpu        int64 // free, in thousandths
	memory     int64
	pods       int64
}

// free is how many devices of a resource are free.
func (p *place) free(resource string) int { return max(0, p.have[resource]-p.used[resource]) }

// poolLabels name the pool of a node, those of the known clouds first.
var poolLabels = []string{
	"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool", "kubernetes.azure.com/agentpool",
	"alpha.eksctl.io/nodegroup-name", "agentpool", "doks.digitalocean.com/node-pool", "k8s.scaleway.com/pool-name",
}

// modelLabels name the model of a node's GPUs.
var modelLabels = []string{"nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator", "karpenter.k8s.aws/instance-gpu-name"}

// shared is what the node has in common with others.
func (p *place) shared() (out []collector.Label) {
	out = kubemeta.Where(p.node.Labels)
	for _, pool := range p.pools {
		out = append(out, collector.Label{Name: "node pool", Value: pool})
	}
	return out
}

// bootTaints are on a node that is not ready to be used yet.
var bootTaints = []string{"node.cloudprovider.kubernetes.io/uninitialized", "karpenter.sh/unregistered", "node.cilium.io/agent-not-ready", "nvidia.com/gpu-driver-not-ready"}

// gpuTaint is what keeps everybody off GPU nodes who needs none.
const gpuTaint = "nvidia.com/gpu"

func first(labels map[string]string, keys []string) string {
	for _, k := range keys {
		if v := labels[k]; v != "" {
			return v
		}
	}
	return ""
}

// places are the nodes with GPUs, and what their pods leave free of them, by name.
func (o *objects) places() []*place {
	byName := map[string]*place{}
	offered := o.offered()
	for _, n := range o.nodes {
		p := &place{node: n, model: first(n.Labels, modelLabels), have: map[string]int{}, used: map[string]int{},
			cpu: n.Allocatable.CPU, memory: n.Allocatable.Memory, pods: n.Allocatable.Pods}
		for resource, count := range n.Allocatable.GPUs {
			p.have[resource] = count
		}
		for resource, count := range n.Capacity.GPUs {
			p.sick += max(0, count-p.have[resource])
			p.have[resource] += 0 // it is a GPU node even if it can offer none now
		}
		if offered[n.Name] > 0 {
			p.have[claimed] = offered[n.Name]
		}
		if len(p.have) == 0 && n.Labels["nvidia.com/gpu.present"] != "true" && p.model == "" {
			continue
		}
		p.pools = []string{cmp.Or(first(n.Labels, o.labelsOfPools()), p.model, "none")}
		byName[n.Name] = p
	}
	for _, pod := range o.pods {
		p := byName[pod.Node]
		if p == nil || pod.Ended() {
			continue
		}
		p.cpu -= pod.Requests.CPU
		p.memory -= pod.Requests.Memory
		p.pods--
		for resource, count := range pod.Requests.GPUs {
			p.used[resource] += count
		}
	}
	o.given(byName)
	out := make([]*place, 0, len(byName))
	for _, p := range byName {
		p.state = p.stateOf()
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *place) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return out
}

func (o *objects) labelsOfPools() []string {
	if len(o.poolLabels) > 0 {
		return o.poolLabels
	}
	return poolLabels
}

// offered is how many devices NVIDIA's driver for claims offers on each node.
func (o *objects) offered() map[string]int {
	out := map[string]int{}
	for _, s := range o.slices {
		if s.Driver == kube.GPUDriver && s.Node != "" {
			out[s.Node] += len(s.Devices)
		}
	}
	return out
}

// given counts the devices that claims were given: one that several share is one.
func (o *objects) given(byName map[string]*place) {
	node := map[kube.DeviceName]string{}
	for _, s := range o.slices {
		for _, d := range s.Devices {
			node[kube.DeviceName{Pool: s.Pool, Device: d.Name}] = s.Node
		}
	}
	seen := map[kube.DeviceName]bool{}
	for _, c := range o.claims {
		for _, d := range c.Given {
			if p := byName[node[d]]; p != nil && !seen[d] {
				seen[d] = true
				p.used[claimed]++
			}
		}
	}
}

// stateOf returns how the node is, in the words of metric.NodeState.
func (p *place) stateOf() string {
	used := 0
	for _, n := range p.used {
		used += n
	}
	switch {
	case p.node.Unschedulable && used > 0:
		return "cordoned"
	case p.node.Unschedulable:
		return "drained"
	case p.tainted(bootTaints) || p.node.Ready != "True" && sum(p.have) == 0 && p.node.Ready != "Unknown":
		return "booting"
	case p.node.Ready == "":
		return "unknown"
	case p.node.Ready != "True":
		return "down"
	case sum(p.have)+p.sick == 0:
		return "booting" // a GPU node whose device plugin has not told of any
	case slices.ContainsFunc(p.node.Taints, func(t kube.Taint) bool { return keepsAway(t) && t.Key != gpuTaint }):
		return "tainted"
	}
	return "usable"
}

func (p *place) tainted(keys []string) bool {
	return slices.ContainsFunc(p.node.Taints, func(t kube.Taint) bool { return slices.Contains(keys, t.Key) && keepsAway(t) })
}

func keepsAway(t kube.Taint) bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" }

// nodesOf makes nodes of the places, and finds out why what is free is not used.
func nodesOf(places []*place, wanted []*want) []Node {
	out := make([]Node, 0, len(places))
	for _, p := range places {
		n := Node{Name: p.node.Name, Shared: p.shared(), Pools: p.pools, Model: p.model, State: p.state, Sick: p.sick, Resources: map[string]Amount{}, Free: map[string]int{}}
		for resource, have := range p.have {
			n.GPUs += have
			n.Used += min(have, p.used[resource])
			n.Resources[resource] = Amount{have, p.used[resource]}
			if free := p.free(resource); free > 0 {
				n.Free[p.cause(resource, wanted)] += free
			}
		}
		out = append(out, n)
	}
	return out
}

// isMIG reports whether a resource is MIG instances.
func isMIG(resource string) bool { return strings.HasPrefix(resource, kube.MIGPrefix) }
