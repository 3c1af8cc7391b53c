package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/coreos/go-systemd/v22/activation"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sync/errgroup"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/push"
	"gpuvigil/internal/server"
	"gpuvigil/internal/store"
)

var (
	reloadGood = vm.GetOrCreateGauge(metric.ConfigReloadSuccess.Series(), nil)
	reloadTime = vm.GetOrCreateGauge(metric.ConfigReloadTime.Series(), nil)
)

// agent is the process that watches a node. Its pipeline is replaced as a whole
// when the configuration is reloaded; all else lives as long as it does.
type agent struct {
	flags    *agentFlags
	demo     *demo // nil: real sources
	log      *slog.Logger
	outbox   *alerting.Outbox
	recorder *recorder
	ledger   *ledger.Ledger
	driver   driver

	pipeline atomic.Pointer[pipeline]
}

// runAgent runs until ctx ends, which is a clean stop, or something that it
// cannot do without fails.
func runAgent(ctx context.Context, p *program, flags *agentFlags, dir string, demo *demo) (err error) {
	// From the first moment, so that an early SIGHUP does not end the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	a := &agent{flags: flags, demo: demo, log: p.log, driver: driver{log: p.log}}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	webConfig, err := openWebConfig(*flags.web.WebConfigFile, p.log)
	if err != nil {
		return err
	}
	if err := makeStateDir(dir); err != nil {
		return err
	}
	listeners, err := listen(flags.web)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	st, err := store.Open(filepath.Join(dir, stateFile(demo)), 3*time.Second, p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if demo != nil {
		if err := forget(st); err != nil {
			return err
		}
	}
	socket, err := server.ListenSocket(ctx, filepath.Join(dir, socketName))
	if err != nil {
		return err
	}
	defer closeAll([]net.Listener{socket})

	if a.outbox, err = alerting.NewOutbox(st, alerting.OutboxConfig{GateConfig: gate(cfg), Log: p.log}); err != nil {
		return err
	}
	accounts, err := ledgerConfig(cfg, p.log)
	if err != nil {
		return err
	}
	if a.ledger, err = ledger.New(st, accounts); err != nil {
		return err
	}
	a.recorder = &recorder{store: st, outbox: a.outbox, ledger: a.ledger, log: p.log, wake: make(chan struct{}, 1)}
	first, err := a.build(cfg)
	if err != nil {
		return err
	}
	if err := first.restore(st); err != nil {
		return err
	}
	a.pipeline.Store(first)
	srv, pusher, err := a.server(webConfig, cfg, dir)
	if err != nil {
		return err
	}
	p.log.Info("Starting gpuvigil", "version", version.Info(), "node", cfg.Node, "state", dir, "simulated", demo != nil)
	defer p.log.Info("Stopped.")

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.pipelines(ctx, first, hup) })
	if pusher != nil {
		group.Go(func() error {
			pusher.Run(ctx)
			return nil
		})
	}
	group.Go(func() error {
		return serve(ctx, server.HTTPServer(srv.Handler(), p.log), func(s *http.Server) error { return web.ServeMultiple(listeners, s, flags.web, p.log) })
	})
	group.Go(func() error {
		return serve(ctx, server.HTTPServer(srv.SocketHandler(), p.log), func(s *http.Server) error { return s.Serve(socket) })
	})
	return group.Wait()
}

// load reads the configuration and, once, the secrets that it names.
func (a *agent) load() (*config.Config, error) {
	host := os.Hostname
	if a.demo != nil {
		host = func() (string, error) { return demoNode, nil }
	}
	cfg, err := a.flags.load(host)
	if err != nil {
		return nil, err
	}
	if a.demo != nil {
		a.demo.furnish(cfg)
	}
	return cfg, checkSecrets(cfg)
}

// load reads the configuration; flags win over it. host gives the node's name if
// nothing else does.
func (f *agentFlags) load(host func() (string, error)) (*config.Config, error) {
	cfg, err := config.Load(f.configFile)
	if err != nil {
		return nil, err
	}
	if f.profile != "" {
		cfg.NVML.Profile = config.Profile(f.profile)
	}
	if f.library != "" {
		cfg.NVML.LibraryPath = f.library
	}
	// The child has another working directory.
	if strings.Contains(cfg.NVML.LibraryPath, "/") {
		if cfg.NVML.LibraryPath, err = filepath.Abs(cfg.NVML.LibraryPath); err != nil {
			return nil, fmt.Errorf("find the NVML library: %w", err)
		}
	}
	if f.procfs != "" {
		cfg.Host.ProcFS = f.procfs
	}
	if f.sysfs != "" {
		cfg.Host.SysFS = f.sysfs
	}
	if cfg.Host.ProcFS, err = filepath.Abs(cfg.Host.ProcFS); err != nil {
		return nil, fmt.Errorf("find procfs: %w", err)
	}
	if f.node != "" {
		cfg.Node = f.node
	}
	if cfg.Node == "" {
		cfg.Node = os.Getenv("NODE_NAME")
	}
	if cfg.Node == "" {
		if cfg.Node, err = host(); err != nil {
			return nil, fmt.Errorf("find the node's name: %w: give it with --node.name", err)
		}
	}
	return cfg, nil
}

