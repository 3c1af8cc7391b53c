package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/owner"
	"gpuvigil/collector/page"
	"gpuvigil/collector/scrape"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
)

// address is where a page is, with its secrets.
func address(c config.Page) page.Address {
	a := page.Address{URL: c.URL, User: c.Username,
		TLS: page.TLS{CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ServerName: c.TLS.ServerName, Insecure: c.TLS.Insecure}}
	if c.BearerTokenFile != "" || c.BearerTokenEnv != "" {
		a.Token = secret(c.BearerTokenFile, c.BearerTokenEnv)
	}
	if c.PasswordFile != "" || c.PasswordEnv != "" {
		a.Password = secret(c.PasswordFile, c.PasswordEnv)
	}
	return a
}

// gpuExporter returns the source that reads the GPUs from another exporter's page.
func gpuExporter(cfg *config.Config, log *slog.Logger) (*scrape.GPUs, error) {
	at, err := page.New(address(cfg.NVML.Source.Page), time.Duration(cfg.NVML.Source.Timeout))
	if err != nil {
		return nil, fmt.Errorf("nvml.source: %w", err)
	}
	c := scrape.GPUConfig{Page: at, Interval: time.Duration(cfg.NVML.Source.Interval), ProcFS: cfg.Host.ProcFS, Log: log.With("component", scrape.GPUSource)}
	if cfg.NVML.Source.Kind != "auto" {
		c.Exporter = cfg.NVML.Source.Kind
	}
	if cfg.Owners.Enabled {
		rules := ownerRules(cfg.Owners.Mapping)
		c.Describe = func(o collector.Owner, container string) collector.Workload {
			return owner.Describe(o, container, rules)
		}
	}
	return scrape.NewGPUs(c), nil
}

// nodeExporter returns the source that reads the host from node_exporter's page.
func nodeExporter(cfg *config.Config, log *slog.Logger) (*scrape.Node, error) {
	at, err := page.New(address(cfg.Host.Source.Page), time.Duration(cfg.Host.Source.Timeout))
	if err != nil {
		return nil, fmt.Errorf("host.source: %w", err)
	}
	return scrape.NewNode(scrape.NodeConfig{Page: at, DrainedFile: cfg.Host.DrainedFile, Log: log.With("component", scrape.NodeSource)}), nil
}

// paged schedules a source that reads a page.
func paged(s collector.Source, c config.Exporter) collector.Scheduled {
	return collector.Scheduled{Source: s, Interval: time.Duration(c.Interval), Deadline: time.Duration(c.Timeout) + time.Second, Expected: true}
}

// unread is what a page of GPUs, read once, leaves out that the driver tells.
func unread(part *collector.Part) []string {
	var out []string
	told := func(d *metric.Def) bool {
		for i := range part.GPUs {
			if part.GPUs[i].Has(d) {
				return true
			}
		}
		return false
	}
	for _, missing := range []struct {
		row  *metric.Def
		what string
	}{
		{metric.ProcessCount, "processes, so who uses a GPU and who holds it without one"}, {metric.SMActivity, "SM activity"}, {metric.Energy, "energy"},
		{metric.PowerLimit, "the power limit"}, {metric.ECCErrors, "ECC errors"}, {metric.ClockHeld, "how long clocks are held down"}, {metric.RecoveryAction, "the recovery action"},
	} {
		if !told(missing.row) {
			out = append(out, missing.what)
		}
	}
	return out
}

// doctorGPUPage reads the page of GPUs once, as the agent does, and returns how many it
// has, and which; -1 if it cannot be read.
func doctorGPUPage(ctx context.Context, c *config.Config) ([]diagnosis, int, *collector.Part) {
	d := diagnosis{what: "GPUs (" + scrape.GPUSource + ")", needed: true, advice: "open the URL of nvml.source with curl on this node: it must be this node's dcgm-exporter or nvidia_gpu_exporter"}
	s, err := gpuExporter(c, slog.New(slog.DiscardHandler))
	var part *collector.Part
	if err == nil {
		part, err = s.Sample(ctx)
	}
	if err != nil {
		d.found = err.Error()
		return []diagnosis{d}, -1, nil
	}
	d.ok, d.advice = true, ""
	d.found = fmt.Sprintf("%d GPUs; %s; the driver is not touched (nvml.source)", len(part.GPUs), part.Pages[0])
	if missing := unread(part); len(missing) > 0 {
		d.advice = "the page does not tell " + strings.Join(missing, "; ") + ": docs/sources.md says what follows from that"
	}
	return []diagnosis{d}, len(part.GPUs), part
}

// doctorHostPage reads the page of the host once.
func doctorHostPage(ctx context.Context, c *config.Config) diagnosis {
	d := diagnosis{what: "host (" + scrape.NodeSource + ")", needed: true, advice: "open the URL of host.source with curl on this node: it must be this node's node_exporter"}
	s, err := nodeExporter(c, slog.New(slog.DiscardHandler))
	var part *collector.Part
	if err == nil {
		part, err = s.Sample(ctx)
	}
	if err != nil {
		d.found = err.Error()
		return d
	}
	d.ok, d.advice, d.found = true, "", part.Pages[0].String()
	if !part.Node.Has(metric.CPUCount) {
		d.ok, d.found, d.advice = false, d.found+"; it tells nothing of CPUs", "switch its cpu collector on: without it a saturated GPU beside an idle CPU is not found"
	}
	return d
}
