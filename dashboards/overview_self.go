package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const ofSource = "{{instance}} {{source}}"

// self shows whether the numbers above can be trusted and what they cost.
func self() []cog.Builder[dashboard.Panel] {
	return append(looking(), telling()...)
}

// looking is the half that samples.
func looking() []cog.Builder[dashboard.Panel] {
	const everySource = "instance, source"
	return []cog.Builder[dashboard.Panel]{
		states(panel{id: 601, title: "Sources", w: 24, h: 7,
			note: "And the child process that talks to NVML.",
			queries: []query{
				per(everySource, value(ofSource, sel(metric.SourceUp))).
					meaning(word{value: 0, text: "down", color: "red"}, word{value: 1, text: "up", color: "green"}),
				per("instance", value(ofNode+" NVML child process", sel(metric.ChildUp))),
			}}),

		graph(panel{id: 602, title: "Age of the last sample", w: 8, h: 7,
			queries: []query{
				value(ofSource, sel(metric.SourceAge)),
				value(ofGPU, sel(metric.GPUSampleAge)),
			}}),
		graph(panel{id: 603, title: "Sample time of interval", w: 8, h: 7,
			note:    "A source that needs its whole interval for a sample cannot keep up.",
			queries: []query{share(ofSource, sel(metric.SourceDuration), sel(metric.SourceInterval))}}),
		graph(panel{id: 604, title: "Samples", w: 8, h: 7,
			queries: []query{
				rate(ofSource, everySource, sel(metric.SourceSamples)),
				rate(ofSource+" failed", everySource, sel(metric.SourceErrors)),
			}}),

		graph(panel{id: 605, title: "Cost: CPU", w: 8, h: 7,
			note: "100 % is one CPU all the time. A detector's time is a part of the agent's.",
			queries: []query{
				rate(ofNode, "instance", sel(metric.AgentCPU)),
				rate(ofNode+" {{rule}}", "instance, rule", sel(metric.DetectorSeconds)),
			}}),
		graph(panel{id: 606, title: "Cost: memory", w: 8, h: 7,
			queries: []query{
				value(ofNode+" resident", sel(metric.AgentRSS)),
				value(ofNode+" proportional", sel(metric.AgentPSS)),
			}}),
		graph(panel{id: 607, title: "Cost: time in the driver", w: 8, h: 7,
			note: "100 % is one call always in flight. By function: the ten that take the most, all in the full profile.",
			queries: []query{
				rate(ofNode, "instance", sel(metric.NVMLSeconds)),
				rate(ofNode+" {{function}}", "instance, function", sel(metric.FunctionSeconds)),
			}}),

		graph(panel{id: 608, title: "NVML calls", w: 6, h: 7,
			queries: []query{
				rate(ofNode, "instance", sel(metric.NVMLCalls)),
				rate(ofNode+" failed", "instance", sel(metric.NVMLErrors)),
				value(ofNode+" GPUs hung", sel(metric.NVMLHung)),
				increase(ofNode+" sets of events replaced", "instance", "$__rate_interval", sel(metric.NVMLEventSets)),
			}}),
		graph(panel{id: 616, title: "Slowed down for the driver's sake", w: 6, h: 7,
			note:    "How many times longer than configured the interval is: 1 while NVML answers quickly.",
			queries: []query{value(ofNode+" {{tier}}", sel(metric.TierSlowdown))}}),
		graph(panel{id: 609, title: "Values that are missing", w: 6, h: 7,
			note: "How many metrics a GPU cannot tell, and how many of its values made no sense. 0 for a GPU that tells everything.",
			queries: []query{
				ask(ofGPU+" unsupported", unitCount, "count by (instance, gpu) (%s) or max by (instance, gpu) (0 * %s)",
					sel(metric.GPUUnsupported), sel(metric.GPUPresent)),
				grown(ofGPU+" dropped {{metric}}", "instance, gpu, metric", "$__rate_interval", sel(metric.GPUDropped)),
			}}),
		graph(panel{id: 610, title: "Scrapes", w: 6, h: 7,
			queries: []query{rate(ofNode, "instance", sel(metric.Scrapes))}}),
	}
}

