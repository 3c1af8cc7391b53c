package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// onHopper is what a panel of GPM says without it.
const onHopper = "no GPU reported it: the driver tells it on Hopper and later"

// depth shows how full the GPUs are, what happened between two scrapes, and the
// health of memory and links.
func depth() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		graph(panel{id: 216, title: "How full the GPUs are", w: 8, h: 8, absent: onHopper,
			note: "A GPU at 100 % utilization may run one small kernel. These are the shares of its SMs, tensor cores and memory bandwidth in use.",
			queries: []query{
				value(ofGPU+" SMs", sel(metric.SMActivity)),
				value(ofGPU+" tensor cores", sel(metric.TensorActivity)),
				value(ofGPU+" memory bandwidth", sel(metric.DRAMActivity)),
				value(ofGPU+" occupancy", sel(metric.SMOccupancy)),
			}}),
		graph(panel{id: 217, title: "How full the MIG instances are", w: 8, h: 8, absent: onHopper,
			queries: []query{
				value(ofGPU+" MIG {{mig}} {{profile}} SMs", sel(metric.MIGSMActivity)),
				value(ofGPU+" MIG {{mig}} {{profile}} tensor cores", sel(metric.MIGTensorActivity)),
				value(ofGPU+" MIG {{mig}} {{profile}} memory bandwidth", sel(metric.MIGDRAMActivity)),
			}}),
		graph(panel{id: 218, title: "Utilization between scrapes", w: 8, h: 8,
			note: "Highest and lowest of the last 60 s, from every sample that the driver kept: a stall of 3 s shows, however seldom is scraped.",
			queries: []query{
				value(ofGPU+" highest", sel(metric.UtilizationPeak)),
				value(ofGPU+" lowest", sel(metric.UtilizationLow)),
			}}),
		stacked(panel{id: 219, title: "Time by band of utilization", w: 8, h: 8,
			note:    "Seconds per second that the chosen GPUs together spent in each band: the number of GPUs that were in it.",
			queries: []query{rate("{{band}}", "band", sel(metric.UtilizationBands))}}),
		stacked(panel{id: 220, title: "Time by band of SM activity", w: 8, h: 8, absent: onHopper,
			queries: []query{rate("{{band}}", "band", sel(metric.SMActivityBands))}}),
		graph(panel{id: 221, title: "Time for which clocks were held down", w: 8, h: 8,
			note:    "Share of the time, from the driver's own counters: what is too short for a sample is in it.",
			queries: []query{rate(ofGPU+" {{reason}}", "instance, gpu, reason", sel(metric.ClockHeld))}}),

		graph(panel{id: 222, title: "NVLink traffic", w: 8, h: 8, absent: "no GPU with NVLink reported",
			queries: []query{rate(ofGPU+" {{direction}}", "instance, gpu, direction", sel(metric.NVLinkBytes))}}),
		bars(panel{id: 223, title: "NVLink errors", w: 8, h: 8, absent: "no GPU with NVLink reported",
			queries: []query{
				increase(ofGPU+" {{kind}}", "instance, gpu, kind", "$__rate_interval", sel(metric.NVLinkErrors)),
				increase(ofGPU+" {{kind}}", "instance, gpu, kind", "$__rate_interval", sel(metric.NVLink5Errors)),
			}}),
		graph(panel{id: 224, title: "NVLinks that are up", w: 8, h: 8, absent: "no GPU with NVLink reported",
			queries: []query{share(ofGPU, sel(metric.NVLinksUp), sel(metric.NVLinks))}}),

		states(panel{id: 225, title: "What the driver wants done", w: 8, h: 8, absent: "no driver reported it: R570 and later do",
			queries: []query{per(eachGPU, value(ofGPU, sel(metric.RecoveryAction))).meaning(
				word{value: 0, text: "nothing", color: "green"}, word{value: 1, text: "reset the GPU", color: "red"},
				word{value: 2, text: "reboot the node", color: "red"}, word{value: 3, text: "drain peer traffic", color: "orange"},
				word{value: 4, text: "drain and reset", color: "red"}, word{value: 5, text: "recover the IMEX domain", color: "orange"},
				word{value: 6, text: "reset the bus", color: "red"}, word{value: 7, text: "reboot the system", color: "red"})}}),
		bars(panel{id: 226, title: "Memory taken out of use", w: 8, h: 8,
			note: "Rows that were replaced, or pages retired, in the time range's steps.",
			queries: []query{
				increase(ofGPU+" rows {{type}}", "instance, gpu, type", "$__rate_interval", sel(metric.RemappedRows)),
				increase(ofGPU+" pages {{type}}", "instance, gpu, type", "$__rate_interval", sel(metric.RetiredPages)),
			}}),
		stats(panel{id: 227, title: "Memory that needs a reset or a new board", w: 8, h: 8,
			queries: []query{
				total("rows to be replaced at the next reset", sel(metric.RemapPending)).alarming("orange"),
				total("rows that could not be replaced", sel(metric.RemapFailed)).alarming("red"),
				total("banks without spare rows", sel(metric.RemapHistogram, `spares="none"`)).alarming("red"),
				total("pages to be retired at the next reset", sel(metric.RetiredPending)).alarming("orange"),
			}}),

		graph(panel{id: 228, title: "PCIe traffic, from the counters", w: 8, h: 8, absent: "no driver reported it: R555 and later do",
			queries: []query{rate(ofGPU+" {{direction}}", "instance, gpu, direction", sel(metric.PCIeBytes))}}),
		graph(panel{id: 229, title: "Use that no process accounts for", w: 8, h: 8,
			queries: []query{
				value(ofGPU+" {{engine}}", sel(metric.UnattributedUtilization)),
				value(ofGPU+" device memory", sel(metric.UnattributedMemory)),
			}}),
		states(panel{id: 230, title: "NVLink fabric", w: 8, h: 8, absent: "no GPU in an NVLink fabric reported",
			queries: []query{per(eachGPU, value(ofGPU, sel(metric.FabricState))).meaning(
				word{value: 0, text: "none", color: "blue"}, word{value: 1, text: "not started", color: "orange"},
				word{value: 2, text: "in progress", color: "yellow"}, word{value: 3, text: "joined", color: "green"})}}),
	}
}
