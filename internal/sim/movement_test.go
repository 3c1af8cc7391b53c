package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func moving(t *testing.T, p *collector.Part, kind string) collector.Workload {
	t.Helper()
	i := slices.IndexFunc(p.Workloads, func(w collector.Workload) bool { return w.Kind == kind && w.SampledAt(metric.Slow) != time.Time{} })
	if i < 0 {
		t.Fatalf("no %s moves anything", kind)
	}
	return p.Workloads[i]
}

// A checkpoint is a burst of writes with quiet before and after it; nothing else of
// the job moves in it.
func TestCheckpointIsABurstOfWrites(t *testing.T) {
	s := newSim(t, "quiet")
	var writes []float64
	before := moving(t, s.Part(start), "job").ValueAt(metric.WorkloadBlockBytes, 1)
	for at := 15 * time.Second; at <= 40*time.Minute; at += 15 * time.Second {
		now := moving(t, s.Part(start.Add(at)), "job").ValueAt(metric.WorkloadBlockBytes, 1)
		writes = append(writes, now-before)
		before = now
	}
	bursts, in := 0, false
	for _, w := range writes {
		if burst := w > 1e9; burst != in {
			if in = burst; in {
				bursts++
			}
		}
	}
	if bursts != 2 {
		t.Errorf("in 40 minutes there are %d bursts of writes, want a checkpoint every 20", bursts)
	}
}

func TestMovementNeverFalls(t *testing.T) {
	s := newSim(t, "demo")
	last := map[string]float64{}
	for at := -time.Hour; at < 30*time.Minute; at += 20 * time.Second {
		p := s.Part(start.Add(at))
		check := func(of string, e metric.Entity, r collector.Readings) {
			for _, d := range metric.Of(e) {
				for i := range d.Width() {
					v, key := r.ValueAt(d, i), of+d.Series(slices.Repeat([]string{string(rune('0' + i))}, len(d.LabelNames()))...)
					if math.IsNaN(v) {
						continue
					}
					if !d.Plausible(v) {
						t.Fatalf("at %v %s of %s is %v", at, d, of, v)
					}
					if d.Kind == metric.Counter && v < last[key] {
						t.Fatalf("at %v %s of %s falls from %v to %v", at, d, of, last[key], v)
					}
					last[key] = v
				}
			}
		}
		for _, w := range p.Workloads {
			check(w.Owner.String(), metric.Workload, w.Readings)
		}
		for _, i := range p.Interfaces {
			check(i.Device, metric.Interface, i.Readings)
		}
	}
}

// What owners read and write is what the node's disks move, but for what nobody owns.
func TestOwnersMoveWhatTheNodeMoves(t *testing.T) {
	s := newSim(t, "quiet")
	all := func(p *collector.Part) (owners, node float64) {
		for _, w := range p.Workloads {
			if v := w.ValueAt(metric.WorkloadBlockBytes, 0); !math.IsNaN(v) {
				owners += v
			}
		}
		return owners, p.Node.ValueAt(metric.DiskBytes, 0)
	}
	// No sweep comes or goes in between.
	ownersBefore, nodeBefore := all(s.Part(start.Add(12 * time.Minute)))
	ownersAfter, nodeAfter := all(s.Part(start.Add(14 * time.Minute)))
	if owners, node := ownersAfter-ownersBefore, nodeAfter-nodeBefore; math.Abs(owners-node) > 0.01*node || node == 0 {
		t.Errorf("the owners read %.4g bytes and the node's disks %.4g", owners, node)
	}
}

func TestJobsNetworkIsTheHosts(t *testing.T) {
	p := newSim(t, "quiet").Part(start)
	job, pod := moving(t, p, "job"), moving(t, p, "pod")
	if job.Has(metric.WorkloadNetworkBytes) || !slices.Contains(job.Caveats, collector.Caveat{Fact: "network", Reason: "host_network"}) {
		t.Errorf("a job in the host's network namespace has a network of its own, or nothing says why not: %v", job.Caveats)
	}
	if !pod.Has(metric.WorkloadNetworkBytes) || !pod.Has(metric.WorkloadRemotes) {
		t.Error("a pod has no network")
	}
	if len(p.Interfaces) != 8 {
		t.Errorf("a node of 8 GPUs has %d adapters", len(p.Interfaces))
	}
}
