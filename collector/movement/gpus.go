package movement

import (
	"slices"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// gpus tells what went over the buses of the owner's GPUs. A GPU cannot say whose
// bytes they were: of one that others use as well, nothing is told.
func (f *facts) gpus(snap *collector.Snapshot) {
	var used []string
	for i := range snap.Processes {
		if p := &snap.Processes[i]; p.Owner == f.owner && !slices.Contains(used, p.UUID) {
			used = append(used, p.UUID)
		}
	}
	for i := range snap.Processes {
		if p := &snap.Processes[i]; p.Owner != f.owner && slices.Contains(used, p.UUID) {
			f.caveat("gpu", "shared_gpu")
			return
		}
	}
	for _, uuid := range used {
		g := snap.GPUByUUID(uuid)
		if g == nil || !g.Answers() {
			continue
		}
		for _, bus := range []struct{ of, to *metric.Def }{
			{metric.PCIeBytes, metric.WorkloadPCIeBytes}, {metric.NVLinkBytes, metric.WorkloadNVLinkBytes},
		} {
			for at := range bus.of.Width() {
				if v := g.ValueAt(bus.of, at); v >= 0 {
					f.tally.addExclusive(bus.to, at, uuid, uint64(v))
				}
			}
		}
	}
}
