package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// tellDead reports memory that is in use while the driver lists no process at all. MIG
// instances keep some, confidential computing hides who has it, and beside a Grace CPU
// it is the kernel's as well.
func (d *Sharing) tellDead(s *collector.Snapshot, g *collector.GPU, dev *device, report func(Observation)) {
	o := Observation{Subject: gpuSubject(g.UUID), Cause: deadMemory, GPU: g}
	used := g.Value(metric.MemoryUsed)
	blind := !d.sees || g.MIG || math.IsNaN(used) || s.Node.Value(metric.ConfidentialComputing) == 1 || s.Node.Value(metric.NVMLHostPIDs) == 0 ||
		g.Value(metric.VGPUs) > 0 || coherent(g.Model)
	if blind {
		dev.dead = time.Time{}
		return
	}
	// Before R510 what the driver keeps counts as used, and is less than the least.
	if g.Value(metric.ProcessCount) > 0 || used < deadLeast {
		dev.dead = time.Time{}
		report(o)
		return
	}
	if dev.dead.IsZero() {
		dev.dead = s.Time
	}
	o.At, o.Severity = dev.dead, rules.Ticket
	o.Score = s.Time.Sub(dev.dead).Seconds() / deadAfter.Seconds()
	if o.Score >= 1 && (s.Time.Sub(dev.toldAt[2]) >= time.Minute || dev.toldAt[2].Before(dev.dead)) {
		want := 0.0
		dev.toldAt[2] = s.Time
		dev.told[2] = Evidence{
			Title:    "GPU memory held by no process",
			Seen:     fmt.Sprintf("%s of GPU %d in use for %s while the driver lists no process on it", gibibytes(used), g.Index, span(s.Time.Sub(dev.dead))),
			Expected: "memory that is freed with its process", Observed: 0, Want: &want,
			Confidence: Likely, Why: "a process that the driver does not list, as in a virtual machine, would look the same",
			Action: "Look for processes that hold /dev/nvidia* (fuser -v /dev/nvidia*) and end them; if there are none, reset the GPU.",
		}
	}
	o.Evidence = dev.told[2]
	report(o)
}

// coherent reports whether the GPU's memory is the kernel's as well, so that files may
// be cached in it.
func coherent(model string) bool {
	return slices.ContainsFunc([]string{"GH200", "GB200", "GB300", "GB10"}, func(m string) bool { return strings.Contains(model, m) })
}
