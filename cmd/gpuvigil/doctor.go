package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"gpuvigil/alerting/alertmanager"
	"gpuvigil/collector"
	"gpuvigil/collector/child"
	"gpuvigil/collector/frame"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
)

// diagnosis is one line of the doctor: what was looked at, how it is, what to do.
type diagnosis struct {
	what   string
	ok     bool
	needed bool // gpuvigil cannot do its main job without it
	found  string
	advice string
}

func addDoctor(app *kingpin.Application) (string, command) {
	cmd := app.Command("doctor", "Say what works on this node, what does not, and what to do about it. Exits 1 if something needed is broken.")
	file := cmd.Flag("config.file", "Configuration file.").String()
	library := cmd.Flag("nvml.library-path", "Path of libnvidia-ml.so.1.").String()
	procfs := cmd.Flag("path.procfs", "Where the host's /proc is.").String()
	sysfs := cmd.Flag("path.sysfs", "Where the host's /sys is.").String()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		c, diagnoses := doctorConfig(*file)
		c.Host.ProcFS, c.Host.SysFS = cmp.Or(*procfs, c.Host.ProcFS), cmp.Or(*sysfs, c.Host.SysFS)
		diagnoses = append(diagnoses, doctorState(*state))
		gpus, listed, part := doctorGPUs(ctx, *library, c)
		diagnoses = append(diagnoses, gpus...)
		diagnoses = append(diagnoses, doctorBus(c, listed))
		diagnoses = append(diagnoses, doctorHost(ctx, c)...)
		diagnoses = append(diagnoses, doctorTiers(c)...)
		diagnoses = append(diagnoses, doctorMovement(c)...)
		diagnoses = append(diagnoses, doctorAPI(ctx, c)...)
		diagnoses = append(diagnoses, doctorTargets(ctx, c, part)...)
		diagnoses = append(diagnoses, doctorDiscovery(c))
		diagnoses = append(diagnoses, doctorTextfile(c))
		diagnoses = append(diagnoses, doctorReceivers(ctx, c)...)
		return printDiagnoses(p.out, diagnoses)
	}
}

func printDiagnoses(out io.Writer, diagnoses []diagnosis) error {
	broken := 0
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, d := range diagnoses {
		mark := "ok"
		switch {
		case !d.ok && d.needed:
			mark = "BROKEN"
			broken++
		case !d.ok:
			mark = "not here"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark, d.what, d.found)
		if d.advice != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", d.advice)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if broken > 0 {
		return exitCode(1)
	}
	return nil
}

func doctorConfig(file string) (*config.Config, []diagnosis) {
	c, err := config.Load(file)
	if err == nil {
		_, err = priceBook(c)
	}
	if err != nil {
		return config.Default(), []diagnosis{{what: "configuration", needed: true, found: err.Error(), advice: "mend the file; what follows was checked with the defaults"}}
	}
	found := "the defaults (no --config.file given)"
	if file != "" {
		found = file + " is valid"
	}
	return c, []diagnosis{{what: "configuration", ok: true, found: found}}
}

func doctorState(flag string) diagnosis {
	d := diagnosis{what: "state directory", needed: true}
	dir, err := stateDir(flag)
	if err == nil {
		err = makeStateDir(dir)
	}
	if err != nil {
		d.found = err.Error()
		return d
	}
	d.ok, d.found = true, dir+" is writable"
	if conn, err := net.DialTimeout("unix", filepath.Join(dir, socketName), time.Second); err == nil {
		d.found += "; an agent runs with it"
		if err := conn.Close(); err != nil {
			d.found += fmt.Sprintf(" (closing its socket: %v)", err)
		}
	}
	return d
}

// doctorGPUs looks at the GPUs as the agent would, and says how many there are and
// which; nil if nobody lists them.
func doctorGPUs(ctx context.Context, library string, c *config.Config) ([]diagnosis, int, *collector.Part) {
	if c.NVML.Source.Given() {
		return doctorGPUPage(ctx, c)
	}
	driver, part := doctorNVML(ctx, library, c)
	return driver, len(driver) - 1, part
}

