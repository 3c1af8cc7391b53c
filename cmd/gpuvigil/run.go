package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"gpuvigil/internal/config"
)

// defaultListen is beside the ports of the exporters that gpuvigil may be tried
// next to: 9400 is dcgm-exporter's, 9835 nvidia_gpu_exporter's.
const defaultListen = ":9836"

// agentFlags are the flags of run and demo.
type agentFlags struct {
	configFile string
	stateDir   *string
	node       string
	library    string
	profile    string
	procfs     string
	sysfs      string
	dcgm       bool
	web        *web.FlagConfig
}

func addAgentFlags(cmd *kingpin.CmdClause) *agentFlags {
	f := &agentFlags{web: kingpinflag.AddFlags(cmd, defaultListen)}
	cmd.Flag("config.file", "Configuration file; without it, the defaults. See gpuvigil check --example.").StringVar(&f.configFile)
	cmd.Flag("node.name", "Name of this node. Default: the configuration's, else $NODE_NAME, else the host name.").StringVar(&f.node)
	cmd.Flag("nvml.library-path", "Path of libnvidia-ml.so.1. Default: the dynamic linker finds it.").StringVar(&f.library)
	cmd.Flag("collector.profile", "How much is told of each GPU: default keeps within 150 series, full has details and each NVLink. Default: the configuration's.").
		EnumVar(&f.profile, string(config.DefaultProfile), string(config.FullProfile))
	cmd.Flag("compat.dcgm", "Also serve the GPUs' metrics under the names and labels of dcgm-exporter, up to 4.8 and since 4.9, for dashboards and alerts that are written for it. /metrics is then not offered as OpenMetrics.").BoolVar(&f.dcgm)
	cmd.Flag("path.procfs", "Where the host's /proc is.").StringVar(&f.procfs)
	cmd.Flag("path.sysfs", "Where the host's /sys is.").StringVar(&f.sysfs)
	f.stateDir = addStateDir(cmd)
	return f
}

func addRun(app *kingpin.Application) (string, command) {
	cmd := app.Command("run", "Watch this node: sample, detect, serve /metrics and the page, notify.").Default()
	flags := addAgentFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		dir, err := stateDir(*flags.stateDir)
		if err != nil {
			return err
		}
		return runAgent(ctx, p, flags, dir, nil)
	}
}

func addDemo(app *kingpin.Application) (string, command) {
	cmd := app.Command("demo", "The same with simulated GPUs, processes, owners, an inference server and faults that come and go.")
	flags := addAgentFlags(cmd)
	scenario := cmd.Flag("demo.scenario", "What happens.").Default("demo").String()
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		dir := *flags.stateDir
		if dir == "" {
			temp, err := os.MkdirTemp("", "gpuvigil-demo-")
			if err != nil {
				return fmt.Errorf("make a temporary state directory: %w", err)
			}
			defer func() {
				if err := os.RemoveAll(temp); err != nil {
					p.log.Warn("The demo's temporary directory is still there.", "dir", temp, "err", err)
				}
			}()
			dir = temp
		}
		return runAgent(ctx, p, flags, dir, &demo{scenario: *scenario})
	}
}
