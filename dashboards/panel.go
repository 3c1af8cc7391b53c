package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"gpuvigil/internal/metric"
)

// notReported is what a panel says where there is no value: absent is not zero.
const notReported = "not reported"

// panel is what the kinds of panels have in common.
type panel struct {
	id      uint32 // never changes and is never used again: links lead to it
	title   string
	note    string // what the reader should know beside the catalogue's help
	absent  string // what is shown without any value; empty: not reported
	w, h    uint32
	queries []query
}

// builder is what the SDK's builders of panels have in common.
type builder[B any] interface {
	cog.Builder[dashboard.Panel]
	Id(uint32) B
	Title(string) B
	Description(string) B
	Datasource(common.DataSourceRef) B
	Span(uint32) B
	Height(uint32) B
	Unit(string) B
	NoValue(string) B
	WithTarget(cog.Builder[variants.Dataquery]) B
	OverrideByQuery(string, []dashboard.DynamicConfigValue) B
}

// start fills in all that does not depend on the kind of panel but the targets.
func start[B builder[B]](b B, p panel) B {
	absent := p.absent
	if absent == "" {
		absent = notReported
	}
	return b.Id(p.id).Title(p.title).Description(describe(p)).Datasource(source()).
		Span(p.w).Height(p.h).Unit(p.queries[0].unit).NoValue(absent)
}

// describe writes the note and the help of every row that the panel reads.
func describe(p panel) string {
	var lines []string
	if p.note != "" {
		lines = append(lines, p.note)
	}
	var told []*metric.Def
	for _, q := range p.queries {
		for _, row := range q.rows {
			if !slices.Contains(told, row) {
				told = append(told, row)
				lines = append(lines, fmt.Sprintf("`%s`: %s", row, row.Help))
			}
		}
	}
	return strings.Join(lines, "\n\n")
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${" + VarDatasource + "}")}
}

// refID names the panel's queries A, B, C … as Grafana does.
func refID(i int) string { return string(rune('A' + i)) }

// target is the i-th query of a panel without saying when it is asked.
func target(i int, q query) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source()).RefId(refID(i)).
		EditorMode(prometheus.QueryEditorModeCode).Expr(q.expr).LegendFormat(q.legend)
}

// overRange asks the panel's queries over the time range. A query with another
// unit than the first shows its own.
func overRange[B builder[B]](b B, p panel) B {
	for i, q := range p.queries {
		b = b.WithTarget(target(i, q).Range())
		if q.unit != p.queries[0].unit {
			b = b.OverrideByQuery(refID(i), []dashboard.DynamicConfigValue{{Id: "unit", Value: q.unit}})
		}
	}
	return b
}

// graph draws lines. A gap is drawn as a gap.
func graph(p panel) *timeseries.PanelBuilder {
	b := overRange(start(timeseries.NewPanelBuilder(), p), p).
		Legend(legend()).Tooltip(tooltip()).LineWidth(1).FillOpacity(8)
	if !slices.ContainsFunc(p.queries, query.mayBeNegative) {
		b = b.Min(0)
	}
	if !slices.ContainsFunc(p.queries, func(q query) bool { return !q.whole }) {
		b = b.AxisSoftMax(1)
	}
	return b
}

func (q query) mayBeNegative() bool {
	return slices.ContainsFunc(q.rows, func(row *metric.Def) bool { return row.Min < 0 })
}

// stacked draws parts of one whole upon each other.
func stacked(p panel) *timeseries.PanelBuilder {
	return graph(p).FillOpacity(40).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// bars draws what happened in each interval.
func bars(p panel) *timeseries.PanelBuilder {
	return graph(p).DrawStyle(common.GraphDrawStyleBars).FillOpacity(60)
}

// stats shows numbers as of now: never a sum or a mean over the time range.
func stats(p panel) *stat.PanelBuilder {
	b := start(stat.NewPanelBuilder(), p).
		ColorMode(common.BigValueColorModeBackground).GraphMode(common.BigValueGraphModeNone).
		TextMode(common.BigValueTextModeValueAndName).Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
			Steps([]dashboard.Threshold{{Color: "transparent"}})).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds))
	for i, q := range p.queries {
		b = b.WithTarget(target(i, q).Instant()).OverrideByQuery(refID(i), properties(q))
	}
	return b
}

// states draws what is the case, in words, over time.
func states(p panel) *statetimeline.PanelBuilder {
	return overRange(start(statetimeline.NewPanelBuilder(), p), p).
		Legend(legend()).Tooltip(tooltip()).MergeValues(true).ShowValue(common.VisibilityModeAuto).
		Mappings(mappings(p.queries[0].words))
}

// grid is a table as of now: the labels and the queries that have a legend are
// its columns. Lines are joined on the labels that all its queries keep, so only
// one query may keep more than those.
func grid(p panel, labels ...string) *table.PanelBuilder {
	b := start(table.NewPanelBuilder(), p).CellHeight(common.TableCellHeightSm).Filterable(true).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	var lead, rest []string
	titles := map[string]string{}
	hidden := map[string]bool{"Time": true}
	for i, q := range p.queries {
		b = b.WithTarget(target(i, q).Instant().Format(prometheus.PromQueryFormatTable))
		field := "Value #" + refID(i)
		if len(p.queries) == 1 {
			field = "Value"
		}
		if q.legend == "" {
			hidden[field] = true
			continue
		}
		if q.lead {
			lead = append(lead, field)
		} else {
			rest = append(rest, field)
		}
		titles[field] = q.legend
		b = b.OverrideByName(q.legend, append(properties(q), cell(q)...))
	}
	for _, l := range labels {
		titles[l] = heading(l)
	}
	order := map[string]int{}
	for i, field := range slices.Concat(lead, labels, rest) {
		order[field] = i
	}
	return b.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": hidden, "indexByName": order, "renameByName": titles,
		}})
}

// heading writes a label's name as the head of a column.
func heading(label string) string {
	switch label {
	case "gpu", "uuid", "vbios":
		return strings.ToUpper(label)
	}
	words := strings.ReplaceAll(label, "_", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

func legend() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().ShowLegend(true).
		DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)
}

func tooltip() *common.VizTooltipOptionsBuilder {
	return common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)
}
