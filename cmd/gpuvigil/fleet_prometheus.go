package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/owner"
	"gpuvigil/collector/promql"
	"gpuvigil/collector/series"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// found is what the role's page says of the series that there are. The zero found says
// nothing.
type found struct{ lines atomic.Pointer[[]string] }

func (f *found) notices() []string {
	if lines := f.lines.Load(); lines != nil {
		return *lines
	}
	return nil
}

// tenantHeader is by which Mimir, and Thanos if told so, tell tenants apart.
const tenantHeader = "X-Scope-OrgID"

// assemblerFor returns what makes snapshots of series: that of the configuration before
// where this one reads the same, since it knows what series say.
func assemblerFor(cfg *config.Config, before *asking, log *slog.Logger) *series.Assembler {
	if before != nil && before.assembler != nil && reflect.DeepEqual(before.cfg.Fleet.Prometheus, cfg.Fleet.Prometheus) && reflect.DeepEqual(before.cfg.Fleet.Shard, cfg.Fleet.Shard) &&
		reflect.DeepEqual(before.cfg.Owners.Mapping, cfg.Owners.Mapping) {
		return before.assembler
	}
	described := ownerRules(cfg.Owners.Mapping)
	return series.New(series.Config{
		NodeLabels: cfg.Fleet.Prometheus.NodeLabels, Lookback: time.Duration(cfg.Fleet.Prometheus.Lookback), Shard: shardOf(cfg), Log: log,
		Describe: func(o collector.Owner, container string) collector.Workload {
			return owner.Describe(o, container, described)
		},
	})
}

// readPrometheus makes the role read the nodes from a PromQL API.
func (a *asking) readPrometheus(cfg *config.Config, before *asking, log *slog.Logger) error {
	p := &cfg.Fleet.Prometheus
	log = log.With("component", "prometheus")
	assembler := assemblerFor(cfg, before, log)
	found := &found{}
	c := promql.Config{
		Address: address(p.Page), Headers: headers(p), Match: p.Match, Interval: time.Duration(p.Interval), Timeout: time.Duration(p.Timeout), Lookback: time.Duration(p.Lookback),
		MaxSeries: p.MaxSeries, MaxBytes: p.MaxBytes, Assembler: assembler, Log: log,
		Found: func(names []string) { found.tell(assembler, names, log) },
	}
	reader, err := promql.New(c)
	if err != nil {
		return err
	}
	a.found, a.assembler = found, assembler
	if a.costs, err = costReader(p); err != nil {
		return err
	}
	a.charts = newFleetCharts(p, log)
	a.config.Rows = append(a.config.Rows, reader.Tell, assembler.Tell)
	a.run = append(a.run, func(ctx context.Context) {
		if a.prime != nil {
			a.prime(ctx)
		}
		if a.past != nil && p.WarmStart > 0 {
			warmStart(ctx, p, headers(p), a.past(), assembler, log)
		}
		reader.Run(ctx, a.observe)
	})
	return nil
}

func headers(p *config.FleetPrometheus) []promql.Header {
	plain := func(v string) func() (string, error) { return func() (string, error) { return v, nil } }
	var out []promql.Header
	if p.Tenant != "" {
		out = append(out, promql.Header{Name: tenantHeader, Value: plain(p.Tenant)})
	}
	for _, h := range p.Headers {
		v := plain(h.Value)
		if h.ValueFile != "" {
			v = secret(h.ValueFile, "")
		}
		out = append(out, promql.Header{Name: h.Name, Value: v})
	}
	return out
}

// checkPrometheusSecrets reads what is sent to Prometheus once.
func checkPrometheusSecrets(cfg *config.Config) []error {
	p := &cfg.Fleet.Prometheus
	if !p.Given() {
		return nil
	}
	errs := []error{checkPage(cfg, "fleet.prometheus", p.Page)}
	for i, h := range p.Headers {
		if h.ValueFile == "" {
			continue
		}
		if _, err := secret(h.ValueFile, "")(); err != nil {
			errs = append(errs, placed(cfg, fmt.Sprintf("fleet.prometheus.headers[%d].value_file", i), err))
		}
	}
	return errs
}

// need is what rules are about or judge by, and who tells it.
type need struct {
	what  string
	rows  []*metric.Def // one of which tells it
	of    string        // a source, each of whose metrics tells it; "": none
	rules []rules.ID    // that are silent, or know less, without it
	give  string        // who would tell it
}

