package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// softStage is a stage whose GPUs, processes and software a test sets.
type softStage struct {
	*stage
	node      map[string]string // versions of components in place of the stage's
	runtimes  []collector.Runtime
	images    []collector.Image
	processes []collector.Process
	gpus      func(gpus []collector.GPU)
	blind     bool // nobody looks at what processes have loaded
}

func newSoftStage(t *testing.T, cfg MismatchConfig, step time.Duration) *softStage {
	v := &softStage{stage: newStage(t, DetectorConfig{Mismatch: cfg}, step), node: map[string]string{}, gpus: func([]collector.GPU) {}}
	v.set = func(s *collector.Snapshot) {
		for i := range 6 {
			g := s.GPUs[0]
			g.Index, g.UUID = i+2, fmt.Sprintf("GPU-%d", i+2)
			g.Readings = g.Clone()
			s.GPUs = append(s.GPUs, g)
		}
		for i := range s.Node.Versions {
			if value, ok := v.node[s.Node.Versions[i].Component]; ok {
				s.Node.Versions[i].Value = value
			}
		}
		for _, c := range []string{"container_toolkit", "driver_library", "fabric_manager", "kernel_module"} {
			if v.node[c] != "" {
				s.Node.Versions = append(s.Node.Versions, collector.Version{Component: c, Value: v.node[c]})
			}
		}
		v.gpus(s.GPUs)
		s.Processes = v.processes
		if !v.blind {
			s.Inventory = &collector.Inventory{At: s.Time.Truncate(time.Minute), Runtimes: slices.Clone(v.runtimes), Images: slices.Clone(v.images)}
			s.Inventory.Sort()
		}
	}
	return v
}

// process puts a process of an owner on a GPU.
func rankProcess(o collector.Owner, container, name string, pid, gpu int) collector.Process {
	p := collector.Process{PID: pid, Start: uint64(pid), Name: name, GPU: gpu, UUID: fmt.Sprintf("GPU-%d", gpu), Owner: o, Container: container,
		Readings: collector.NewReadings(metric.Process)}
	p.Set(metric.ProcessMemoryUsed, 10<<30)
	p.Set(metric.ProcessUtilization, 0.4)
	return p
}

// ranks puts so many processes of one program on as many GPUs.
func (v *softStage) ranks(o collector.Owner, n int) {
	for i := range n {
		v.processes = append(v.processes, rankProcess(o, "main", "python3", 100+len(v.processes), i))
	}
}

func (v *softStage) loaded(o collector.Owner, component, version string, n int) {
	v.runtimes = append(v.runtimes, collector.Runtime{Owner: o, Component: component, Version: version, Processes: n})
}

// mismatch returns the finding of the cause that fires, or nil.
func (v *softStage) mismatch(cause string) *Finding {
	for _, f := range v.e.View().Findings {
		if f.Rule == rules.IDVersionMismatch && f.Cause == cause && f.State == Firing {
			return &f
		}
	}
	return nil
}

// none fails the test if a mismatch was ever a finding.
func (v *softStage) none(why string) {
	v.t.Helper()
	for _, in := range v.told {
		if in.Rule == rules.IDVersionMismatch {
			v.t.Errorf("%s: told %s of %s: %s", why, in.State, in.Cause, in.Members[0].Evidence.Seen)
		}
	}
}

func (v *softStage) finds(cause, subject, seen string) *Finding {
	v.t.Helper()
	f := v.mismatch(cause)
	if f == nil {
		v.t.Fatalf("no finding of %s; there are %+v", cause, v.e.View().Findings)
	}
	if f.Subject.String() != subject || f.Evidence.Seen != seen {
		v.t.Errorf("%s of %s: %s\nwant %s: %s", cause, f.Subject, f.Evidence.Seen, subject, seen)
	}
	if f.Severity > rules.Ticket {
		v.t.Errorf("%s wakes somebody", cause)
	}
	return f
}

