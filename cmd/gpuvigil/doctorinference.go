package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/inference"
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

// targetsLimit is how long the doctor asks all targets: of those that hang, 64 at once,
// each takes inference.timeout.
const targetsLimit = 30 * time.Second

// doctorTargets asks each configured target once. gpus is what the driver or the page of
// an exporter lists; nil if it could not be asked, which is said already.
func doctorTargets(ctx context.Context, c *config.Config, gpus *collector.Part) []diagnosis {
	if len(c.Inference.Targets) == 0 {
		return nil
	}
	what := "inference server"
	s, err := inference.New(inferenceConfig(c, slog.New(slog.DiscardHandler)))
	if err != nil {
		return []diagnosis{{what: what, needed: true, found: err.Error(), advice: "mend inference.targets; gpuvigil check says where"}}
	}
	ctx, cancel := context.WithTimeout(ctx, targetsLimit)
	defer cancel()
	snap := &collector.Snapshot{}
	if gpus != nil {
		snap.GPUs, snap.Instances = gpus.GPUs, gpus.Instances
	}
	var out []diagnosis
	for _, t := range s.Try(ctx, snap) {
		d := diagnosis{what: what, ok: t.Err == nil, found: printable(t.Endpoint + ": " + servedWords(t.Models))}
		if t.Err != nil {
			d.found, d.advice = printable(t.Err.Error()), "open its URL with curl on this node: it must be the server's metrics page (docs/inference.md); the other targets work without it"
		}
		out = append(out, d)
		if gpus != nil && len(t.GPUs) > 0 {
			out = append(out, diagnosis{what: "GPUs of " + printable(t.Endpoint), found: "not on this node: " + strings.Join(t.GPUs, ", "),
				advice: "give the uuids that nvidia-smi -L prints under gpus; until then its tokens for each GPU and joule are left out"})
		}
	}
	return out
}

// servedWords names engines and models.
func servedWords(models []collector.EndpointKey) string {
	var words []string
	for _, m := range models {
		model := "no model told yet"
		if m.Model != "" {
			model = "model " + m.Model
		}
		words = append(words, m.Engine+", "+model)
	}
	return strings.Join(first(words, "models"), "; ")
}
