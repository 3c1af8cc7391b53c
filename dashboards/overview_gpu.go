package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// Legends of series that describe a GPU, and of others.
const (
	ofGPU  = "{{instance}} GPU {{gpu}}"
	ofNode = "{{instance}}"

	eachGPU  = "instance, gpu"
	eachUser = "instance, gpu, owner_kind, owner, team"
)

// gpus shows each GPU: what it does, what it could do and what holds it back.
func gpus() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		gpuTable(),
		states(panel{id: 202, title: "GPUs that answer", w: 10, h: 7,
			note:    "A hung GPU has a driver call that does not return; a lost one no longer answers at all.",
			queries: []query{per(eachGPU, gpuState(ofGPU))}}),
		grid(panel{id: 203, title: "Who uses them", w: 8, h: 7,
			note: "Who was given a GPU may be somebody else: see below.",
			queries: []query{
				per(eachUser, value("Memory", sel(metric.OwnerShare, `of="memory"`))),
				per(eachUser, value("SM time", sel(metric.OwnerShare, `of="sm"`))),
			}}, "instance", "gpu", "owner_kind", "owner", "team"),
		stats(panel{id: 204, title: "Power and energy", w: 6, h: 7,
			note: "Power of all chosen GPUs at this instant, and the energy that they used over the time range.",
			queries: []query{
				total("draw now", sel(metric.PowerDraw)),
				total("limit now", sel(metric.PowerLimit)),
				ask("energy in the time range", unitOf(metric.Energy).value, "sum(increase(%s[$__range]))", sel(metric.Energy)),
			}}),

		grid(panel{id: 250, title: "Who was given them", w: 12, h: 7, absent: "no kubelet or Slurm prolog said who was given a GPU",
			note:    "Who uses a GPU may be somebody else: compare with the table above.",
			queries: []query{per("instance, gpu, mig, owner_kind, owner, team, resource, source", value("", sel(metric.AllocationInfo)))}},
			"instance", "gpu", "mig", "owner_kind", "owner", "team", "resource", "source"),
		grid(panel{id: 251, title: "Owners", w: 12, h: 7, absent: "no owner is known",
			queries: []query{per("instance, owner_kind, owner, team, cost_center, sensitivity, stage, critical", value("", sel(metric.OwnerInfo)))}},
			"instance", "owner_kind", "owner", "team", "cost_center", "sensitivity", "stage", "critical").
			OverrideByName("Owner", []dashboard.DynamicConfigValue{{Id: "links", Value: []dashboard.DashboardLink{{
				Title: "All that is known of it",
				Url:   cog.ToPtr(fmt.Sprintf("/d/%s?var-%s=${__value.raw:percentencode}&${%s:queryparam}&${__url_time_range}", workloadUID, VarOwner, VarDatasource)),
			}}}}),

		graph(panel{id: 205, title: "Utilization", w: 8, h: 8,
			queries: []query{value(ofGPU, sel(metric.Utilization))}}),
		graph(panel{id: 206, title: "Memory used of capacity", w: 8, h: 8,
			queries: []query{
				share(ofGPU, sel(metric.MemoryUsed), sel(metric.MemoryCapacity)),
				share(ofGPU+" MIG {{mig}} {{profile}}", sel(metric.MIGMemoryUsed), sel(metric.MIGMemoryCapacity)),
			}}),
		graph(panel{id: 207, title: "Power draw of limit", w: 8, h: 8,
			note: "The second line of a GPU is its limit as a part of what the board ships with: below 100 % somebody lowered it.",
			queries: []query{
				share(ofGPU, sel(metric.PowerDraw), sel(metric.PowerLimit)),
				share(ofGPU+" limit of default", sel(metric.PowerLimit), sel(metric.PowerDefaultLimit)),
			}}),

		graph(panel{id: 208, title: "Temperature and fans", w: 8, h: 8,
			queries: []query{
				value(ofGPU, sel(metric.Temperature)),
				value(ofGPU+" memory", sel(metric.MemoryTemperature)),
				value(ofGPU+" fan", sel(metric.FanSpeed)),
			}}),
		graph(panel{id: 209, title: "Clocks of their maximum", w: 8, h: 8,
			queries: []query{share(ofGPU+" {{clock}}", sel(metric.Clock), sel(metric.MaxClock))}}),
		bars(panel{id: 210, title: "GPUs whose clocks are held down", w: 8, h: 8,
			note: "How many of the node's GPUs each reason holds down. An idle GPU is not counted.",
			queries: []query{ask("{{instance}} {{reason}}", unitCount, "sum by (instance, reason) (%s)",
				sel(metric.ClockEvent, `reason!="idle"`))}}),

		graph(panel{id: 211, title: "Memory of processes", w: 8, h: 8,
			queries: []query{
				value(ofGPU, sel(metric.ProcessMemory)),
				value(ofGPU+" processes", sel(metric.ProcessCount)),
				value(ofGPU+" MIG {{mig}} {{profile}} processes", sel(metric.MIGProcesses)),
			}}),
		stacked(panel{id: 212, title: "Device memory", w: 8, h: 8,
			note: "Of all chosen GPUs together; MIG instances are parts of them.",
			queries: []query{
				total("used", sel(metric.MemoryUsed)),
				total("reserved by the driver", sel(metric.MemoryReserved)),
				total("free", sel(metric.MemoryFree)),
			}}),
		graph(panel{id: 213, title: "Other engines", w: 8, h: 8,
			queries: []query{
				value(ofGPU+" memory controller", sel(metric.MemoryUtilization)),
				value(ofGPU+" encoder", sel(metric.EncoderUtilization)),
				value(ofGPU+" decoder", sel(metric.DecoderUtilization)),
			}}),

		graph(panel{id: 214, title: "Power of all GPUs", w: 12, h: 8,
			note: "Added up over the chosen GPUs at each instant, never over time.",
			queries: []query{
				total("draw", sel(metric.PowerDraw)),
				ask("mean, from the energy counter", unitOf(metric.Energy).perSecond, "sum(rate(%s[$__rate_interval]))", sel(metric.Energy)),
				total("limit", sel(metric.PowerLimit)),
			}}),
		graph(panel{id: 215, title: "PCIe traffic", w: 12, h: 8,
			queries: []query{value(ofGPU+" {{direction}}", sel(metric.PCIeThroughput))}}),
	}
}