// pipelines runs one pipeline after the other, a new one for each configuration,
// and with them the recorder.
func (a *agent) pipelines(ctx context.Context, p *pipeline, hup <-chan os.Signal) error {
	reloaded()
	// The recorder ends last: it writes what the last pipeline leaves.
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.recorder.run(recording)
	}()
	var err error
	for p != nil && err == nil {
		a.pipeline.Store(p)
		p, err = a.runUntilReload(ctx, p, hup)
	}
	a.driver.use(ctx, nil)
	stop()
	select {
	case <-written:
	case <-time.After(shutdownLimit):
		a.log.Error("The state was not written at last: the disk does not answer.")
	}
	return err
}

// shutdownLimit bounds the wait for a disk that does not answer.
const shutdownLimit = 5 * time.Second

func reloaded() {
	reloadGood.Set(1)
	reloadTime.Set(float64(time.Now().Unix()))
}

// runUntilReload runs a pipeline until ctx ends (then the next is nil) or a
// configuration that works is there to replace it.
func (a *agent) runUntilReload(ctx context.Context, p *pipeline, hup <-chan os.Signal) (*pipeline, error) {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	a.driver.use(ctx, p.driver)
	done := make(chan error, 1)
	go func() { done <- p.run(inner) }()
	for {
		select {
		case err := <-done:
			if ctx.Err() == nil {
				return nil, err
			}
			a.stopped(err)
			return nil, nil
		case <-hup:
			next, err := a.reload()
			if err != nil {
				reloadGood.Set(0)
				a.log.Error("The new configuration is not used, the one before stays in force.", "err", err)
				continue
			}
			stop()
			a.stopped(<-done)
			if err := next.inherit(p); err != nil {
				return nil, err
			}
			reloaded()
			a.log.Info("The new configuration is in force.", "file", a.flags.configFile)
			return next, nil
		}
	}
}

// stopped says what did not end as it should. It is no reason to stop watching.
func (a *agent) stopped(err error) {
	if err != nil {
		a.log.Warn("Not everything has stopped in time.", "err", err)
	}
}

func (a *agent) reload() (*pipeline, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	return a.build(cfg)
}

// server returns what shows the agent and, if the configuration wants it, what pushes the
// same page; nil if not.
func (a *agent) server(web *webConfig, cfg *config.Config, dir string) (*server.Server, *push.Pusher, error) {
	shows := a.serverConfig(web, cfg)
	if !cfg.Push.Given() {
		return server.New(shows), nil, nil
	}
	var srv *server.Server // the page says how it is pushed, and is what is pushed
	pusher, err := newPusher(&cfg.Push, pushed{
		page: func() ([]*dto.MetricFamily, func(), error) { return srv.Gather() },
		job:  "gpuvigil", instance: cfg.Node, dir: filepath.Join(dir, pushDir(a.demo)),
	}, a.log)
	if err != nil {
		return nil, nil, fmt.Errorf("push: %w", err)
	}
	shows.Told = pusher.Tell
	srv = server.New(shows)
	return srv, pusher, nil
}

func (a *agent) serverConfig(web *webConfig, cfg *config.Config) server.Config {
	return server.Config{
		Snapshot:      func() *collector.Snapshot { return a.pipeline.Load().sampler.Latest() },
		View:          func() *detect.View { return a.pipeline.Load().engine.View() },
		History:       func(s detect.Subject) []detect.History { return a.pipeline.Load().engine.History(s) },
		Changes:       func() []collector.Event { return a.pipeline.Load().engine.Changes() },
		Telling:       a.desk().telling(),
		Muted:         func() map[string][]server.Mute { return a.pipeline.Load().mutes() },
		Booked:        a.ledger.Export,
		Costs:         a.ledger.Costs,
		Release:       a.driver.release,
		ReleasedUntil: a.driver.releasedUntil,
		Version:       server.Version{Version: version.Version, Revision: version.GetRevision(), GoVersion: version.GoVersion},
		Full:          cfg.NVML.Profile == config.FullProfile,
		DCGM:          a.flags.dcgm,
		Processes:     processSeries(cfg.Metrics.Processes),
		Authenticated: web.Authenticated,
		Log:           a.log,
	}
}

func processSeries(c config.ProcessSeries) *server.ProcessSeries {
	if !c.Enabled {
		return nil
	}
	return &server.ProcessSeries{Top: c.Top, PID: c.PID}
}

// serve runs an HTTP server until ctx ends, and then lets requests finish.
func serve(ctx context.Context, s *http.Server, run func(*http.Server) error) error {
	failed := make(chan error, 1)
	go func() { failed <- run(s) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.Shutdown(grace)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// listen opens the listeners at once, so that a port in use stops the start before
// anything else has happened.
func listen(flags *web.FlagConfig) ([]net.Listener, error) {
	if *flags.WebSystemdSocket {
		listeners, err := activation.Listeners()
		if err == nil && len(listeners) == 0 {
			err = errors.New("systemd has handed over no socket")
		}
		if err != nil {
			return nil, fmt.Errorf("listen on systemd's sockets: %w: start through the socket unit, or leave out --web.systemd-socket", err)
		}
		return listeners, nil
	}
	var listeners []net.Listener
	for _, address := range *flags.WebListenAddresses {
		l, err := listenTCP(address)
		if err != nil {
			closeAll(listeners)
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func listenTCP(address string) (net.Listener, error) {
	const form = "give --web.listen-address as [HOST]:PORT, :9836 for all addresses"
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return nil, wrongUsage{fmt.Errorf("listen on %q: %s", address, form)}
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: free the port, or choose another with --web.listen-address", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, form)
	}
	return l, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close() // the server has closed it already on a clean stop
	}
}
