package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/collector"
	agentsource "gpuvigil/collector/agent"
	"gpuvigil/collector/child"
	"gpuvigil/collector/host"
	"gpuvigil/collector/inventory"
	"gpuvigil/collector/kernellog"
	"gpuvigil/collector/kube"
	"gpuvigil/collector/movement"
	"gpuvigil/collector/owner"
	"gpuvigil/collector/scrape"
	"gpuvigil/collector/textfile"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// pipeline is what one configuration makes: sources, sampler, engine, and who is
// told.
type pipeline struct {
	cfg       *config.Config
	log       *slog.Logger
	demo      *demo
	driver    *child.Config      // of the child that talks to NVML; nil without NVML
	logs      *kernellog.Source  // nil in a demo
	movement  *movement.Movement // nil in a demo, and where it is off
	kubelet   *owner.Kubelet     // nil in a demo, and where it is not asked
	labels    *kube.NodeSource   // nil in a demo, and where the API server is not asked
	inventory *inventory.Source  // nil in a demo
	textfile  *textfile.Source   // nil in a demo, and without a directory
	exporter  *scrape.GPUs       // nil where GPUs do not come from a page
	sampler   *collector.Sampler
	engine    *detect.Engine
	receivers []alerting.Receiver
	listen    []func(context.Context) // to buttons in Slack
	senders   []*alertmanager.Sender
	outbox    *alerting.Outbox
	recorder  *recorder
	ledger    *ledger.Ledger
	accounts  ledger.Config

	began    time.Time // when it was run
	recorded time.Time // when the state was last handed to the recorder, in the snapshots' time
}

// saveEvery bounds what a kill -9 costs the detectors' habits. Findings are
// written when they change.
const saveEvery = 30 * time.Second

// build makes a pipeline that has not begun.
func (a *agent) build(cfg *config.Config) (*pipeline, error) {
	p := &pipeline{cfg: cfg, log: a.log, demo: a.demo, outbox: a.outbox, recorder: a.recorder, ledger: a.ledger}
	sources, err := p.sources(&a.driver)
	if err != nil {
		return nil, err
	}
	if p.receivers, err = receivers(cfg, a.log); err != nil {
		return nil, err
	}
	p.listen = listeners(cfg, p.receivers, a.desk().press)
	if p.accounts, err = ledgerConfig(cfg, a.log); err != nil {
		return nil, err
	}
	p.sampler = collector.NewSampler(collector.SamplerConfig{Node: cfg.Node, Tiers: tiers(cfg.Sampling), Log: a.log}, sources)
	p.engine = detect.NewEngine(detect.Config{Node: cfg.Node, Log: a.log, Settings: settings(cfg.Rules), Budget: budget(cfg.Budget)}, detect.Detectors(detectors(cfg)))
	p.senders, err = alertmanagers{
		incidents: func() []detect.Incident {
			return append(p.outbox.Drills(), p.engine.View().Incidents...)
		},
		message: p.message, context: p.reach, allow: p.outbox.Allow, watches: p.watches, log: a.log,
	}.senders(cfg)
	p.receivers = append(p.receivers, digestReceivers(cfg, p.senders)...)
	return p, err
}

// restore takes up what an earlier agent wrote last. Findings that cannot be read are
// set aside: an agent that does not start finds nothing at all.
func (p *pipeline) restore(st *store.Store) error {
	state, known, err := stored(st)
	if err != nil {
		return err
	}
	if known != nil {
		p.know(*known)
	}
	switch err := p.engine.RestoreParts(state.state, state.memories); {
	case errors.Is(err, detect.ErrNewer):
		return fmt.Errorf("restore the findings from %s: %w", st.Path(), err)
	case err != nil:
		st.SetAside(store.Engine, engineKey, err)
		if err := p.engine.RestoreParts(nil, state.memories); err != nil {
			return err
		}
	}
	if err := p.takeOver(); err != nil {
		return err
	}
	if p.demo != nil && !p.demo.replayed {
		p.demo.replay(p)
	}
	return nil
}

// know tells sampler and logs what an earlier pipeline knew.
func (p *pipeline) know(k collector.Known) {
	p.sampler.Know(k)
	if p.logs != nil {
		p.logs.Restore(k.Log)
	}
	if p.inventory != nil {
		p.inventory.Restore(k.Inventory)
	}
}

