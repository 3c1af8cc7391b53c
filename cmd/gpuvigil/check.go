package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/config"
)

func addCheck(app *kingpin.Application) (string, command) {
	cmd := app.Command("check", "Check a configuration file and say all that is wrong with it.")
	example := cmd.Flag("example", "Print a configuration with every key, its default and its meaning, instead.").Bool()
	file := cmd.Arg("FILE", "The configuration file.").String()
	return cmd.FullCommand(), func(_ context.Context, p *program) error {
		switch {
		case *example:
			_, err := p.out.Write(config.Example)
			return err
		case *file == "":
			return wrongUsage{errors.New("no file given: gpuvigil check FILE, or gpuvigil check --example for one to start from")}
		}
		c, err := config.Load(*file)
		if err != nil {
			return err
		}
		_, priceErr := priceBook(c)
		if err := errors.Join(checkSecrets(c), checkFleetSecrets(c), priceErr); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s is valid: %s, %s\n", *file, number(len(c.Inference.Targets), "inference target"), receiverCount(&c.Alerting))
		if err == nil && c.Alerting.Route != nil {
			err = printRoutes(p.out, gate(c).Route, 0)
		}
		return err
	}
}

// receiverCount says how many are told, and of what kinds they are.
func receiverCount(a *config.Alerting) string {
	var kinds []string
	for _, k := range []struct {
		n    int
		what string
	}{{len(a.Slack), "Slack"}, {len(a.Alertmanager), "Alertmanager"}, {len(a.Webhook), "webhook"}} {
		if k.n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", k.n, k.what))
		}
	}
	all := len(a.Slack) + len(a.Alertmanager) + len(a.Webhook)
	if all == 0 {
		return "no receivers, so nobody is told"
	}
	return fmt.Sprintf("%s (%s)", number(all, "receiver"), strings.Join(kinds, ", "))
}
