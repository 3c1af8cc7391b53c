package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// prometheus is a real Prometheus server that scrapes one agent every second.
type prometheus struct {
	*server
	v1.API
}

// startPrometheus starts a server for the agent at the address, with the rule
// file if one is given, and ends it with the test.
func startPrometheus(t *testing.T, address, ruleFile string) *prometheus {
	t.Helper()
	return startPrometheusWith(t, address, ruleFile, "")
}

// startPrometheusWith does it with further settings for all scrapes.
func startPrometheusWith(t *testing.T, address, ruleFile, settings string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s" + settings + "}\n" +
		"scrape_configs:\n- job_name: gpuvigil\n  static_configs:\n  - targets: ['" + address + "']\n"
	if ruleFile != "" {
		config += "rule_files: ['" + ruleFile + "']\n"
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := launch(tool(t, "prometheus"), []string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", s.log)
		}
	})
	listens, err := s.address()
	if err != nil {
		t.Fatalf("start Prometheus: %v\n%s", err, s.log)
	}
	client, err := api.NewClient(api.Config{Address: "http://" + listens})
	if err != nil {
		t.Fatal(err)
	}
	return &prometheus{s, v1.NewAPI(client)}
}

// ask evaluates an expression now and returns what it gives.
func (p *prometheus) ask(ctx context.Context, expr string) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	v, _, _, err := p.Query(ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, expr)
	}
	vector, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("a %s comes of %s", v.Type(), expr)
	}
	return vector, nil
}

// has is an error if the expression gives nothing.
func (p *prometheus) has(ctx context.Context, expr string) error {
	v, err := p.ask(ctx, expr)
	if err == nil && len(v) == 0 {
		err = errors.New("nothing comes of " + expr)
	}
	return err
}

// firing is an error if no alert of the name fires with the labels.
func (p *prometheus) firing(ctx context.Context, name string, labels model.LabelSet) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := p.Alerts(ctx)
	if err != nil {
		return err
	}
	for _, a := range r.Alerts {
		if a.State == v1.AlertStateFiring && a.Labels[model.AlertNameLabel] == model.LabelValue(name) && has(a.Labels, labels) {
			return nil
		}
	}
	return fmt.Errorf("no alert %s with %v fires; those that there are: %v", name, labels, r.Alerts)
}

func has(have, want model.LabelSet) bool {
	for name, value := range want {
		if have[name] != value {
			return false
		}
	}
	return true
}