var (
	slurmJob = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	chatPod  = collector.Owner{Kind: "pod", ID: "nlp/chat-7d9f8b6c5-x2kqz"}
	chatPod2 = collector.Owner{Kind: "pod", ID: "nlp/chat-7d9f8b6c5-bw7v4"}
)

func TestRanksOfAJobThatDiffer(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		v := newSoftStage(t, MismatchConfig{}, step)
		v.ranks(slurmJob, 8)
		v.loaded(slurmJob, "torch", "2.9.1", 8)
		v.loaded(slurmJob, "nccl", "2.27.7", 8)
		v.run(15 * time.Minute)
		v.none("a job whose ranks are alike")
		v.runtimes = v.runtimes[:1]
		v.loaded(slurmJob, "nccl", "2.27.7", 7)
		v.loaded(slurmJob, "nccl", "2.26.2", 1)
		v.run(12 * time.Minute)
		f := v.finds(ranksDiffer, "job:slurm/4711", "job slurm/4711: nccl 2.26.2 in 1 rank, 2.27.7 in 7 ranks")
		if f.Owner != slurmJob || f.Severity != rules.Ticket {
			t.Errorf("it is a %s for %s, want a ticket for the job", f.Severity, f.Owner)
		}
		v.runtimes, v.processes = nil, nil // the job has ended
		v.run(12 * time.Minute)
		if v.mismatch(ranksDiffer) != nil {
			t.Error("the job has ended, and its finding has not")
		}
	}
}

func TestWhatLooksLikeRanksThatDiffer(t *testing.T) {
	other := collector.Owner{Kind: "pod", ID: "vision/train-0"}
	for name, prepare := range map[string]func(v *softStage){
		"every process has loaded both": func(v *softStage) {
			v.ranks(slurmJob, 4)
			v.loaded(slurmJob, "cuda_runtime", "12.8.90", 4)
			v.loaded(slurmJob, "cuda_runtime", "11.8.89", 4)
		},
		"a sidecar in the pod": func(v *softStage) {
			v.processes = []collector.Process{rankProcess(chatPod, "main", "python3", 1, 0), rankProcess(chatPod, "preprocess", "python3", 2, 0)}
			v.loaded(chatPod, "torch", "2.9.1", 1)
			v.loaded(chatPod, "torch", "2.4.0", 1)
		},
		"two programs in one job": func(v *softStage) {
			v.processes = []collector.Process{rankProcess(slurmJob, "", "trainer", 1, 0), rankProcess(slurmJob, "", "vllm", 2, 1)}
			v.loaded(slurmJob, "torch", "2.9.1", 1)
			v.loaded(slurmJob, "torch", "2.8.0", 1)
		},
		"two jobs": func(v *softStage) {
			v.ranks(slurmJob, 1)
			v.ranks(other, 1)
			v.loaded(slurmJob, "torch", "2.9.1", 1)
			v.loaded(other, "torch", "2.8.0", 1)
		},
		"a version that is not told": func(v *softStage) {
			v.ranks(slurmJob, 2)
			v.loaded(slurmJob, "torch", "2.9.1", 1)
			v.loaded(slurmJob, "torch", "unknown", 1)
		},
		"a user's processes": func(v *softStage) {
			user := collector.Owner{Kind: "user", ID: "1000"}
			v.ranks(user, 2)
			v.loaded(user, "torch", "2.9.1", 1)
			v.loaded(user, "torch", "2.8.0", 1)
		},
		"the next ReplicaSet of a Deployment": func(v *softStage) {
			next := collector.Owner{Kind: "pod", ID: "nlp/chat-5c4d7b9f66-qqzvk"}
			v.images = []collector.Image{{Owner: chatPod, Container: "main", Name: "chat:1"}, {Owner: next, Container: "main", Name: "chat:2"}}
		},
		"pods that somebody numbered": func(v *softStage) {
			v.images = []collector.Image{
				{Owner: collector.Owner{Kind: "pod", ID: "x/exp-1"}, Container: "main", Name: "a:1", Digest: "sha256:11"},
				{Owner: collector.Owner{Kind: "pod", ID: "x/exp-2"}, Container: "main", Name: "b:1", Digest: "sha256:22"},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newSoftStage(t, MismatchConfig{}, time.Minute)
			prepare(v)
			v.run(4 * time.Hour)
			v.none(name)
		})
	}
}

