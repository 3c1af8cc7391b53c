package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"gpuvigil/dashboards"
	"gpuvigil/internal/metric"
)

// variables are what Grafana puts in the place of its variables.
var variables = strings.NewReplacer(
	"$"+dashboards.VarInstance, ".*", "$"+dashboards.VarGPU, ".*", "$"+dashboards.VarOwner, ".*", "$__rate_interval", "10s", "$__range", "30s",
)

// excuses are parts of expressions that may have no answer, with the reason.
type excuses map[string]string

// nowhere is what neither the demo nor a simulated node behind the fake driver has.
var nowhere = excuses{
	"vigil_mig_":                                        "no GPU is in MIG mode",
	metric.FanSpeed.Name:                                "the board has no fan of its own",
	"vigil_gpu_nvlink5_":                                "the board has NVLink 4",
	"vigil_gpu_retired_":                                "the board replaces rows, it does not retire pages",
	metric.GPUDropped.Name:                              "the driver returns no value that cannot be",
	"vigil_nvswitch_":                                   "no NVSwitch has an error",
	metric.MovementErrors.Name:                          "every file of owners can be read",
	metric.TargetFailing.Name:                           "every page can be read",
	metric.TextfileErrors.Name:                          "every file counts",
	metric.TeamProjection.Name:                          "three whole days are not known",
	metric.DetectorSeconds.Name:                         "it is in the full profile",
	metric.DetectorPanics.Name:                          "no detector fails",
	metric.FindingsCapped.Name:                          "no rule reaches its limit",
	metric.FindingsSuppressed.Name:                      "the node is not drained",
	metric.ObservationsDropped.Name:                     "no detector says what is no number",
	metric.SeriesCapped.Name:                            "nothing reaches its limit of series",
	metric.OwnerReadFailures.Name:                       "every process can be read",
	metric.FunctionErrors.Name:                          "no call of the driver fails",
	metric.AlertsMuted.Name:                             "no Alertmanager is told",
	metric.Drained.Name:                                 "no file says that the node is drained",
	metric.PageFailures.Name:                            "no source reads the page of another exporter",
	" unless on (instance) " + metric.OutboxLength.Name: "stands in where no receiver is configured",
}

// nobodyTells are the panels of what nowhere has.
var nobodyTells = []string{"overview: NVSwitch errors by code", "overview: How full the MIG instances are", "inference: Pages that cannot be read, and why", "workload: Files that do not count"}

// mayTell are the panels that have data if something happens to fail: a process that
// ends while it is read.
var mayTell = []string{"movement: Files that could not be read"}

// nowAndThen is what a server tells only while requests wait or its cache fills:
// whether there is any depends on when one looks.
var nowAndThen = []string{metric.ServerUtilization.Name, metric.QueueConsistency.Name, metric.KVCacheTimeToFull.Name}

// checkDashboards asks the server everything that the dashboards ask it. Each
// answer must have data but for the excuses, and each panel one such answer but
// for those in empty.
func checkDashboards(t *testing.T, p *prometheus, excused excuses, empty ...string) {
	t.Helper()
	panels := map[string]bool{}
	for _, d := range dashboards.All() {
		asked, err := d.Expressions()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range asked {
			name := d.Name + ": " + e.Panel
			expr := variables.Replace(e.Expr)
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(expr); err != nil {
				t.Errorf("panel %q asks what is no PromQL: %v", name, err)
				continue
			}
			v, err := p.ask(t.Context(), expr)
			// A reading may be absent at one instant: the kernel's clocks need not advance
			// between two samples.
			for tries := 0; err == nil && len(v) == 0 && !excuse(expr, excused) && d.Name != "queues" && tries < 30; tries++ {
				time.Sleep(time.Second)
				v, err = p.ask(t.Context(), expr)
			}
			if err != nil {
				t.Errorf("panel %q: Prometheus refuses %v", name, err)
				continue
			}
			if d.Name == "queues" { // of the cluster role, which does not run here
				continue
			}
			if slices.ContainsFunc(nowAndThen, func(row string) bool { return strings.Contains(expr, row) }) {
				continue
			}
			panels[name] = panels[name] || len(v) > 0
			if len(v) == 0 && !excuse(expr, excused) {
				t.Errorf("panel %q has no answer to %s", name, expr)
			}
		}
	}
	if len(panels) < 30 {
		t.Fatalf("only %d panels were found: the test would prove nothing", len(panels))
	}
	for name, full := range panels {
		if !slices.Contains(mayTell, name) && full == slices.Contains(append(empty, nobodyTells...), name) {
			t.Errorf("panel %q has data: %v; it must have unless the test says that it has none", name, full)
		}
	}
}

func excuse(expr string, excused excuses) bool {
	for _, list := range []excuses{excused, nowhere} {
		for part := range list {
			if strings.Contains(expr, part) {
				return true
			}
		}
	}
	return false
}
