package config

import (
	"path/filepath"
	"time"
)

// Fleet is the one role of a cluster that asks its scheduler. Agents do not read it.
type Fleet struct {
	Slurm FleetSlurm `yaml:"slurm"`
}

// FleetSlurm says how Slurm's controller is asked: through slurmrestd, or through its
// commands.
type FleetSlurm struct {
	URL       string   `yaml:"slurmrestd_url"` // with its version: http://slurm:6820/slurm/v0.0.40
	UserFile  string   `yaml:"user_file"`      // for X-SLURM-USER-NAME
	TokenFile string   `yaml:"token_file"`     // for X-SLURM-USER-TOKEN
	Squeue    string   `yaml:"squeue"`         // path of the command, instead of slurmrestd
	Sinfo     string   `yaml:"sinfo"`          // path of the command; empty: nothing is known of nodes
	Interval  Duration `yaml:"interval"`
	Timeout   Duration `yaml:"timeout"`
	JobNames  bool     `yaml:"job_names"`
}

func defaultFleet() Fleet {
	return Fleet{FleetSlurm{Interval: Duration(time.Minute), Timeout: Duration(30 * time.Second)}}
}

// Given reports whether there is a Slurm to ask.
func (s *FleetSlurm) Given() bool { return s.URL != "" || s.Squeue != "" }

func (f *Fleet) check(fail func(key, format string, args ...any)) {
	s := &f.Slurm
	const key = "fleet.slurm"
	checkURL(s.URL, key+".slurmrestd_url", false, fail)
	checkTarget(s.URL, key+".slurmrestd_url", fail)
	checkSecretFile(s.UserFile, key+".user_file", fail)
	checkSecretFile(s.TokenFile, key+".token_file", fail)
	if s.URL != "" && (s.Squeue != "" || s.Sinfo != "") {
		fail(key, "found both slurmrestd_url and a command, allowed: one way to ask")
	}
	if s.URL == "" && (s.UserFile != "" || s.TokenFile != "") {
		fail(key, "found user_file or token_file without slurmrestd_url: only slurmrestd is sent them")
	}
	if s.Sinfo != "" && s.Squeue == "" {
		fail(key+".sinfo", "must be given with squeue, and only then")
	}
	for name, path := range map[string]string{"squeue": s.Squeue, "sinfo": s.Sinfo} {
		if path != "" && !filepath.IsAbs(path) {
			fail(key+"."+name, "found %q, allowed: a path that begins with /, or \"\"", clean(path))
		}
	}
	if time.Duration(s.Interval) < time.Minute {
		fail(key+".interval", "found %s, allowed: 1m or more: each answer keeps the controller from scheduling for a while", s.Interval)
	}
	if time.Duration(s.Timeout) < time.Second || s.Timeout > s.Interval {
		fail(key+".timeout", "found %s, allowed: from 1s to fleet.slurm.interval", s.Timeout)
	}
}
