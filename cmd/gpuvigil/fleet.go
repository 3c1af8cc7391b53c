package main

import (
	"cmp"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"gpuvigil/collector/kube"
	"gpuvigil/collector/page"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"golang.org/x/sync/errgroup"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/collector/owner"
	"gpuvigil/collector/series"
	"gpuvigil/collector/slurm"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/report"
	"gpuvigil/internal/server"
)

// fleetListen is beside the agent's port: the role may share a node with an agent.
const fleetListen = ":9837"

func addFleet(app *kingpin.Application) (string, command) {
	cmd := app.Command("fleet", "Run once in a cluster: read the nodes from a Prometheus, judge those without an agent, and make incidents of all; ask Slurm or Kubernetes about queues, nodes and autoscalers.")
	flags := kingpinflag.AddFlags(cmd, fleetListen)
	file := cmd.Flag("config.file", "Configuration file: its sections fleet, owners, detect, rules and alerting. See gpuvigil check --example. SIGHUP reads it again.").String()
	prometheus := cmd.Flag("prometheus.url", "Prometheus, VictoriaMetrics, Thanos or Mimir to read the nodes from, such as http://prometheus:9090; it goes before fleet.prometheus.url.").PlaceHolder("URL").String()
	var shard *int
	cmd.Flag("shard.index", "Which part of the nodes this one looks at, from 0; it goes before fleet.shard.index, so that all replicas can have one configuration.").PlaceHolder("INDEX").SetValue(&optional{&shard})
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		dir, err := stateDir(*state)
		if err != nil {
			return err
		}
		return runFleet(ctx, p.log, fleetInput{*file, *prometheus, shard}, dir, flags)
	}
}

// fleetInput says where the configuration comes from.
type fleetInput struct {
	file       string // empty: the defaults
	prometheus string // URL that goes before that of the file; empty: none is given
	shard      *int   // index that goes before that of the file; nil: none is given
}

// runFleet asks and serves until ctx ends.
func runFleet(ctx context.Context, log *slog.Logger, from fleetInput, dir string, flags *web.FlagConfig) (err error) {
	// From the first moment, so that an early SIGHUP does not end the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	first, err := loadFleet(from, nil, log)
	if err != nil {
		return err
	}
	webConfig, err := openWebConfig(*flags.WebConfigFile, log)
	if err != nil {
		return err
	}
	if err := makeStateDir(dir); err != nil {
		return err
	}
	listeners, err := listen(flags)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	rec, err := openFleetState(dir, first.cluster, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.store.Close()) }()
	socket, err := server.ListenSocket(ctx, filepath.Join(dir, fleetSocket))
	if err != nil {
		return err
	}
	defer closeAll([]net.Listener{socket})
	if rec.elector, err = newElector(first.cfg, rec.outbox, log); err != nil {
		return err
	}
	remote, err := newRemotes(first.cfg, dir, rec.pushed, log)
	if err != nil {
		return err
	}
	if err := rec.tellsFor(first); err != nil {
		return err
	}
	first.config.Rows = append(first.config.Rows, append(remote.rows(), rec.leads)...)
	rec.role = fleet.New(first.config)
	if err := rec.restore(); err != nil {
		return err
	}
	if err := rec.configure(first); err != nil {
		return err
	}
	log.Info("Starting gpuvigil fleet", "version", version.Info(), "state", dir)
	return serveFleet(ctx, log, rec, remote, first, from, hup, flags, webConfig, listeners, socket)
}

