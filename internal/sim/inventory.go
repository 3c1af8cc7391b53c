package sim

import (
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// software is what a workload's processes have loaded, and what belongs to it.
type software struct {
	runtimes  []collector.Version
	image     string
	container string
	engine    string
	port      int
	datasets  []collector.Dataset // without owner
}

// cudaLibraries are those that every framework of the node brings along; libcuda is
// the driver's.
func cudaLibraries(more ...collector.Version) []collector.Version {
	return append([]collector.Version{
		{Component: "cublas", Value: "12.8.4.1"}, {Component: "cuda_runtime", Value: "12.8.90"}, {Component: "cudnn", Value: "9.10.2.21"},
		{Component: "nccl", Value: "2.27.5"},
	}, more...)
}

// softwareOf returns what a kind of workload runs at first.
func softwareOf(kind WorkloadKind) software {
	torch := collector.Version{Component: "torch", Value: "2.9.1+cu128"}
	switch kind {
	case Training:
		return software{runtimes: cudaLibraries(torch, collector.Version{Component: "megatron", Value: "0.14.0"}),
			datasets: []collector.Dataset{{Kind: "lustre", Source: "10.0.0.1@o2ib:/scratch", Mount: "/scratch"}}}
	case Inference:
		return software{runtimes: cudaLibraries(torch, collector.Version{Component: "vllm", Value: "0.10.2"}),
			image: "registry.example/vllm-openai:stable", container: "vllm", engine: "vllm", port: 8000,
			datasets: []collector.Dataset{{Kind: "claim", Source: "pvc-models", Mount: "/models"}}}
	case Notebook:
		return software{runtimes: cudaLibraries(torch), image: "registry.example/notebook:2026.11", container: "notebook",
			datasets: []collector.Dataset{{Kind: "bucket", Source: "training-data", Mount: "/data"}}}
	default:
		return software{runtimes: cudaLibraries(collector.Version{Component: "jaxlib", Value: "0.7.2"}), image: "registry.example/sweep:41", container: "sweep"}
	}
}

// upgrade gives a workload another version of a component and returns the one before.
func (s *Sim) upgrade(w *workload, component, to string) string {
	i := slices.IndexFunc(w.software.runtimes, func(v collector.Version) bool { return v.Component == component })
	from := w.software.runtimes[i].Value
	if from == to {
		return from
	}
	w.software.runtimes = slices.Clone(w.software.runtimes)
	w.software.runtimes[i].Value = to
	s.tell(collector.Event{Kind: collector.VersionEvent, Owner: w.Owner, Component: component, From: from, To: to})
	return from
}

// inventory is what a look at the processes finds.
func (s *Sim) inventory() *collector.Inventory {
	i := &collector.Inventory{At: s.now}
	for _, w := range s.workloads {
		if !w.up {
			continue
		}
		for _, v := range append(slices.Clip(w.software.runtimes), collector.Version{Component: "libcuda", Value: s.version("driver")}) {
			i.Runtimes = append(i.Runtimes, collector.Runtime{Owner: w.Owner, Component: v.Component, Version: v.Value, Processes: len(w.gpus)})
		}
		if w.software.image != "" {
			i.Images = append(i.Images, collector.Image{Owner: w.Owner, Container: w.software.container, Name: w.software.image})
		}
		for _, d := range w.software.datasets {
			d.Owner = w.Owner
			i.Datasets = append(i.Datasets, d)
		}
		if w.software.port != 0 {
			first := w.first()
			tls := strings.HasPrefix(first.URL, "https:")
			i.APIs = append(i.APIs, collector.API{Owner: w.Owner, Port: w.software.port, Scope: "private", TLS: &tls, Engine: w.software.engine, Model: first.Model})
		}
	}
	i.Sort()
	return i
}

// observeUnread says that everything could be read.
func observeUnread(r collector.Readings) {
	for i := range metric.UnreadReason.Values {
		r.SetAt(metric.InventoryUnread, i, 0)
	}
}