func TestReplicasOfAServiceThatDiffer(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{}, time.Minute)
	v.images = []collector.Image{
		{Owner: chatPod, Container: "main", Name: "chat:latest", Digest: "sha256:0123456789abcdef"},
		{Owner: chatPod2, Container: "main", Name: "chat:latest", Digest: "sha256:fedcba9876543210"},
		{Owner: chatPod2, Container: "proxy", Name: "envoy:1"}, // of a webhook that one of them missed
	}
	v.ranks(chatPod, 1)
	v.ranks(chatPod2, 1)
	v.loaded(chatPod, "vllm", "0.11.0", 1)
	v.loaded(chatPod2, "vllm", "0.10.2", 1)
	v.run(12 * time.Minute)
	v.finds(ranksDiffer, "pods:nlp/chat-7d9f8b6c5", "pods nlp/chat-7d9f8b6c5: image of main 0123456789ab in 1 pod, fedcba987654 in 1 pod; "+
		"vllm 0.10.2 in 1 pod, 0.11.0 in 1 pod; another one is in pod nlp/chat-7d9f8b6c5-x2kqz")
}

// The pods of a StatefulSet are replaced one after the other, and the tag has moved.
func TestStatefulSetInTheMidstOfARollOut(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{}, time.Minute)
	digest := func(n int) {
		v.images = nil
		for i := range 4 {
			d := "sha256:old"
			if i < n {
				d = "sha256:new"
			}
			v.images = append(v.images, collector.Image{Owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/llm-%d", i)}, Container: "main", Name: "llm:latest", Digest: d})
		}
	}
	for n := range 4 {
		digest(n)
		v.run(100 * time.Minute)
	}
	v.none("a roll-out of which one pod goes on each hour and a half")
	v.restart()
	v.run(45 * time.Minute)
	v.finds(ranksDiffer, "pods:nlp/llm", "pods nlp/llm: image llm:latest sha256:new in 3 pods, sha256:old in 1 pod; another one is in pod nlp/llm-3")
	digest(4)
	v.run(12 * time.Minute)
	if v.mismatch(ranksDiffer) != nil {
		t.Error("the roll-out is done, and the finding is still there")
	}
}

func TestFirmwareThatDiffersIsInformation(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{}, time.Minute)
	v.gpus = func(gpus []collector.GPU) {
		gpus[3].VBIOS, gpus[5].VBIOS = "96.00.99", "96.00.99"
		for i := range gpus {
			gpus[i].InfoROM = "G520"
		}
		gpus[6].BoardPart, gpus[6].VBIOS = "another", "1" // another board has another VBIOS
		gpus[7].Model, gpus[7].VBIOS, gpus[7].InfoROM = "A100", "92", "G506"
		gpus[4].Present, gpus[4].VBIOS = false, "0"
	}
	v.run(12 * time.Minute)
	f := v.finds(gpusDiffer, "node:n1", "GPUs 3, 5 with vbios 96.00.99, 3 of 5 H100 have 96.00.74")
	if f.Severity != rules.Info {
		t.Errorf("a VBIOS of a minority is %s, want information", f.Severity)
	}
}

