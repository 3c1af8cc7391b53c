package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const movementUID = "gpuvigil-movement"

const (
	ofOwner = "{{instance}} {{team}} {{owner_kind}} {{owner}}"
	ofPort  = "{{instance}} {{device}}/{{port}}"

	byOwner = "instance, owner_kind, owner, team"
	byPort  = "instance, device, port"
)

// noOwner is what a panel of owners says without any.
const noOwner = "no owner with a process on a GPU"

// movement is in the order of a question about data: who moves it, where to, is it
// starved, and what do the adapters do.
func movement() (dashboard.Dashboard, error) {
	return page{
		uid: movementUID, title: "gpuvigil owners and data movement", since: "3h", refresh: "30s",
		description: "What each owner reads, writes, sends and receives, what it takes of the node, and what the adapters carry.",
		rows: []row{
			{2100, "Owners", ownersNow()},
			{2200, "Data", data()},
			{2300, "CPU and memory", taken()},
			{2400, "Adapters", adapters()},
		},
	}.build()
}

// recent asks for a counter's rate as of now, for a table.
func recent(title string, s selector) query {
	return ask(title, unitOf(s.row).perSecond, "sum by ("+byOwner+") (rate(%s[$__rate_interval]))", s)
}

func ownersNow() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 2101, title: "Owners now", w: 14, h: 9, absent: noOwner,
			note: "Of those with a process on a GPU. An empty cell is a fact that is absent; the table beside says why.",
			queries: []query{
				recent("Read", sel(metric.WorkloadBlockBytes, `direction="read"`)),
				recent("Written", sel(metric.WorkloadBlockBytes, `direction="write"`)),
				recent("Received", sel(metric.WorkloadNetworkBytes, `direction="receive"`)),
				recent("Sent", sel(metric.WorkloadNetworkBytes, `direction="transmit"`)),
				per(byOwner, value("Public addresses", sel(metric.WorkloadRemotes, `range="public"`))),
				per(byOwner, value("Anonymous memory", sel(metric.WorkloadMemory, `kind="anon"`))),
			}}, "instance", "owner_kind", "owner", "team"),
		grid(panel{id: 2102, title: "What is not told, and why", w: 10, h: 9, absent: "every fact of every owner is told",
			note:    "host_network: it shares the host's network, whose bytes are everybody's. network_file_systems: block I/O does not see what it reads over a network.",
			queries: []query{per(byOwner+", fact, reason", ask("", unitCount, "%s", sel(metric.WorkloadCaveat)))},
		}, "instance", "owner_kind", "owner", "team", "fact", "reason"),
	}
}

func data() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 2201, title: "Disks", w: 12, h: 8, absent: noOwner,
			note:    "A checkpoint is a burst of writes.",
			queries: []query{rate(ofOwner+" {{direction}}", byOwner+", direction", sel(metric.WorkloadBlockBytes))}}),
		graph(panel{id: 2202, title: "Network", w: 12, h: 8, absent: "no owner with a network namespace of its own",
			queries: []query{rate(ofOwner+" {{direction}}", byOwner+", direction", sel(metric.WorkloadNetworkBytes))}}),
		graph(panel{id: 2203, title: "Addresses that it is connected to", w: 8, h: 8, absent: "no owner with a network namespace of its own",
			queries: []query{value(ofOwner+" {{range}}", sel(metric.WorkloadRemotes))}}),
		graph(panel{id: 2204, title: "NFS", w: 8, h: 8, absent: "no NFS mount that may be read",
			queries: []query{rate(ofOwner+" {{direction}}", byOwner+", direction", sel(metric.WorkloadNetworkFileBytes))}}),
		graph(panel{id: 2205, title: "PCIe and NVLink of its GPUs", w: 8, h: 8, absent: "no GPU with a single owner, or none that counts",
			queries: []query{
				rate(ofOwner+" PCIe {{direction}}", byOwner+", direction", sel(metric.WorkloadPCIeBytes)),
				rate(ofOwner+" NVLink {{direction}}", byOwner+", direction", sel(metric.WorkloadNVLinkBytes)),
			}}),
	}
}

func taken() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 2301, title: "CPUs in use", w: 8, h: 8, absent: noOwner,
			note:    "100 % is one CPU.",
			queries: []query{rate(ofOwner, byOwner, sel(metric.WorkloadCPUSeconds))}}),
		graph(panel{id: 2302, title: "Throttled", w: 8, h: 8, absent: noOwner,
			note:    "Share of time for which a quota kept it off the CPU, summed over its groups. A GPU that waits for such a process is starved by a setting.",
			queries: []query{rate(ofOwner, byOwner, sel(metric.WorkloadCPUThrottled))}}),
		graph(panel{id: 2303, title: "Memory that stays", w: 8, h: 8, absent: noOwner,
			note:    "Steady growth is a leak.",
			queries: []query{value(ofOwner+" {{kind}}", sel(metric.WorkloadMemory))}}),
	}
}

// noPort is what a panel of ports says without any.
const noPort = "no InfiniBand or RoCE adapter"

func adapters() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 2401, title: "Traffic", w: 12, h: 8, absent: noPort,
			note: "RDMA among it.",
			queries: []query{
				rate(ofPort+" {{direction}}", byPort+", direction", sel(metric.InterfaceBytes)),
			}}),
		graph(panel{id: 2402, title: "Errors", w: 6, h: 8, absent: noPort,
			queries: []query{increase(ofPort, byPort, "$__rate_interval", sel(metric.InterfaceErrors))}}),
		graph(panel{id: 2403, title: "Links that went down", w: 6, h: 8, absent: noPort,
			queries: []query{increase(ofPort, byPort, "$__rate_interval", sel(metric.InterfaceLinkDowned))}}),
		grid(panel{id: 2404, title: "Ports", w: 16, h: 8, absent: noPort,
			queries: []query{
				ask("", unitCount, "max by ("+byPort+", link_layer, state, physical_state) (%s)", sel(metric.InterfaceInfo)),
				per(byPort, value("Up", sel(metric.InterfaceUp))).
					meaning(word{value: 0, text: "down", color: "red"}, word{value: 1, text: "up", color: "green"}),
				per(byPort, value("Speed", sel(metric.InterfaceSpeed))),
			}}, "instance", "device", "port", "link_layer", "state", "physical_state"),
		graph(panel{id: 2405, title: "Files that could not be read", w: 8, h: 8, absent: "none since the agents that answer have started",
			queries: []query{grown("{{instance}} {{file}} {{reason}}", "instance, file, reason", "$__rate_interval", sel(metric.MovementErrors))}}),
	}
}
