package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/detect"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

func addPromote(app *kingpin.Application) (string, command) {
	cmd := app.Command("promote", "Say how often each rule has fired here lately and what promoting it would do; with a rule, print the change of the configuration that promotes it. Changes nothing itself.")
	state := addStateDir(cmd)
	id := cmd.Arg("RULE", "The rule to promote.").String()
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		if *id != "" && rules.Get(rules.ID(*id)) == nil {
			return wrongUsage{fmt.Errorf("no rule is called %q: gpuvigil promote lists them", *id)}
		}
		node, err := ask(ctx, *state)
		if err != nil {
			return unknown(p, err)
		}
		if *id == "" {
			return printRules(p.out, node.findings)
		}
		return printPromotion(p.out, node.findings, rules.Get(rules.ID(*id)))
	}
}

// printRules prints the rules with how often they fired.
func printRules(out io.Writer, f *server.Findings) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "rule\tat most\tfired in 7 days\tneeds\tif promoted\n")
	for _, s := range f.Rules {
		r := rules.Get(s.Rule)
		if r == nil {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", s.Rule, s.Severity, s.Fired, needs(s), consequence(s, r))
	}
	return w.Flush()
}

// needs says what the alert budget asks of a finding.
func needs(s detect.Standing) string {
	if !s.Statistical {
		return "a fact"
	}
	return fmt.Sprintf("%.1f nats", s.Need)
}

// consequence says what promoting the rule would change.
func consequence(s detect.Standing, r *rules.Rule) string {
	switch {
	case r.Pages && s.Severity < rules.Page:
		return fmt.Sprintf("nothing: it is on the list of those that page, and rules.%s.severity keeps it from it", s.Rule)
	case r.Pages:
		return "nothing: it pages out of the box"
	case s.Promoted:
		return "it is promoted; " + whenItPages(s)
	}
	return "also sent in the first days; " + whenItPages(s)
}

// whenItPages says what a promoted rule takes to wake somebody.
func whenItPages(s detect.Standing) string {
	switch {
	case s.Statistical && s.CleanWeeks < s.ProofWeeks:
		return fmt.Sprintf("no page by statistics before %.0f clean GPU-weeks, there are %.1f", s.ProofWeeks, s.CleanWeeks)
	case s.Severity < rules.Page && s.Statistical:
		return fmt.Sprintf("pages from %.1f nats on where rules.%s.severity is page", s.NeedPage, s.Rule)
	case s.Severity < rules.Page:
		return fmt.Sprintf("may page where rules.%s.severity is page", s.Rule)
	case s.Statistical:
		return fmt.Sprintf("pages from %.1f nats on", s.NeedPage)
	}
	return "may page"
}

func printPromotion(out io.Writer, f *server.Findings, r *rules.Rule) error {
	i := slices.IndexFunc(f.Rules, func(s detect.Standing) bool { return s.Rule == r.ID })
	if i < 0 {
		_, err := fmt.Fprintf(out, "# Rule %s does not run on this node: rules.%s.enabled is false, or the agent is of another release.\n", r.ID, r.ID)
		return err
	}
	s := f.Rules[i]
	if r.Pages || s.Promoted {
		_, err := fmt.Fprintf(out, "# Rule %s, %s in the last 7 days: %s.\n", r.ID, number(s.Fired, "finding"), consequence(s, r))
		return err
	}
	_, err := fmt.Fprintf(out, `# %s
# It had %s on %s in the last 7 days. If promoted it is
# %s.
# Put this into the configuration of each node, and reload the agents:
rules:
  %s:
    promoted: true
`, r.Title, number(s.Fired, "finding"), printable(f.Node), consequence(s, r), r.ID)
	return err
}
