package main

import (
	"fmt"

	"gpuvigil/collector"
	"gpuvigil/collector/host"
	"gpuvigil/collector/scrape"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/sim"
)

// absence says what is wrong with a node on which there is no GPU for a job, or
// nothing: a node may have none. It is wrong if there was one before, or if the PCI
// bus has one. A driver that is just being asked, or released, proves nothing.
func (a *answer) absence(want int) string {
	gpus := a.gpuSource()
	if want == 0 || gpus == nil || a.snapshot.ReleasedUntil.After(a.snapshot.Time) {
		return ""
	}
	bus, known := a.onBus()
	absent := !gpus.Up && !gpus.Expected
	unbound := known && bus.Total() > 0 && bus[0] == 0
	seen := len(a.snapshot.GPUs)
	switch {
	case gpus.Up && seen > 0, !gpus.Up && !absent && !unbound:
		return ""
	case gpus.Up && bus.Total() > 0:
		return fmt.Sprintf("%d NVIDIA GPUs are on the PCI bus and the driver lists none", bus.Total())
	case bus.Total() > 0:
		return fmt.Sprintf("%d NVIDIA GPUs are on the PCI bus and no driver answers for them", bus.Total())
	case seen > 0:
		return fmt.Sprintf("no driver answers any more for the %d GPUs that were seen since the node booted", seen)
	case a.snapshot.GPUsBefore > 0:
		return fmt.Sprintf("no GPU is here, and before the node booted there were %d", a.snapshot.GPUsBefore)
	}
	return ""
}

// unwatched says that an agent that does not ask the driver cannot know how GPUs are.
func (a *answer) unwatched(want int) []string {
	bus, _ := a.onBus()
	if a.gpuSource() != nil || want == 0 || bus.Total() == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d NVIDIA GPUs are on the PCI bus and this agent does not watch them (nvml.enabled)", bus.Total())}
}

// census says how many GPUs are well, when nothing is wrong with them.
func (a *answer) census(answering int) string {
	bus, known := a.onBus()
	switch {
	case answering > 0 && bus.Total() > answering:
		return fmt.Sprintf("%d GPUs, of %d on the PCI bus", answering, bus.Total())
	case answering > 0 || len(a.snapshot.GPUs) > 0:
		return fmt.Sprintf("%d GPUs", answering)
	case known && bus[1] > 0:
		return fmt.Sprintf("no GPU for this host: %d on the PCI bus are for virtual machines", bus[1])
	case known && bus.Total() == 0:
		return "no GPU was ever seen here, and the PCI bus has none"
	}
	return "no GPU was ever seen here"
}

// ofGPUs reports whether a source tells how the GPUs are.
func ofGPUs(source string) bool {
	return source == nvmlSource || source == scrape.GPUSource || source == sim.SourceName
}

// gpuPage is the page that the GPUs come from, nil if they do not come from one.
func (a *answer) gpuPage() *collector.Page {
	return (&collector.Snapshot{Pages: a.snapshot.Pages}).GPUPage()
}

// seesProcesses reports whether it is known who uses a GPU: other exporters' pages say who
// was given it, and tell no processes.
func (a *answer) seesProcesses() bool { return a.gpuPage() == nil }

// gpuSource is the source that tells of GPUs, or nil if none is asked.
func (a *answer) gpuSource() *server.Source {
	for i, s := range a.snapshot.Sources {
		if ofGPUs(s.Name) {
			return &a.snapshot.Sources[i]
		}
	}
	return nil
}

// onBus is what the agent has seen of GPUs on the PCI bus, if it could look.
func (a *answer) onBus() (bus host.BusGPUs, known bool) {
	for i, driver := range metric.PCIDriver.Values {
		n, ok := a.snapshot.Node.Readings[fmt.Sprintf("%s{%s=%q}", metric.PCIGPUs, metric.PCIDriver.Label, driver)]
		bus[i], known = int(n), known || ok
	}
	return bus, known
}