const dcgmGives = "dcgm-exporter, by a line of its counters' file"

var fleetNeeds = []need{
	{"GPUs", []*metric.Def{metric.Utilization}, "", []rules.ID{rules.IDIdleGPU, rules.IDSaturatedGPU, rules.IDJobHung, rules.IDJobStalled}, "dcgm-exporter, nvidia_gpu_exporter or an agent"},
	{"power", []*metric.Def{metric.PowerDraw, metric.PowerInstant}, "", []rules.ID{rules.IDJobHung, rules.IDThrottledGPU, rules.IDHotGPU}, dcgmGives},
	{"Xid errors", []*metric.Def{metric.XidErrors}, "", []rules.ID{rules.IDXid}, dcgmGives},
	{"SM activity", []*metric.Def{metric.SMActivity}, "", []rules.ID{rules.IDStraggler, rules.IDSaturatedGPU}, "dcgm-exporter with its DCP counters, or an agent"},
	{"ECC errors and remapped rows", []*metric.Def{metric.ECCErrors, metric.RemapFailed, metric.RemapPending}, "", []rules.ID{rules.IDGPUMemory}, dcgmGives},
	{"NVLink's bytes", []*metric.Def{metric.NVLinkBytes, metric.NVLinkThroughput}, "", []rules.ID{rules.IDJobHung, rules.IDStraggler}, dcgmGives},
	{"why clocks are held", []*metric.Def{metric.ClockEvent, metric.ClockHeld}, "", []rules.ID{rules.IDThrottledGPU}, dcgmGives},
	{"CPUs of nodes", []*metric.Def{metric.CPUSeconds}, "", []rules.ID{rules.IDSaturatedGPU}, "node_exporter or an agent"},
	{"requests to inference servers", nil, "inference", []rules.ID{rules.IDSaturatedGPU, rules.IDQueueing, rules.IDUnusualModelUse}, "the metrics page of vLLM, or of another server of docs/inference.md"},
	{"pods and their nodes", nil, "kube_state_metrics", []rules.ID{rules.IDDrainedOccupied}, "kube-state-metrics, on Kubernetes"},
	{"processes on GPUs", []*metric.Def{metric.ProcessCount}, "", []rules.ID{rules.IDHiddenSharing, rules.IDUnallocated, rules.IDUnknownUse, rules.IDIsolation}, "an agent: no exporter does"},
}

// tell says in the log and on the page what there is and what is missing.
func (f *found) tell(a *series.Assembler, names []string, log *slog.Logger) {
	by, rows := map[string]int{}, map[*metric.Def]bool{}
	for _, n := range names {
		by[a.Source(n)]++
		if row := a.Row(n); row != nil {
			rows[row] = true
		}
	}
	if len(by) == 0 {
		const nothing = "Prometheus has no metric that anything is made of: is it the one that scrapes dcgm-exporter, node_exporter, the inference servers or the agents, and do the matchers and the tenant fit?"
		log.Warn(nothing)
		f.lines.Store(&[]string{nothing})
		return
	}
	var read []string
	for source, n := range by {
		read = append(read, fmt.Sprintf("%s (%d metrics)", cmp.Or(sourceWords[source], source), n))
	}
	slices.Sort(read)
	lines := []string{"Read from Prometheus: " + strings.Join(read, ", ") + "."}
	log.Info("This is read from Prometheus.", "sources", strings.Join(read, ", "))
	for _, n := range fleetNeeds {
		if by[n.of] > 0 || slices.ContainsFunc(n.rows, func(d *metric.Def) bool { return rows[d] }) {
			continue
		}
		ids := make([]string, len(n.rules))
		for i, id := range n.rules {
			ids[i] = string(id)
		}
		lines = append(lines, fmt.Sprintf("Nothing tells of %s: %s know less or stay silent. It would come from %s.", n.what, strings.Join(ids, ", "), n.give))
		log.Info("Something is not read from Prometheus, since nothing tells it.", "what", n.what, "rules", strings.Join(ids, ","), "from", n.give)
	}
	f.lines.Store(&lines)
}

// sourceWords are the sources as people call them.
var sourceWords = map[string]string{"gpu_exporter": "exporters of GPUs", "inference": "inference servers", "agent": "agents of gpuvigil", "kube_state_metrics": "kube-state-metrics"}
