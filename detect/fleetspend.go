package detect

import "gpuvigil/collector"

// fleetSpend is rule spend for teams on all nodes of a cluster: the money of the snapshot
// is that of all.
type fleetSpend struct {
	*Spend
	told map[string]bool // teams of which there is money of all nodes, and a budget
}

func newFleetSpend() *fleetSpend {
	return &fleetSpend{NewSpend(SpendConfig{Across: true}), map[string]bool{}}
}

// Observe judges the teams.
func (d *fleetSpend) Observe(s *collector.Snapshot, report func(Observation)) {
	clear(d.told)
	if s.Money != nil {
		for i := range s.Money.Teams {
			if t := &s.Money.Teams[i]; t.Budget > 0 {
				d.told[t.Team] = true
			}
		}
	}
	d.Spend.Observe(s, report)
}

// joint reports whether a node's finding is told of all nodes.
func (d *fleetSpend) joint(f Finding) bool {
	return f.Rule == d.Rule().ID && f.Subject.Kind == "team" && d.told[f.Subject.ID]
}