func TestCUDARuntimeAgainstTheDriver(t *testing.T) {
	for name, c := range map[string]struct {
		driver, cuda, runtime, libcuda string
		seen                           string
	}{
		"a minor version ahead":          {"525.60.13", "12.0", "12.9.79", "525.60.13", ""},
		"a major version behind":         {"580.65.06", "13.0", "11.8.89", "580.65.06", ""},
		"a major version ahead":          {"570.124.06", "12.8", "13.0.48", "570.124.06", "job slurm/4711 has loaded CUDA runtime 13.0.48 on driver 570.124.06, which runs CUDA 12"},
		"the same without its libcuda":   {"570.124.06", "12.8", "13.0.48", "", "job slurm/4711 has loaded CUDA runtime 13.0.48 on driver 570.124.06, which runs CUDA 12"},
		"forward compatibility":          {"570.124.06", "12.8", "13.0.48", "580.65.06", ""},
		"a libcuda that does not tell":   {"570.124.06", "12.8", "13.0.48", "unknown", ""},
		"a driver newer than the table":  {"700.10", "14.1", "14.0.1", "700.10", ""},
		"a runtime newer than the table": {"580.65.06", "13.0", "14.0.1", "580.65.06", "job slurm/4711 has loaded CUDA runtime 14.0.1 on driver 580.65.06, which runs CUDA 13"},
		"its libcuda from there, too":    {"580.65.06", "13.0", "14.0.1", "700.10", ""},
		"nobody tells of the driver":     {"", "", "13.0.48", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newSoftStage(t, MismatchConfig{}, time.Minute)
			v.node = map[string]string{"driver": c.driver, "cuda": c.cuda, "nvml": ""}
			v.ranks(slurmJob, 1)
			v.loaded(slurmJob, "cuda_runtime", c.runtime, 1)
			if c.libcuda != "" {
				v.loaded(slurmJob, "libcuda", c.libcuda, 1)
			}
			v.run(12 * time.Minute)
			if c.seen == "" {
				v.none(name)
				return
			}
			v.finds(runtimeNewer, "job:slurm/4711", c.seen)
		})
	}
}

func TestDriverThatWasNotReloaded(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{}, time.Minute)
	v.node["kernel_module"], v.node["driver_library"] = "570.86", "570.86"
	v.run(time.Hour)
	v.node["driver_library"] = "580.65" // the package was upgraded, the node is booted soon after
	v.run(25 * time.Minute)
	v.node["kernel_module"], v.node["driver"], v.node["nvml"], v.node["cuda"] = "580.65", "580.65", "13.580.65", "13.0"
	v.run(time.Hour)
	v.none("an upgrade whose reload came 25 minutes later")
	for _, in := range v.told {
		if in.Severity > rules.Info {
			t.Errorf("a planned upgrade raised a %s of %s", in.Severity, in.Rule)
		}
	}

	v.node["driver_library"] = "580.82"
	v.run(20 * time.Minute)
	v.restart()
	v.run(25 * time.Minute)
	f := v.mismatch(moduleDiffers)
	if f == nil || f.Severity != rules.Ticket || !strings.HasPrefix(f.Evidence.Seen, "the kernel module is 580.65, the driver's library 580.82, for ") {
		t.Fatalf("a driver that was not reloaded for 45 minutes is %+v", f)
	}
	v.restart()
	v.now = v.now.Add(20 * time.Minute) // the agent was away
	v.run(15 * time.Minute)
	if v.mismatch(moduleDiffers) == nil {
		t.Error("an agent that was restarted took the finding for over")
	}
	v.node["kernel_module"] = "580.82"
	v.run(12 * time.Minute)
	if v.mismatch(moduleDiffers) != nil {
		t.Error("it was reloaded, and the finding is still there")
	}
}

