package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

const inventoryUID = "gpuvigil-inventory"

// inventory is in the order of the questions: what changed, which versions are
// there, what has the work loaded, what may it reach, who can reach it.
func inventory() (dashboard.Dashboard, error) {
	return page{
		uid: inventoryUID, title: "gpuvigil inventory and versions", since: "24h", refresh: "1m",
		description: "What runs on the nodes and on their GPUs, with versions, and what changed.",
		gpus:        true, findings: true,
		rows: []row{
			{1100, "Versions of the nodes", nodeVersions()},
			{1200, "What the work has loaded", loaded()},
			{1300, "Data and models", reached()},
		},
	}.build()
}

func nodeVersions() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 1101, title: "Versions by number of nodes", w: 12, h: 9,
			note:    "A component with several lines differs between nodes.",
			queries: []query{ask("Nodes", unitCount, "count by (component, version) (%s)", sel(metric.VersionInfo)).leading()},
		}, "component", "version"),
		bars(panel{id: 1102, title: "Version changes", w: 12, h: 9,
			queries: []query{increase(ofNode+" {{component}}", "instance, component", "$__rate_interval", sel(metric.VersionChanges))}}),
		grid(panel{id: 1103, title: "Versions of each node", w: 24, h: 9,
			queries: []query{per("instance, component, version", ask("", unitCount, "%s", sel(metric.VersionInfo)))},
		}, "instance", "component", "version"),
	}
}

// nobodyLooks is what a panel says where no process may be looked into.
const nobodyLooks = "not looked at (inventory.runtimes), or nothing loaded"

func loaded() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 1201, title: "Libraries and frameworks by number of owners", w: 10, h: 10, absent: nobodyLooks,
			queries: []query{ask("Owners", unitCount, "count by (component, version) (%s)", sel(metric.RuntimeInfo)).leading()},
		}, "component", "version"),
		grid(panel{id: 1202, title: "Libraries and frameworks of each owner", w: 14, h: 10, absent: nobodyLooks,
			note:    "A component with several versions within one owner: its processes differ.",
			queries: []query{per("instance, owner_kind, owner, team, component, version", ask("", unitCount, "%s", sel(metric.RuntimeInfo)))},
		}, "instance", "owner_kind", "owner", "team", "component", "version"),
		graph(panel{id: 1203, title: "Frameworks by version, owners", w: 12, h: 8, absent: nobodyLooks,
			queries: []query{ask("{{component}} {{version}}", unitCount, "count by (component, version) (%s)",
				sel(metric.RuntimeInfo, `component=~"torch|jaxlib|tensorflow|vllm|sglang|tensorrt_llm|onnxruntime"`))}}),
		graph(panel{id: 1204, title: "Processes not all read", w: 12, h: 8,
			note:    "By reason. What is missing of them is missing in the tables.",
			queries: []query{per("instance, reason", value(ofNode+" {{reason}}", sel(metric.InventoryUnread)))}}),
		grid(panel{id: 1205, title: "Images", w: 24, h: 8, absent: "none known",
			queries: []query{per("instance, owner_kind, owner, team, container, image, digest", ask("", unitCount, "%s", sel(metric.ImageInfo)))},
		}, "instance", "owner_kind", "owner", "team", "container", "image", "digest"),
	}
}

func reached() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		stats(panel{id: 1301, title: "Exposure", w: 6, h: 8,
			note: "Ports that can be reached from outside of the node, and models that are not on the list.",
			queries: []query{
				ask("ports open to any address", unitCount, `count(%s)`, sel(metric.InferenceAPIInfo, `scope=~"any|public"`)).orZero(sel(metric.NodeInfo)),
				ask("without TLS, of those known", unitCount, `count(%s)`, sel(metric.InferenceAPIInfo, `tls="false"`)).orZero(sel(metric.NodeInfo)),
				ask("models not approved", unitCount, `count(%s)`, sel(metric.InferenceAPIInfo, `approved="false"`)).orZero(sel(metric.NodeInfo)).alarming("red"),
			}}),
		grid(panel{id: 1302, title: "Models and the ports at which they are served", w: 18, h: 8, absent: "none known",
			queries: []query{per("instance, owner_kind, owner, team, port, scope, tls, engine, model, approved", ask("", unitCount, "%s", sel(metric.InferenceAPIInfo)))},
		}, "instance", "owner_kind", "owner", "team", "port", "scope", "tls", "engine", "model", "approved"),
		grid(panel{id: 1303, title: "Data sets", w: 24, h: 9, absent: "none known",
			note:    "Those of unattributed are mounted on the node for everybody.",
			queries: []query{per("instance, owner_kind, owner, team, kind, source, mount", ask("", unitCount, "%s", sel(metric.DatasetInfo)))},
		}, "instance", "owner_kind", "owner", "team", "kind", "source", "mount"),
	}
}
