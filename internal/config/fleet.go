package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Fleet is the one role of a cluster that asks its schedulers. Agents do not read it.
type Fleet struct {
	Slurm      FleetSlurm      `yaml:"slurm"`
	Kubernetes FleetKubernetes `yaml:"kubernetes"`
	Waiting    FleetWaiting    `yaml:"waiting"`
	Agents     FleetAgents     `yaml:"agents"`
	Prometheus FleetPrometheus `yaml:"prometheus"`
	Shard      FleetShard      `yaml:"shard"`
	Leader     FleetLeader     `yaml:"leader"`

	Receive     FleetReceive `yaml:"receive"`
	RemoteWrite Push         `yaml:"remote_write"` // where the role's own series go
}

// FleetWaiting says when jobs that wait are a finding.
type FleetWaiting struct {
	SLO     Duration     `yaml:"slo" in:"1s..90d" zero:"nothing is declared"` // longer than it nine of ten jobs of a queue should not wait; 0: nothing is declared
	FreeFor Duration     `yaml:"free_for" in:"5m..1d"`                        // so long a job waits beside free GPUs that are right for it
	Queues  []FleetQueue `yaml:"queues"`
}

// FleetQueue declares how long the jobs of one queue may wait.
type FleetQueue struct {
	Queue string   `yaml:"queue"`                                       // its name, or scheduler/name: slurm/gpu
	SLO   Duration `yaml:"slo" in:"1s..90d" zero:"nothing is declared"` // 0: nothing is declared
}

// FleetKubernetes says what of a cluster's API server is read.
type FleetKubernetes struct {
	Enabled    bool     `yaml:"enabled"`
	Kubeconfig string   `yaml:"kubeconfig"`          // file; empty: the service account of the pod
	PoolLabels []string `yaml:"pool_labels"`         // of nodes, the first that a node has names its pool; empty: those of the known clouds
	Timeout    Duration `yaml:"timeout" in:"1s..5m"` // of one page of a list
	Keep       Duration `yaml:"keep" in:"1m..1d"`    // how long what was read stands while it cannot be read

	Claims      bool   `yaml:"resource_claims"` // DRA
	Kueue       bool   `yaml:"kueue"`
	KueuePage   string `yaml:"kueue_metrics_url"`
	Volcano     bool   `yaml:"volcano"`
	Ray         bool   `yaml:"ray"`
	Autoscalers bool   `yaml:"autoscalers"` // HorizontalPodAutoscaler and KEDA
}

// FleetSlurm says how Slurm's controller is asked: through slurmrestd, or through its
// commands.
type FleetSlurm struct {
	URL       string   `yaml:"slurmrestd_url"` // with its version: http://slurm:6820/slurm/v0.0.40
	UserFile  string   `yaml:"user_file"`      // for X-SLURM-USER-NAME
	TokenFile string   `yaml:"token_file"`     // for X-SLURM-USER-TOKEN
	Squeue    string   `yaml:"squeue"`         // path of the command, instead of slurmrestd
	Sinfo     string   `yaml:"sinfo"`          // path of the command; empty: nothing is known of nodes
	Interval  Duration `yaml:"interval" in:"1m..1h"`
	Timeout   Duration `yaml:"timeout" in:"1s..1h"`
	JobNames  bool     `yaml:"job_names"`
}

func defaultFleet() Fleet {
	return Fleet{
		FleetSlurm{Interval: Duration(time.Minute), Timeout: Duration(30 * time.Second)},
		FleetKubernetes{Timeout: Duration(30 * time.Second), Keep: Duration(5 * time.Minute),
			Claims: true, Kueue: true, Volcano: true, Ray: true, Autoscalers: true},
		FleetWaiting{FreeFor: Duration(15 * time.Minute)},
		FleetAgents{Timeout: Duration(5 * time.Second)},
		defaultFleetPrometheus(),
		defaultFleetShard(),
		defaultFleetLeader(),
		defaultFleetReceive(),
		defaultPush(),
	}
}

// slurmVersion ends the path of slurmrestd's URL.
var slurmVersion = regexp.MustCompile(`/v\d+\.\d+\.\d+/?$`)

// Given reports whether there is a Slurm to ask.
func (s *FleetSlurm) Given() bool { return s.URL != "" || s.Squeue != "" }

