package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/host"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
)

// doctorBus compares the GPUs on the PCI bus with those that the driver lists: GPUs
// without a driver are broken, and a node without GPUs is not.
func doctorBus(c *config.Config, listed int) diagnosis {
	d := diagnosis{what: "GPUs on the PCI bus"}
	teller := "the driver"
	if c.NVML.Source.Given() {
		teller = "the exporter's page"
	}
	bus, err := host.GPUsOnBus(c.Host.SysFS)
	if err != nil {
		d.found, d.advice = err.Error(), "mount the host's /sys and name it with --path.sysfs"
		return d
	}
	var drivers []string
	for i, n := range bus {
		if n > 0 {
			drivers = append(drivers, fmt.Sprintf("%d with driver %s", n, metric.PCIDriver.Values[i]))
		}
	}
	d.ok, d.found = true, "none"
	if len(drivers) > 0 {
		d.found = strings.Join(drivers, ", ")
	}
	switch n := bus.Total(); {
	case listed < 0: // said already
	case n > 0 && listed == 0:
		d.ok, d.needed = false, true
		d.found += "; the NVIDIA driver answers for none of them"
		d.advice = "install and load the NVIDIA driver (the kernel log says why it cannot be loaded); in a container, pass the GPUs' device files on"
	case n > listed:
		d.found += fmt.Sprintf("; %s lists %d", teller, listed)
		d.advice = "outside of a container that was given some of them only, look into the kernel log for the others"
	}
	return d
}

func doctorHost(ctx context.Context, c *config.Config) []diagnosis {
	if c.Host.Source.Given() {
		return []diagnosis{doctorHostPage(ctx, c), doctorPIDs(c.Host.ProcFS)}
	}
	stat := diagnosis{what: "host (" + c.Host.ProcFS + ")", needed: true, advice: "mount the host's /proc and name it with --path.procfs"}
	if _, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "stat")); err != nil {
		stat.found = err.Error()
	} else {
		stat.ok, stat.found, stat.advice = true, "CPU, memory, disk and network are readable", ""
	}
	psi := diagnosis{what: "pressure stall information", found: "readable", ok: true}
	if _, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "pressure", "cpu")); err != nil {
		psi.ok, psi.found, psi.advice = false, err.Error(), "boot with psi=1 to see how long tasks wait for CPU, memory and I/O"
	}
	return []diagnosis{stat, psi, doctorPIDs(c.Host.ProcFS)}
}

// doctorPIDs judges as the child does, which gives no names to the pids of others.
func doctorPIDs(procfs string) diagnosis {
	d := diagnosis{what: "process names"}
	switch same, err := collector.HostPIDs(procfs); {
	case err != nil:
		d.found = err.Error()
	case same:
		d.ok, d.found = true, "the driver's pids are those of "+procfs
	default:
		d.found = "this is a pid namespace of its own: the driver's pids mean nothing in " + procfs + ", and processes have neither name nor user"
		d.advice = "run with hostPID: true, or mount the host's /proc and give --path.procfs"
	}
	return d
}
