package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/dashboards"
	"gpuvigil/rules"
)

func addDashboards(app *kingpin.Application) (string, command) {
	cmd := app.Command("dashboards", "Write the Grafana dashboards, one JSON file each.")
	dir := cmd.Flag("output", "Directory to write to; it is made if it is not there.").Short('o').Required().String()
	return cmd.FullCommand(), func(_ context.Context, p *program) error {
		files := map[string][]byte{}
		for _, d := range dashboards.All() {
			json, err := d.JSON()
			if err != nil {
				return fmt.Errorf("build dashboard %s: %w", d.Name, err)
			}
			files[d.Name+".json"] = json
		}
		return writeFiles(p, *dir, files)
	}
}

func addRules(app *kingpin.Application) (string, command) {
	cmd := app.Command("rules", "Write the Prometheus rules: a plain rule file, a PrometheusRule manifest, and tests for promtool.")
	dir := cmd.Flag("output", "Directory to write to; it is made if it is not there.").Short('o').Required().String()
	runbook := cmd.Flag("runbook.url", "URL that a rule's name is appended to, such as https://wiki.example/runbooks#, for the alerts' runbook_url; without it they name the page in the docs.").String()
	return cmd.FullCommand(), func(_ context.Context, p *program) error {
		files := map[string][]byte{}
		for name, build := range map[string]func(rules.Options) ([]byte, error){
			"gpuvigil.rules.yml":          rules.Prometheus,
			"gpuvigil.prometheusrule.yml": rules.PrometheusRule,
			"gpuvigil.rules.test.yml":     rules.PromtoolTests,
		} {
			content, err := build(rules.Options{RunbookURL: *runbook})
			if err != nil {
				return fmt.Errorf("build %s: %w", name, err)
			}
			files[name] = content
		}
		return writeFiles(p, *dir, files)
	}
}

// writeFiles replaces each file as a whole, so that a reader never sees half of one.
func writeFiles(p *program, dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the output directory: %w", err)
	}
	for _, name := range sortedKeys(files) {
		path := filepath.Join(dir, name)
		temp := path + ".tmp"
		if err := os.WriteFile(temp, files[name], 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if err := os.Rename(temp, path); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if _, err := fmt.Fprintln(p.out, path); err != nil {
			return err
		}
	}
	return nil
}