// takeOver says who is told from now on, and by which prices is counted.
func (p *pipeline) takeOver() error {
	p.ledger.Configure(p.accounts)
	err := p.outbox.Configure(alerting.OutboxConfig{
		GateConfig: gate(p.cfg), Log: p.log, Burst: p.cfg.Alerting.Burst, Current: p.incident, Links: p.linksAndSilence, Digest: p.digest(),
		Context: p.reach, Chart: p.chart,
	}, p.receivers...)
	if err == nil {
		p.outbox.Take(open(p.engine.View().Incidents)) // for receivers that were not there when they opened
	}
	return err
}

// open returns the incidents that fire, the oldest first.
func open(all []detect.Incident) []detect.Incident {
	var out []detect.Incident
	for i := range slices.Backward(all) {
		if all[i].State == detect.Firing {
			out = append(out, all[i])
		}
	}
	return out
}

// incident returns an incident as the engine has it now, nil if it has none of this id.
func (p *pipeline) incident(id string) *detect.Incident {
	for _, i := range p.engine.View().Incidents {
		if i.ID == id {
			return &i
		}
	}
	return nil
}

// inherit takes up where a pipeline of this agent has stopped, from memory: a disk
// that is full must not make a reload forget.
func (p *pipeline) inherit(old *pipeline) error {
	if s := old.sampler.Latest(); s != nil {
		p.know(old.known(s))
	}
	if p.movement != nil && old.movement != nil {
		p.movement.Inherit(old.movement)
	}
	if p.textfile != nil && old.textfile != nil {
		p.textfile.Inherit(old.textfile)
	}
	if p.kubelet != nil && old.kubelet != nil {
		p.kubelet.Inherit(old.kubelet)
	}
	if p.exporter != nil && old.exporter != nil {
		p.exporter.Inherit(old.exporter)
	}
	state, err := old.engine.Save()
	if err == nil {
		err = p.engine.Restore(state)
	}
	if err != nil {
		return fmt.Errorf("take over the findings: %w", err)
	}
	return p.takeOver()
}

// run samples, detects and notifies until ctx ends, and then leaves the state to
// the recorder.
func (p *pipeline) run(ctx context.Context) error {
	p.began = time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.outbox.Run(ctx) })
	group.Go(func() error {
		return beats(ctx, p.outbox, p.cfg.Alerting.Heartbeat.Receivers, func() bool { return p.watches() && p.settled() }, p.seen)
	})
	for _, s := range p.senders {
		group.Go(func() error { return s.Run(ctx) })
	}
	for _, listen := range p.listen {
		group.Go(func() error {
			listen(ctx)
			return nil
		})
	}
	if p.labels != nil {
		group.Go(func() error {
			p.labels.Run(ctx)
			return nil
		})
	}
	group.Go(func() error { return p.sampler.Run(ctx, p.observe) })
	err := group.Wait()
	if p.logs != nil {
		err = errors.Join(err, p.logs.Close())
	}
	if p.movement != nil {
		err = errors.Join(err, p.movement.Close())
	}
	if s := p.sampler.Latest(); s != nil {
		p.record(s)
	}
	return err
}

// observe takes one snapshot through the engine. The outbox takes what follows
// before the state is handed to the recorder, so that the transaction which holds
// a finding also holds its message.
func (p *pipeline) observe(s *collector.Snapshot) {
	incidents := p.engine.Observe(p.withMoney(s))
	p.outbox.Take(incidents)
	heartbeat.Set(float64(s.Time.Unix()))
	if len(incidents) > 0 {
		for _, sender := range p.senders {
			sender.Poke()
		}
	}
	p.ledger.Observe(s)
	// Also when the clock was set: after a crash nobody would know that what lies
	// between is no time.
	if age := s.Time.Sub(p.recorded); len(incidents) > 0 || age >= saveEvery || age < 0 || s.Step != 0 {
		p.record(s)
	}
}

// withMoney returns the snapshot with what the ledger had booked before it.
func (p *pipeline) withMoney(s *collector.Snapshot) *collector.Snapshot {
	seen := *s
	seen.Money = p.ledger.Money()
	return &seen
}

