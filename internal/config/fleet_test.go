package config

import (
	"strings"
	"testing"
	"time"
)

func TestFleet(t *testing.T) {
	c, err := Parse("c.yml", []byte("fleet: {slurm: {slurmrestd_url: 'http://slurm:6820/slurm/v0.0.40', user_file: /u, token_file: /t, interval: 2m}}"))
	if err != nil || !c.Fleet.Slurm.Given() || time.Duration(c.Fleet.Slurm.Interval) != 2*time.Minute {
		t.Errorf("slurmrestd: %+v, error %v", c, err)
	}
	c, err = Parse("c.yml", []byte("fleet: {slurm: {squeue: /usr/bin/squeue, sinfo: /usr/bin/sinfo}}"))
	if err != nil || !c.Fleet.Slurm.Given() {
		t.Errorf("commands: %+v, error %v", c, err)
	}
	for text, want := range map[string]string{
		"{slurmrestd_url: 'http://a/', squeue: /s}":   "one way to ask",
		"{slurmrestd_url: 'ftp://a/'}":                "http://",
		"{slurmrestd_url: 'http://me:hunter2@a/'}":    "user or password",
		"{slurmrestd_url: 'http://169.254.169.254/'}": "link-local",
		"{squeue: squeue}":                            "begins with /",
		"{squeue: /s, token_file: /t}":                "only slurmrestd",
		"{sinfo: /s}":                                 "with squeue",
		"{interval: 10s}":                             "1m or more",
		"{timeout: 2m}":                               "fleet.slurm.interval",
		"{squeu: /s}":                                 "unknown key, allowed: interval, job_names",
		"{slurmrestd_url: 'http://a/', token_file: 'Bearer abcdef'}": "the secret itself",
	} {
		_, err := Parse("c.yml", []byte("fleet: {slurm: "+text+"}"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "abcdef") {
			t.Errorf("%s: error %v, want one that says %q and shows no secret", text, err, want)
		}
	}
}