// serveFleet asks, judges, tells and answers until ctx ends.
func serveFleet(ctx context.Context, log *slog.Logger, rec *fleetRecorder, remote *remotes, first *asking, from fleetInput, hup <-chan os.Signal, flags *web.FlagConfig, access *webConfig, listeners []net.Listener, socket net.Listener) error {
	srv := server.NewFleet(server.FleetConfig{
		Cluster: first.cluster, View: fleetView(rec), Pending: pendingJobs(rec), Telling: rec.desk().telling(), Metrics: rec.role.Handler(), Authenticated: access.Authenticated, Log: log,
		Chart:   func(ctx context.Context, id string) ([]byte, error) { return rec.charts.Load().picture(ctx, id) },
		Version: server.Version{Version: version.Version, Revision: version.GetRevision(), GoVersion: version.GoVersion},
	})
	// Whoever leads next begins when nothing is told here any more.
	defer rec.elect(ctx)()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runAsking(ctx, log, from, rec, remote, first, hup) })
	group.Go(func() error {
		rec.role.Watch(ctx)
		return nil
	})
	group.Go(func() error {
		remote.run(ctx, func(at time.Time, nodes []*collector.Snapshot) { rec.role.Observe(at, nodes) })
		return nil
	})
	group.Go(func() error {
		rec.run(ctx)
		return nil
	})
	group.Go(func() error {
		return serve(ctx, server.HTTPServer(remote.handler(srv.Handler(), access.Authenticated), log), func(s *http.Server) error { return web.ServeMultiple(listeners, s, flags, log) })
	})
	group.Go(func() error {
		return serve(ctx, server.HTTPServer(srv.SocketHandler(), log), func(s *http.Server) error { return s.Serve(socket) })
	})
	return group.Wait()
}

// fleetView is what the role knows, for its page and API.
func fleetView(rec *fleetRecorder) func() server.FleetView {
	return func() server.FleetView {
		v := rec.role.View()
		out := server.FleetView{Time: v.Time, Simulated: v.Simulated, Findings: v.Findings, Incidents: v.Incidents, Nodes: make([]server.FleetNode, len(v.Nodes))}
		for i, n := range v.Nodes {
			out.Nodes[i] = server.FleetNode(n)
		}
		out.Notices = rec.leaderNotice()
		if f := rec.found.Load(); f != nil {
			out.Notices = append(out.Notices, f.notices()...)
		}
		return out
	}
}

// asking is what one configuration makes: who is asked, what asks them, and who is told.
type asking struct {
	cfg       *config.Config
	cluster   string
	config    fleet.Config
	run       []func(context.Context)
	assembler *series.Assembler                                    // likewise
	found     *found                                               // nil: no Prometheus is read
	observe   func(now time.Time, snapshots []*collector.Snapshot) // what is made of the nodes; set before anything runs
	past      func() *fleet.Past                                   // begins with what was; nil: that is known
	prime     func(context.Context)                                // tells the role what teams had spent; nil: it knows
	costs     *report.Engine                                       // nil: no Prometheus is read
	charts    *fleetCharts                                         // likewise
	outbox    alerting.OutboxConfig
	receivers []alerting.Receiver
	tell      func(context.Context) []func() error // what tells them
}

// runAsking asks and tells until ctx ends, after each SIGHUP by the new configuration if
// that works.
func runAsking(ctx context.Context, log *slog.Logger, from fleetInput, rec *fleetRecorder, remote *remotes, now *asking, hup <-chan os.Signal) error {
	if now.costs != nil {
		costs := now.costs
		now.prime = func(ctx context.Context) { prime(ctx, costs, rec.role, log) }
	}
	now.past = rec.role.Past // a later configuration does not begin again
	for now != nil {
		now.observe = func(at time.Time, snapshots []*collector.Snapshot) { rec.role.Observe(at, snapshots) }
		rec.found.Store(now.found)
		rec.charts.Store(now.charts)
		inner, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		for _, run := range now.run {
			group.Go(func() { run(inner) })
		}
		telling, inside := errgroup.WithContext(inner)
		tell := now.tell
		telling.Go(func() error { return rec.tellWhileLeading(inside, tell) })
		next, err := nextAsking(ctx, log, from, now, rec, hup)
		stop()
		group.Wait()
		if failed := telling.Wait(); failed != nil && next != nil {
			log.Warn("Not everything has stopped in time.", "err", failed)
		} else if next == nil {
			return errors.Join(err, failed)
		}
		now = next
		now.config.Rows = append(now.config.Rows, append(remote.rows(), rec.leads)...)
		rec.role.Configure(now.config)
		if err := rec.configure(now); err != nil {
			return err
		}
		log.Info("The new configuration is in force.", "file", from.file)
	}
	return nil
}

