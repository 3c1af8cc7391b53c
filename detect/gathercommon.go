package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	commonNats = 6.9 // a thousand to one that nodes picked at random would not share it
	commonMost = 3   // that are said
)

// describe says of incidents across nodes on how many they are, and what those have in
// common.
func (g *Gatherer) describe(told []Incident) {
	for i := range told {
		in := &told[i]
		nodes := in.nodes()
		if len(nodes) < 2 {
			continue
		}
		in.Nodes, in.Common = len(nodes), g.common(nodes)
		if in.Common != "" {
			in.Members[0].Evidence.Seen += fmt.Sprintf("; its %d nodes have in common: %s", in.Nodes, in.Common)
		}
	}
}

// nodes are those of the members that fire, of all members once none does.
func (i *Incident) nodes() []string {
	var out []string
	for k := range i.Members {
		if f := &i.Members[k]; f.Node != "" && (f.State == Firing || i.State == Resolved) {
			out = append(out, f.Node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fact is something that is so of a node and may be so of others.
type fact struct{ name, value string }

func (n *heardNode) facts() []fact {
	var out []fact
	if n.pool != "" {
		out = append(out, fact{"pool", n.pool})
	}
	for _, v := range n.versions {
		if !slices.Contains(withDriver, v.Component) {
			out = append(out, fact{v.Component, v.Value})
		}
	}
	for _, l := range n.labels {
		out = append(out, fact{l.Name, l.Value})
	}
	return out
}

// common says what all of the nodes have in common that the fleet has not: "rack r7 (all
// 12 nodes of it)". It is empty where chance explains it.
func (g *Gatherer) common(nodes []string) string {
	have := map[fact]int{}
	for _, name := range nodes {
		if n := g.nodes[name]; n != nil {
			for _, f := range n.facts() {
				have[f]++
			}
		}
	}
	type shared struct {
		fact
		with int
		nats float64
	}
	with := map[fact]int{}
	for f, k := range have {
		if k == len(nodes) {
			with[f] = 0
		}
	}
	all, fleet := []shared(nil), 0
	for _, n := range g.nodes {
		if !n.whole {
			fleet++
		}
		for _, f := range n.facts() {
			if k, ok := with[f]; ok {
				with[f] = k + 1
			}
		}
	}
	for f, k := range with {
		s := shared{f, k, 0}
		for i := range nodes { // nodes drawn one after the other would all have it
			s.nats -= math.Log(float64(k-i) / float64(fleet-i))
		}
		all = append(all, s)
	}
	all = slices.DeleteFunc(all, func(s shared) bool { return !(s.nats >= commonNats) })
	slices.SortFunc(all, func(a, b shared) int {
		return cmp.Or(cmp.Compare(b.nats, a.nats), cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	var parts []string
	for _, s := range all[:min(len(all), commonMost)] {
		of := fmt.Sprintf("%d of the %d nodes with it", len(nodes), s.with)
		if s.with == len(nodes) {
			of = fmt.Sprintf("all %d nodes with it", s.with)
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", strings.ReplaceAll(s.name, "_", " "), s.value, of))
	}
	return strings.Join(parts, ", ")
}