// doctorNVML starts the same child that the agent would, and waits for one frame.
func doctorNVML(ctx context.Context, library string, c *config.Config) ([]diagnosis, *collector.Part) {
	d := diagnosis{what: "NVIDIA driver (NVML)"}
	if library != "" {
		c.NVML.LibraryPath = library
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.NVML.InitLimit)+5*time.Second)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		d.found = err.Error()
		return []diagnosis{d}, nil
	}
	process := exec.CommandContext(ctx, self, childArgs(c)...)
	process.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	process.Stderr = &stderr
	stdin, inErr := process.StdinPipe()
	stdout, outErr := process.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		d.found = err.Error()
		return []diagnosis{d}, nil
	}
	if err := process.Start(); err != nil {
		d.found = "start the child: " + err.Error()
		return []diagnosis{d}, nil
	}
	part, readErr := frame.NewReader(stdout).Read()
	closeErr := stdin.Close()
	waitErr := process.Wait()
	if readErr != nil {
		d.found = strings.TrimPrefix(lastLine(stderr.String()), child.LastWords)
		if d.found == "" {
			d.found = errors.Join(readErr, closeErr, waitErr).Error()
		}
		d.needed = process.ProcessState.ExitCode() != child.ExitNoDriver
		d.advice = "nvidia-smi will fail alike; a running agent sees the GPUs as soon as the driver works again, without a restart"
		if !d.needed {
			d.advice = "without a driver gpuvigil watches the host only; with one, check that nvidia-smi works for this user and that the container has the GPU's device files"
		}
		return []diagnosis{d}, nil
	}
	d.ok = true
	var versions []string
	for _, v := range part.Node.Versions {
		versions = append(versions, v.Component+" "+v.Value)
	}
	d.found = fmt.Sprintf("%d GPUs; %s", len(part.GPUs), strings.Join(versions, ", "))
	out := []diagnosis{d}
	switch listed := int(part.Node.Value(metric.GPUsSeen)); {
	case listed == 0:
		out = append(out, diagnosis{what: "GPUs", needed: true, found: "the driver is there and lists no GPU",
			advice: "look whether lspci shows one, whether a virtual machine or another driver holds it, and what the kernel log says after NVRM"})
	case listed > len(part.GPUs):
		out = append(out, diagnosis{what: "GPUs", needed: true, found: fmt.Sprintf("the driver lists %d and does not answer for %d of them", listed, listed-len(part.GPUs)),
			advice: "see the kernel log for the last Xid; drain the node, and reset the GPU or reboot"})
	}
	for _, g := range part.GPUs {
		line := diagnosis{what: fmt.Sprintf("GPU %d", g.Index), ok: g.Present, needed: true, found: g.Model}
		if !g.Present {
			line.found += ": the driver does not answer for it"
			line.advice = "see the kernel log for its last Xid; drain the node and reset the GPU"
		}
		if n := len(g.Unsupported); n > 0 {
			line.found += fmt.Sprintf("; %d metrics not supported (vigil_gpu_unsupported lists them)", n)
		}
		out = append(out, line)
	}
	return out, part
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// doctorTiers says what each tier of privilege would add. The base tier is the
// default and needs no root.
func doctorTiers(c *config.Config) []diagnosis {
	devices, err := filepath.Glob("/dev/nvidia[0-9]*")
	tier0 := diagnosis{what: "tier 0: device files, world-readable /proc", ok: len(devices) > 0, found: fmt.Sprintf("%d GPU device files", len(devices))}
	if err != nil {
		tier0.found = err.Error()
	}
	tier1 := kubeletTier(c)
	tier2 := kernelLog(c.Host.Kmsg)
	return append([]diagnosis{tier0}, append(doctorOwners(c), tier1, tier2, doctorTracing(c))...)
}