// A node is drained, its driver replaced and its modules reloaded, while the agent holds
// no file of the driver, and everything comes back newer.
func TestPlannedUpgradeOfADriver(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		v := newSoftStage(t, MismatchConfig{}, step)
		gsp, away := "570.86", false
		v.gpus = func(gpus []collector.GPU) {
			for i := range gpus {
				gpus[i].GSP, gpus[i].Present = gsp, !away
			}
		}
		plain := v.set
		v.set = func(s *collector.Snapshot) {
			plain(s)
			if away {
				s.Node.Versions = slices.DeleteFunc(s.Node.Versions, func(x collector.Version) bool {
					return x.Component == "driver" || x.Component == "cuda" || x.Component == "nvml" || x.Component == "kernel_module"
				})
			}
		}
		v.node["kernel_module"], v.node["driver_library"] = "570.86", "570.86"
		v.run(20 * time.Minute)
		v.node["driver_library"] = "580.65" // installed
		v.run(time.Minute)
		away = true // released, and unloaded
		v.run(9 * time.Minute)
		v.restart()
		away, gsp = false, "580.65"
		v.node["kernel_module"], v.node["driver"], v.node["nvml"], v.node["cuda"] = "580.65", "580.65", "13.580.65", "13.0"
		v.run(40 * time.Minute)
		told := map[string]int{}
		for _, in := range v.told {
			if in.Rule == rules.IDVersionChanged || in.Rule == rules.IDVersionMismatch {
				if in.Severity > rules.Info {
					t.Errorf("at steps of %v a planned upgrade raised a %s of %s: %s", step, in.Severity, in.Rule, in.Members[0].Evidence.Seen)
				}
				told[in.Cause]++
			}
		}
		if len(told) != 2 || told["driver"] != 1 || told["driver_library"] != 1 {
			t.Errorf("at steps of %v a planned upgrade is told as %v, want the library that was installed and the driver that came", step, told)
		}
	}
}

func TestFabricManagerOfAnotherVersion(t *testing.T) {
	joined := func(gpus []collector.GPU) {
		for i := range gpus {
			gpus[i].Set(metric.FabricState, 3)
		}
	}
	for name, c := range map[string]struct {
		manager string
		gpus    func([]collector.GPU)
		seen    string
	}{
		"the same":                           {"570.86", joined, ""},
		"the same, as a package is numbered": {"570.86-1", joined, ""},
		"another one":                        {"580.65", joined, "the fabric manager is 580.65, the driver 570.86, for "},
		"another one without NVSwitches":     {"580.65", func([]collector.GPU) {}, ""},
		"none":                               {"", joined, ""},
		"one that does not tell":             {"unknown", joined, ""},
	} {
		v := newSoftStage(t, MismatchConfig{}, time.Minute)
		v.gpus, v.node["fabric_manager"] = c.gpus, c.manager
		v.run(25 * time.Minute)
		v.none(name + ", within the time that an upgrade takes")
		v.run(20 * time.Minute)
		f := v.mismatch(fabricDiffers)
		if c.seen == "" && f != nil || c.seen != "" && (f == nil || f.Severity != rules.Ticket || !strings.HasPrefix(f.Evidence.Seen, c.seen)) {
			t.Errorf("a fabric manager that is %s gives %+v, want %q", name, f, c.seen)
		}
	}
}

// The library that the agent itself talks to says enough where nobody looks at files.
func TestLibraryOfNVMLAgainstTheDriver(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{}, time.Minute)
	v.node["nvml"] = "12.575.57"
	v.run(45 * time.Minute)
	if f := v.mismatch(moduleDiffers); f == nil || !strings.Contains(f.Evidence.Seen, "570.86, the driver's library 575.57") {
		t.Errorf("an NVML of another driver is %+v", f)
	}
}

