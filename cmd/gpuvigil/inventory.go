package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/collector"
	"gpuvigil/collector/inventory"
	"gpuvigil/internal/config"
	"gpuvigil/internal/server"
)

func newInventory(cfg *config.Config, snapshot func() *collector.Snapshot, log *slog.Logger) *inventory.Source {
	c := inventory.Config{
		ProcFS: cfg.Host.ProcFS, SysFS: cfg.Host.SysFS, Root: cfg.Inventory.Root, Runtimes: cfg.Inventory.Runtimes,
		Snapshot: snapshot, Log: log.With("component", inventory.SourceName),
	}
	if len(cfg.Inventory.ApprovedModels) > 0 {
		c.Approved = cfg.Inventory.ApprovedModels
	}
	return inventory.New(c)
}

// latest is the last snapshot, nil before the first.
func (p *pipeline) latest() *collector.Snapshot {
	if p.sampler == nil {
		return nil
	}
	return p.sampler.Latest()
}

func addInventory(app *kingpin.Application) (string, command) {
	cmd := app.Command("inventory", "List what runs on this node: components and their versions, libraries and frameworks that GPU processes have loaded, images, data sets, models, the ports at which they are served, and what has changed.")
	format := cmd.Flag("format", "table or json.").Default("table").Enum("table", "json")
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		client, err := agentClient(*state)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		answer, err := client.Inventory(ctx)
		if err != nil {
			return err
		}
		if *format == "json" {
			e := json.NewEncoder(p.out)
			e.SetIndent("", "  ")
			return e.Encode(answer)
		}
		return printInventory(p.out, answer)
	}
}

func printInventory(out io.Writer, a *server.Inventory) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	taken := "not looked at yet"
	if !a.At.IsZero() {
		taken = "as of " + since(a.At, a.Time)
	}
	fmt.Fprintf(w, "%s  %s%s\n", printable(a.Node), taken, map[bool]string{true: "; SIMULATED"}[a.Simulated])
	table := func(head string, rows int, row func(i int) []string) { printTable(w, head, rows, row) }
	table("COMPONENT\tVERSION", len(a.Versions), func(i int) []string { return []string{a.Versions[i].Component, a.Versions[i].Value} })
	table("OWNER\tLOADED\tVERSION\tPROCESSES", len(a.Runtimes), func(i int) []string {
		r := a.Runtimes[i]
		return []string{withTeam(r.Owner), r.Component, r.Version, strconv.Itoa(r.Processes)}
	})
	table("OWNER\tCONTAINER\tIMAGE\tDIGEST", len(a.Images), func(i int) []string {
		m := a.Images[i]
		return []string{withTeam(m.Owner), m.Container, m.Name, m.Digest}
	})
	table("OWNER\tDATA\tSOURCE\tMOUNT", len(a.Datasets), func(i int) []string {
		d := a.Datasets[i]
		return []string{everybody(d.Owner), d.Kind, d.Source, d.Mount}
	})
	table("OWNER\tPORT\tREACHED FROM\tTLS\tENGINE\tMODEL\tAPPROVED", len(a.APIs), func(i int) []string {
		s := a.APIs[i]
		return []string{withTeam(s.Owner), strconv.Itoa(s.Port), s.Scope, yesNo(s.TLS), s.Engine, s.Model, yesNo(s.Approved)}
	})
	table("CHANGED\tOWNER\tWHAT", len(a.Changes), func(i int) []string {
		e := a.Changes[i]
		who := e.Owner.String()
		if e.Owner == (collector.Owner{}) {
			who = "node"
		}
		return []string{e.Time.UTC().Format("2006-01-02 15:04:05 UTC"), who, changeText(e)}
	})
	for _, u := range a.Unread {
		fmt.Fprintf(w, "\nnot all was read of %d processes: %s", u.Processes, printable(u.Reason))
	}
	for _, absent := range a.Absent {
		fmt.Fprintf(w, "\nnot known: %s", printable(absent))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// printTable writes a table that has rows.
func printTable(w io.Writer, head string, rows int, row func(i int) []string) {
	if rows > 0 {
		fmt.Fprintf(w, "\n%s\n", head)
	}
	for i := range rows {
		cells := row(i)
		for k := range cells {
			cells[k] = cmp.Or(printable(cells[k]), "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// everybody is the owner of data, which may be mounted for all.
func everybody(o collector.Owner) string {
	if o == (collector.Owner{}) {
		return "everybody"
	}
	return withTeam(o)
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return "yes"
	}
	return "no"
}

// changeText says what changed, without whose it is.
func changeText(e collector.Event) string {
	what := e.Component
	if e.Component == "dataset" {
		what = strings.TrimSpace(e.Text + " data set")
	}
	switch {
	case e.From == "":
		return what + " " + e.To + " came"
	case e.To == "":
		return what + " " + e.From + " went"
	}
	return fmt.Sprintf("%s changed from %s to %s", what, e.From, e.To)
}
