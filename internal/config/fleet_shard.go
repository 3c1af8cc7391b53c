package config

import (
	"path/filepath"
	"regexp"
	"time"
)

// FleetShard is the part of a cluster's nodes that one of several roles looks at.
type FleetShard struct {
	Index int    `yaml:"index"` // from 0
	Of    int    `yaml:"of"`    // roles in all; 1: this one has all nodes
	By    string `yaml:"by"`    // the label whose values are spread over them; "": by the nodes' names
}

// FleetLeader says which of several roles that look at the same notifies.
type FleetLeader struct {
	File      string   `yaml:"file"`      // in a directory that they share
	Lease     string   `yaml:"lease"`     // or the name of a Lease of Kubernetes
	Namespace string   `yaml:"namespace"` // of the Lease; "": the pod's own
	Duration  Duration `yaml:"duration"`  // for so long one leads that is not heard of
}

const maxShards = 1024

func defaultFleetShard() FleetShard   { return FleetShard{Of: 1} }
func defaultFleetLeader() FleetLeader { return FleetLeader{Duration: Duration(15 * time.Second)} }

// Check reports what of it cannot be, by the key.
func (s *FleetShard) Check(fail func(key, format string, args ...any)) {
	const key = "fleet.shard"
	if s.Of < 1 || s.Of > maxShards {
		fail(key+".of", "found %d, allowed: from 1 to %d", s.Of, maxShards)
		return
	}
	if s.Index < 0 || s.Index >= s.Of {
		fail(key+".index", "found %d, allowed: from 0 to %d, one less than fleet.shard.of", s.Index, s.Of-1)
	}
	if s.By != "" && !promLabel.MatchString(s.By) {
		fail(key+".by", "found %q, allowed: the name of a label that all series have, such as cluster, or \"\" for the node's name", clean(s.By))
	}
}

// Given reports whether there are several, of which one leads.
func (l *FleetLeader) Given() bool { return l.File != "" || l.Lease != "" }

// dnsName is what Kubernetes calls a Lease or a namespace by.
var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,240}[a-z0-9])?$`)

func (l *FleetLeader) check(fail func(key, format string, args ...any)) {
	const key = "fleet.leader"
	if l.File != "" && l.Lease != "" {
		fail(key, "found both file and lease, allowed: one of them")
	}
	if l.File != "" && (!filepath.IsAbs(l.File) || filepath.Clean(l.File) != l.File) {
		fail(key+".file", "found %q, allowed: the path of a file, from /, in a directory that the replicas share", clean(l.File))
	}
	if l.Lease != "" && !dnsName.MatchString(l.Lease) {
		fail(key+".lease", "found %q, allowed: the name of a Lease: small letters, digits, - and .", clean(l.Lease))
	}
	if l.Namespace != "" && (l.Lease == "" || !dnsName.MatchString(l.Namespace)) {
		fail(key+".namespace", "found %q, allowed: the name of a namespace, with lease, and only then", clean(l.Namespace))
	}
	if d := time.Duration(l.Duration); d < 5*time.Second || d > 5*time.Minute {
		fail(key+".duration", "found %s, allowed: from 5s to 5m", l.Duration)
	}
}