func TestBadAndUnapprovedVersions(t *testing.T) {
	v := newSoftStage(t, MismatchConfig{
		Approved: map[string][]string{"driver": {"570.*", "580.65.06"}, "nccl": {"2.27.*"}},
		KnownBad: []BadVersions{{Component: "torch", Versions: []string{"2.9.0"}, Why: "it leaks memory here"}},
	}, time.Minute)
	v.node["container_toolkit"] = "1.17.8"
	v.ranks(slurmJob, 1)
	v.loaded(slurmJob, "nccl", "2.27.7", 1)
	v.loaded(slurmJob, "torch", "2.9.1", 1)
	v.loaded(slurmJob, "cudnn", "9.10.2", 1) // not in the list, so not judged
	v.run(15 * time.Minute)
	v.none("versions that are approved")

	v.node["container_toolkit"], v.node["driver"], v.node["nvml"] = "1.17.6", "575.57", "12.575.57"
	v.runtimes[1].Version = "2.9.0"
	v.loaded(slurmJob, "nccl", "unknown", 1)
	v.run(15 * time.Minute)
	found := map[string]string{}
	for _, f := range v.e.View().Findings {
		if f.Rule == rules.IDVersionMismatch && f.State == Firing {
			found[f.Subject.String()+" "+f.Cause] = f.Evidence.Seen
		}
	}
	want := map[string]string{
		"node:n1 known_bad":        "container_toolkit 1.17.6: an image can run code as root on the node (CVE-2025-23266)",
		"node:n1 not_approved":     "driver 575.57 (approved: 570.*, 580.65.06)",
		"job:slurm/4711 known_bad": "torch 2.9.0: it leaks memory here",
	}
	for key, seen := range want {
		if found[key] != seen {
			t.Errorf("%s is told as %q, want %q", key, found[key], seen)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %v, want those three", found)
	}

	// Nobody looks any more: that is no news.
	v.blind = true
	v.run(11 * time.Minute)
	if v.mismatch(knownBad) == nil {
		t.Error("what nobody can see any more was taken for gone")
	}
}

func TestMismatchSurvivesTheClock(t *testing.T) {
	d := NewMismatch(MismatchConfig{})
	s := node(day, 2)
	s.Node.Versions = append(s.Node.Versions, collector.Version{Component: "driver_library", Value: "580.65"})
	score := func(s *collector.Snapshot) (worst float64) {
		d.Observe(s, func(o Observation) { worst = max(worst, o.Score) })
		return worst
	}
	score(s)
	for range 40 {
		s.Time = s.Time.Add(30 * time.Second)
		score(s)
	}
	before := score(s)
	d.Shift(-24 * time.Hour)
	s.Time = s.Time.Add(-24 * time.Hour)
	if got := score(s); got != before || got < 0.6 || got >= 1 {
		t.Errorf("after the clock was set back a day the score is %v, was %v; want 20 of 30 minutes", got, before)
	}
}

func TestMismatchIsBounded(t *testing.T) {
	d := NewMismatch(MismatchConfig{Approved: map[string][]string{"torch": {"1"}}})
	s := node(day, 2)
	s.Inventory = &collector.Inventory{At: day}
	for i := range 2 * mostClash {
		s.Inventory.Runtimes = append(s.Inventory.Runtimes, collector.Runtime{Owner: collector.Owner{Kind: "pod", ID: fmt.Sprint("x/p", i)}, Component: "torch", Version: "2"})
	}
	n := 0
	d.Observe(s, func(Observation) { n++ })
	if n != mostClash {
		t.Errorf("%d conditions are followed, want %d", n, mostClash)
	}
	data, err := d.Save()
	if err != nil || !json.Valid(data) {
		t.Fatalf("save: %v", err)
	}
	s.Inventory.Runtimes = nil
	s.Time = s.Time.Add(goneAfter + time.Minute)
	s.Inventory.At = s.Time
	d.Observe(s, func(Observation) {})
	if len(d.clashes) != 0 {
		t.Errorf("%d conditions are kept that were over half an hour ago", len(d.clashes))
	}
	for _, bad := range []string{"", `{"version":7}`, `{"version":1,"clashes":3}`} {
		if d.Restore([]byte(bad)) == nil {
			t.Errorf("the memory %q was taken", bad)
		}
	}
	if err := d.Restore([]byte(`{"version":1,"clashes":[null,{}]}`)); err != nil || slices.Contains(d.clashes, nil) {
		t.Errorf("a memory with holes gives %v, %v", d.clashes, err)
	}
}