func (p *pipeline) record(s *collector.Snapshot) {
	p.recorded = s.Time
	var state *findings
	text, memories, err := p.engine.SaveParts()
	if err == nil {
		state = &findings{text, memories}
	}
	known, knownErr := json.Marshal(p.known(s))
	if err = errors.Join(err, knownErr); err != nil {
		p.log.Error("What the detectors know cannot be put into words: it is lost with the next restart.", "err", err)
	}
	p.recorder.record(state, known)
}

// known is what the next pipeline should know. The inventory remembers more than it
// shows.
func (p *pipeline) known(s *collector.Snapshot) collector.Known {
	k := s.Known()
	if p.inventory != nil {
		k.Inventory = p.inventory.Known()
	}
	return k
}

func (p *pipeline) sources(gpus *driver) ([]collector.Scheduled, error) {
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
		h, err := p.host()
		if err != nil {
			return nil, err
		}
		sources = append(sources, h)
		p.logs = kernellog.New(kernellog.Config{Kmsg: p.cfg.Host.Kmsg, Journal: p.cfg.Host.Journal, Fabric: p.cfg.Host.FabricManagerLog,
			ProcFS: p.cfg.Host.ProcFS, Log: p.log.With("component", kernellog.SourceName)})
		sources = append(sources, scheduled(p.logs, fast))
		whose, err := p.owners(p.latest)
		if err != nil {
			return nil, err
		}
		sources = append(sources, whose...)
		p.inventory = newInventory(p.cfg, p.latest, p.log)
		look := scheduled(p.inventory, time.Duration(p.cfg.Sampling.Inventory))
		look.Expected = false // it tells what runs, not how the GPUs are
		sources = append(sources, look)
		moving, err := p.moving()
		if err != nil {
			return nil, err
		}
		sources = append(sources, moving...)
		sources = append(sources, p.signals()...)
		if p.cfg.NVML.Source.Given() {
			if p.exporter, err = gpuExporter(p.cfg, p.log); err != nil {
				return nil, err
			}
			sources = append(sources, paged(p.exporter, p.cfg.NVML.Source))
			break
		}
		if !p.cfg.NVML.Enabled {
			break
		}
		driver, err := childConfig(p.cfg, p.log)
		if err != nil {
			return nil, err
		}
		p.driver = &driver
		s := scheduled(gpus.source(driver), fast)
		s.Deadline = 3 * fast // Sample waits for the next frame, which comes every fast tick
		sources = append(sources, s)
		children = gpus.pids
	}
	own, err := agentsource.New(children, time.Duration(p.cfg.Sampling.Slow))
	if err != nil {
		return nil, err
	}
	sources = append(sources, scheduled(own, fast))
	if len(p.cfg.Inference.Targets) > 0 || p.cfg.Inference.Discover && p.demo == nil {
		demand, err := p.inference()
		if err != nil {
			return nil, err
		}
		s := scheduled(demand, time.Duration(p.cfg.Inference.Interval))
		s.Deadline = time.Duration(p.cfg.Inference.Timeout) + time.Second
		sources = append(sources, s)
	}
	return sources, nil
}

// host returns the source of what the host does: the kernel's files, or a page in their
// place.
func (p *pipeline) host() (collector.Scheduled, error) {
	if p.cfg.Host.Source.Given() {
		s, err := nodeExporter(p.cfg, p.log)
		return paged(s, p.cfg.Host.Source), err
	}
	fast := time.Duration(p.cfg.Sampling.Fast)
	h, err := host.New(p.cfg.Host.ProcFS, p.cfg.Host.SysFS)
	if err != nil {
		return collector.Scheduled{}, err
	}
	h.WatchDrained(p.cfg.Host.DrainedFile)
	return collector.Scheduled{Source: h, Interval: fast, Deadline: max(fast, time.Second), Expected: true}, nil
}

