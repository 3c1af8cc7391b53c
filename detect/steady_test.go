package detect

import (
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// rankedNode returns a node of eight GPUs with a rank of a job on each, and the snapshots
// that go on from there, a second apart.
func rankedNode() func() *collector.Snapshot {
	s := node(day, 8)
	s.Node.Versions = append(s.Node.Versions, collector.Version{Component: "container_toolkit", Value: "1.17.8"},
		collector.Version{Component: "driver_library", Value: "570.86"}, collector.Version{Component: "kernel_module", Value: "570.86"})
	s.Node.Set(metric.AllocationsKnown, 1)
	s.Node.Set(metric.ConfidentialComputing, 0)
	s.Inventory = &collector.Inventory{At: s.Time}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.GSP, g.InfoROM = "570.86", "G520"
		g.Set(metric.ProcessCount, 1)
		g.Set(metric.MemoryUsed, 40<<30)
		g.Set(metric.MIGMode, 0)
		g.Allocations = []collector.Allocation{{UUID: g.UUID, Owner: slurmJob, Source: "slurm"}}
		s.Processes = append(s.Processes, process(slurmJob, "main", "python3", 100+i, i))
	}
	for _, c := range []string{"cuda_runtime", "cudnn", "libcuda", "nccl", "torch"} {
		s.Inventory.Runtimes = append(s.Inventory.Runtimes, collector.Runtime{Owner: slurmJob, Component: c, Version: "12.8.90", Processes: 8})
	}
	return func() *collector.Snapshot {
		s.Time = s.Time.Add(time.Second)
		s.Inventory.At = s.Time.Truncate(time.Minute)
		s.Node.Stamp(metric.Fast, s.Time)
		for i := range s.GPUs {
			s.GPUs[i].Stamp(metric.Processes, s.Time.Truncate(15*time.Second))
		}
		return s
	}
}

func steadyDetectors() []Detector {
	return []Detector{NewVersion(VersionConfig{}), NewMismatch(MismatchConfig{}), NewSharing(SharingConfig{}), NewIsolation(IsolationConfig{Controlled: true})}
}

func TestVersionsAndSharingAllocateNothing(t *testing.T) {
	for _, d := range steadyDetectors() {
		next, ignore := rankedNode(), func(Observation) {}
		for range 120 {
			d.Observe(next(), ignore)
		}
		if n := testing.AllocsPerRun(600, func() { d.Observe(next(), ignore) }); n != 0 {
			t.Errorf("%s: a snapshot in which nothing happens costs %v allocations", d.Rule().ID, n)
		}
	}
}

func BenchmarkVersionsAndSharing(b *testing.B) {
	for _, d := range steadyDetectors() {
		b.Run(string(d.Rule().ID), func(b *testing.B) {
			next, ignore := rankedNode(), func(Observation) {}
			b.ReportAllocs()
			for b.Loop() {
				d.Observe(next(), ignore)
			}
		})
	}
}
