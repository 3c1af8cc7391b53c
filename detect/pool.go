package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/rules"
)

// The causes of rule version_mismatch over several nodes.
const (
	poolMinority    = "pool_minority"
	rolloutStuck    = "rollout_stuck"
	rolloutFlapping = "rollout_flapping"
)

// PoolConfig is what a Pool can be told. Zero fields take the defaults.
type PoolConfig struct {
	Still time.Duration // versions that differ and do not move for so long are a finding; 2 h
	Fresh time.Duration // a node that was not heard of for so long does not count; 15 min
}

// PoolRow is the version of one component of one node.
type PoolRow struct {
	Node      string
	Pool      string // nodes of one pool should be alike: PoolOf
	Component string
	Version   string
	Time      time.Time
}

const (
	mostPools     = 1024
	mostNodes     = 20_000 // of one pool
	nodeForgotten = 7 * 24 * time.Hour
	flapWithin    = 24 * time.Hour
	flapTurns     = 3                // of direction, within that time
	turnApart     = 30 * time.Minute // a roll-back overlaps with the last nodes of what it takes back
	mostNamed     = 4
)

// Pool compares the versions of the nodes of each pool: those that are of a minority,
// roll-outs that are stuck, and those that go back and forth. It is used from one
// goroutine.
type Pool struct {
	cfg    PoolConfig
	groups map[poolKey]*poolGroup
	order  []poolKey
}

type poolKey struct{ pool, component string }

// poolGroup is one component in one pool. Its exported fields are what Save keeps.
type poolGroup struct {
	Pool      string      `json:"pool"`
	Component string      `json:"component"`
	Nodes     []*poolNode `json:"nodes"`           // by name
	Differ    time.Time   `json:"differ,omitzero"` // since when there have been several versions
	Moved     time.Time   `json:"moved,omitzero"`  // when a node last took another one, or a new node came
	Moves     int         `json:"moves"`           // since they differ
	From      string      `json:"from,omitempty"`  // of the last change
	To        string      `json:"to,omitempty"`
	Turns     []time.Time `json:"turns,omitempty"` // when changes began to go the other way
}

type poolNode struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Seen    time.Time `json:"seen"`
}

// NewPool returns a Pool that knows no node.
func NewPool(cfg PoolConfig) *Pool {
	cfg.Still = cmp.Or(cfg.Still, 2*time.Hour)
	cfg.Fresh = cmp.Or(cfg.Fresh, 15*time.Minute)
	return &Pool{cfg: cfg, groups: map[poolKey]*poolGroup{}}
}

// Add takes up what is known of a node. Rows of one node and component come in the order
// of their times.
func (p *Pool) Add(r PoolRow) {
	if r.Node == "" || r.Pool == "" || r.Component == "" || r.Version == "" {
		return
	}
	key := poolKey{r.Pool, r.Component}
	g := p.groups[key]
	if g == nil {
		if len(p.order) >= mostPools {
			return
		}
		g = &poolGroup{Pool: r.Pool, Component: r.Component}
		p.groups[key] = g
		p.order = append(p.order, key)
	}
	g.add(r)
}

func (g *poolGroup) add(r PoolRow) {
	i, known := slices.BinarySearchFunc(g.Nodes, r.Node, func(n *poolNode, name string) int { return cmp.Compare(n.Name, name) })
	if !known {
		if len(g.Nodes) < mostNodes {
			g.Nodes = slices.Insert(g.Nodes, i, &poolNode{r.Node, r.Version, r.Time})
			g.Moved = later(g.Moved, r.Time) // pools are also upgraded by taking new nodes
		}
		return
	}
	n := g.Nodes[i]
	if r.Time.Before(n.Seen) {
		return
	}
	n.Seen = r.Time
	if n.Version == r.Version {
		return
	}
	if g.From == r.Version && g.To == n.Version && (len(g.Turns) == 0 || r.Time.Sub(g.Turns[len(g.Turns)-1]) >= turnApart) {
		g.Turns = append(g.Turns, r.Time)
		g.Turns = g.Turns[max(len(g.Turns)-2*flapTurns, 0):]
	}
	g.From, g.To, n.Version = n.Version, r.Version, r.Version
	g.Moved = later(g.Moved, r.Time)
	g.Moves++
}

