package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/rules"
)

// TestPromtool holds what Prometheus reads from us against its own checks.
func TestPromtool(t *testing.T) {
	t.Parallel()
	t.Run("metrics of the demo", func(t *testing.T) { lint(t, demoNode.running(t).agent) })
	t.Run("metrics with a driver", func(t *testing.T) {
		a := newDriver(t, 4).start(options{})
		a.ready(t)
		lint(t, a)
	})
	dir := generate(t, "rules")
	rulesFile := filepath.Join(dir, rules.RulesFile)
	if code, said := runs(t, nil, tool(t, "promtool"), "check", "rules", "--lint=all", "--lint-fatal", rulesFile); code != 0 {
		t.Errorf("promtool does not like the generated rules:\n%s", said)
	}
	if code, said := runs(t, nil, tool(t, "promtool"), "test", "rules", filepath.Join(dir, rules.PromtoolTestsFile)); code != 0 {
		t.Errorf("the generated rules do not pass their own tests:\n%s", said)
	}
	var plain, manifest struct {
		Groups any `yaml:"groups"`
		Spec   struct {
			Groups any `yaml:"groups"`
		} `yaml:"spec"`
	}
	read(t, rulesFile, &plain)
	read(t, filepath.Join(dir, rules.PrometheusRuleFile), &manifest)
	if diff := cmp.Diff(plain.Groups, manifest.Spec.Groups); diff != "" || plain.Groups == nil {
		t.Errorf("the PrometheusRule has other rules than the rule file (-file +manifest):\n%s", diff)
	}
}

// generate runs one of the commands that write files, and returns where they are.
func generate(t *testing.T, command string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), command)
	if code, said := runs(t, nil, binary, command, "-o", dir); code != 0 {
		t.Fatalf("gpuvigil %s exits %d:\n%s", command, code, said)
	}
	return dir
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lint gives a scrape to promtool, and looks for what it does not.
func lint(t *testing.T, a *agent) {
	t.Helper()
	page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), tool(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("promtool does not like the metrics: %v\n%s", err, said)
	}
	for line := range strings.Lines(page) {
		if line[0] != '#' && !strings.HasPrefix(line, "vigil_") {
			t.Errorf("a metric that is not in our namespace: %s", line)
		}
	}
}
