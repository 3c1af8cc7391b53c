package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/internal/config"
	"gpuvigil/rules"
)

func addRoutesTest(app *kingpin.Application) (string, command) {
	cmd := app.Command("routes", "See who is told of what.").Command("test", "Say which receivers an incident with these labels comes to by the routes of a configuration. What keeps it back for a while is not looked at.")
	file := cmd.Flag("config.file", "The configuration file.").Required().String()
	pairs := cmd.Arg("LABEL=VALUE", "Labels, such as severity=page team=nlp.").Strings()
	return cmd.FullCommand(), func(_ context.Context, p *program) error {
		set, err := labelSet(*pairs)
		if err != nil {
			return err
		}
		cfg, err := config.Load(*file)
		if err != nil {
			return err
		}
		return printReceivers(p.out, cfg, set)
	}
}

// labelSet reads labels as people write them.
func labelSet(pairs []string) (model.LabelSet, error) {
	set := model.LabelSet{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !slices.Contains(config.MatchedLabels, name) {
			return nil, wrongUsage{fmt.Errorf("found %.60q, allowed: LABEL=VALUE, with a label of %s", pair, strings.Join(config.MatchedLabels, ", "))}
		}
		if _, twice := set[model.LabelName(name)]; twice {
			return nil, wrongUsage{fmt.Errorf("found %.60q after another %s, allowed: each label once", pair, name)}
		}
		value = strings.Trim(value, `"`)
		if err := config.CheckMatchers([]string{fmt.Sprintf("%s=%q", name, value)}); err != nil {
			return nil, wrongUsage{err}
		}
		set[model.LabelName(name)] = model.LabelValue(value)
	}
	return set, nil
}

// leastSevere returns what each receiver is told of at least.
func leastSevere(cfg *config.Config) map[string]rules.Severity {
	out := map[string]rules.Severity{}
	for i := range cfg.Alerting.Slack {
		out[cfg.Alerting.Slack[i].Name] = *cfg.Alerting.Slack[i].MinSeverity
	}
	for i := range cfg.Alerting.Webhook {
		out[cfg.Alerting.Webhook[i].Name] = *cfg.Alerting.Webhook[i].MinSeverity
	}
	for i := range cfg.Alerting.Alertmanager {
		out[cfg.Alerting.Alertmanager[i].Name] = *cfg.Alerting.Alertmanager[i].MinSeverity
	}
	return out
}

// printReceivers prints a line for each receiver that the labels come to.
func printReceivers(out io.Writer, cfg *config.Config, set model.LabelSet) error {
	least := leastSevere(cfg)
	severity, err := rules.ParseSeverity(string(set["severity"]))
	graded := err == nil
	if cfg.Alerting.Route == nil {
		_, err := fmt.Fprintln(out, "no alerting.route is configured: every receiver hears of what is severe enough for it")
		return err
	}
	told := map[string]bool{}
	for _, r := range gate(cfg).Route.Match(set) {
		if r.Receiver == "" || told[r.Receiver] {
			continue
		}
		told[r.Receiver] = true
		if graded && severity < least[r.Receiver] {
			if _, err := fmt.Fprintf(out, "%s is not told: its min_severity is %s\n", r.Receiver, least[r.Receiver]); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintln(out, describe(r)); err != nil {
			return err
		}
	}
	if len(told) == 0 {
		_, err := fmt.Fprintln(out, "nobody")
		return err
	}
	return nil
}

// describe says a route in a line.
func describe(r *alerting.Route) string {
	text := r.Receiver
	if text == "" {
		text = "nobody"
	}
	add := func(format string, args ...any) { text += ", " + fmt.Sprintf(format, args...) }
	if len(r.Mute) > 0 {
		add("muted in %s", strings.Join(r.Mute, " and "))
	}
	if len(r.Active) > 0 {
		add("only in %s", strings.Join(r.Active, " or "))
	}
	if r.Repeat > 0 {
		add("again every %s", config.Duration(r.Repeat))
	}
	if len(r.Mentions) > 0 {
		add("pages call %s", strings.Join(r.Mentions, " "))
	}
	return text
}

// printRoutes prints the tree of routes, a line for each.
func printRoutes(out io.Writer, r *alerting.Route, depth int) error {
	line := strings.Repeat("  ", depth)
	if len(r.Matchers) > 0 {
		line += r.Matchers.String() + " "
	}
	line += "-> " + describe(r)
	if r.Continue {
		line += ", continue"
	}
	if _, err := fmt.Fprintln(out, line); err != nil {
		return err
	}
	for _, below := range r.Routes {
		if err := printRoutes(out, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}
