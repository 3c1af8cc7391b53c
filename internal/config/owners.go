package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

// Owners says how the owners of processes and GPUs are found and named.
type Owners struct {
	Enabled       bool        `yaml:"enabled"`
	PodLogs       string      `yaml:"pod_logs"`       // its directories name pods; empty: pods are called by their uid
	ContainerLogs string      `yaml:"container_logs"` // its links name containers of pods; empty: by the first digits of their id
	Docker        string      `yaml:"docker"`         // Docker's directory of containers; empty: containers are called by their id
	Passwd        string      `yaml:"passwd"`         // for rules by user name and for users: name
	Users         UserForm    `yaml:"users"`
	UsersKeyFile  string      `yaml:"users_key_file"` // with users: hash
	Mapping       []OwnerRule `yaml:"mapping"`
}

// UserForm is how users are shown in metrics, on the page and in messages.
type UserForm string

// The forms of users.
const (
	UserID   UserForm = "uid"
	UserHash UserForm = "hash" // a hash with a key: the same user looks the same everywhere
	UserName UserForm = "name"
)

// OwnerRule gives owners that fit all of its patterns a team and what else is said of
// them. Of each field the first rule that fits and has it counts.
type OwnerRule struct {
	Kind      Pattern            `yaml:"kind"` // of ownerKinds
	Namespace Pattern            `yaml:"namespace"`
	Pod       Pattern            `yaml:"pod"`
	Container Pattern            `yaml:"container"`
	Service   Pattern            `yaml:"service"` // a unit of systemd
	User      Pattern            `yaml:"user"`    // uid or name on the node; not one within a container
	Account   Pattern            `yaml:"account"` // of Slurm, where slurm.job_details is written
	Partition Pattern            `yaml:"partition"`
	Label     map[string]Pattern `yaml:"label"` // of a pod, where kubernetes.pod_labels has it, or of a Docker container, where owners.docker may be read

	Team        string `yaml:"team"`
	CostCenter  string `yaml:"cost_center"`
	Sensitivity string `yaml:"sensitivity"`
	Stage       string `yaml:"stage"`
	Critical    *bool  `yaml:"critical"`
}

// Kubernetes says how the node's kubelet is asked.
type Kubernetes struct {
	PodResources string   `yaml:"pod_resources"` // directory of its socket; empty: it is not asked
	Interval     Duration `yaml:"interval" in:"5s..10m"`
	Keep         Duration `yaml:"keep" in:"5s..1d"` // how long its last answer stands when it does not answer

	PodLabels      []string `yaml:"pod_labels"`      // labels of this node's pods that are read from the API server; empty: it is not asked for pods
	ResourceSlices bool     `yaml:"resource_slices"` // read there which GPU a claim's device is (DRA)
	Kubeconfig     string   `yaml:"kubeconfig"`      // file for both; empty: the service account of the pod
}

// AsksAPI reports whether the agent asks the API server.
func (k *Kubernetes) AsksAPI() bool { return len(k.PodLabels) > 0 || k.ResourceSlices }

// ownerKinds are the kinds of owners that are known.
var ownerKinds = []string{"pod", "job", "container", "service", "user"}

// maxPodLabels bounds the labels of pods that are series.
const maxPodLabels = 16

// Slurm says where the prolog leaves what it knows. Slurm's controller is not asked.
type Slurm struct {
	JobMapping string `yaml:"job_mapping"` // folder with a file for each GPU, its jobs one a line; empty: none
	JobDetails string `yaml:"job_details"` // folder with a file for each job, SLURM_JOB_* one a line; empty: none
}

func defaultOwners() Owners {
	return Owners{Enabled: true, PodLogs: "/var/log/pods", ContainerLogs: "/var/log/containers", Passwd: "/etc/passwd", Users: UserID}
}

func defaultKubernetes() Kubernetes {
	return Kubernetes{PodResources: "/var/lib/kubelet/pod-resources", Interval: Duration(10 * time.Second), Keep: Duration(10 * time.Minute)}
}

// Pattern is text with * for any letters and ? for one, or a regular expression
// between slashes. Both fit only the whole of a value. The zero Pattern is not given.
type Pattern struct {
	text string
	re   *regexp.Regexp
}

// maxPattern is more than any name has.
const maxPattern = 500

// UnmarshalText reads a pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "" || len(s) > maxPattern || !printable(s) {
		return fmt.Errorf("found %q, allowed: 1 to %d letters in one line; * and ? stand for others, /…/ is a regular expression", clean(s), maxPattern)
	}
	expr := ""
	if inner, ok := strings.CutPrefix(s, "/"); ok && len(s) > 1 && strings.HasSuffix(s, "/") {
		expr = strings.TrimSuffix(inner, "/")
	} else {
		for _, r := range s {
			switch r {
			case '*':
				expr += ".*"
			case '?':
				expr += "."
			default:
				expr += regexp.QuoteMeta(string(r))
			}
		}
	}
	re, err := regexp.Compile("^(?s:" + expr + ")$")
	if err != nil {
		if maySecret(s) {
			return fmt.Errorf("found %q, allowed: a regular expression between the slashes", clean(s))
		}
		return fmt.Errorf("found %q, allowed: a regular expression between the slashes: %w", clean(s), err)
	}
	p.text, p.re = s, re
	return nil
}

