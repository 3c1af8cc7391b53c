package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuvigil/collector/owner"
	"gpuvigil/internal/config"
)

// doctorOwners says what is known of owners without any permission, and what names
// them.
func doctorOwners(c *config.Config) []diagnosis {
	cgroups := diagnosis{what: "tier 0: owners by cgroup", ok: true, found: "the cgroups of other users' processes are readable"}
	if !c.Owners.Enabled {
		return []diagnosis{{what: cgroups.what, found: "switched off with owners.enabled"}}
	}
	if _, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "1", "cgroup")); err != nil {
		cgroups.ok, cgroups.found = false, err.Error()
		cgroups.advice = "processes of others are hidden (hidepid?): run as a user, or in the group, that sees them; until then they are unattributed"
	}
	out := []diagnosis{cgroups}
	for _, d := range []struct{ what, dir, advice string }{
		{"names of pods", c.Owners.PodLogs, "let this user list the directory (mount it where the agent is in a container): until then pods are called by their uid"},
		{"names of containers", c.Owners.ContainerLogs, "let this user list the directory: until then containers of pods are called by the first digits of their id"},
		{"names of Docker's containers", c.Owners.Docker, "only root may list this directory: without it they are called by the first digits of their id"},
		{"jobs of Slurm", c.Slurm.JobMapping, "let the prolog make the folder and this user read it: until then nobody knows which job was given a GPU"},
		{"details of Slurm's jobs", c.Slurm.JobDetails, "let the prolog make the folder and this user read it: until then no rule by account or partition fits"},
	} {
		if d.dir != "" {
			out = append(out, access(d.what, d.dir, unix.R_OK|unix.X_OK, d.advice))
		}
	}
	return out
}

func access(what, path string, mode uint32, advice string) diagnosis {
	err := unix.Access(path, mode)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return diagnosis{what: what, found: path + " does not exist", advice: advice}
	case err != nil:
		return diagnosis{what: what, found: path + ": " + err.Error(), advice: advice}
	}
	return diagnosis{what: what, ok: true, found: path + " is readable"}
}

// doctorAPI asks the API server as the agent does.
func doctorAPI(ctx context.Context, c *config.Config) []diagnosis {
	if !c.Kubernetes.AsksAPI() || !c.Owners.Enabled {
		return nil
	}
	d := diagnosis{what: "API server: labels of pods, devices of claims"}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if c.Node == "" {
		c.Node = os.Getenv("NODE_NAME")
	}
	if err := nodeSource(c, slog.New(slog.DiscardHandler)).Try(ctx); err != nil {
		d.found = err.Error()
		d.advice = "allow get, list and watch of it to the agent's account (deploy/kubernetes/agent-api.yml), or switch kubernetes.pod_labels and resource_slices off; the rest works without"
		return []diagnosis{d}
	}
	d.ok, d.found = true, "the API server answers for this node"
	return []diagnosis{d}
}

// kubeletTier asks the kubelet as the agent does.
func kubeletTier(c *config.Config) diagnosis {
	d := diagnosis{what: "tier 1: kubelet pod-resources"}
	dir := c.Kubernetes.PodResources
	if dir == "" || !c.Owners.Enabled {
		d.found = "switched off in the configuration"
		return d
	}
	if _, err := owner.NewKubelet(dir).Sample(context.Background()); err != nil {
		d.found = err.Error()
		d.advice = "on a Kubernetes node, mount this directory and run as root to name the pod that was given each GPU, used or not"
		return d
	}
	d.ok, d.found = true, fmt.Sprintf("the kubelet answers in %s: which pod was given which GPU", dir)
	return d
}
