package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// sharedStage is a stage with processes on GPU 0, of which a list comes every 15
// seconds, or with each step if that is longer.
type sharedStage struct {
	*stage
	processes []collector.Process
	given     []collector.Allocation
	known     float64 // whether it is known who was given what
	also      func(s *collector.Snapshot)
}

func newSharedStage(t *testing.T, cfg DetectorConfig, step time.Duration) *sharedStage {
	v := &sharedStage{stage: newStage(t, cfg, step), known: 1, also: func(*collector.Snapshot) {}}
	v.set = func(s *collector.Snapshot) {
		listed := s.Time.Truncate(max(15*time.Second, step))
		s.Node.Set(metric.AllocationsKnown, v.known)
		for i := range s.GPUs {
			g := &s.GPUs[i]
			n := 0
			for _, p := range v.processes {
				if p.GPU == i {
					n++
				}
			}
			g.Stamp(metric.Processes, listed)
			g.Set(metric.ProcessCount, float64(n))
			g.Set(metric.MemoryUsed, 100<<20)
			for _, a := range v.given {
				if a.UUID == g.UUID && a.MIG == "" {
					g.Allocations = append(g.Allocations, a)
				}
			}
		}
		s.Processes = append(s.Processes, v.processes...)
		v.also(s)
	}
	return v
}

func (v *sharedStage) join(o collector.Owner, name string, memory, sm float64) {
	p := rankProcess(o, "main", name, 100+len(v.processes), 0)
	p.Set(metric.ProcessMemoryUsed, memory)
	p.Set(metric.ProcessUtilization, sm)
	v.processes = append(v.processes, p)
}

func (v *sharedStage) give(o collector.Owner, shares int) {
	v.given = append(v.given, collector.Allocation{UUID: "GPU-0", Owner: o, Resource: "nvidia.com/gpu", Shares: shares, Source: "kubelet"})
}

func (v *sharedStage) cause(cause string) *Finding {
	for _, f := range v.e.View().Findings {
		if (f.Rule == rules.IDHiddenSharing || f.Rule == rules.IDIsolation) && f.Cause == cause && f.State == Firing {
			return &f
		}
	}
	return nil
}

func (v *sharedStage) none(why string) {
	v.t.Helper()
	for _, in := range v.told {
		if in.Rule == rules.IDHiddenSharing || in.Rule == rules.IDIsolation {
			v.t.Errorf("%s: told %s of %s: %s", why, in.State, in.Cause, in.Members[0].Evidence.Seen)
		}
	}
}

var (
	docker   = collector.Owner{Kind: "container", ID: "notebook"}
	somebody = collector.Owner{Kind: "user", ID: "1000"}
	unit     = collector.Owner{Kind: "service", ID: "ollama.service"}
	train    = collector.Owner{Kind: "pod", ID: "nlp/train-0", Team: "nlp"}
	sneak    = collector.Owner{Kind: "pod", ID: "vision/sneak"}
)

func TestTwoOwnersOfOneGPU(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		v := newSharedStage(t, DetectorConfig{}, step)
		v.join(docker, "python3", 38*oneGiB, 0.75)
		v.run(20 * time.Minute)
		v.none("one owner alone")
		v.processes[0].Set(metric.ProcessUtilization, 0.40)
		v.join(somebody, "python3", 600<<20, 0.12)
		v.run(4 * time.Minute)
		v.none("two owners for less than five minutes")
		v.run(20 * time.Second)
		v.restart()
		v.run(4 * time.Minute)
		f := v.cause(twoOwners)
		if f == nil || f.Severity != rules.Ticket || f.Owner != somebody || f.GPUIndex != 0 {
			t.Fatalf("at steps of %v two owners of one GPU are %+v, want a ticket for who came last", step, f)
		}
		want := "a user of the node (600 MiB, 12 % of the SMs) on GPU 0 beside container notebook (38 GiB, "
		if !strings.HasPrefix(f.Evidence.Seen, want) || !strings.Contains(f.Evidence.Seen, ", which had 75 % before; the GPU is 50 % busy, for ") {
			t.Errorf("seen: %s\nwant %s… of the SMs), which had 75 %% before", f.Evidence.Seen, want)
		}
		v.restart()
		v.now = v.now.Add(10 * time.Minute)
		v.run(6 * time.Minute)
		if f := v.cause(twoOwners); f == nil || f.Flaps != 0 || len(v.told) != 1 {
			t.Errorf("an agent that was away for ten minutes took the finding for another one: %+v, told %d times", f, len(v.told))
		}
		v.processes = v.processes[:1]
		v.run(8 * time.Minute)
		if v.cause(twoOwners) != nil {
			t.Error("the second one has gone, and the finding has not")
		}
	}
}