// doctorTracing tells whether other users' processes may be looked into, which takes
// both the right and the wish to.
func doctorTracing(c *config.Config) diagnosis {
	_, err := os.ReadFile(filepath.Join(c.Host.ProcFS, "1", "io"))
	return tracing(err, c.Inventory.Runtimes)
}

// tracing judges by how looking into the first process ended.
func tracing(err error, wanted bool) diagnosis {
	const buys = "which libraries and frameworks GPU processes have loaded, with versions; the ports at which they listen; their I/O"
	d := diagnosis{what: "tier 3: ptrace-level reads"}
	switch {
	case err == nil && wanted:
		d.ok, d.found = true, "this user can read other users' processes, and does (inventory.runtimes)"
	case err == nil:
		d.found, d.advice = "this user could read other users' processes, but inventory.runtimes is off", "set inventory.runtimes: true to see "+buys
	case !errors.Is(err, fs.ErrPermission):
		d.found = fmt.Sprintf("cannot tell whether this user can read other users' processes: %v", err)
		d.advice = "check host.procfs: process 1 is looked at there"
	case wanted:
		d.found, d.advice = "inventory.runtimes is on, but without CAP_SYS_PTRACE only this user's own processes are read", "give CAP_SYS_PTRACE to see of all: "+buys
	default:
		d.found, d.advice = "off", "give CAP_SYS_PTRACE and set inventory.runtimes: true only if you want to see "+buys
	}
	return d
}

// kernelLog opens the log, as the agent does: the right to read the file is not
// enough where only administrators may see kernel messages.
func kernelLog(path string) diagnosis {
	d := diagnosis{what: "tier 2: kernel log"}
	if path == "" {
		d.found = "switched off with host.kmsg"
		return d
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		d.found = err.Error()
		d.advice = "give CAP_SYSLOG and this device to see each Xid with its message, those of NVSwitches, and those from before the agent started; " +
			"or export the journal (host.journal)"
		return d
	}
	if err := f.Close(); err != nil {
		d.found = err.Error()
		return d
	}
	d.ok, d.found = true, path+" is readable: Xid and SXid errors with their messages"
	return d
}

// doctorReceivers asks whoever is told whether they would listen, without telling them
// anything.
func doctorReceivers(ctx context.Context, c *config.Config) []diagnosis {
	a := &c.Alerting
	if len(a.Slack)+len(a.Webhook)+len(a.Alertmanager) == 0 {
		return []diagnosis{{what: "Slack", found: "no receiver configured", advice: "add one under alerting.slack, alerting.alertmanager or alerting.webhook; gpuvigil check --example shows how"}}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var out []diagnosis
	add := func(what, advice string, check func() (string, error)) {
		d := diagnosis{what: what, needed: true}
		var err error
		if d.found, err = check(); err != nil {
			d.found, d.advice = err.Error(), advice
		}
		d.ok = err == nil
		out = append(out, d)
	}
	quiet := slog.New(slog.DiscardHandler)
	for _, s := range a.Slack {
		add("Slack receiver "+s.Name, "check the secret, the bot's scopes (chat:write, channels:history), and that it is in the channel", func() (string, error) {
			n, err := slackNotifier(s, quiet)
			if err != nil {
				return "", err
			}
			return n.Check(ctx)
		})
	}
	for i := range a.Webhook {
		add("webhook "+a.Webhook[i].Name, "check the URL and the key, and that this user can read their files", func() (string, error) {
			n, err := webhookNotifier(c, &a.Webhook[i])
			if err != nil {
				return "", err
			}
			return n.Check(ctx)
		})
	}
	for i := range a.Alertmanager {
		t := &a.Alertmanager[i]
		add("Alertmanager "+t.Name, "check the URL with its path prefix, the certificate, and the token or password", func() (string, error) {
			s, err := alertmanager.New(alertmanager.Config{Name: t.Name, URLs: t.URLs, Server: alertServer(&t.Server), Log: quiet})
			if err != nil {
				return "", err
			}
			return s.Check(ctx)
		})
	}
	return out
}
