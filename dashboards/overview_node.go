package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const ofEndpoint = "{{instance}} {{model}} {{endpoint}}"

// demand puts GPU and CPU side by side with what is asked of them: a GPU that is
// full while the CPU idles and requests wait is seen in one look.
func demand() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 301, title: "GPU and CPU busy", w: 12, h: 8,
			note: "GPU is the mean of the node's chosen GPUs. A busy GPU beside an idle CPU is normal in training; with requests waiting it is a limit.",
			queries: []query{
				mean(ofNode+" GPU", "instance", sel(metric.Utilization)),
				value(ofNode+" CPU", sel(metric.CPUBusy)),
				value(ofNode+" busiest core", sel(metric.CPUBusiest)),
			}}),
		graph(panel{id: 302, title: "Inference requests", w: 12, h: 8, absent: noServer,
			queries: []query{
				value(ofEndpoint+" waiting", sel(metric.RequestsWaiting)),
				value(ofEndpoint+" running", sel(metric.RequestsRunning)),
			}}),
		graph(panel{id: 303, title: "Queue time, 95th percentile", w: 8, h: 8, absent: noServer,
			queries: []query{value(ofEndpoint, sel(metric.QueueTimeP95))}}),
		graph(panel{id: 304, title: "KV cache used", w: 8, h: 8, absent: noServer,
			queries: []query{value(ofEndpoint, sel(metric.KVCacheUsage))}}),
		graph(panel{id: 305, title: "Tokens generated", w: 8, h: 8, absent: noServer,
			queries: []query{rate(ofEndpoint, "instance, model, endpoint", sel(metric.GeneratedTokens))}}),
		states(panel{id: 306, title: "Inference servers", w: 8, h: 7, absent: noServer,
			queries: []query{per("instance, model, endpoint", value(ofEndpoint, sel(metric.EndpointUp))).
				meaning(word{value: 0, text: "cannot be read", color: "red"}, word{value: 1, text: "read", color: "green"})}}),
		states(panel{id: 307, title: "Conditions", w: 16, h: 7,
			note: "States that the detectors watch. A state alone tells nobody: the finding needs demand, too.",
			queries: []query{per("instance, rule, subject", value("{{instance}} {{rule}} {{subject}}", sel(metric.Condition))).
				meaning(word{value: 0, text: "no", color: "green"}, word{value: 1, text: "holds", color: "orange"})}}),
		stacked(panel{id: 308, title: "What holds the GPUs", w: 24, h: 8,
			note:    "GPUs by verdict: what limits their work, or what they wait for. The page of a node and gpuvigil why have the evidence.",
			queries: []query{ask("{{verdict}}", unitCount, "count by (verdict) (%s)", sel(metric.GPUVerdict))}}),
	}
}

// noServer is what an inference panel says without an inference server.
const noServer = "no inference server reported"

// mean averages a gauge, for shares of different wholes that must not be added.
func mean(legend, by string, s selector) query {
	q := value(legend, s)
	q.expr = "avg by (" + by + ") (" + q.expr + ")"
	return q
}

// host shows what the node's own resources do.
func host() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		stacked(panel{id: 401, title: "CPU by mode", w: 8, h: 8,
			note:    "Part of all CPUs of the chosen nodes together; what is missing to 100 % is idle.",
			queries: []query{cpuByMode()}}),
		graph(panel{id: 402, title: "Memory", w: 8, h: 8,
			queries: []query{
				ask(ofNode+" in use", unitOf(metric.HostMemoryCapacity).value, "%s - %s", sel(metric.HostMemoryCapacity), sel(metric.HostMemoryAvailable)),
				value(ofNode+" capacity", sel(metric.HostMemoryCapacity)),
				value(ofNode+" swap", sel(metric.HostSwapUsed)),
			}}),
		graph(panel{id: 403, title: "Pressure", w: 8, h: 8,
			note: "Share of time in which some or all tasks waited for a resource.",
			queries: []query{
				rate(ofNode+" {{resource}} some", "instance, resource", sel(metric.PressureSome)),
				rate(ofNode+" {{resource}} all", "instance, resource", sel(metric.PressureFull)),
			}}),
		graph(panel{id: 404, title: "Disk traffic", w: 6, h: 8,
			queries: []query{rate(ofNode+" {{direction}}", "instance, direction", sel(metric.DiskBytes))}}),
		graph(panel{id: 405, title: "Disks busy", w: 6, h: 8,
			note:    "100 % is one device that always had a request in flight; two such devices make 200 %.",
			queries: []query{rate(ofNode, "instance", sel(metric.DiskIOTime))}}),
		graph(panel{id: 406, title: "Network traffic", w: 6, h: 8,
			queries: []query{rate(ofNode+" {{direction}}", "instance, direction", sel(metric.NetworkBytes))}}),
		graph(panel{id: 407, title: "Load", w: 6, h: 8,
			queries: []query{
				value(ofNode+" {{window}}", sel(metric.Load)),
				value(ofNode+" CPUs", sel(metric.CPUCount)),
			}}),
	}
}

