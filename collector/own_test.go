package collector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

func TestOwnerOfAnEndpointIsOnAllOfItsGPUs(t *testing.T) {
	chat, side := Owner{Kind: "pod", ID: "a/chat"}, Owner{Kind: "pod", ID: "a/side"}
	s := &Snapshot{Processes: []Process{{UUID: "GPU-1", Owner: chat}, {UUID: "GPU-2", Owner: chat}, {UUID: "GPU-2", Owner: side},
		{UUID: "GPU-1", Owner: side, Name: "nvidia-cuda-mps-server"}, {UUID: "GPU-3"}, {UUID: "GPU-4", Owner: chat}, {UUID: "GPU-4", Owner: side}}}
	for name, c := range map[string]struct {
		gpus []string
		want Owner
	}{
		"one on both, another on one": {[]string{"GPU-1", "GPU-2"}, chat},
		"nobody on all":               {[]string{"GPU-1", "GPU-3"}, Owner{}},
		"nobody that is known":        {[]string{"GPU-3"}, Owner{}},
		"several":                     {[]string{"GPU-2"}, Owner{}},
		"GPUs are not known":          {nil, Owner{}},
	} {
		if got, ok := s.OwnerOf(&Endpoint{GPUs: c.gpus}); got != c.want || ok != (c.want != Owner{}) {
			t.Errorf("%s: it is held to be %v's (%v), want %v", name, got, ok, c.want)
		}
	}
}

func TestUseAndAllocationAreTwoFacts(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	user := Owner{Kind: "pod", ID: "ml/train-0", Team: "nlp"}
	small := Owner{Kind: "user", ID: "1000"}
	given := Owner{Kind: "job", ID: "slurm/4711", Team: "vision"}
	process := func(pid int, mig string, bytes float64) Process {
		p := Process{PID: pid, Start: 1, UUID: "GPU-1", MIG: mig, UID: -1, Readings: NewReadings(metric.Process)}
		p.Set(metric.ProcessMemoryUsed, bytes)
		p.Stamp(metric.Processes, noon)
		return p
	}
	driver := &Part{Time: noon,
		GPUs:      []GPU{{UUID: "GPU-1", Present: true}, {Index: 1, UUID: "GPU-2", Present: true}},
		Instances: []Instance{{UUID: "GPU-1", GI: 7, CI: 0}},
		Processes: []Process{process(10, "", 1e9), process(11, "7/0", 8e9), process(12, "", 4e9)},
	}
	owners := &Part{Time: noon,
		Attributions: []Attribution{
			{PID: 10, Start: 1, Owner: small},
			{PID: 11, Start: 1, Owner: user, Container: "main", Privileged: true},
			{PID: 12, Start: 2, Owner: user}, // the pid was another process
			{PID: 99, Start: 1, Owner: user}, // uses no GPU
		},
		Allocations: []Allocation{
			{UUID: "GPU-1", Owner: given, Source: "slurm"},
			{UUID: "GPU-1", MIG: "7/0", Owner: user, Source: "kubelet"},
			{UUID: "GPU-gone", Owner: given, Source: "slurm"},
		},
	}
	c := newComposer(SamplerConfig{Node: "n"})
	views := []view{{part: driver, interval: time.Second}, {part: owners, interval: time.Second}}
	s := c.snapshot(noon, views)

	if len(s.Processes) != 3 || len(s.GPUs) != 2 {
		t.Fatalf("attributions and allocations made things up: %d processes, %d GPUs", len(s.Processes), len(s.GPUs))
	}
	for i, want := range []Owner{small, user, {}} {
		if got := s.Processes[i].Owner; got != want {
			t.Errorf("process %d belongs to %v, want %v", s.Processes[i].PID, got, want)
		}
	}
	if got := s.Processes[1].Container; got != "main" {
		t.Errorf("process 11 is in container %q, want main", got)
	}
	if s.Processes[0].Privileged || !s.Processes[1].Privileged || s.Processes[2].Privileged {
		t.Error("it is not process 11, and it alone, that is privileged")
	}
	if diff := cmp.Diff([]Owner{user, small, given}, s.GPUs[0].Owners); diff != "" {
		t.Errorf("owners of GPU 0: who uses it by memory, then who was given it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Owner{user}, s.Instances[0].Owners); diff != "" {
		t.Errorf("owners of the MIG instance (-want +got):\n%s", diff)
	}
	if got := s.GPUs[0].Allocations; len(got) != 1 || got[0].Owner != given {
		t.Errorf("GPU 0 as a whole was given to %v, want the Slurm job alone", got)
	}
	if len(s.GPUs[1].Owners) != 0 || len(s.GPUs[1].Allocations) != 0 {
		t.Errorf("GPU 1 has owners %v, nobody uses it", s.GPUs[1].Owners)
	}

	views[1].age = time.Hour
	if s = c.snapshot(noon.Add(time.Second), views); len(s.GPUs[0].Allocations) != 0 || s.Processes[1].Owner != (Owner{}) {
		t.Error("owners of an hour ago are still shown as the present ones")
	}
}
