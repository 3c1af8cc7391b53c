package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"golang.org/x/sync/errgroup"

	"gpuvigil/collector/owner"
	"gpuvigil/collector/slurm"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/server"
)

// fleetListen is beside the agent's port: the role may share a node with an agent.
const fleetListen = ":9837"

func addFleet(app *kingpin.Application) (string, command) {
	cmd := app.Command("fleet", "Run once in a cluster: ask its scheduler about jobs, queues and nodes, and serve that on /metrics, to join with what the agents say. For now it asks Slurm, and nothing else.")
	flags := kingpinflag.AddFlags(cmd, fleetListen)
	file := cmd.Flag("config.file", "Configuration file: its sections fleet and owners. See gpuvigil check --example.").Required().String()
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		cfg, err := config.Load(*file)
		if err != nil {
			return err
		}
		return runFleet(ctx, p.log, cfg, flags)
	}
}

// runFleet asks and serves until ctx ends.
func runFleet(ctx context.Context, log *slog.Logger, cfg *config.Config, flags *web.FlagConfig) error {
	client, role, err := newFleet(cfg, log)
	if err != nil {
		return err
	}
	if _, err := openWebConfig(*flags.WebConfigFile, log); err != nil {
		return err
	}
	listeners, err := listen(flags)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	log.Info("Starting gpuvigil fleet", "version", version.Info())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		client.Run(ctx)
		return nil
	})
	group.Go(func() error {
		return serve(ctx, server.HTTPServer(role.Handler(), log), func(s *http.Server) error { return web.ServeMultiple(listeners, s, flags, log) })
	})
	return group.Wait()
}

// newFleet makes the role from the configuration and reads each secret once, so that
// one that cannot be read stops the start.
func newFleet(cfg *config.Config, log *slog.Logger) (*slurm.Client, *fleet.Fleet, error) {
	s := cfg.Fleet.Slurm
	if !s.Given() {
		return nil, nil, errors.New("there is nothing to ask: give fleet.slurm.slurmrestd_url or fleet.slurm.squeue in the configuration, see gpuvigil check --example")
	}
	if err := checkFleetSecrets(cfg); err != nil {
		return nil, nil, err
	}
	key, err := userKey(cfg)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := owner.NewJobs(owner.UserForm(cfg.Owners.Users), key, ownerRules(cfg.Owners.Mapping))
	if err != nil {
		return nil, nil, err
	}
	ask := slurm.Config{URL: s.URL, Squeue: s.Squeue, Sinfo: s.Sinfo, Interval: time.Duration(s.Interval), Timeout: time.Duration(s.Timeout), Log: log}
	if s.UserFile != "" {
		ask.User = secret(s.UserFile, "")
	}
	if s.TokenFile != "" {
		ask.Token = secret(s.TokenFile, "")
	}
	client := slurm.NewClient(ask)
	return client, fleet.New(fleet.Config{Latest: client.Latest, Health: client.Health, Owners: jobs, JobNames: s.JobNames, Log: log}), nil
}

// checkFleetSecrets reads what the role sends to slurmrestd once.
func checkFleetSecrets(cfg *config.Config) error {
	var errs []error
	for key, file := range map[string]string{"user_file": cfg.Fleet.Slurm.UserFile, "token_file": cfg.Fleet.Slurm.TokenFile} {
		if file == "" {
			continue
		}
		if _, err := secret(file, "")(); err != nil {
			errs = append(errs, fmt.Errorf("read fleet.slurm.%s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}
