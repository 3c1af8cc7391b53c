package series

import (
	"cmp"
	"slices"
	"strings"

	"gpuvigil/collector"
)

// node is a machine that series are of.
type node struct {
	name    string
	slots   []*slot          // by kind, then instance
	mixer   *collector.Mixer // nil: it has no GPU, server or agent that anybody has seen
	last    *collector.Snapshot
	servers *collector.Part // of all its inference servers
	kube    *collector.Part // what the cluster says of it

	silent bool // nothing has come from it for long, and that is logged
}

// slot is what a node has one of: the page of its node_exporter, of each of its
// inference servers. Several pages may claim it: that of two replicas of a Prometheus, of
// an exporter that was started anew elsewhere. One is read, until it is silent.
type slot struct {
	kind     kind
	instance string // of an inference server, else ""
	reader   reader
	targets  []*target
	elected  *target

	seen int64 // up to when samples are in part
	part *collector.Part
	err  string // why the newest samples are in none
}

// target is the series of one scraped page, as one replica of a Prometheus has them.
type target struct {
	node *node
	slot *slot
	key  targetKey

	sets   []*set
	newest int64 // of the samples
}

// targetKey tells the targets of a slot apart.
type targetKey struct{ instance, job, replica string }

// aliases are the nodes that instances are of, as series say that have both.
type aliases struct {
	nodes   map[string]string // by instance, and by host; "" where several are told
	others  map[string]string // the same of nodes in other shards, whose series are not kept
	changed bool
}

func newAliases() aliases { return aliases{nodes: map[string]string{}, others: map[string]string{}} }

func (a *aliases) learn(instance, node string) {
	for _, of := range []string{instance, hostOf(instance)} {
		switch known, ok := a.nodes[of]; {
		case of == "" || ok && (known == node || known == ""):
		case ok:
			a.nodes[of], a.changed = "", true
		default:
			a.nodes[of], a.changed = node, true
		}
	}
}

// hostOf returns the instance without its port.
func hostOf(instance string) string {
	i := strings.LastIndexByte(instance, ':')
	if i < 0 || strings.Trim(instance[i+1:], "0123456789") != "" || strings.Count(instance, ":") > 1 && !strings.HasSuffix(instance[:i], "]") {
		return instance
	}
	return strings.Trim(instance[:i], "[]")
}

// told returns the node that the set's labels name, "" if they name none.
func (a *Assembler) told(s *set) string {
	for _, label := range a.cfg.NodeLabels {
		v := s.value(label)
		switch label {
		case "instance":
			v = hostOf(v)
		case "Hostname", "hostname":
			// A program in a container knows only that by name.
			if s.kind == ofServer || v == s.value("pod") {
				continue
			}
		}
		if v != "" {
			return v
		}
	}
	return ""
}

// nodeOf returns the name of the set's node, "" if nothing names one.
func (a *Assembler) nodeOf(s *set) string {
	if told := a.told(s); told != "" {
		return told
	}
	if pod := s.value("pod"); pod != "" {
		if name := a.cluster.nodeOf(s.value("namespace"), pod); name != "" {
			return name
		}
	}
	instance := s.value("instance")
	host := hostOf(instance)
	return cmp.Or(a.aliases.nodes[instance], a.aliases.nodes[host], a.aliases.others[instance], a.aliases.others[host], a.cluster.nodeAt(host), host)
}

// enter gives a new set its place. It returns why that cannot be.
func (a *Assembler) enter(s *set) refusal {
	if s.kind == ofCluster {
		a.cluster.sets = append(a.cluster.sets, s)
		return 0
	}
	name := a.told(s)
	if reason := a.shut(s, name); reason != none {
		return reason
	}
	if name != "" {
		a.aliases.learn(s.value("instance"), name)
	}
	return a.place(s)
}

// place puts the set on the page that it is of.
func (a *Assembler) place(s *set) refusal {
	name := a.nodeOf(s)
	if name == "" {
		return noNode
	}
	n := a.nodes[name]
	if n == nil {
		if len(a.nodes) >= a.cfg.MaxNodes {
			a.limit("nodes", a.cfg.MaxNodes)
			return nodeLimit
		}
		n = &node{name: name}
		a.nodes[name] = n
	}
	p := n.target(s.kind, targetKey{instance: s.value("instance"), job: s.value("job"), replica: a.replicaOf(s)})
	p.sets = append(p.sets, s)
	s.target = p
	for _, one := range s.series {
		p.newest = max(p.newest, one.at)
	}
	return 0
}

// replicaOf returns which replica of a Prometheus the set is from. Ray Serve's replicas
// are parts of one server.
func (a *Assembler) replicaOf(s *set) string {
	for _, label := range a.cfg.ReplicaLabels {
		if v := s.value(label); v != "" && !(label == "replica" && s.value("deployment") != "") {
			return v
		}
	}
	return ""
}

// target returns the target of the node, which may be new.
func (n *node) target(k kind, key targetKey) *target {
	of := ""
	if k == ofServer {
		of = key.instance
	}
	i := slices.IndexFunc(n.slots, func(s *slot) bool { return s.kind == k && s.instance == of })
	if i < 0 {
		i, _ = slices.BinarySearchFunc(n.slots, k, func(s *slot, k kind) int { return cmp.Or(cmp.Compare(s.kind, k), cmp.Compare(s.instance, of)) })
		n.slots = slices.Insert(n.slots, i, &slot{kind: k, instance: of, seen: never})
	}
	s := n.slots[i]
	for _, p := range s.targets {
		if p.key == key {
			return p
		}
	}
	p := &target{node: n, slot: s, key: key, newest: never}
	s.targets = append(s.targets, p)
	return p
}

// move puts all sets where their nodes are by what is known now.
func (a *Assembler) move() {
	a.aliases.changed = false
	for _, n := range a.nodes {
		for _, s := range n.slots {
			for _, p := range s.targets {
				p.sets = slices.DeleteFunc(p.sets, func(s *set) bool {
					if a.nodeOf(s) == n.name {
						return false
					}
					a.moving = append(a.moving, s)
					return true
				})
			}
		}
	}
	for _, s := range a.moving {
		s.target = nil
		if reason := a.place(s); reason != 0 {
			a.tally.refuse(reason)
			a.index.drop(s)
		}
	}
	a.moving = a.moving[:0]
	a.clean()
}

// clean removes pages and nodes of which nothing is left.
func (a *Assembler) clean() {
	for name, n := range a.nodes {
		n.slots = slices.DeleteFunc(n.slots, func(s *slot) bool {
			s.targets = slices.DeleteFunc(s.targets, func(p *target) bool { return len(p.sets) == 0 })
			if !slices.Contains(s.targets, s.elected) {
				s.elected = nil
			}
			return len(s.targets) == 0
		})
		if len(n.slots) == 0 {
			delete(a.nodes, name)
		}
	}
}