// Regexp returns the pattern as a regular expression that fits whole values, nil if it
// is not given.
func (p Pattern) Regexp() *regexp.Regexp { return p.re }

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

func (c *Config) checkOwners(fail func(key, format string, args ...any)) {
	forms := []UserForm{UserID, UserHash, UserName}
	if !slices.Contains(forms, c.Owners.Users) {
		fail("owners.users", "found %q, allowed: uid, hash, name", clean(string(c.Owners.Users)))
	}
	switch hash, file := c.Owners.Users == UserHash, c.Owners.UsersKeyFile; {
	case hash && file == "":
		fail("owners.users_key_file", "is missing, allowed: the name of a file with a key, as users is %s: without a secret key anybody can undo the hash of a uid", UserHash)
	case !hash && file != "":
		fail("owners.users_key_file", "found with users: %s, allowed: with users: %s", clean(string(c.Owners.Users)), UserHash)
	}
	checkSecretFile(c.Owners.UsersKeyFile, "owners.users_key_file", fail)
	for key, path := range map[string]string{
		"owners.pod_logs": c.Owners.PodLogs, "owners.container_logs": c.Owners.ContainerLogs, "owners.docker": c.Owners.Docker,
		"owners.passwd": c.Owners.Passwd, "kubernetes.pod_resources": c.Kubernetes.PodResources,
		"slurm.job_mapping": c.Slurm.JobMapping, "slurm.job_details": c.Slurm.JobDetails,
	} {
		if path != "" && !filepath.IsAbs(path) {
			fail(key, "found %q, allowed: a path that begins with /, or \"\"", clean(path))
		}
	}
	if c.Kubernetes.Keep < c.Kubernetes.Interval {
		fail("kubernetes.keep", "found %s, allowed: %s, which is kubernetes.interval, to 1d", c.Kubernetes.Keep, c.Kubernetes.Interval)
	}
	checkLabels(c.Kubernetes.PodLabels, maxPodLabels, "kubernetes.pod_labels", fail)
	checkPath(c.Kubernetes.Kubeconfig, "kubernetes.kubeconfig", fail)
	if c.Kubernetes.AsksAPI() && !c.Owners.Enabled {
		fail("kubernetes", "found pod_labels or resource_slices with owners.enabled: false, allowed: neither of them, or owners.enabled: true, as they are said of owners")
	}
	for i, r := range c.Owners.Mapping {
		r.check(fmt.Sprintf("owners.mapping[%d]", i), fail)
	}
}

func (r *OwnerRule) check(key string, fail func(key, format string, args ...any)) {
	patterns := []Pattern{r.Kind, r.Namespace, r.Pod, r.Container, r.Service, r.User, r.Account, r.Partition}
	given := len(r.Label) > 0 || slices.ContainsFunc(patterns, func(p Pattern) bool { return p.re != nil })
	if !given {
		fail(key, "found no pattern, allowed: one or more of kind, namespace, pod, container, service, user, account, partition, label; kind: \"*\" fits every owner that is known")
	}
	if re := r.Kind.re; re != nil && !slices.ContainsFunc(ownerKinds, re.MatchString) {
		fail(key+".kind", "found %q, which fits no owner, allowed: %s, or a pattern that fits one of them; unattributed is nobody and has no team",
			clean(r.Kind.text), strings.Join(ownerKinds, ", "))
	}
	if r.Team == "" && r.CostCenter == "" && r.Sensitivity == "" && r.Stage == "" && r.Critical == nil {
		fail(key, "found nothing that it says about whom it fits, allowed: one or more of team, cost_center, sensitivity, stage, critical")
	}
	for field, value := range map[string]string{"team": r.Team, "cost_center": r.CostCenter, "sensitivity": r.Sensitivity} {
		if !plainName(value) || len(value) > maxTeam {
			fail(key+"."+field, "found control characters or more than %d letters, allowed: a plain name", maxTeam)
		}
	}
	if r.Stage != "" && !slices.Contains(metric.Stages, r.Stage) {
		fail(key+".stage", "found %q, allowed: %s", clean(r.Stage), strings.Join(metric.Stages, ", "))
	}
	for name, p := range r.Label {
		if p.re == nil {
			fail(key+".label."+clean(name), "is missing, allowed: a pattern; \"*\" fits any value")
		}
	}
}

// maxTeam bounds the names that become labels.
const maxTeam = 64
