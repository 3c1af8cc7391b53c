// Package dashboards makes the Grafana dashboards from the catalogue: names,
// labels, units and descriptions come from metric.Def, so a renamed metric cannot
// leave a panel empty.
//
// The JSON is checked by the Grafana Foundation SDK's strict reader, each
// expression is parsed and evaluated by a real Prometheus in the end-to-end
// tests, but the dashboards were not opened in a running Grafana.
package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// The template variables of the dashboards. In expressions they stand as
// $instance, $gpu and $owner, beside Grafana's own $__rate_interval and $__range.
const (
	VarDatasource = "datasource" // the Prometheus to ask
	VarInstance   = "instance"   // agents by their scrape address
	VarGPU        = "gpu"        // GPUs by their index on the node
	VarOwner      = "owner"      // workloads by whose they are
)

// Dashboard is one dashboard. Name is its file name without .json.
type Dashboard struct {
	Name  string
	Build func() (dashboard.Dashboard, error)
}

// Expression is one PromQL expression that a dashboard asks.
type Expression struct {
	Panel   string // title of the panel, or name of the annotation
	PanelID uint32 // 0 for an annotation
	Expr    string // with the template variables in it
	Instant bool   // asked for now only, not over the time range
}

// All returns every dashboard.
func All() []Dashboard {
	return []Dashboard{
		{"overview", overview},
		{"inventory", inventory},
		{"movement", movement},
		{"costs", costs},
		{"inference", inference},
		{"queues", queues},
		{"workload", workload},
	}
}

// JSON returns the dashboard as a file for Grafana: indented, ending in a
// newline, the same bytes each time.
func (d Dashboard) JSON() ([]byte, error) {
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("build dashboard %s: %w", d.Name, err)
	}
	out, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard %s: %w", d.Name, err)
	}
	return append(out, '\n'), nil
}

// Expressions returns what the panels and annotations of the dashboard ask, in
// the order in which they are drawn.
func (d Dashboard) Expressions() ([]Expression, error) {
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("build dashboard %s: %w", d.Name, err)
	}
	var found []Expression
	for _, a := range built.Annotations.List {
		if a.Expr != nil {
			found = append(found, Expression{Panel: a.Name, Expr: *a.Expr})
		}
	}
	for _, p := range built.Panels {
		if p.Panel == nil {
			continue
		}
		for _, target := range p.Panel.Targets {
			q, ok := target.(prometheus.Dataquery)
			if !ok {
				return nil, fmt.Errorf("dashboard %s: panel %q asks with a %T, not with PromQL", d.Name, *p.Panel.Title, target)
			}
			found = append(found, Expression{
				Panel:   *p.Panel.Title,
				PanelID: *p.Panel.Id,
				Expr:    q.Expr,
				Instant: q.Instant != nil && *q.Instant,
			})
		}
	}
	return found, nil
}
