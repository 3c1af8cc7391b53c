package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
	"gpuvigil/internal/config"
	"gpuvigil/internal/sim"
)

func addRecord(app *kingpin.Application) (string, command) {
	cmd := app.Command("record", "Record what the sources of this node see, in the format of the agent's child, for a replay or a bug report.")
	output := cmd.Flag("output", "File to write; it must not exist.").Short('o').Required().String()
	lasts := length(cmd.Flag("for", "How long.").Default("1m"), time.Millisecond)
	scenario := cmd.Flag("simulate", "Record a simulated scenario instead, without waiting for it to pass.").String()
	seed := cmd.Flag("simulate.seed", "Seed of the simulation.").Default("1").Uint64()
	flags := &agentFlags{stateDir: new(string)}
	cmd.Flag("config.file", "Configuration file.").StringVar(&flags.configFile)
	cmd.Flag("node.name", "Name of this node.").StringVar(&flags.node)
	cmd.Flag("nvml.library-path", "Path of libnvidia-ml.so.1.").StringVar(&flags.library)
	cmd.Flag("path.procfs", "Where the host's /proc is.").StringVar(&flags.procfs)
	cmd.Flag("path.sysfs", "Where the host's /sys is.").StringVar(&flags.sysfs)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		var source func(context.Context, *recording) error
		var err error
		if *scenario != "" {
			source, err = simulated(*scenario, *seed, *lasts)
		} else {
			source, err = live(p, flags, *lasts)
		}
		if err != nil {
			return err
		}
		file, err := os.OpenFile(*output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("create the recording: %w: choose a file that does not exist with --output", err)
		}
		buffered := bufio.NewWriterSize(file, 1<<20)
		r := &recording{out: frame.NewWriter(buffered)}
		if err = source(ctx, r); err == nil && r.frames == 0 {
			err = fmt.Errorf("nothing was recorded in %s: record for longer with --for", *lasts)
		}
		err = errors.Join(err, buffered.Flush(), file.Close())
		if r.frames == 0 { // a file without a frame would only be in the way of the next try
			return errors.Join(err, os.Remove(*output))
		}
		if err == nil {
			_, err = fmt.Fprintf(p.out, "%s: %s\n", *output, number(r.frames, "frame"))
		}
		return err
	}
}

type recording struct {
	out    *frame.Writer
	frames int
}

func (r *recording) write(p *collector.Part) error {
	if err := r.out.Write(p); err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	r.frames++
	return nil
}

// simulationStart is when recorded simulations begin: a seed gives the same
// recording whenever it is made.
var simulationStart = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

func simulated(name string, seed uint64, length time.Duration) (func(context.Context, *recording) error, error) {
	scenario, err := sim.ScenarioByName(name)
	if err != nil {
		return nil, wrongUsage{fmt.Errorf("--simulate: %w", err)}
	}
	node, err := sim.New(sim.Config{Seed: seed, Start: simulationStart, Scenario: scenario})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r *recording) error {
		for t := time.Duration(0); t < length && ctx.Err() == nil; t += time.Second {
			if err := r.write(node.Part(simulationStart.Add(t))); err != nil {
				return err
			}
		}
		return ctx.Err()
	}, nil
}

// live runs the agent's own sources, without anything that judges or tells.
func live(p *program, flags *agentFlags, length time.Duration) (func(context.Context, *recording) error, error) {
	cfg, err := flags.load(os.Hostname)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r *recording) error { return r.sample(ctx, p, cfg, length) }, nil
}

func (r *recording) sample(ctx context.Context, p *program, cfg *config.Config, length time.Duration) error {
	pipe, gpus := &pipeline{cfg: cfg, log: p.log}, &driver{log: p.log}
	sources, err := pipe.sources(gpus)
	if err != nil {
		return err
	}
	sampler := collector.NewSampler(collector.SamplerConfig{Node: cfg.Node, Tiers: tiers(cfg.Sampling), Log: p.log}, sources)
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	gpus.use(ctx, pipe.driver)
	var failed error
	err = sampler.Run(ctx, func(s *collector.Snapshot) {
		if failed == nil {
			if failed = r.write(s.Part()); failed != nil {
				cancel()
			}
		}
	})
	gpus.use(ctx, nil)
	if pipe.logs != nil {
		err = errors.Join(err, pipe.logs.Close())
	}
	return errors.Join(err, failed)
}
