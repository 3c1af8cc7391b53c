package detect

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/rules"
)

const (
	causeFleetFlipped = "fleet_flipped" // of suspect_monitor: much of the fleet began to be at fault in the same minutes

	flipWithin = 2 * time.Minute  // findings that begin within it do so at once
	flipShare  = 0.25             // of the nodes
	flipNodes  = 4                // at least
	flipFresh  = 10 * time.Minute // what began longer ago is no news, whenever it was heard
	flipHold   = 5 * time.Minute  // after most of it has gone
)

// flip is what many nodes began to say at once: rather what looks at them, or what they
// share, than a fault of each.
type flip struct {
	finding gathered
	nodes   int       // that it began on
	count   int       // of their findings
	calm    time.Time // since when most of them are over
}

// watchFlip looks for findings of many nodes that began at once, before any of them is
// told.
func (g *Gatherer) watchFlip() {
	if g.flip != nil {
		g.endFlip()
		return
	}
	var first *gathered
	by := map[string]bool{}
	rule := map[rules.ID]map[string]bool{}
	n, severity, waiting := 0, rules.Info, false
	for _, t := range g.order {
		if !t.flips(g.now) {
			continue
		}
		by[t.Node] = true
		if rule[t.Rule] == nil {
			rule[t.Rule] = map[string]bool{}
		}
		rule[t.Rule][t.Node] = true
		n++
		severity = max(severity, t.Severity)
		waiting = waiting || !t.joined
		if first == nil || t.Since.Before(first.Since) {
			first = t
		}
	}
	all := g.listening()
	if len(by) < flipNodes || float64(len(by)) < flipShare*float64(all) || !waiting {
		return
	}
	f := Finding{
		Rule: rules.IDSuspectMonitor, Subject: Subject{"cluster", g.name()}, Cause: causeFleetFlipped, Severity: severity, State: Firing,
		Since: first.Since, Fired: g.now, LastSeen: g.now, LastTrue: g.now, Score: 1, Count: 1, GPUIndex: -1, Simulated: first.Simulated,
		Evidence: sayFlipped(rule, len(by), all, n),
	}
	g.flip = &flip{finding: gathered{tracked: tracked{Finding: f}, first: g.now, joined: true}, nodes: len(by), count: n}
	g.incidents.join(&g.flip.finding.tracked, g.now)
}

func (g *Gatherer) name() string {
	if g.cfg.Cluster != "" {
		return g.cfg.Cluster
	}
	return "cluster"
}

// flips reports whether a finding is one of those that are counted: it is news, and not of
// a kind that comes on many nodes for a reason of its own, as a job does or a roll-out.
func (t *gathered) flips(now time.Time) bool {
	return t.State == Firing && t.news && t.Severity >= rules.Ticket && now.Sub(t.first) <= flipWithin && now.Sub(t.Since) <= flipFresh &&
		t.Rule != rules.IDVersionChanged && t.Rule != rules.IDVersionMismatch && t.Rule != rules.IDSuspectMonitor && !slices.Contains(ownerKinds, t.Subject.Kind)
}

// listening is how many nodes were heard of lately.
func (g *Gatherer) listening() (n int) {
	for _, h := range g.nodes {
		if !h.whole && g.now.Sub(h.Last) <= nodeKnown {
			n++
		}
	}
	return n
}

func sayFlipped(by map[rules.ID]map[string]bool, nodes, all, findings int) Evidence {
	ids := slices.SortedFunc(maps.Keys(by), func(a, b rules.ID) int {
		if d := len(by[b]) - len(by[a]); d != 0 {
			return d
		}
		if a < b {
			return -1
		}
		return 1
	})
	var parts []string
	for _, id := range ids[:min(len(ids), mostNamed)] {
		title := string(id)
		if r := rules.Get(id); r != nil {
			title = r.Title
		}
		parts = append(parts, fmt.Sprintf("%s on %s", title, count(len(by[id]), "node", "nodes")))
	}
	return Evidence{
		Title:    fmt.Sprintf("%d of %d nodes began to be at fault at once", nodes, all),
		Seen:     fmt.Sprintf("%s on %d of %d nodes within %s: %s", count(findings, "finding", "findings"), nodes, all, span(flipWithin), listed(parts)),
		Expected: "faults that come one by one", Observed: float64(nodes), Confidence: VerySure,
		Why:    "so many at once have one cause: what looks at the nodes, or what they share",
		Action: "Look on one of the nodes whether it is so (`nvidia-smi`, `gpuvigil status`). If it is not, look at what was changed last in monitoring; if it is, at what they share: power, cooling, network, storage, a roll-out.",
	}
}

// takes returns the incident of the flip for a finding that is a part of it.
func (p *flip) takes(t *tracked, now time.Time) *incident {
	if p == nil || p.finding.State != Firing || t == &p.finding.tracked || t.Since.Before(p.finding.Since.Add(-flipWithin)) ||
		now.Sub(p.finding.Fired) > groupWindow || t.Rule == rules.IDVersionChanged || slices.Contains(ownerKinds, t.Subject.Kind) {
		return nil
	}
	return p.finding.incident
}

// endFlip ends the suspicion once most of what began with it is over.
func (g *Gatherer) endFlip() {
	p := g.flip
	p.finding.LastSeen = g.now
	left := 0
	for _, t := range g.order {
		if t.State == Firing && (t.incident == p.finding.incident || !t.joined) {
			left++
		}
	}
	switch {
	case 2*left >= p.count:
		p.finding.LastTrue, p.calm = g.now, time.Time{}
	case p.calm.IsZero():
		p.calm = g.now
	case g.now.Sub(p.calm) >= flipHold:
		p.finding.State, p.finding.Resolved, p.finding.Ended = Resolved, g.now, "cleared"
		g.incidents.touch(&p.finding.tracked, g.now)
		g.finished = append(g.finished, p.finding.Finding)
		g.flip, g.changed = nil, true
	}
}
