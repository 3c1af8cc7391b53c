// Gpuvigil watches GPU-backed AI workloads on one node and says, statistically
// and with evidence, what is wrong with them: to Prometheus, on a page, in the
// terminal and in Slack. See `gpuvigil help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// program is what every command has at hand.
type program struct {
	out  io.Writer // results
	errs io.Writer
	log  *slog.Logger
}

// command runs after the flags are parsed. Its exit code is 0, unless it says
// otherwise with an exitCode or fails.
type command func(ctx context.Context, p *program) error

// exitCode is an error that only carries an exit code: what there is to say has
// been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// wrongUsage is an error about the command line: what stands there cannot be meant.
type wrongUsage struct{ error }

func (w wrongUsage) Unwrap() error { return w.error }

// usageCode is the exit code of a command that was called wrongly: that of what cannot be
// known, which is no other answer of any command. Nobody is woken by a mistyped status.
func usageCode(command string) int {
	if command == "health" {
		return int(exitHealthUnknown)
	}
	return int(exitUnknown)
}

// commandOf returns the command that the arguments name, also if the rest of them is
// wrong; empty if they name none.
func commandOf(app *kingpin.Application, args []string) string {
	parsed, _ := app.ParseContext(args) // what is wrong has been said
	if parsed == nil || parsed.SelectedCommand == nil {
		return ""
	}
	return parsed.SelectedCommand.FullCommand()
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("gpuvigil", "Monitoring and anomaly detection for GPU-backed AI workloads.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("gpuvigil"))
	app.UsageWriter(stderr).ErrorWriter(stderr)
	terminated := false
	app.Terminate(func(int) { terminated = true }) // --help prints and ends
	logConfig := &promslog.Config{Writer: stderr}
	promslogflag.AddFlags(app, logConfig)

	commands := map[string]command{}
	for _, add := range []func(*kingpin.Application) (string, command){
		addRun, addDemo, addStatus, addWhy, addPromote, addInventory, addHealth, addCheck, addDoctor, addDashboards, addRules, addRecord, addCostReport, addBudgetReport, addFleet, addBacktest, addRelease, addAck, addUnack, addSnooze, addDrill, addNotifyTest, addRoutesTest, addMaintenanceList, addMaintenanceStart, addMaintenanceEnd, addVersion, addChild,
	} {
		name, c := add(app)
		commands[name] = c
	}
	name, err := app.Parse(args)
	if terminated {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpuvigil: %v. Try gpuvigil help.\n", named(app, args, err))
		return usageCode(commandOf(app, args))
	}
	err = commands[name](ctx, &program{out: stdout, errs: stderr, log: promslog.New(logConfig)})
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "gpuvigil %s: %v\n", name, err)
	if errors.As(err, new(wrongUsage)) {
		return usageCode(name)
	}
	return 1
}

func addVersion(app *kingpin.Application) (string, command) {
	cmd := app.Command("version", "Print the version.")
	return cmd.FullCommand(), func(_ context.Context, p *program) error {
		_, err := fmt.Fprintln(p.out, version.Print("gpuvigil"))
		return err
	}
}