func TestWhatLooksLikeHiddenSharing(t *testing.T) {
	ray := func(o collector.Owner) collector.Workload {
		return collector.Workload{Owner: o, Labels: []collector.Label{{Name: "ray.io/cluster", Value: "tune"}}, Readings: collector.NewReadings(metric.Workload)}
	}
	job := collector.Owner{Kind: "job", ID: "slurm/7"}
	for name, prepare := range map[string]func(v *sharedStage){
		"two processes of one pod": func(v *sharedStage) {
			v.join(train, "python3", 10*oneGiB, 0.5)
			v.join(train, "preprocess", 10*oneGiB, 0.5)
			v.give(train, 0)
		},
		"time-slicing that was declared": func(v *sharedStage) {
			v.join(train, "python3", 10*oneGiB, 0.5)
			v.join(sneak, "python3", 10*oneGiB, 0.5)
			v.give(train, 1)
			v.give(sneak, 1)
		},
		"allocations that nobody knows": func(v *sharedStage) {
			v.known = 0
			v.join(train, "python3", 10*oneGiB, 0.5)
			v.join(sneak, "python3", 10*oneGiB, 0.5)
		},
		"a claim that is not resolved": func(v *sharedStage) {
			v.join(train, "python3", 10*oneGiB, 0.5)
			v.join(sneak, "python3", 10*oneGiB, 0.5)
			v.give(train, 0)
			v.also = func(s *collector.Snapshot) { s.Node.Set(metric.AllocationsUnresolved, 1) }
		},
		"a pod that is known by its uid": func(v *sharedStage) {
			v.join(collector.Owner{Kind: "pod", ID: "0a1b2c3d-0000-4000-8000-00000000000a"}, "python3", 10*oneGiB, 0.5)
			v.give(train, 0)
		},
		"a Ray tree": func(v *sharedStage) {
			v.join(unit, "ray::Train", 10*oneGiB, 0.5)
			v.join(docker, "ray::Tune", 10*oneGiB, 0.5)
			v.also = func(s *collector.Snapshot) { s.Workloads = []collector.Workload{ray(unit), ray(docker)} }
		},
		"clients of MPS": func(v *sharedStage) {
			v.join(docker, "python3", 10*oneGiB, 0.5)
			v.join(somebody, "python3", 10*oneGiB, 0.5)
			for i := range v.processes {
				v.processes[i].Set(metric.ProcessMPS, 1)
			}
			v.join(collector.Owner{Kind: "service", ID: "mps.service"}, "nvidia-cuda-mps", 30<<20, 0)
		},
		"a profiler, the desktop and a monitor": func(v *sharedStage) {
			v.join(docker, "python3", 10*oneGiB, 0.5)
			for _, tool := range []string{"ncu", "nsys-launcher", "Xorg", "gnome-shell", "nv-hostengine", "dcgmproftester1", "gpuvigil"} {
				v.join(somebody, tool, 2*oneGiB, 0.2)
			}
		},
		"a tool that the configuration allows": func(v *sharedStage) {
			v.join(docker, "python3", 10*oneGiB, 0.5)
			v.join(unit, "node-burnin", 10*oneGiB, 0.5)
		},
		"somebody with an empty context": func(v *sharedStage) {
			v.join(docker, "python3", 10*oneGiB, 0.5)
			v.join(somebody, "python3", 400<<20, 0.01)
		},
		"processes that are nobody's": func(v *sharedStage) {
			v.join(docker, "python3", 10*oneGiB, 0.5)
			v.join(collector.Owner{}, "python3", 10*oneGiB, 0.5)
		},
		"a container that a job started": func(v *sharedStage) {
			v.join(job, "srun", 10*oneGiB, 0.5)
			v.join(docker, "python3", 10*oneGiB, 0.5)
			v.give(job, 0)
		},
		"the same where nobody tells of gifts": func(v *sharedStage) {
			v.join(job, "srun", 10*oneGiB, 0.5)
			v.join(docker, "python3", 10*oneGiB, 0.5)
		},
		"jobs of a scheduler that tells nothing, beside one that does": func(v *sharedStage) {
			v.join(job, "python3", 10*oneGiB, 0.5)
			v.give(train, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newSharedStage(t, DetectorConfig{Sharing: SharingConfig{Allowed: []string{"node-burn*"}}}, 15*time.Second)
			prepare(v)
			v.run(30 * time.Minute)
			v.none(name)
		})
	}
}