// telling is the half that judges, answers and sends.
func telling() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		bars(panel{id: 611, title: "Notifications", w: 8, h: 7,
			queries: []query{
				increase(ofNode+" {{receiver}} {{result}}", "instance, receiver, result", "$__rate_interval", sel(metric.NotificationsSent)),
				increase(ofNode+" {{rule}} not sent: {{reason}}", "instance, rule, reason", "$__rate_interval", sel(metric.FindingsSuppressed)),
				value(ofNode+" {{receiver}} muted by {{by}}", sel(metric.AlertsMuted)),
				value(ofNode+" {{mark}}", sel(metric.IncidentsMarked)),
				value(ofNode+" maintenance by {{origin}}", sel(metric.MaintenanceWindows)),
				noReceiver(),
			}}),
		graph(panel{id: 612, title: "Outbox", w: 8, h: 7,
			queries: []query{
				value(ofNode+" {{receiver}} messages", sel(metric.OutboxLength)),
				value(ofNode+" {{receiver}} oldest", sel(metric.OutboxAge)),
				noReceiver(),
			}}),
		bars(panel{id: 613, title: "Left out or failed", w: 8, h: 7,
			note: "All of these should stay 0, but for restarts after gpuvigil release or a driver upgrade.",
			queries: []query{
				increase(ofNode+" child process restarted: {{reason}}", "instance, reason", "$__rate_interval", sel(metric.ChildRestarts)),
				increase(ofNode+" bad frames of the child process", "instance", "$__rate_interval", sel(metric.FramesBad)),
				value(ofNode+" child processes stuck", sel(metric.ChildStuck)),
				increase(ofNode+" page of {{source}} not read: {{reason}}", "instance, source, reason", "$__rate_interval", sel(metric.PageFailures)),
				increase(ofNode+" detector {{rule}} failed", "instance, rule", "$__rate_interval", sel(metric.DetectorPanics)),
				increase(ofNode+" observations of {{rule}} dropped", "instance, rule", "$__rate_interval", sel(metric.ObservationsDropped)),
				increase(ofNode+" findings over the limit: {{rule}}", "instance, rule", "$__rate_interval", sel(metric.FindingsCapped)),
				increase(ofNode+" series over the limit: {{kind}}", "instance, kind", "$__rate_interval", sel(metric.SeriesCapped)),
				increase(ofNode+" series refused: {{reason}}", "instance, reason", "$__rate_interval", sel(metric.SeriesRefused)),
				increase(ofNode+" state not written", "instance", "$__rate_interval", sel(metric.StateWriteErrors)),
			}}),

		graph(panel{id: 614, title: "Files and goroutines", w: 12, h: 7,
			queries: []query{
				value(ofNode+" files", sel(metric.AgentOpenFiles)),
				value(ofNode+" goroutines", sel(metric.AgentGoroutines)),
			}}),
		grid(panel{id: 615, title: "Agents", w: 12, h: 7,
			queries: []query{
				per("instance, version, revision, goversion", ask("", unitCount, "%s", sel(metric.AgentInfo))),
				per("instance", value("Configuration", sel(metric.ConfigReloadSuccess))).
					meaning(word{value: 0, text: "last reload failed", color: "red"}, word{value: 1, text: "in force", color: "green"}),
				per("instance", value("Loaded", sel(metric.ConfigReloadTime))),
			}}, "instance", "version", "revision", "goversion"),
	}
}

// noReceiver is 0 for an agent that has nobody to send to.
func noReceiver() query {
	return ask(ofNode+" no receiver", unitCount, "max by (instance) (0 * %s) unless on (instance) %s",
		sel(metric.AgentInfo), sel(metric.OutboxLength))
}
