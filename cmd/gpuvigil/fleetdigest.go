package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/fleet"
)

// digest is when what happened in the cluster is summed up, nil if nobody wants to read
// it.
func (r *fleetRecorder) digest(a *asking) *alerting.DigestConfig {
	return digestAt(a.cfg, func(from, to time.Time) []alerting.Line {
		var lines []alerting.Line
		v := r.role.View()
		if a.costs != nil && slices.ContainsFunc(v.Nodes, func(n fleet.NodeView) bool { return n.State == fleet.NodeTold }) {
			lines = fleetMoneyLines(a.costs, from, to, r.log)
		}
		lines = append(lines, eventLines(&detect.View{Findings: v.Findings, Incidents: v.Incidents, Standings: v.Standings}, nil, from, to)...)
		return append(lines, versionLines(v, r.role.Moves(from, to))...)
	}, r.log)
}

// versionLines say which versions have changed, and which drivers there are.
func versionLines(v *fleet.View, moves []fleet.VersionMove) []alerting.Line {
	var lines []alerting.Line
	var said []string
	for _, m := range moves {
		said = append(said, fmt.Sprintf("%s %s → %s on %s", m.Component, cmp.Or(m.From, "none"), cmp.Or(m.To, "none"), nodesOf(m.Nodes)))
	}
	if len(said) > 0 {
		lines = append(lines, alerting.Line{Label: "Versions changed", Text: firstFew(said)})
	}
	drivers := map[string]int{}
	for _, n := range v.Nodes {
		if n.Driver != "" {
			drivers[n.Driver]++
		}
	}
	said = nil
	for _, driver := range slices.SortedFunc(maps.Keys(drivers), func(a, b string) int {
		return cmp.Or(cmp.Compare(drivers[b], drivers[a]), cmp.Compare(a, b))
	}) {
		said = append(said, fmt.Sprintf("%s on %s", driver, nodesOf(drivers[driver])))
	}
	if len(said) > 0 {
		lines = append(lines, alerting.Line{Label: "Drivers", Text: firstFew(said)})
	}
	return lines
}

func nodesOf(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