func (f *Fleet) check(fail func(key, format string, args ...any)) {
	f.Kubernetes.check(fail)
	f.Waiting.check(fail)
	f.Prometheus.check(fail)
	f.Agents.check(fail)
	f.Shard.Check(fail)
	f.Leader.check(fail)
	f.RemoteWrite.check("fleet.remote_write", fail)
	if f.Receive.Enabled && f.Prometheus.URL != "" {
		fail("fleet.receive.enabled", "found true beside fleet.prometheus.url, allowed: one of the two, as the same nodes would be judged twice")
	}
	s := &f.Slurm
	const key = "fleet.slurm"
	checkURL(s.URL, key+".slurmrestd_url", false, fail)
	checkTarget(s.URL, key+".slurmrestd_url", fail)
	if u, err := url.Parse(s.URL); s.URL != "" && err == nil && !slurmVersion.MatchString(u.Path) {
		fail(key+".slurmrestd_url", "found no version at its end, allowed: with one that your slurmrestd has, as in http://slurm:6820/slurm/v0.0.40")
	}
	checkSecretFile(s.UserFile, key+".user_file", fail)
	checkSecretFile(s.TokenFile, key+".token_file", fail)
	if s.URL != "" && (s.Squeue != "" || s.Sinfo != "") {
		fail(key, "found both slurmrestd_url and a command, allowed: one way to ask")
	}
	if s.URL == "" && (s.UserFile != "" || s.TokenFile != "") {
		fail(key, "found user_file or token_file without slurmrestd_url, allowed: both beside it, as only slurmrestd is sent them")
	}
	if s.Sinfo != "" && s.Squeue == "" {
		fail(key+".sinfo", "found %q without squeue, allowed: beside it, or nothing", clean(s.Sinfo))
	}
	for name, path := range map[string]string{"squeue": s.Squeue, "sinfo": s.Sinfo} {
		if path != "" && !filepath.IsAbs(path) {
			fail(key+"."+name, "found %q, allowed: a path that begins with /, or \"\"", clean(path))
		}
	}
	if s.Timeout > s.Interval {
		fail(key+".timeout", "found %s, allowed: 1s to %s, which is fleet.slurm.interval", s.Timeout, s.Interval)
	}
}

func (w *FleetWaiting) check(fail func(key, format string, args ...any)) {
	const key = "fleet.waiting"
	for i, q := range w.Queues {
		at := fmt.Sprintf("%s.queues[%d].queue", key, i)
		switch {
		case q.Queue == "" || !plainName(q.Queue):
			fail(at, "found %q, allowed: the name of a queue, or scheduler/name", clean(q.Queue))
		case slices.ContainsFunc(w.Queues[:i], func(o FleetQueue) bool { return o.Queue == q.Queue }):
			fail(at, "found %q a second time, allowed: each queue once", clean(q.Queue))
		}
	}
}

// maxLabelKey is what Kubernetes allows: a prefix of 253 letters, a slash and 63 more.
const maxLabelKey = 253 + 1 + 63

var labelKey = regexp.MustCompile(`^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func checkLabels(labels []string, most int, key string, fail func(key, format string, args ...any)) {
	if len(labels) > most {
		fail(key, "found %d labels, allowed: at most %d", len(labels), most)
	}
	for i, l := range labels {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case len(l) > maxLabelKey || !labelKey.MatchString(l):
			fail(at, "found %q, allowed: the key of a label, such as app or app.kubernetes.io/name", clean(l))
		case slices.Contains(labels[:i], l):
			fail(at, "found %q a second time, allowed: each label once", clean(l))
		}
	}
}

func checkPath(path, key string, fail func(key, format string, args ...any)) {
	if path != "" && !filepath.IsAbs(path) {
		fail(key, "found %q, allowed: a path that begins with /, or \"\"", clean(path))
	}
}

func (k *FleetKubernetes) check(fail func(key, format string, args ...any)) {
	const key = "fleet.kubernetes"
	checkPath(k.Kubeconfig, key+".kubeconfig", fail)
	checkLabels(k.PoolLabels, 16, key+".pool_labels", fail)
	checkURL(k.KueuePage, key+".kueue_metrics_url", false, fail)
	checkTarget(k.KueuePage, key+".kueue_metrics_url", fail)
	if k.KueuePage != "" && !k.Kueue {
		fail(key+".kueue_metrics_url", "found a URL (not shown) with kueue: false, allowed: one with kueue: true, or nothing")
	}
}
