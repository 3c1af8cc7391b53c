package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/collector/child"
	"gpuvigil/collector/nvml"
	"gpuvigil/internal/metric"
)

// addChild adds the command that the agent runs as its child: the only process
// that loads NVML. It writes frames of readings to its standard output and ends
// when its standard input does.
func addChild(app *kingpin.Application) (string, command) {
	cmd := app.Command("nvml-child", "Sample NVML and write frames to standard output; run by the agent.").Hidden()
	library := cmd.Flag("nvml.library-path", "Path of libnvidia-ml.so.1.").String()
	procfs := cmd.Flag("path.procfs", "Where /proc is.").Default("/proc").String()
	callLimit := cmd.Flag("nvml.call-limit", "A call that takes longer marks its GPU as hung.").Default("5s").Duration()
	initLimit := cmd.Flag("nvml.init-limit", "An initialisation that takes longer ends the child.").Default("1m").Duration()
	full := cmd.Flag("nvml.full", "Sample each NVLink, too.").Bool()
	var tiers [metric.Tiers]*time.Duration
	for t := range metric.Tiers {
		tiers[t] = cmd.Flag("sampling."+t.String(), "Interval of the tier.").Default("1m").Duration()
	}
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			// The agent holds the other end open for as long as it lives.
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		cfg := nvml.Config{LibraryPath: *library, ProcFS: *procfs, CallLimit: *callLimit, InitLimit: *initLimit, Full: *full, Log: p.log}
		for t, d := range tiers {
			cfg.Tiers[t] = *d
		}
		err := nvml.Serve(ctx, p.out, cfg)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nvml.ErrNoDriver):
			// The agent and the doctor repeat the last line that the child says.
			_, err = fmt.Fprintln(p.errs, err)
			return errors.Join(exitCode(child.ExitNoDriver), err)
		}
		return err
	}
}
