package dashboards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The uid of the overview is part of links to it.
const overviewUID = "gpuvigil-overview"

// overview is in the order in which a tired person asks: what is wrong, which
// GPU, is it the load, is it the host, what changed, and can I trust the numbers.
func overview() (dashboard.Dashboard, error) {
	return page{
		uid: overviewUID, title: "gpuvigil overview", since: "3h", refresh: "30s",
		description: "What is wrong with the GPUs and the work on them, and what the numbers say about why.",
		gpus:        true, findings: true,
		rows: []row{
			{100, "What is wrong now", wrong()},
			{200, "GPUs", append(gpus(), depth()...)},
			{300, "Demand", demand()},
			{400, "Host", host()},
			{500, "Versions and faults", faults()},
			{600, "gpuvigil itself", self()},
		},
	}.build()
}

// wrong is the row that alone should do on a good day.
func wrong() []cog.Builder[dashboard.Panel] {
	severity := func(s rules.Severity) selector { return sel(metric.FindingActive, fmt.Sprintf("severity=%q", s)) }
	count := func(s rules.Severity, color string) query {
		return ask(s.String(), unitCount, "count(%s)", severity(s)).orZero(sel(metric.AgentInfo)).alarming(color)
	}
	return []cog.Builder[dashboard.Panel]{
		stats(panel{id: 101, title: "Findings", w: 6, h: 4,
			note: "Findings that fire, by severity. 0 where agents answer and find nothing.",
			queries: []query{
				count(rules.Page, colorPage), count(rules.Ticket, colorTicket), count(rules.Info, colorInfo),
			}}),
		stats(panel{id: 102, title: "Numbers", w: 4, h: 4,
			note: "Whether what is drawn here was measured, or comes from gpuvigil demo or a recording.",
			queries: []query{
				ask("source", unitCount, "count(%s)", sel(metric.NodeInfo, `simulated="true"`)).
					orZero(sel(metric.NodeInfo)).alarming("orange").
					meaning(word{value: 0, text: "measured", color: "green"}, word{value: 1, onward: true, text: "SIMULATED", color: "orange"}),
			}}),
		stats(panel{id: 103, title: "Agents", w: 6, h: 4,
			note: "Agents that answer now, and those that answered within the time range and no longer do.",
			queries: []query{
				ask("answer", unitCount, "count(%s)", sel(metric.AgentInfo)),
				ask("silent", unitCount, "count(count by (instance) (last_over_time(%[1]s[$__range])) unless on (instance) %[1]s)",
					sel(metric.AgentInfo)).orZero(sel(metric.AgentInfo)).alarming("red"),
				ask("stale sources", unitCount, "count(%s == 0)", sel(metric.SourceUp)).orZero(sel(metric.SourceUp)).alarming("red"),
			}}),
		stats(panel{id: 104, title: "GPUs", w: 8, h: 4,
			note: "A lost GPU no longer answers; one that is not listed has been seen since the node booted and is unknown to the driver now.",
			queries: []query{
				total("answer", sel(metric.GPUPresent)),
				ask("lost", unitCount, "count(%s == 0)", sel(metric.GPUPresent)).orZero(sel(metric.GPUPresent)).alarming("red"),
				ask("not listed", unitCount, "sum(%s - %s)", sel(metric.GPUsExpected), sel(metric.GPUsSeen)).alarming("red"),
				total("hung", sel(metric.GPUHung)).alarming("red"),
			}}),
		findings(severity),
	}
}

// findings lists what fires, the most urgent first.
func findings(severity func(rules.Severity) selector) cog.Builder[dashboard.Panel] {
	const same = "instance, rule, subject, cause"
	rank := ask("Severity", unitCount, "%s * 3 or %s * 2 or %s",
		severity(rules.Page), severity(rules.Ticket), severity(rules.Info)).
		meaning(word{value: 3, text: rules.Page.String(), color: colorPage},
			word{value: 2, text: rules.Ticket.String(), color: colorTicket},
			word{value: 1, text: rules.Info.String(), color: colorInfo})
	return grid(panel{id: 105, title: "Findings that fire", w: 24, h: 9,
		absent: "nothing fires on the agents that answer",
		note: "Evidence, owner and what to do: gpuvigil why SUBJECT on the node, or the agent's page. " +
			"Observed and expected are in the rule's unit: " + ruleUnits() + ".",
		queries: []query{
			per(same, rank).leading(),
			per(same, value("Since", sel(metric.FindingStart))).leading(),
			per(same, value("Of threshold", sel(metric.FindingScore))),
			per(same, value("Observed", sel(metric.FindingObserved))),
			per(same, value("Expected", sel(metric.FindingExpected))),
		}}, "instance", "rule", "subject", "cause").
		SortBy([]cog.Builder[common.TableSortByFieldState]{
			common.NewTableSortByFieldStateBuilder().DisplayName("Severity").Desc(true),
		}).
		OverrideByName("Rule", []dashboard.DynamicConfigValue{{Id: "mappings", Value: ruleTitles()}}).
		OverrideByName("Instance", []dashboard.DynamicConfigValue{{Id: "links", Value: []dashboard.DashboardLink{{
			Title: "Only this agent",
			Url: cog.ToPtr(fmt.Sprintf("/d/%s?var-%s=${__value.raw}&${%s:queryparam}&${__url_time_range}",
				overviewUID, VarInstance, VarDatasource)),
		}}}})
}

// ruleTitles shows a rule as the rule book calls it.
func ruleTitles() []dashboard.ValueMapping {
	titles := map[string]dashboard.ValueMappingResult{}
	for i, r := range rules.All() {
		titles[string(r.ID)] = dashboard.ValueMappingResult{Text: &r.Title, Index: cog.ToPtr(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: titles}}}
}

func ruleUnits() string {
	var units []string
	for _, r := range rules.All() {
		units = append(units, fmt.Sprintf("%s %s", r.ID, r.Unit))
	}
	return strings.Join(units, ", ")
}
