package config

import "time"

// FleetReceive is the receiver of remote write, from which the role makes snapshots.
type FleetReceive struct {
	Enabled         bool     `yaml:"enabled"`
	Unauthenticated bool     `yaml:"unauthenticated"`                // also other machines may send, without the web configuration asking who they are
	Interval        Duration `yaml:"interval" in:"1s..5m"`           // between the snapshots of a node
	Grace           Duration `yaml:"grace" in:"0s..5m"`              // for so long samples are waited for
	MaxSamples      int      `yaml:"max_samples" in:"1000..5000000"` // of a request
}

func defaultFleetReceive() FleetReceive {
	return FleetReceive{Interval: Duration(15 * time.Second), Grace: Duration(15 * time.Second), MaxSamples: 500_000}
}