// gpuState is 0 for a lost GPU, 1 for one that answers, 2 for a hung one.
func gpuState(legend string) query {
	return ask(legend, unitCount, "(%s == 1) * 2 or %s", sel(metric.GPUHung), sel(metric.GPUPresent)).
		meaning(word{value: 0, text: "lost", color: "red"},
			word{value: 1, text: "answers", color: "green"},
			word{value: 2, text: "hung", color: "purple"})
}

// gpuTable is one line for each GPU.
func gpuTable() cog.Builder[dashboard.Panel] {
	return grid(panel{id: 201, title: "GPUs now", w: 24, h: 8,
		queries: []query{
			per(eachGPU+", model", ask("", unitCount, "%s", sel(metric.GPUInfo))),
			per(eachGPU, gpuState("State")),
			per(eachGPU, value("Utilization", sel(metric.Utilization))),
			per(eachGPU, share("Memory used", sel(metric.MemoryUsed), sel(metric.MemoryCapacity))),
			per(eachGPU, share("Power of limit", sel(metric.PowerDraw), sel(metric.PowerLimit))),
			per(eachGPU, value("Temperature", sel(metric.Temperature))),
			per(eachGPU, value("P-state", sel(metric.PerformanceState))),
			per(eachGPU, value("Processes", sel(metric.ProcessCount))),
		}}, "instance", "gpu", "model")
}
