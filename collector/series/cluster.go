package series

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// The names of kube-state-metrics that are read.
const (
	podInfo       = "kube_pod_info"
	nodeInfo      = "kube_node_info"
	unschedulable = "kube_node_spec_unschedulable"
	taint         = "kube_node_spec_taint"
	requests      = "kube_pod_container_resource_requests"
)

var clusterNames = []string{podInfo, nodeInfo, unschedulable, taint, requests, podOwner, jobOwner, podLabels, nodeLabels}

// cluster is what kube-state-metrics says of a cluster: which node a pod runs on, which
// nodes take no work, and who was given how many GPUs.
type cluster struct {
	sets []*set

	seen      int64 // the newest sample that was read
	pods      map[pod]string
	addresses map[string]string // of nodes, and of pods that have one of their own
	nodes     map[string]*kubeNode
	jobs      kubeJobs
}

type pod struct{ namespace, name string }

// kubeNode is a node as the cluster has it.
type kubeNode struct {
	drained float64 // NaN: not told
	given   []given
	shared  []collector.Label // what it has in common with others
}

// given is how many GPUs a container asked for and has.
type given struct {
	pod       pod
	container string
	resource  string
	devices   int
}

func newCluster() cluster { return cluster{seen: never} }

// nodeOf returns the node that the pod runs on, "" if that is not known.
func (c *cluster) nodeOf(namespace, name string) string { return c.pods[pod{namespace, name}] }

// nodeAt returns the node that has the address, or whose pod has it.
func (c *cluster) nodeAt(address string) string { return c.addresses[address] }

// read takes in what is new. It reports whether pods are on other nodes than before.
func (c *cluster) read(from int64) (moved bool) {
	newest := c.seen
	for _, s := range c.sets {
		for _, one := range s.series {
			newest = max(newest, one.at)
		}
	}
	if newest == c.seen {
		return false
	}
	pods, addresses := c.pods, c.addresses
	*c = cluster{sets: c.sets, seen: newest, pods: map[pod]string{}, addresses: map[string]string{}, nodes: map[string]*kubeNode{}, jobs: newKubeJobs()}
	for _, s := range c.sets {
		for _, one := range s.series {
			if one.live(from) {
				c.take(string(one.name.text), s, one.value)
			}
		}
	}
	return !maps.Equal(pods, c.pods) || !maps.Equal(addresses, c.addresses)
}

// said returns a label as kube-state-metrics wrote it.
func (s *set) said(label string) string {
	if v := s.value(exported + label); v != "" {
		return v
	}
	return s.value(label)
}

func (c *cluster) take(name string, s *set, v float64) {
	if c.jobs.take(name, s) {
		return
	}
	node := s.said("node")
	if node == "" || math.IsNaN(v) {
		return
	}
	of := c.nodes[node]
	if of == nil {
		of = &kubeNode{drained: math.NaN()}
		c.nodes[node] = of
	}
	at := pod{s.said("namespace"), s.said("pod")}
	switch name {
	case podInfo:
		c.pods[at] = node
		c.address(s.said("pod_ip"), node)
		c.address(s.said("host_ip"), node)
	case nodeInfo:
		c.address(s.said("internal_ip"), node)
	case nodeLabels:
		of.shared = sharedOf(s)
	case unschedulable:
		if math.IsNaN(of.drained) || v == 1 {
			of.drained = v
		}
	case taint:
		// GPU nodes carry taints that keep other work away; the cluster's own say that it is not well.
		if effect := s.said("effect"); v == 1 && (effect == "NoSchedule" || effect == "NoExecute") && strings.HasPrefix(s.said("key"), "node.kubernetes.io/") {
			of.drained = 1
		}
	case requests:
		if resource := s.said("resource"); strings.HasPrefix(resource, "nvidia_com_") && v >= 1 && v <= 1024 {
			of.given = append(of.given, given{at, s.said("container"), resource, int(v)})
		}
	}
}

// address notes whose an address is. One of several nodes is of none.
func (c *cluster) address(ip, node string) {
	if ip == "" {
		return
	}
	if known, ok := c.addresses[ip]; ok && known != node {
		node = ""
	}
	c.addresses[ip] = node
}

// part returns what the cluster says of the node, nil if it says nothing. It is the same
// part until there is something new.
func (c *cluster) part(n *node) *collector.Part {
	k := c.nodes[n.name]
	if k == nil || c.seen == never {
		return n.kube
	}
	at := time.UnixMilli(c.seen).UTC()
	if n.kube != nil && n.kube.Time.Equal(at) {
		return n.kube
	}
	p := &collector.Part{Time: at, Node: collector.Node{Readings: collector.NewReadings(metric.Node)}}
	if !math.IsNaN(k.drained) {
		p.Node.Set(metric.Drained, k.drained)
	}
	k.allocate(n, p)
	stamp(&p.Node.Readings, at)
	n.kube = p
	return p
}

// allocate says who was given the node's GPUs. Requests name no device: only a pod that
// has all of them has known ones.
func (k *kubeNode) allocate(n *node, p *collector.Part) {
	if n.last == nil {
		return
	}
	asked, named := 0, 0
	for _, g := range k.given {
		asked += g.devices
	}
	for i := range n.last.GPUs {
		named += fromOthers(n.last.GPUs[i].Allocations)
	}
	for i := range n.last.Instances {
		named += fromOthers(n.last.Instances[i].Allocations)
	}
	if named == 0 && len(k.given) == 1 && asked == len(n.last.GPUs) && k.given[0].resource == "nvidia_com_gpu" {
		g := k.given[0]
		owner := collector.Owner{Kind: "pod", ID: text.Clean(g.pod.namespace, maxText) + "/" + text.Clean(g.pod.name, maxText)}
		for i := range n.last.GPUs {
			p.Allocations = append(p.Allocations, collector.Allocation{
				UUID: n.last.GPUs[i].UUID, Owner: owner, Container: text.Clean(g.container, maxText), Resource: "nvidia.com/gpu", Source: sources[ofCluster],
			})
		}
		named = asked
	}
	unresolved := max(0, asked-named)
	p.Node.Set(metric.AllocationsUnresolved, float64(unresolved))
	known := 0.0
	if unresolved == 0 {
		known = 1
	}
	p.Node.Set(metric.AllocationsKnown, known)
}

// fromOthers counts what others than the cluster say was given: 1 for a device.
func fromOthers(all []collector.Allocation) int {
	if slices.ContainsFunc(all, func(a collector.Allocation) bool { return a.Source != sources[ofCluster] }) {
		return 1
	}
	return 0
}