// childArgs is how this binary is run as the child that talks to NVML.
func childArgs(cfg *config.Config) []string {
	args := []string{"nvml-child",
		"--path.procfs=" + cfg.Host.ProcFS,
		"--nvml.call-limit=" + time.Duration(cfg.NVML.CallLimit).String(),
		"--nvml.init-limit=" + time.Duration(cfg.NVML.InitLimit).String(),
	}
	if cfg.NVML.Profile == config.FullProfile {
		args = append(args, "--nvml.full")
	}
	if cfg.Metrics.NativeHistograms {
		args = append(args, "--nvml.histograms")
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

func tiers(s config.Sampling) [metric.Tiers]time.Duration {
	return [metric.Tiers]time.Duration{
		metric.Fast:      time.Duration(s.Fast),
		metric.Slow:      time.Duration(s.Slow),
		metric.Processes: time.Duration(s.Processes),
		metric.Inventory: time.Duration(s.Inventory),
	}
}

func detectors(cfg *config.Config) detect.DetectorConfig {
	c := cfg.Detect
	var bad []detect.BadVersions
	for _, b := range cfg.Versions.KnownBad {
		bad = append(bad, detect.BadVersions(b))
	}
	return detect.DetectorConfig{
		Saturated: detect.SaturatedConfig{Window: time.Duration(c.SaturatedWindow), QueueTimeSLO: time.Duration(c.QueueTimeSLO)},
		Idle: detect.IdleConfig{
			Training: time.Duration(c.IdleAfterTraining), Notebook: time.Duration(c.IdleAfterNotebook), Other: time.Duration(c.IdleAfter),
		},
		Spend:       detect.SpendConfig{CapLabel: c.CostCapLabel},
		Unallocated: detect.UnallocatedConfig{Allowed: c.UnallocatedAllowed},
		UnknownUse:  detect.UnknownUseConfig{Controlled: cfg.Change == config.Controlled},
		Mismatch:    detect.MismatchConfig{Approved: cfg.Versions.Approved, KnownBad: bad},
		Throttled:   detect.ThrottledConfig{PowerLimits: c.PowerLimits},
		Sharing:     detect.SharingConfig{Allowed: c.SharingAllowed},
		Isolation:   detect.IsolationConfig{Controlled: cfg.Change == config.Controlled},
	}
}

func settings(overrides map[rules.ID]config.Rule) map[rules.ID]detect.Setting {
	out := map[rules.ID]detect.Setting{}
	for id, r := range overrides {
		s := detect.Setting{Severity: r.Severity, Disabled: r.Enabled != nil && !*r.Enabled, Promoted: r.Promoted}
		s.For, s.Hold = (*time.Duration)(r.For), (*time.Duration)(r.Hold)
		out[id] = s
	}
	return out
}

func budget(b config.AlertBudget) detect.Budget {
	return detect.Budget{Pages: b.Pages, Tickets: b.Tickets, GPUs: b.GPUs}
}

func promoted(overrides map[rules.ID]config.Rule) map[rules.ID]bool {
	out := map[rules.ID]bool{}
	for id, r := range overrides {
		out[id] = r.Promoted
	}
	return out
}

func receivers(cfg *config.Config, log *slog.Logger) ([]alerting.Receiver, error) {
	var out []alerting.Receiver
	for _, s := range cfg.Alerting.Slack {
		n, err := slackNotifier(s, log)
		if err != nil {
			return nil, err
		}
		out = append(out, alerting.Receiver{Name: s.Name, Notifier: n, MinSeverity: *s.MinSeverity, Mentions: s.Mentions})
	}
	for i := range cfg.Alerting.Webhook {
		w := &cfg.Alerting.Webhook[i]
		n, err := webhookNotifier(cfg, w)
		if err != nil {
			return nil, err
		}
		out = append(out, alerting.Receiver{Name: w.Name, Notifier: n, MinSeverity: *w.MinSeverity})
	}
	return out, nil
}

// linksAndSilence adds where an incident can be silenced in each cluster of Alertmanagers.
func (p *pipeline) linksAndSilence(i *detect.Incident) []alerting.Link {
	out := p.links(i)
	for _, s := range p.senders {
		out = append(out, alerting.Link{Title: "Silence in " + s.Name(), URL: s.SilenceURL(p.message(i))})
	}
	return out
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
	add("Dashboard", dashboardLink(p.cfg.Links.Dashboard, p.cfg.Node, i))
	if p.cfg.Links.Runbook != "" {
		add("Runbook", p.cfg.Links.Runbook+string(i.Rule))
	}
	return out
}