// nextAsking waits for a new configuration that works; nil once ctx ends.
func nextAsking(ctx context.Context, log *slog.Logger, from fleetInput, now *asking, rec *fleetRecorder, hup <-chan os.Signal) (*asking, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-hup:
		}
		next, err := loadFleet(from, now, log)
		if err == nil {
			err = rec.tellsFor(next)
		}
		if err == nil {
			return next, nil
		}
		rec.role.KeepConfiguration()
		log.Error("The new configuration is not used, the one before stays in force.", "err", err)
	}
}

// loadFleet reads the configuration, and each secret once, so that one that cannot be
// read stops the start. What is known by the configuration before, if there is one, stays
// known where it does not change.
func loadFleet(from fleetInput, before *asking, log *slog.Logger) (*asking, error) {
	cfg, err := config.Load(from.file)
	if err != nil {
		return nil, err
	}
	if from.prometheus != "" {
		cfg.Fleet.Prometheus.URL = from.prometheus
	}
	if err := chooseShard(cfg, from.shard); err != nil {
		return nil, err
	}
	if cfg.Fleet.Receive.Enabled && cfg.Fleet.Prometheus.Given() {
		return nil, errors.New("fleet.receive.enabled beside --prometheus.url: use one of the two, as the same nodes would be judged twice")
	}
	if !cfg.Fleet.Slurm.Given() && !cfg.Fleet.Kubernetes.Enabled && !cfg.Fleet.Prometheus.Given() && !cfg.Fleet.Receive.Enabled {
		return nil, errors.New("there is nothing to ask: give --prometheus.url, or fleet.prometheus.url, fleet.slurm.slurmrestd_url, fleet.slurm.squeue, fleet.kubernetes.enabled or fleet.receive.enabled in the configuration, see gpuvigil check --example")
	}
	if err := checkFleetSecrets(cfg); err != nil {
		return nil, err
	}
	key, err := userKey(cfg)
	if err != nil {
		return nil, err
	}
	jobs, err := owner.NewJobs(owner.UserForm(cfg.Owners.Users), key, ownerRules(cfg.Owners.Mapping))
	if err != nil {
		return nil, err
	}
	prices, err := newFleetPrices(cfg, log)
	if err != nil {
		return nil, err
	}
	a := &asking{cfg: cfg, cluster: cmp.Or(cfg.Cluster, "cluster")}
	if a.receivers, err = receivers(cfg, log); err != nil {
		return nil, err
	}
	a.outbox = alerting.OutboxConfig{GateConfig: gate(cfg), Log: log, Burst: cfg.Alerting.Burst}
	a.outbox.Node = a.cluster
	a.config = fleet.Config{Log: log, Detect: waiting(&cfg.Fleet.Waiting), Nodes: detectors(cfg), Budget: shardBudget(cfg), Rules: settings(cfg.Rules), Price: prices.of, Budgets: fleetBudgets(cfg), Aside: cfg.Fleet.Shard.Index > 0}
	a.config.Detect.Cluster = a.cluster
	a.config.Brought = cfg.Fleet.Prometheus.Given() || cfg.Fleet.Receive.Enabled
	a.config.Rows = append(a.config.Rows, server.Counters(log, metric.OutboxLength, metric.OutboxAge, metric.NotificationsSent, metric.IncidentsMarked, metric.MaintenanceWindows, metric.AlertsMuted))
	if cfg.Fleet.Agents.Given() {
		agents := fleet.NewAgents(log, askAgent(&cfg.Fleet.Agents))
		a.run = append(a.run, agents.Run)
		a.config.Evidence, a.config.AgentCalls = agents.Evidence, agents.Calls
	}
	if cfg.Fleet.Prometheus.Given() {
		if err := a.readPrometheus(cfg, before, log); err != nil {
			return nil, fmt.Errorf("fleet.prometheus: %w", err)
		}
	}
	if cfg.Fleet.Slurm.Given() {
		a.askSlurm(&cfg.Fleet.Slurm, jobs, log)
	}
	if cfg.Fleet.Kubernetes.Enabled {
		if err := a.askKubernetes(&cfg.Fleet.Kubernetes, jobs, log); err != nil {
			return nil, fmt.Errorf("fleet.kubernetes: %w", err)
		}
	}
	return a, nil
}

