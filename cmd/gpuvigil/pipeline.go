package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"golang.org/x/sync/errgroup"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	agentsource "gpuvigil/collector/agent"
	"gpuvigil/collector/child"
	"gpuvigil/collector/host"
	"gpuvigil/collector/inference"
	"gpuvigil/collector/kernellog"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// Where the engine's state is, in the store's bucket of that name, and beside it
// what the next sampler should know.
const (
	engineKey = "state"
	knownKey  = "known"
)

// saveEvery bounds what a kill -9 costs the detectors' habits. Findings are
// written when they change.
const saveEvery = 30 * time.Second

var stateErrors = vm.GetOrCreateCounter(metric.StateWriteErrors.Series())

// pipeline is what one configuration makes: sources, sampler, engine, outbox.
type pipeline struct {
	cfg     *config.Config
	log     *slog.Logger
	store   *store.Store
	demo    *demo
	child   *child.Child      // nil without NVML; the same for all pipelines of an agent
	nvml    child.Config      // for the child, when this pipeline runs
	logs    *kernellog.Source // nil in a demo
	sampler *collector.Sampler
	engine  *detect.Engine
	outbox  *alerting.Outbox

	saved  time.Time         // when the state was last written, in the snapshots' time
	unsent []detect.Incident // that no transaction has taken yet
	failed bool              // the last write of the state failed
}

// build makes a pipeline that has not begun.
func (a *agent) build(cfg *config.Config) (*pipeline, error) {
	p := &pipeline{cfg: cfg, log: a.log, store: a.store, demo: a.demo}
	p.child = a.child // it knows what is stuck in the driver, and of a release that lasts
	sources, err := p.sources()
	if err != nil {
		return nil, err
	}
	if p.child != nil {
		a.child = p.child
	}
	p.sampler = collector.NewSampler(collector.SamplerConfig{Node: cfg.Node, Tiers: tiers(cfg.Sampling), Log: a.log}, sources)
	p.engine = detect.NewEngine(detect.Config{Node: cfg.Node, Log: a.log, Settings: settings(cfg.Rules)}, detect.Detectors(detectors(cfg.Detect)))
	return p, nil
}

// restore takes up what the pipeline before wrote last. It must have ended.
func (p *pipeline) restore() error {
	var state, known []byte
	err := p.store.View(func(tx *store.Tx) error {
		state, known = tx.Get(store.Engine, engineKey), tx.Get(store.Engine, knownKey)
		return nil
	})
	if err != nil {
		return err
	}
	if known != nil {
		var k collector.Known
		if err := json.Unmarshal(known, &k); err != nil {
			return fmt.Errorf("restore the node's GPUs from %s: %w", p.store.Path(), err)
		}
		p.sampler.Know(k)
		if p.logs != nil {
			p.logs.Restore(k.Log)
		}
	}
	if state != nil {
		if err := p.engine.Restore(state); err != nil {
			return fmt.Errorf("restore the findings from %s: %w", p.store.Path(), err)
		}
	}
	receivers, err := p.receivers()
	if err != nil {
		return err
	}
	p.outbox, err = alerting.NewOutbox(p.store, alerting.OutboxConfig{
		Node: p.cfg.Node, Log: p.log, Shadow: time.Duration(p.cfg.Alerting.Shadow), Links: p.links,
	}, receivers...)
	if err != nil {
		return err
	}
	if p.demo != nil && !p.demo.replayed {
		p.demo.replay(p)
	}
	return nil
}

// run samples, detects and notifies until ctx ends, and then writes the state.
func (p *pipeline) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if p.child != nil {
		p.child.Reconfigure(p.nvml)
		group.Go(func() error { return p.child.Run(ctx) })
	}
	group.Go(func() error { return p.outbox.Run(ctx) })
	group.Go(func() error { return p.sampler.Run(ctx, p.observe) })
	err := group.Wait()
	if p.logs != nil {
		err = errors.Join(err, p.logs.Close())
	}
	if s := p.sampler.Latest(); s != nil {
		p.save(s)
	}
	return err
}