func TestProcessOutsideItsAllocation(t *testing.T) {
	v := newSharedStage(t, DetectorConfig{}, 15*time.Second)
	v.join(train, "python3", 30*oneGiB, 0.6)
	v.give(train, 0)
	v.run(20 * time.Minute)
	v.none("a pod on the GPU that it was given")
	v.join(sneak, "python3", 2*oneGiB, 0.3)
	v.also = func(s *collector.Snapshot) {
		s.Workloads = []collector.Workload{
			{Owner: train, Sensitivity: "secret", Readings: collector.NewReadings(metric.Workload)},
			{Owner: sneak, Sensitivity: "public", Readings: collector.NewReadings(metric.Workload)},
		}
		s.GPUs[0].SetAt(metric.ClockEvent, metric.ClockReason.Index("sw_power_cap"), 1)
	}
	v.run(7 * time.Minute)
	f := v.cause(outsideAllocation)
	if f == nil || f.Owner != sneak || f.Severity != rules.Ticket || v.cause(twoOwners) != nil {
		t.Fatalf("a pod on a GPU that another one was given is %+v; want one ticket for it", f)
	}
	if f.Title() != "GPU with data of classes secret and public used by somebody who was not given it" ||
		!strings.Contains(f.Evidence.Seen, "pod vision/sneak (2 GiB, 30 % of the SMs) on GPU 0 beside pod nlp/train-0 (30 GiB, 60 % of the SMs); the GPU is 50 % busy, its clocks held down by sw_power_cap") {
		t.Errorf("told as %s: %s", f.Title(), f.Evidence.Seen)
	}
	// The scheduler gives it a share after all.
	v.give(sneak, 1)
	v.run(8 * time.Minute)
	if v.cause(outsideAllocation) != nil {
		t.Error("it was given the GPU, and the finding has not ended")
	}
	v.given, v.processes = v.given[:1], nil
	v.run(10 * time.Minute)
	v.join(unit, "ollama", 20*oneGiB, 0)
	v.run(7 * time.Minute)
	if f := v.cause(outsideAllocation); f == nil || f.Owner != unit {
		t.Errorf("a service on a GPU that Kubernetes gives away is %+v", f)
	}
	v.known = 0 // the kubelet is gone
	v.run(8 * time.Minute)
	if v.cause(outsideAllocation) != nil {
		t.Error("nobody knows any more who was given what, and the finding has not ended")
	}
}

// Each instance is a device of its own, also over a re-partition.
func TestOwnersOnMIGInstances(t *testing.T) {
	v := newSharedStage(t, DetectorConfig{}, 15*time.Second)
	parts := []string{"1/0", "2/0"}
	v.also = func(s *collector.Snapshot) {
		s.GPUs[0].MIG = true
		s.GPUs[0].Set(metric.MemoryUsed, 30*oneGiB)
		for _, p := range parts {
			var gi int
			if _, err := fmt.Sscanf(p, "%d/0", &gi); err != nil {
				t.Fatal(err)
			}
			s.Instances = append(s.Instances, collector.Instance{UUID: "GPU-0", GI: gi, Readings: collector.NewReadings(metric.Instance)})
		}
	}
	v.join(docker, "python3", 10*oneGiB, 0.5)
	v.join(somebody, "python3", 10*oneGiB, 0.5)
	v.processes[0].MIG, v.processes[1].MIG = "1/0", "2/0"
	v.run(20 * time.Minute)
	parts = []string{"3/0", "4/0"}
	v.processes[0].MIG, v.processes[1].MIG = "3/0", "4/0"
	v.run(20 * time.Minute)
	v.none("owners on instances of their own, before and after a re-partition")
	v.processes[1].MIG = "3/0"
	v.run(7 * time.Minute)
	if f := v.cause(twoOwners); f == nil || !strings.Contains(f.Evidence.Seen, "on GPU 0 instance 3/0 beside") {
		t.Errorf("two owners on one instance are %+v", f)
	}
	if d := sharingOf(v); len(d.devices) != 4 || len(d.order) != 4 {
		t.Errorf("%d devices are kept, want two GPUs and two instances", len(d.devices))
	}
}

func sharingOf(v *sharedStage) *Sharing {
	for _, w := range v.e.watchers {
		if d, ok := w.detector.(*Sharing); ok {
			return d
		}
	}
	v.t.Fatal("no detector of hidden sharing runs")
	return nil
}