func cpuByMode() query {
	q := ask("{{mode}}", unitShare, "sum by (mode) (rate(%s[$__rate_interval])) / on () group_left () sum(%s)",
		sel(metric.CPUSeconds, `mode!="idle"`), sel(metric.CPUCount))
	q.whole = true
	return q
}

// identity is every label that tells GPUs and MIG instances apart.
var identity = []string{"instance", "gpu", "mig", "profile", "model", "architecture", "uuid", "mig_uuid", "serial", "pci_bus_id", "vbios", "cpus", "numa_nodes"}

// faults shows what changed and what broke.
func faults() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 501, title: "Versions", w: 12, h: 8,
			queries: []query{per("instance, component, version", ask("", unitCount, "%s", sel(metric.VersionInfo)))},
		}, "instance", "component", "version"),
		bars(panel{id: 502, title: "Version changes", w: 12, h: 8,
			queries: []query{increase(ofNode+" {{component}}", "instance, component", "$__rate_interval", sel(metric.VersionChanges))}}),

		bars(panel{id: 503, title: "Xid errors", w: 12, h: 8,
			note: "By code. A GPU without any since the agent started is drawn as 0.",
			queries: []query{
				grown(ofGPU+" Xid {{xid}}", "instance, gpu, xid", "$__rate_interval", sel(metric.XidErrors)),
				ask(ofGPU+" none", unitCount, "max by (instance, gpu) (0 * %s) unless on (instance, gpu) %s",
					sel(metric.GPUPresent), sel(metric.XidErrors)),
			}}),
		grid(panel{id: 504, title: "Xid errors by code", w: 12, h: 8, absent: "none since the agents that answer have started",
			queries: []query{
				per("instance, gpu, xid", value("Last", sel(metric.XidLast))),
				grown("In the time range", "instance, gpu, xid", "$__range", sel(metric.XidErrors)),
			}}, "instance", "gpu", "xid"),

		bars(panel{id: 505, title: "Memory errors (ECC)", w: 8, h: 8,
			queries: []query{increase(ofGPU+" {{type}}", "instance, gpu, type", "$__rate_interval", sel(metric.ECCErrors))}}),
		bars(panel{id: 506, title: "PCIe packets sent again", w: 8, h: 8,
			queries: []query{increase(ofGPU, eachGPU, "$__rate_interval", sel(metric.PCIeReplays))}}),
		graph(panel{id: 507, title: "PCIe link of its maximum", w: 8, h: 8,
			note: "An idle link steps its generation down by itself; missing lanes do not come from idling.",
			queries: []query{
				share(ofGPU+" generation", sel(metric.PCIeGeneration), sel(metric.PCIeMaxGeneration)),
				share(ofGPU+" lanes", sel(metric.PCIeWidth), sel(metric.PCIeMaxWidth)),
			}}),

		bars(panel{id: 509, title: "NVSwitch errors", w: 9, h: 8, absent: "none since the agents that answer have started",
			note: "SXid errors by code. Fatal ones stop jobs; the driver recovers from the others by itself.",
			queries: []query{
				grown(ofNode+" {{switch}} SXid {{sxid}} {{severity}}", "instance, switch, sxid, severity", "$__rate_interval", sel(metric.SXidErrors)),
				increase(ofNode+" fabric manager", "instance", "$__rate_interval", sel(metric.FabricManagerErrors)),
			}}),
		grid(panel{id: 510, title: "NVSwitch errors by code", w: 9, h: 8, absent: "none since the agents that answer have started",
			queries: []query{
				per("instance, switch, sxid, severity", value("Last", sel(metric.SXidLast))),
				grown("In the time range", "instance, switch, sxid, severity", "$__range", sel(metric.SXidErrors)),
			}}, "instance", "switch", "sxid", "severity"),
		graph(panel{id: 511, title: "Kernel log", w: 6, h: 8, absent: "no agent may read it",
			note: "Records read, and those that the kernel overwrote first: then errors may be missing.",
			queries: []query{
				rate(ofNode+" read", "instance", sel(metric.KernelLogRecords)),
				rate(ofNode+" lost", "instance", sel(metric.KernelLogLost)),
			}}),

		grid(panel{id: 508, title: "GPU inventory", w: 24, h: 8,
			note:    "MIG instances have a line of their own below the one of their GPU.",
			queries: []query{per(strings.Join(identity, ", "), ask("", unitCount, "%s or %s", sel(metric.GPUInfo), sel(metric.MIGInfo)))},
		}, identity...),
	}
}