// observe takes one snapshot through the engine. What it changes is written in
// one transaction with the messages that it causes, so that neither is without
// the other after a crash.
func (p *pipeline) observe(s *collector.Snapshot) {
	p.unsent = append(p.unsent, p.engine.Observe(s)...)
	if len(p.unsent) > 0 || s.Time.Sub(p.saved) >= saveEvery {
		p.save(s)
	}
}

func (p *pipeline) save(s *collector.Snapshot) {
	state, err := p.engine.Save()
	known, knownErr := json.Marshal(s.Known())
	if err = errors.Join(err, knownErr); err == nil {
		err = p.store.Update(func(tx *store.Tx) error {
			if err := errors.Join(tx.Put(store.Engine, engineKey, state), tx.Put(store.Engine, knownKey, known)); err != nil {
				return err
			}
			return p.outbox.EnqueueTx(tx, p.unsent)
		})
	}
	// The outbox has taken the incidents even if the disk has not: it delivers from
	// memory and writes when it can.
	p.unsent = nil
	p.saved = s.Time
	switch {
	case err != nil && !p.failed:
		p.log.Error("The state cannot be written: findings are kept in memory, and a crash now would lose them.", "err", err)
	case err == nil && p.failed:
		p.log.Info("The state is written again.")
	}
	if p.failed = err != nil; p.failed {
		stateErrors.Inc()
	}
}

func (p *pipeline) sources() ([]collector.Scheduled, error) {
	fast := time.Duration(p.cfg.Sampling.Fast)
	scheduled := func(s collector.Source, interval time.Duration) collector.Scheduled {
		return collector.Scheduled{Source: s, Interval: interval, Deadline: max(interval, time.Second), Expected: true}
	}
	var children func() []int
	var sources []collector.Scheduled
	switch {
	case p.demo != nil:
		if err := p.demo.start(p.cfg); err != nil {
			return nil, err
		}
		sources = append(sources, scheduled(p.demo.node.Source(), fast))
	default:
		h, err := host.New(p.cfg.Host.ProcFS, p.cfg.Host.SysFS)
		if err != nil {
			return nil, err
		}
		sources = append(sources, scheduled(h, fast))
		p.logs = kernellog.New(kernellog.Config{Kmsg: p.cfg.Host.Kmsg, Journal: p.cfg.Host.Journal, Fabric: p.cfg.Host.FabricManagerLog,
			ProcFS: p.cfg.Host.ProcFS, Log: p.log.With("component", kernellog.SourceName)})
		sources = append(sources, scheduled(p.logs, fast))
		if !p.cfg.NVML.Enabled {
			p.child = nil
			break
		}
		if p.nvml, err = childConfig(p.cfg, p.log); err != nil {
			return nil, err
		}
		if p.child == nil {
			p.child = child.New(p.nvml)
		}
		s := scheduled(p.child, fast)
		s.Deadline = 3 * fast // Sample waits for the next frame, which comes every fast tick
		sources = append(sources, s)
		children = p.child.PIDs
	}
	own, err := agentsource.New(children)
	if err != nil {
		return nil, err
	}
	sources = append(sources, scheduled(own, fast))
	if len(p.cfg.Inference.Targets) > 0 {
		demand, err := newInference(p.cfg, p.log)
		if err != nil {
			return nil, err
		}
		s := scheduled(demand, time.Duration(p.cfg.Inference.Interval))
		s.Deadline = time.Duration(p.cfg.Inference.Timeout) + time.Second
		sources = append(sources, s)
	}
	return sources, nil
}