func TestMemoryThatNoProcessHolds(t *testing.T) {
	v := newSharedStage(t, DetectorConfig{}, 15*time.Second)
	used, blind := 20.0*oneGiB, func(*collector.Snapshot) {}
	v.also = func(s *collector.Snapshot) {
		s.GPUs[0].Set(metric.MemoryUsed, used)
		blind(s)
	}
	v.join(docker, "python3", 20*oneGiB, 0.5)
	v.run(time.Hour)
	v.none("memory that a process holds")
	v.processes = nil
	v.run(9 * time.Minute)
	v.none("memory that is freed within ten minutes")
	v.run(2 * time.Minute)
	f := v.cause(deadMemory)
	if f == nil || f.Evidence.Seen != "20 GiB of GPU 0 in use for 10 min while the driver lists no process on it" {
		t.Fatalf("memory without a process is %+v", f)
	}
	used = 600 << 20
	v.run(7 * time.Minute)
	if v.cause(deadMemory) != nil {
		t.Error("it was freed, and the finding has not ended")
	}
	blank := newSharedStage(t, DetectorConfig{}, 15*time.Second)
	blank.also = func(s *collector.Snapshot) { s.GPUs[0].Set(metric.MemoryUsed, 20*oneGiB) }
	blank.run(30 * time.Minute)
	blank.none("a driver that has never listed a process")

	for name, set := range map[string]func(*collector.Snapshot){
		"a GPU in MIG mode":       func(s *collector.Snapshot) { s.GPUs[0].MIG = true },
		"confidential computing":  func(s *collector.Snapshot) { s.Node.Set(metric.ConfidentialComputing, 1) },
		"pids of other processes": func(s *collector.Snapshot) { s.Node.Set(metric.NVMLHostPIDs, 0) },
		"virtual machines":        func(s *collector.Snapshot) { s.GPUs[0].Set(metric.VGPUs, 2) },
		"a Grace CPU's files":     func(s *collector.Snapshot) { s.GPUs[0].Model = "NVIDIA GH200 480GB" },
		"nobody lists processes":  func(s *collector.Snapshot) { s.GPUs[0].Readings = collector.NewReadings(metric.GPU) },
	} {
		v.told, used, blind = nil, 20*oneGiB, set
		v.run(20 * time.Minute)
		v.none(name)
	}
}

func TestSharingSurvivesTheClockAndIsBounded(t *testing.T) {
	v := newSharedStage(t, DetectorConfig{}, 15*time.Second)
	v.join(docker, "python3", 10*oneGiB, 0.5)
	v.join(somebody, "python3", 10*oneGiB, 0.5)
	v.run(4 * time.Minute)
	step := -24 * time.Hour
	v.also = func(s *collector.Snapshot) { s.Step = step; step = 0 }
	v.now = v.now.Add(step)
	v.run(30 * time.Second)
	v.none("two owners for less than five minutes, with the clock set back a day")
	v.run(2 * time.Minute)
	if v.cause(twoOwners) == nil {
		t.Error("with the clock set back a day, two owners are no finding after six minutes")
	}
	for i := range 3 * mostTenants {
		v.join(collector.Owner{Kind: "container", ID: fmt.Sprint(i)}, "python3", oneGiB, 0.1)
	}
	v.run(time.Minute)
	if n := len(sharingOf(v).devices[deviceKey{"GPU-0", ""}].tenants); n != mostTenants {
		t.Errorf("%d owners of one GPU are followed, want %d", n, mostTenants)
	}
	v.processes = nil
	v.run(5 * time.Minute)
	if n := len(sharingOf(v).devices[deviceKey{"GPU-0", ""}].tenants); n != 0 {
		t.Errorf("%d owners are followed who have gone", n)
	}
	d := NewSharing(SharingConfig{})
	for _, bad := range []string{"", `{"version":2}`, `{"version":1,"devices":1}`} {
		if d.Restore([]byte(bad)) == nil {
			t.Errorf("the memory %q was taken", bad)
		}
	}
}

// A device that goes from one owner to the next is not used from outside: the list of
// processes and what was given are not of one moment.
func TestADeviceIsHandedOn(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		for _, shared := range []bool{false, true} {
			v := newSharedStage(t, DetectorConfig{}, step)
			v.join(train, "python3", 8<<30, 0.9)
			v.give(train, 0)
			if shared {
				v.give(sneak, 0)
				v.join(sneak, "python3", 8<<30, 0.1)
			}
			v.run(time.Hour)
			v.given = nil // while its processes are still listed
			v.give(sneak, 0)
			v.run(20 * time.Second)
			v.processes = nil
			v.join(sneak, "python3", 8<<30, 0.9)
			v.run(20 * time.Minute)
			v.none(fmt.Sprintf("a device went to the next owner, every %s, shared before: %v", step, shared))
			v.join(train, "python3", 8<<30, 0.9)
			v.run(time.Minute)
			v.restart()
			v.run(5 * time.Minute)
			if f := v.cause(outsideAllocation); f == nil || f.Owner != train {
				t.Errorf("every %s: who had it before uses it again, and is not told of: %v", step, f)
			}
		}
	}
}
