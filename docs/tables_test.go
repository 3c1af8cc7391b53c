package docs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"

	"gpuvigil/collector/inference"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Budgets of series: more makes a monitor too dear for a large fleet.
const (
	budgetGPU  = 150
	budgetHost = 400

	budgetModel = 100
)

// span writes a duration as the configuration does.
func span(d time.Duration) string { return model.Duration(d).String() }

// alertTable lists what the generated rule file holds.
func alertTable(t *testing.T) string {
	source, err := rules.Prometheus(rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Record, Alert, Expr, For string
				Labels, Annotations      map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(source, &file); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			name, says := r.Alert, r.Annotations["description"]
			if name == "" {
				name, says = r.Record, "recorded"
			}
			severity := r.Labels["severity"]
			if severity == "" && r.Alert != "" {
				severity = "the finding's"
			}
			rows = append(rows, []string{"`" + name + "`", "`" + r.Expr + "`", severity, says})
		}
	}
	return table([]string{"rule", "expression", "severity", "what it means"}, rows)
}

// infos counts the entity's info rows: they have a series for each thing, or none.
func infos(e metric.Entity) (n int) {
	for _, d := range metric.Of(e) {
		if d.Kind == metric.Info {
			n++
		}
	}
	return n
}

// seriesOf counts the series that one entity has when every reading is reported.
// What is open-ended (an owner, an Xid code) is told apart.
func seriesOf(e metric.Entity) (fixed, open int) {
	for _, d := range metric.Of(e) {
		if d.Detail {
			continue
		}
		if len(d.Labels) > 0 && d.Kind != metric.Info {
			open++
			continue
		}
		width := d.Width()
		if d.Dim != nil && d.Dim.Shown > 0 {
			width = d.Dim.Shown
		}
		fixed += width
	}
	return fixed, open
}

// seriesTable says what a scrape costs. The budgets are held against a running
// agent in TestSeriesBudget.
func seriesTable() string {
	gpu, _ := seriesOf(metric.GPU)
	node, _ := seriesOf(metric.Node)
	agent, _ := seriesOf(metric.Agent)
	source, _ := seriesOf(metric.Source)
	instance, _ := seriesOf(metric.Instance)
	endpoint, _ := seriesOf(metric.Endpoint)
	latency, _ := seriesOf(metric.Latency)
	target := len(metric.Of(metric.Target)) - 1 // without the reasons
	account := 0
	for _, d := range metric.Of(metric.Account) {
		if !d.Detail {
			account++
		}
	}
	workload, _ := seriesOf(metric.Workload)
	port, _ := seriesOf(metric.Interface)
	budget := fmt.Sprintf("\nA test counts the series of a running agent and fails above %d for a GPU, %d for the host or %d for a model.\n", budgetGPU, budgetHost, budgetModel)
	return table([]string{"for each", "series", "and one more for each"}, [][]string{
		{"GPU that reports what any generation can", fmt.Sprint(gpu), "two for each owner who uses it and one for each who was given it; price; metric that is not supported (instead of it) or whose values were dropped; two for each Xid code that fell"},
		{"MIG instance", fmt.Sprint(instance), ""},
		{"host, with the agent itself", fmt.Sprint(node + agent), "version of a component; image, data set, port and, if they are looked at, library of an owner; three for each owner and model of GPU; five of a team that has a budget or spends; rule, receiver and reason in the agent's own counters"},
		{"source (NVML, host, agent, owner, kubelet, movement, interfaces, inventory, textfile, inference)", fmt.Sprint(source), ""},
		{"model of an inference server, of at most 64 of a page", fmt.Sprint(endpoint), fmt.Sprintf("bucket of its %d histograms, of at most 15 each; a model that tells all of it has fewer than %d series", latency, budgetModel)},
		{"metrics page of inference servers", fmt.Sprint(target), "reason why it cannot be read"},
		{"owner of a GPU, for each state that he had of it within the hour", fmt.Sprint(account), ""},
		{"owner with a process on a GPU, of at most 32", fmt.Sprint(workload - infos(metric.Workload)), "fact that is absent, with the reason; 15 of them, a figure of quality, and up to 13 for what its work came to, only if it tells of its own work; inference server"},
		{"port of an InfiniBand or RoCE adapter, of at most 16", fmt.Sprint(port), ""},
		{"finding that fires", fmt.Sprint(len(metric.Of(metric.Finding))), ""},
	}) + budget
}

// engineTable lists where each inference server's signals are read from.
func engineTable() string {
	var rows [][]string
	for _, m := range inference.Mappings() {
		engine := "`" + m.Engine + "`"
		for _, s := range m.Signals {
			rows = append(rows, []string{engine, "`" + strings.TrimPrefix(s.Row.Name, "vigil_inference_") + "`", "`" + strings.Join(s.From, "`, `") + "`"})
			engine = ""
		}
		for _, n := range m.Notes {
			rows = append(rows, []string{"", "", n})
		}
	}
	return table([]string{"engine", "`vigil_inference_…`", "read from"}, rows)
}
