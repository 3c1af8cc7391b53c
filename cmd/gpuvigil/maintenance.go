package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/alerting"
	"gpuvigil/internal/config"
	"gpuvigil/internal/server"
)

func addMaintenanceList(app *kingpin.Application) (string, command) {
	cmd := maintenanceCommand(app).Command("list", "Print the maintenance windows: those of the configuration and those that somebody has begun.").Default()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		return askMaintenance(ctx, p, *state, func(ctx context.Context, c *server.Client) ([]server.Maintenance, error) { return c.Maintenance(ctx) })
	}
}

func addMaintenanceStart(app *kingpin.Application) (string, command) {
	cmd := maintenanceCommand(app).Command("start", "Begin a window now, in which what it matches is told nobody; what still fires when it is over is told then.")
	name := cmd.Arg("NAME", "What it is called in messages and logs.").Required().String()
	matchers := cmd.Arg("MATCHER", "What is maintained, in Alertmanager's notation, such as 'node=~\"gpu-1.*\"' or team=nlp. All must match.").Required().Strings()
	d := cmd.Flag("for", "How long it holds, unless it is ended before.").Default("2h").Duration()
	by := cmd.Flag("by", "Who says so. Default: your user's name.").String()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		who, err := whoami(*by)
		if err != nil {
			return err
		}
		return askMaintenance(ctx, p, *state, func(ctx context.Context, c *server.Client) ([]server.Maintenance, error) {
			return c.Maintain(ctx, *name, *matchers, *d, who)
		})
	}
}

func addMaintenanceEnd(app *kingpin.Application) (string, command) {
	cmd := maintenanceCommand(app).Command("end", "End a window that somebody has begun: what still fires is told at once.")
	name := cmd.Arg("NAME", "What it is called.").Required().String()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		return askMaintenance(ctx, p, *state, func(ctx context.Context, c *server.Client) ([]server.Maintenance, error) {
			return c.EndMaintenance(ctx, *name)
		})
	}
}

func maintenanceCommand(app *kingpin.Application) *kingpin.CmdClause {
	if cmd := app.GetCommand("maintenance"); cmd != nil {
		return cmd
	}
	return app.Command("maintenance", "Keep what is maintained from ringing anybody.")
}

// askMaintenance asks a running agent, or the cluster role, and prints the windows that it
// answers with.
func askMaintenance(ctx context.Context, p *program, state string, ask func(context.Context, *server.Client) ([]server.Maintenance, error)) error {
	client, err := agentClient(state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	all, err := ask(ctx, client)
	if err != nil {
		return err
	}
	lines := []string{"no maintenance window"}
	if len(all) > 0 {
		lines = nil
	}
	for _, m := range all {
		word := "later"
		if m.Holds {
			word = "now"
		}
		lines = append(lines, word+"\t"+printable(m.String()))
	}
	_, err = fmt.Fprintln(p.out, strings.Join(lines, "\n"))
	return err
}

// maintenance returns the windows, with what they keep back.
func (d *desk) maintenance() []server.Maintenance {
	out := []server.Maintenance{}
	for _, m := range d.outbox.Maintenance(slices.Concat(d.outbox.Drills(), d.incidents())) {
		out = append(out, server.Maintenance(m))
	}
	return out
}

// maintain begins a window. Its matchers may ask for what those of the configuration may.
func (d *desk) maintain(m server.Maintenance) error {
	if err := d.elsewhere(); err != nil {
		return err
	}
	if err := config.CheckMatchers(m.Matchers); err != nil {
		return fmt.Errorf("begin maintenance %s: %w", m.Name, err)
	}
	err := d.outbox.BeginMaintenance(alerting.Begun{Name: m.Name, Matchers: m.Matchers, To: m.To, By: m.By})
	if err != nil {
		return err
	}
	poke(d.senders())
	d.log.Info("Maintenance has begun.", "name", m.Name, "matchers", strings.Join(m.Matchers, ", "), "until", m.To.UTC().Format(time.RFC3339), "by", m.By)
	return nil
}

func (d *desk) endMaintenance(name string) error {
	if err := d.elsewhere(); err != nil {
		return err
	}
	if err := d.outbox.EndMaintenance(name); err != nil {
		return err
	}
	poke(d.senders())
	d.log.Info("Maintenance was ended.", "name", name)
	return nil
}
