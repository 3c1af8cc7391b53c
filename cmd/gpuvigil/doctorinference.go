package main

import (
	"fmt"
	"os"
	"path/filepath"

	"gpuvigil/internal/config"
)

// doctorDiscovery says what finding inference servers takes and buys: by the ports at
// which the processes on the GPUs listen.
func doctorDiscovery(c *config.Config) diagnosis {
	const (
		buys  = "queues, latencies and tokens of servers that nobody has named"
		takes = "CAP_SYS_PTRACE, or the user of the servers' processes, to see their sockets (/proc/PID/fd); of containers also the host's pids"
	)
	d := diagnosis{what: "inference servers by their ports"}
	targets := "1 target is"
	if n := len(c.Inference.Targets); n != 1 {
		targets = fmt.Sprintf("%d targets are", n)
	}
	_, err := os.ReadDir(filepath.Join(c.Host.ProcFS, "1", "fd"))
	switch on := c.Inference.Discover; {
	case on && err == nil:
		d.ok, d.found = true, "the sockets of other users' processes are readable, and are looked at (inference.discover)"
	case on:
		d.found = fmt.Sprintf("inference.discover is on, but only servers of this user are found: %v; %s configured", err, targets)
		d.advice = "give " + takes + "; or name the servers under inference.targets, which takes nothing"
	default:
		d.found = fmt.Sprintf("off; %s configured", targets)
		d.advice = "set inference.discover: true only if you want " + buys + "; it takes " + takes
	}
	return d
}
