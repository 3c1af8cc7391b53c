package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/host"
	"gpuvigil/collector/movement"
	"gpuvigil/internal/config"
)

// moving returns the sources of what owners and adapters move. Both look each slow
// interval: an adapter's firmware, and the kernel's sums over control groups, cost
// more than a file that is only read.
func (p *pipeline) moving() ([]collector.Scheduled, error) {
	slow := time.Duration(p.cfg.Sampling.Slow)
	scheduled := func(s collector.Source) collector.Scheduled {
		return collector.Scheduled{Source: s, Interval: slow, Deadline: slow}
	}
	full := p.cfg.NVML.Profile == config.FullProfile
	var sources []collector.Scheduled
	if !p.cfg.Host.Source.Given() { // the page has them
		sources = append(sources, scheduled(host.NewPorts(p.cfg.Host.SysFS, full)))
	}
	if !p.cfg.Movement.Enabled {
		return sources, nil
	}
	m, err := movement.New(movement.Config{
		ProcFS: p.cfg.Host.ProcFS, SysFS: p.cfg.Host.SysFS,
		Snapshot:  func() *collector.Snapshot { return p.sampler.Latest() },
		Addresses: p.cfg.Movement.Addresses, Privileged: p.cfg.Movement.Privileged,
		Log: p.log.With("component", movement.SourceName),
	})
	if err != nil {
		return nil, err
	}
	p.movement = m
	return append(sources, scheduled(m)), nil
}

// doctorMovement says what can be told of owners' data movement, and what more would.
func doctorMovement(c *config.Config) []diagnosis {
	if !c.Movement.Enabled {
		return []diagnosis{{what: "data movement", found: "switched off with movement.enabled"}}
	}
	return []diagnosis{doctorCgroups(c), doctorNetwork(c), doctorPrivileged(c, func(file string) error {
		_, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "1", file))
		return err
	}), doctorPorts(c)}
}

// hostGroups are directories that the host's own control groups have and a
// container's do not.
var hostGroups = []string{"system.slice", "user.slice", "kubepods.slice", "kubepods", "docker", "blkio/system.slice", "blkio/kubepods", "blkio/docker", "blkio/slurm"}

func doctorCgroups(c *config.Config) diagnosis {
	root := filepath.Join(c.Host.SysFS, "fs", "cgroup")
	d := diagnosis{what: "data movement: control groups (tier 0)", found: root + " has no groups of services, pods or containers",
		advice: "mount the host's /sys and name it with host.sysfs, to see the block I/O, CPU time and memory of each owner"}
	for _, dir := range hostGroups {
		if _, err := os.Stat(filepath.Join(root, dir)); err == nil {
			return diagnosis{what: d.what, ok: true, found: root + " is readable: block I/O, CPU time and memory of each owner"}
		}
	}
	return d
}

func doctorNetwork(c *config.Config) diagnosis {
	d := diagnosis{what: "data movement: networks (tier 0)", ok: true,
		found: "readable: bytes and connections of owners in a network namespace of their own; for those in the host's (hostNetwork, Slurm) nobody can tell"}
	if _, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "1", "net", "dev")); err != nil {
		d.ok, d.found = false, err.Error()
		d.advice = "let the agent see all processes (/proc without hidepid, hostPID in a cluster)"
	}
	return d
}

// privileged are the files that the configuration's wish alone does not open, each with
// what does, and what it buys.
var privileged = []struct{ file, right, buys string }{
	{"mountstats", "CAP_DAC_READ_SEARCH", "bytes that other users' processes move over NFS"},
	{"io", "CAP_SYS_PTRACE", "bytes of other users' processes without a control group of their own"},
}

// doctorPrivileged says what is missing for each of them; read opens such a file of a
// process of another user.
func doctorPrivileged(c *config.Config, read func(file string) error) diagnosis {
	d := diagnosis{what: "data movement: NFS (tier 3)", found: "off; what owners move over NFS stays unknown",
		advice: "set movement.privileged_reads, and give CAP_DAC_READ_SEARCH (/proc/PID/mountstats) and CAP_SYS_PTRACE (/proc/PID/io) where you need it; " +
			"without them only processes of the agent's own user are told"}
	if !c.Movement.Privileged {
		return d
	}
	var failures, missing []string
	for _, p := range privileged {
		err := read(p.file)
		switch {
		case err == nil:
			continue
		case errors.Is(err, fs.ErrPermission):
			missing = append(missing, fmt.Sprintf("give %s to see %s", p.right, p.buys))
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, fmt.Sprintf("let the agent see all processes (the host's /proc, without hidepid, hostPID in a cluster) and a kernel with /proc/PID/%s to see %s", p.file, p.buys))
		}
		failures = append(failures, err.Error())
	}
	if len(failures) == 0 {
		return diagnosis{what: d.what, ok: true, found: "on; this user can read other users' mounts and I/O"}
	}
	d.found = "on (movement.privileged_reads), but " + strings.Join(failures, ", ")
	d.advice = strings.Join(missing, "; ")
	return d
}

func doctorPorts(c *config.Config) diagnosis {
	d := diagnosis{what: "InfiniBand and RoCE adapters"}
	paths, err := filepath.Glob(filepath.Join(c.Host.SysFS, "class", "infiniband", "*"))
	switch {
	case err != nil:
		d.found = err.Error()
	case len(paths) == 0:
		d.found = "none"
	default:
		var names []string
		for _, p := range paths {
			names = append(names, filepath.Base(p))
		}
		d.ok, d.found = true, strings.Join(names, ", ")
	}
	return d
}