// Judge reports on each component of each pool, as of now.
func (p *Pool) Judge(now time.Time, report func(Observation)) {
	for _, key := range p.order {
		g := p.groups[key]
		g.Nodes = slices.DeleteFunc(g.Nodes, func(n *poolNode) bool { return now.Sub(n.Seen) > nodeForgotten })
		p.judge(g, now, report)
	}
	p.order = slices.DeleteFunc(p.order, func(key poolKey) bool {
		empty := len(p.groups[key].Nodes) == 0
		if empty {
			delete(p.groups, key)
		}
		return empty
	})
}

func (p *Pool) judge(g *poolGroup, now time.Time, report func(Observation)) {
	versions := g.versions(now, p.cfg.Fresh)
	severity := rules.Ticket
	if slices.Contains([]string{"vbios", "gsp", "inforom", "bios", "hca_firmware"}, g.Component) {
		severity = rules.Info
	}
	subject := Subject{"pool", g.Pool + "/" + g.Component}
	turns := 0
	for _, at := range g.Turns {
		if age := now.Sub(at); age >= 0 && age < flapWithin {
			turns++
		}
	}
	flapping := Observation{Subject: subject, Cause: rolloutFlapping, Severity: severity, Score: float64(turns) / flapTurns}
	if turns >= flapTurns {
		flapping.Evidence = g.evidence(versions, fmt.Sprintf("the nodes went back and forth %d times in %s", turns, span(flapWithin)),
			"one direction", g.Component+" keeps changing in the pool")
	}
	report(flapping)
	if len(versions) < 2 {
		g.Differ, g.Moves = time.Time{}, 0
	} else if g.Differ.IsZero() {
		g.Differ = now
	}
	holds := poolMinority
	if g.Moves > 0 {
		holds = rolloutStuck
	}
	for _, cause := range []string{poolMinority, rolloutStuck} {
		o := Observation{Subject: subject, Cause: cause, Severity: severity}
		if cause == holds && len(versions) > 1 {
			still := now.Sub(later(g.Differ, g.Moved))
			o.Score = max(still.Seconds()/p.cfg.Still.Seconds(), 0)
			if o.Score >= 1 && cause == poolMinority {
				o.Evidence = g.evidence(versions, "for "+span(now.Sub(g.Differ)), "one version in a pool", g.Component+" differs in the pool")
			} else if o.Score >= 1 {
				o.Evidence = g.evidence(versions, "nothing has moved for "+span(still), "a roll-out that goes on, or is taken back", "Roll-out of "+g.Component+" is stuck")
			}
		}
		report(o)
	}
}

// versionCount is how many nodes have a version, and some of them.
type versionCount struct {
	version string
	nodes   int
	named   []string
}

// versions counts what the nodes that are heard of have, the most frequent first.
func (g *poolGroup) versions(now time.Time, fresh time.Duration) []versionCount {
	var all []versionCount
	for _, n := range g.Nodes {
		if now.Sub(n.Seen) > fresh {
			continue
		}
		i := slices.IndexFunc(all, func(c versionCount) bool { return c.version == n.Version })
		if i < 0 {
			i = len(all)
			all = append(all, versionCount{version: n.Version})
		}
		all[i].nodes++
		if len(all[i].named) < mostNamed {
			all[i].named = append(all[i].named, n.Name)
		}
	}
	slices.SortFunc(all, func(a, b versionCount) int {
		return cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.version, b.version))
	})
	return all
}

func (g *poolGroup) evidence(versions []versionCount, what, expected, title string) Evidence {
	var parts []string
	for i, c := range versions {
		part := fmt.Sprintf("%s on %s", c.version, count(c.nodes, "node", "nodes"))
		if i > 0 { // those of the minority are the ones to look for
			part += " (" + strings.Join(c.named, ", ")
			if c.nodes > len(c.named) {
				part += " …"
			}
			part += ")"
		}
		parts = append(parts, part)
	}
	want := 1.0
	return Evidence{
		Title: capital(title), Seen: fmt.Sprintf("%s of %s: %s; %s", g.Component, g.Pool, listed(parts), what), Expected: expected,
		Observed: float64(len(versions)), Want: &want, Confidence: Certain, Why: "each node tells its own",
		Action: "Finish the roll-out or take it back.",
	}
}
