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
		"{slurmrestd_url: 'http://a/', squeue: /s}":                  "one way to ask",
		"{slurmrestd_url: 'http://a:6820'}":                          "found no version at its end",
		"{slurmrestd_url: 'http://a:6820/slurm/'}":                   "found no version at its end",
		"{slurmrestd_url: 'ftp://a/'}":                               "http://",
		"{slurmrestd_url: 'http://me:hunter2@a/'}":                   "user or password",
		"{slurmrestd_url: 'http://169.254.169.254/'}":                "link-local",
		"{squeue: squeue}":                                           "begins with /",
		"{squeue: /s, token_file: /t}":                               "only slurmrestd",
		"{sinfo: /s}":                                                "without squeue",
		"{interval: 10s}":                                            "allowed: 1m to 1h",
		"{timeout: 2m}":                                              "fleet.slurm.interval",
		"{squeu: /s}":                                                "unknown key, allowed: interval, job_names",
		"{slurmrestd_url: 'http://a/', token_file: 'Bearer abcdef'}": "the secret itself",
	} {
		_, err := Parse("c.yml", []byte("fleet: {slurm: "+text+"}"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "abcdef") {
			t.Errorf("%s: error %v, want one that says %q and shows no secret", text, err, want)
		}
	}
}

func TestNodesComeFromOnePlace(t *testing.T) {
	const one, other = "prometheus: {url: 'http://prometheus:9090'}", "receive: {enabled: true}"
	for _, text := range []string{one, other} {
		if _, err := Parse("c.yml", []byte("fleet: {"+text+"}")); err != nil {
			t.Errorf("%s alone: %v", text, err)
		}
	}
	_, err := Parse("c.yml", []byte("fleet: {"+one+", "+other+"}"))
	if err == nil || !strings.Contains(err.Error(), "fleet.receive.enabled") || !strings.Contains(err.Error(), "judged twice") {
		t.Errorf("nodes that come from two places: %v", err)
	}
}

func TestFleetOfKubernetes(t *testing.T) {
	c, err := Parse("c.yml", []byte("fleet: {kubernetes: {enabled: true, pool_labels: [pool, example.com/pool], kueue_metrics_url: 'http://kueue:8080/metrics'}}\nkubernetes: {pod_labels: [app, app.kubernetes.io/name]}"))
	if err != nil || !c.Fleet.Kubernetes.Enabled || !c.Fleet.Kubernetes.Kueue || !c.Kubernetes.AsksAPI() {
		t.Errorf("kubernetes: %+v, error %v", c, err)
	}
	for text, want := range map[string]string{
		"fleet: {kubernetes: {kubeconfig: config}}":                           "begins with /",
		"fleet: {kubernetes: {pool_labels: [a b]}}":                           "the key of a label",
		"fleet: {kubernetes: {pool_labels: [a, a]}}":                          "second time",
		"fleet: {kubernetes: {timeout: 10m}}":                                 "1s to 5m",
		"fleet: {kubernetes: {keep: 1s}}":                                     "1m to 1d",
		"fleet: {kubernetes: {kueue_metrics_url: 'http://me:hunter2@a/'}}":    "user or password",
		"fleet: {kubernetes: {kueue_metrics_url: 'http://169.254.169.254/'}}": "link-local",
		"fleet: {kubernetes: {kueue: false, kueue_metrics_url: 'http://a/'}}": "kueue: true",
		"fleet: {kubernetes: {volcan: true}}":                                 "c.yml:1: fleet.kubernetes.volcan: found an unknown key",
		"kubernetes: {pod_labels: [../x]}":                                    "kubernetes.pod_labels[0]",
		"kubernetes: {pod_labels: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]}":       "at most 16",
		"kubernetes: {pod_labels: [app]}\nowners: {enabled: false}":           "said of owners",
	} {
		_, err := Parse("c.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that says %q and shows no secret", text, err, want)
		}
	}
}

func TestFleetThatWatchesQueues(t *testing.T) {
	c, err := Parse("c.yml", []byte("fleet: {waiting: {slo: 4h, queues: [{queue: slurm/batch, slo: 12h}, {queue: ml}]}}"))
	if err != nil || time.Duration(c.Fleet.Waiting.SLO) != 4*time.Hour || len(c.Fleet.Waiting.Queues) != 2 || time.Duration(c.Fleet.Waiting.FreeFor) != 15*time.Minute {
		t.Errorf("waiting: %+v, error %v", c, err)
	}
	for text, want := range map[string]string{
		"{free_for: 1m}":                     "5m to 1d",
		"{queues: [{slo: 1h}]}":              "fleet.waiting.queues[0].queue",
		"{queues: [{queue: a}, {queue: a}]}": "a second time",
		"{queues: [{queue: a, slo: soon}]}":  "soon",
		"{queues: [{queue: a, limit: 1h}]}":  "unknown key, allowed: queue, slo",
	} {
		if _, err := Parse("c.yml", []byte("fleet: {waiting: "+text+"}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", text, err, want)
		}
	}
}
