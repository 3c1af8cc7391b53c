package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/internal/metric"
)

// startFleet starts the cluster role and ends it with the test.
func startFleet(t *testing.T, config, address string) *agent {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := launchAgent(options{command: "fleet", file: file, state: filepath.Join(shortDir(t), "state"), address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.end()
		if t.Failed() {
			t.Logf("the role's log:\n%s", a.log)
		}
	})
	return a
}

// A real Prometheus scrapes a demo and sends what it has to the role, in both versions of
// the protocol. The role gathers the agent's findings, and sends its own back.
func TestFleetReceivesFromPrometheus(t *testing.T) {
	t.Parallel()
	demo := startAgent(t, options{command: "demo"})
	f := func(t *testing.T, version string) {
		t.Parallel()
		roleAddress := freeAddress(t)
		p := newPrometheus(t, fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\n"+
			"scrape_configs:\n- {job_name: gpuvigil, static_configs: [{targets: ['%s']}]}\n"+
			"remote_write:\n- {url: 'http://%s/api/v1/write', protobuf_message: %s, queue_config: {batch_send_deadline: 1s}, metadata_config: {send_interval: 1s}}\n", demo.address, roleAddress, version))
		p.start(t)
		role := startFleet(t, fmt.Sprintf("fleet:\n  receive: {enabled: true, interval: 2s, grace: 3s}\n  remote_write: {url: '%s', interval: 1s}\n", p.write), roleAddress)
		eventually(t, "the role has findings of the demo, and Prometheus has them back", func() error {
			err := p.has(t.Context(), fmt.Sprintf("%s{job=\"gpuvigil-fleet\",node!=\"cluster\"}", metric.FleetFinding))
			if err != nil {
				page, _ := role.get("/metrics")
				err = errors.New(err.Error() + "; the role's page says:\n" + strings.Join(grep(page, "vigil_fleet", "vigil_remote_write", "vigil_push"), "\n"))
			}
			return err
		})
		for _, fate := range []string{"labels", "no_name", "label_limits", "ahead"} {
			if n, err := role.number(metric.WriteSamples.Series(fate)); err != nil || n != 0 {
				t.Errorf("%v of the samples that a real Prometheus sends are %s, %v", n, fate, err)
			}
		}
		for _, outcome := range metric.WriteOutcomes {
			if n, err := role.number(metric.WriteRequests.Series(outcome)); err != nil || (n > 0) != (outcome == "taken") {
				t.Errorf("%v requests are %s, %v", n, outcome, err)
			}
		}
		if n, err := role.number(metric.WriteCut.Name); err != nil || n > 1 {
			t.Errorf("a cut takes %v s, %v", n, err)
		}
		p.end() // before the role: it waits a minute for one that has gone
	}
	t.Run("version 1", func(t *testing.T) { f(t, "prometheus.WriteRequest") })
	t.Run("version 2", func(t *testing.T) { f(t, "io.prometheus.write.v2.Request") })
}

// grep returns the lines that begin with one of the words.
func grep(page string, words ...string) (out []string) {
	for line := range strings.Lines(page) {
		for _, w := range words {
			if strings.HasPrefix(line, w) {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// What is received must come from this machine or from somebody who has said who he is.
func TestFleetReceivesFromNobodyElse(t *testing.T) {
	t.Parallel()
	role := startFleet(t, "fleet: {receive: {enabled: true}}\n", "127.0.0.1:0")
	req, err := http.NewRequest(http.MethodPost, "http://"+role.address+"/api/v1/write", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("what a proxy forwards is answered %s, want 403", r.Status)
	}
}
