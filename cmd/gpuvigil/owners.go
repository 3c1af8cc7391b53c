package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/collector/owner"
	"gpuvigil/internal/config"
)

// owners returns the sources that say whose the GPUs are. The kubelet is asked by a
// source of its own, so that one that hangs costs no process its owner.
func (p *pipeline) owners(latest func() *collector.Snapshot) ([]collector.Scheduled, error) {
	if !p.cfg.Owners.Enabled {
		return nil, nil
	}
	c := owner.Config{
		ProcFS: p.cfg.Host.ProcFS, SysFS: p.cfg.Host.SysFS, Snapshot: latest,
		PodLogs: p.cfg.Owners.PodLogs, ContainerLogs: p.cfg.Owners.ContainerLogs, Docker: p.cfg.Owners.Docker,
		KubeletKeep: time.Duration(p.cfg.Kubernetes.Keep),
		JobMapping:  p.cfg.Slurm.JobMapping, JobDetails: p.cfg.Slurm.JobDetails,
		Users: owner.UserForm(p.cfg.Owners.Users), Passwd: p.cfg.Owners.Passwd, Rules: ownerRules(p.cfg.Owners.Mapping),
	}
	var err error
	if c.UserKey, err = userKey(p.cfg); err != nil {
		return nil, err
	}
	fast := time.Duration(p.cfg.Sampling.Fast)
	var sources []collector.Scheduled
	if dir := p.cfg.Kubernetes.PodResources; dir != "" {
		p.kubelet = owner.NewKubelet(dir)
		c.Kubelet = p.kubelet
		sources = append(sources, collector.Scheduled{Source: c.Kubelet, Interval: time.Duration(p.cfg.Kubernetes.Interval), Deadline: 3 * time.Second, Expected: true})
	}
	if p.cfg.Kubernetes.AsksAPI() {
		p.labels = nodeSource(p.cfg, p.log)
		c.PodLabels, c.Device = p.labels.PodLabels, p.labels.Device
		sources = append(sources, collector.Scheduled{Source: p.labels, Interval: apiInterval, Deadline: time.Second}) // others do without it
	}
	s, err := owner.New(c)
	if err != nil {
		return nil, err
	}
	return append(sources, collector.Scheduled{Source: s, Interval: fast, Deadline: max(fast, time.Second), Expected: true}), nil
}

// apiInterval is how often what the API server has told is taken up, and apiTimeout
// how long a list may take.
const (
	apiInterval = 5 * time.Second
	apiTimeout  = 30 * time.Second
)

// nodeSource reads the labels of this node's pods, and which GPU the device of a claim
// is. An agent that cannot ask the API server says so and does the rest.
func nodeSource(cfg *config.Config, log *slog.Logger) *kube.NodeSource {
	k := &cfg.Kubernetes
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, UserAgent: apiUserAgent("agent"), Timeout: apiTimeout})
	return kube.NewNodeSource(kube.NodeSourceConfig{Client: client, Err: err, Node: cfg.Node, Labels: k.PodLabels, Slices: k.ResourceSlices,
		Keep: time.Duration(k.Keep), Log: log.With("component", kube.NodeSourceName)})
}

// userKey reads the key with which users are hashed; nil if they are not.
func userKey(cfg *config.Config) ([]byte, error) {
	if cfg.Owners.UsersKeyFile == "" {
		return nil, nil
	}
	key, err := secret(cfg.Owners.UsersKeyFile, "")()
	if err != nil {
		return nil, placed(cfg, "owners.users_key_file", fmt.Errorf("read the key that hides users: %w", err))
	}
	return []byte(key), nil
}

func ownerRules(mapping []config.OwnerRule) []owner.Rule {
	var out []owner.Rule
	for _, m := range mapping {
		r := owner.Rule{
			Kind: m.Kind.Regexp(), Namespace: m.Namespace.Regexp(), Pod: m.Pod.Regexp(), Container: m.Container.Regexp(),
			Service: m.Service.Regexp(), User: m.User.Regexp(), Account: m.Account.Regexp(), Partition: m.Partition.Regexp(),
			Labels: map[string]*regexp.Regexp{},
			Team:   m.Team, CostCenter: m.CostCenter, Sensitivity: m.Sensitivity, Stage: m.Stage, Critical: m.Critical,
		}
		for name, pattern := range m.Label {
			r.Labels[name] = pattern.Regexp()
		}
		out = append(out, r)
	}
	return out
}