// childArgs is how this binary is run as the child that talks to NVML.
func childArgs(cfg *config.Config) []string {
	args := []string{"nvml-child",
		"--path.procfs=" + cfg.Host.ProcFS,
		"--nvml.call-limit=" + time.Duration(cfg.NVML.CallLimit).String(),
		"--nvml.init-limit=" + time.Duration(cfg.NVML.InitLimit).String(),
	}
	if cfg.NVML.LibraryPath != "" {
		args = append(args, "--nvml.library-path="+cfg.NVML.LibraryPath)
	}
	for t, d := range tiers(cfg.Sampling) {
		args = append(args, fmt.Sprintf("--sampling.%s=%s", metric.Tier(t), d))
	}
	return args
}

func childConfig(cfg *config.Config, log *slog.Logger) (child.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return child.Config{}, fmt.Errorf("find the program's own file, to run it as the child that talks to NVML: %w", err)
	}
	return child.Config{
		Command:   append([]string{self}, childArgs(cfg)...),
		InitLimit: time.Duration(cfg.NVML.InitLimit) + 15*time.Second, // the child's own limit comes first and says more
		Log:       log.With("component", "child"),
	}, nil
}

func newInference(cfg *config.Config, log *slog.Logger) (*inference.Inference, error) {
	var targets []inference.Target
	for _, t := range cfg.Inference.Targets {
		target := inference.Target{URL: t.URL, Engine: t.Engine, GPUs: t.GPUs}
		if t.BearerTokenFile != "" || t.BearerTokenEnv != "" {
			target.Token = secret(t.BearerTokenFile, t.BearerTokenEnv)
		}
		targets = append(targets, target)
	}
	return inference.New(targets, time.Duration(cfg.Inference.Timeout), log)
}

func tiers(s config.Sampling) [metric.Tiers]time.Duration {
	return [metric.Tiers]time.Duration{
		metric.Fast:      time.Duration(s.Fast),
		metric.Slow:      time.Duration(s.Slow),
		metric.Processes: time.Duration(s.Processes),
		metric.Inventory: time.Duration(s.Inventory),
	}
}

func detectors(c config.Detect) detect.DetectorConfig {
	return detect.DetectorConfig{
		Saturated: detect.SaturatedConfig{Window: time.Duration(c.SaturatedWindow), QueueTimeSLO: time.Duration(c.QueueTimeSLO)},
		Idle: detect.IdleConfig{
			Training: time.Duration(c.IdleAfterTraining), Notebook: time.Duration(c.IdleAfterNotebook), Other: time.Duration(c.IdleAfter),
		},
	}
}

func settings(overrides map[rules.ID]config.Rule) map[rules.ID]detect.Setting {
	out := map[rules.ID]detect.Setting{}
	for id, r := range overrides {
		s := detect.Setting{Severity: r.Severity, Disabled: r.Enabled != nil && !*r.Enabled}
		s.For, s.Hold = (*time.Duration)(r.For), (*time.Duration)(r.Hold)
		out[id] = s
	}
	return out
}

func (p *pipeline) receivers() ([]alerting.Receiver, error) {
	var out []alerting.Receiver
	for _, s := range p.cfg.Alerting.Slack {
		n, err := slackNotifier(s, p.log)
		if err != nil {
			return nil, err
		}
		out = append(out, alerting.Receiver{Name: s.Name, Notifier: n, MinSeverity: *s.MinSeverity})
	}
	return out, nil
}

// links says where to go on from an incident.
func (p *pipeline) links(i *detect.Incident) []alerting.Link {
	var out []alerting.Link
	add := func(title, url string) {
		if url != "" {
			out = append(out, alerting.Link{Title: title, URL: url})
		}
	}
	add("Page", p.cfg.Links.Page)
	add("Dashboard", p.cfg.Links.Dashboard)
	if p.cfg.Links.Runbook != "" {
		add("Runbook", p.cfg.Links.Runbook+string(i.Rule))
	}
	return out
}

func (p *pipeline) release(d time.Duration) error {
	if p.child == nil {
		return errors.New("this agent holds no GPU driver: there is nothing to release")
	}
	return p.child.Release(d)
}

func (p *pipeline) releasedUntil() time.Time {
	if p.child == nil {
		return time.Time{}
	}
	return p.child.ReleasedUntil()
}