// askAgent returns what asks one agent for its findings.
func askAgent(c *config.FleetAgents) func(context.Context, string) (io.ReadCloser, error) {
	return func(ctx context.Context, instance string) (io.ReadCloser, error) {
		at, err := page.New(address(c.Of(instance)), time.Duration(c.Timeout))
		if err != nil {
			return nil, err
		}
		resp, err := at.Open(ctx)
		if err != nil {
			at.Close()
			return nil, err
		}
		return &agentAnswer{resp.Body, at}, nil
	}
}

// agentAnswer closes with the answer what it came over.
type agentAnswer struct {
	io.ReadCloser
	from *page.Page
}

func (a *agentAnswer) Close() error {
	defer a.from.Close()
	return a.ReadCloser.Close()
}

// waiting is when jobs that wait are a finding.
func waiting(w *config.FleetWaiting) detect.FleetConfig {
	queues := map[string]time.Duration{}
	for _, q := range w.Queues {
		queues[q.Queue] = time.Duration(q.SLO)
	}
	return detect.FleetConfig{Waiting: detect.WaitingConfig{SLO: time.Duration(w.SLO), Queues: queues, FreeFor: time.Duration(w.FreeFor)}}
}

func (a *asking) askSlurm(s *config.FleetSlurm, jobs *owner.Jobs, log *slog.Logger) {
	ask := slurm.Config{URL: s.URL, Squeue: s.Squeue, Sinfo: s.Sinfo, Interval: time.Duration(s.Interval), Timeout: time.Duration(s.Timeout), Log: log}
	if s.UserFile != "" {
		ask.User = secret(s.UserFile, "")
	}
	if s.TokenFile != "" {
		ask.Token = secret(s.TokenFile, "")
	}
	client := slurm.NewClient(ask)
	a.run = append(a.run, client.Run)
	a.config.Schedulers = append(a.config.Schedulers, fleet.Slurm(client.Latest, client.Health, jobs, s.JobNames))
}

// kueuePageInterval is how often Kueue's page of metrics is read.
const kueuePageInterval = 30 * time.Second

func (a *asking) askKubernetes(k *config.FleetKubernetes, jobs *owner.Jobs, log *slog.Logger) error {
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, UserAgent: apiUserAgent("fleet"), Timeout: time.Duration(k.Timeout)})
	if err != nil {
		return err
	}
	cluster := fleet.NewKubernetes(fleet.KubernetesConfig{
		Client: client, PoolLabels: k.PoolLabels, Owners: jobs, Keep: time.Duration(k.Keep),
		KueuePage: k.KueuePage, Interval: kueuePageInterval, Timeout: min(time.Duration(k.Timeout), kueuePageInterval),
		Kueue: k.Kueue, Volcano: k.Volcano, Ray: k.Ray, Autoscalers: k.Autoscalers, Claims: k.Claims, Log: log,
	})
	a.run = append(a.run, cluster.Run)
	a.config.Schedulers = append(a.config.Schedulers, cluster.Scheduler())
	return nil
}

// apiUserAgent is what the API server's audit log calls the part of gpuvigil.
func apiUserAgent(part string) string { return "gpuvigil-" + part + "/" + version.Version }

// checkFleetSecrets reads what the role sends to slurmrestd once.
func checkFleetSecrets(cfg *config.Config) error {
	errs := append(checkPrometheusSecrets(cfg), checkPush(cfg, "fleet.remote_write", &cfg.Fleet.RemoteWrite))
	for key, file := range map[string]string{"user_file": cfg.Fleet.Slurm.UserFile, "token_file": cfg.Fleet.Slurm.TokenFile} {
		if file == "" {
			continue
		}
		if _, err := secret(file, "")(); err != nil {
			errs = append(errs, placed(cfg, "fleet.slurm."+key, err))
		}
	}
	if cfg.Fleet.Agents.Given() {
		errs = append(errs, checkPage(cfg, "fleet.agents", cfg.Fleet.Agents.Of("localhost:9836")))
	}
	return errors.Join(errs...)
}
