package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// page is a dashboard before it is built: what differs between one and another.
type page struct {
	uid, title, description string

	from     *metric.Def // whose instances one may choose among; nil: agents
	since    string      // how far back it shows at first: 3h
	refresh  string
	gpus     bool // one may choose among GPUs
	owners   bool // one may choose among workloads
	findings bool // findings are marked on the time axis
	rows     []row
}

// row is a heading and the panels below it.
type row struct {
	id     uint32
	title  string
	panels []cog.Builder[dashboard.Panel]
}

func (p page) build() (dashboard.Dashboard, error) {
	title, from := "Agent", metric.NodeInfo
	if p.from != nil {
		title, from = "Cluster role", p.from
	}
	b := dashboard.NewDashboardBuilder(p.title).
		Uid(p.uid).
		Description(p.description).
		Tags([]string{"gpuvigil"}).
		Time("now-"+p.since, "now").Refresh(p.refresh).Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder(VarDatasource).Label("Data source").Type("prometheus")).
		WithVariable(choice(VarInstance, title, fmt.Sprintf("label_values(%s, instance)", from)))
	if p.gpus {
		b = b.WithVariable(choice(VarGPU, "GPU", fmt.Sprintf(`label_values(%s{instance=~"$%s"}, gpu)`, metric.GPUInfo, VarInstance)))
	}
	if p.owners {
		b = b.WithVariable(choice(VarOwner, "Workload", fmt.Sprintf(`label_values(%s{instance=~"$%s"}, owner)`, metric.OwnerInfo, VarInstance)))
	}
	if p.findings {
		b = b.Annotation(dashboard.NewAnnotationQueryBuilder().Name("Findings").Datasource(source()).Enable(true).
			IconColor("orange").Expr(sel(metric.FindingActive, `severity!="info"`).String()).
			TitleFormat("{{rule}}: {{cause}}").TextFormat("{{instance}} {{subject}} ({{severity}})"))
	}
	for _, r := range p.rows {
		b = b.WithRow(dashboard.NewRowBuilder(r.title).Id(r.id))
		for _, panel := range r.panels {
			b = b.WithPanel(panel)
		}
	}
	return b.Build()
}

// choice is a variable that offers what the query finds, several at once or all.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).
		Query(dashboard.StringOrMap{String: &query}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortNaturalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Selected: cog.ToPtr(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}
