package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
	histograms := cmd.Flag("nvml.histograms", "Count how the fast signals are distributed, too.").Bool()
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
		cfg := nvml.Config{LibraryPath: *library, ProcFS: *procfs, CallLimit: *callLimit, InitLimit: *initLimit, Full: *full, Histograms: *histograms, Log: p.log}
		for t, d := range tiers {
			cfg.Tiers[t] = *d
		}
		err := nvml.Serve(ctx, p.out, cfg)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		_, writeErr := fmt.Fprintln(p.errs, child.LastWords+strings.ReplaceAll(err.Error(), "\n", "; "))
		code := exitCode(1)
		if errors.Is(err, nvml.ErrNoDriver) {
			code = child.ExitNoDriver
		}
		return errors.Join(code, writeErr)
	}
}
