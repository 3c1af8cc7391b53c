package config

import "time"

// FleetReceive is the receiver of remote write, from which the role makes snapshots.
type FleetReceive struct {
	Enabled         bool     `yaml:"enabled"`
	Unauthenticated bool     `yaml:"unauthenticated"` // also other machines may send, without the web configuration asking who they are
	Interval        Duration `yaml:"interval"`        // between the snapshots of a node
	Grace           Duration `yaml:"grace"`           // for so long samples are waited for
	MaxSamples      int      `yaml:"max_samples"`     // of a request
	NodeLabels      []string `yaml:"node_labels"`     // the first that a series has names its node; empty: those of docs/prometheus.md
}

func defaultFleetReceive() FleetReceive {
	return FleetReceive{Interval: Duration(15 * time.Second), Grace: Duration(15 * time.Second), MaxSamples: 500_000}
}

func (r *FleetReceive) check(fail func(key, format string, args ...any)) {
	const key = "fleet.receive"
	if d := time.Duration(r.Interval); d < time.Second || d > 5*time.Minute {
		fail(key+".interval", "found %s, allowed: from 1s to 5m", r.Interval)
	}
	if d := time.Duration(r.Grace); d < 0 || d > 5*time.Minute {
		fail(key+".grace", "found %s, allowed: from 0s to 5m", r.Grace)
	}
	checkNodeLabels(r.NodeLabels, key, fail)
	if r.MaxSamples < 1000 || r.MaxSamples > 5_000_000 {
		fail(key+".max_samples", "found %d, allowed: 1000 to 5000000", r.MaxSamples)
	}
}
