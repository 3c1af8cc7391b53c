package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"gpuvigil/dashboards"
	"gpuvigil/internal/metric"
)

// TestQueuesInPrometheus lets a real Prometheus scrape what the cluster role says of a
// cluster of Slurm and of one of Kubernetes, and asks what the dashboard asks: each
// panel has an answer.
func TestQueuesInPrometheus(t *testing.T) {
	t.Parallel()
	serve := func(page string) string {
		content, err := os.ReadFile("../internal/fleet/testdata/" + page)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			if _, err := w.Write(content); err != nil {
				t.Log(err) // Prometheus has ended
			}
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	p := startPrometheus(t, serve("page.prom")+"', '"+serve("kubernetes.prom"), "")
	eventually(t, "Prometheus has scraped both for as long as the dashboard looks back", func() error {
		for _, scheduler := range []string{"slurm", "kubernetes"} {
			if err := p.has(t.Context(), fmt.Sprintf("%[1]s{scheduler=%[2]q} and %[1]s{scheduler=%[2]q} offset 5s", metric.SchedulerUp, scheduler)); err != nil {
				return err
			}
		}
		return nil
	})
	asked := 0
	for _, d := range dashboards.All() {
		if d.Name != "queues" {
			continue
		}
		all, err := d.Expressions()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			asked++
			expr := variables.Replace(e.Expr)
			if strings.Contains(expr, "vigil_fleet_") {
				continue // these pages are of a role that is given no nodes
			}
			if v, err := p.ask(t.Context(), expr); err != nil || len(v) == 0 {
				t.Errorf("panel %q has %d answers to %s, error %v", e.Panel, len(v), expr, err)
			}
		}
	}
	if asked < 20 {
		t.Errorf("the dashboard asked %d times: the test would prove nothing", asked)
	}
}
