package owner

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// instances are the MIG instances that the handed answer speaks of.
func instances() []collector.Instance {
	mig := func(gpuIndex, gi, ci int, n string) collector.Instance {
		return collector.Instance{GPU: gpuIndex, UUID: gpu(gpuIndex), GI: gi, CI: ci, MIGUUID: "MIG-00000000-0000-5000-8000-0000000000" + n}
	}
	return []collector.Instance{mig(2, 3, 0, "23"), mig(2, 3, 1, "24"), mig(3, 1, 0, "31"), mig(9, 1, 0, "10"), mig(9, 2, 0, "11"), mig(9, 3, 0, "12")}
}

func (n *node) minors(uuids ...string) {
	for i, uuid := range uuids {
		n.write(fmt.Sprintf("Model: \t\t NVIDIA H100\nGPU UUID: \t %s\nBus Location: \t 0000:0%d:00.0\nDevice Minor: \t %d\n", uuid, i, i),
			"proc", "driver", "nvidia", "gpus", fmt.Sprintf("0000:0%d:00.0", i), "information")
	}
}

func TestEveryDeviceIDOfTheKubelet(t *testing.T) {
	k := &kubelet{answer: func() (*podresources.ListPodResourcesResponse, error) { return handedAnswer(t), nil }}
	n := newNode(t)
	n.snap.Instances = instances()
	n.minors(gpu(5), gpu(1), gpu(2)) // the first device file is not the first GPU of NVML
	n.cfg.Kubelet = NewKubelet(serveKubelet(t, k))
	if _, err := n.cfg.Kubelet.Sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	part := n.sample(n.source())
	got := map[string][]string{}
	for _, a := range part.Allocations {
		name := strings.Split(a.Owner.ID, "/")[1]
		got[name] = append(got[name], fmt.Sprintf("%s %s shares=%d", a.UUID[len(a.UUID)-2:], a.MIG, a.Shares))
	}
	want := map[string][]string{
		"train-0": {"01  shares=0", "02  shares=0"}, "mig-mixed": {"09 2/0 shares=0"}, "mig-single-strategy": {"09 3/0 shares=0"},
		"mig-old-uuid": {"03 1/0 shares=0"}, "slice-a": {"04  shares=1"}, "slice-b": {"04  shares=2"}, "slice-renamed-off": {"05  shares=1"},
		"mig-slice": {"09 1/0 shares=1"}, "bare-suffix": {"06  shares=1"}, "gke-shared": {"05  shares=1"}, "gke-whole": {"01  shares=0"},
		"gke-mig": {"02 3/0 shares=0", "02 3/1 shares=0"}, "fractional": {"07  shares=1"}, "native-sidecar": {"08  shares=0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who was given what (-want +got):\n%s", diff)
	}
	claim := func(w collector.Workload) bool { return w.ID == "dra/claim" }
	if !slices.ContainsFunc(part.Workloads, claim) || part.Node.Value(metric.AllocationsUnresolved) != 1 {
		t.Errorf("the pod with a claim is no owner, or its claim is not counted: %v", part.Node.Value(metric.AllocationsUnresolved))
	}
	if age := part.Node.Value(metric.KubeletAge); !(age >= 0 && age < 60) {
		t.Errorf("the answer is %v s old", age)
	}
	requireEachPodOf(t, "testdata/expected-podresources.csv", want)
}

// requireEachPodOf holds the test to the handed list of pods.
func requireEachPodOf(t *testing.T, path string, want map[string][]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		shared := strings.Contains(row[2], "shared")
		if row[2] == "dra" {
			continue
		}
		if got := want[row[0]]; len(got) == 0 || shared == strings.HasSuffix(got[0], "shares=0") {
			t.Errorf("%s: the test wants %v, the list says %v", row[0], got, row)
		}
	}
}

func TestLastAnswerStandsForAWhile(t *testing.T) {
	fail := false
	k := &kubelet{answer: func() (*podresources.ListPodResourcesResponse, error) {
		if fail {
			return nil, status.Error(codes.Unavailable, "the kubelet starts")
		}
		return handedAnswer(t), nil
	}}
	n := newNode(t)
	n.cfg.Kubelet = NewKubelet(serveKubelet(t, k))
	s := n.source()
	if known := n.sample(s).Node.Value(metric.AllocationsKnown); known != 0 {
		t.Errorf("before the kubelet was asked vigil_allocations_known is %v, want 0", known)
	}
	if _, err := n.cfg.Kubelet.Sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := len(n.sample(s).Allocations)
	fail = true
	if _, err := n.cfg.Kubelet.Sample(t.Context()); err == nil || errors.Is(err, collector.ErrAbsent) {
		t.Errorf("a kubelet that does not answer: error %v, want one", err)
	}
	part := n.sample(s)
	if got := len(part.Allocations); got != all || all == 0 || part.Node.Value(metric.AllocationsKnown) != 1 {
		t.Errorf("when the kubelet fails %d of %d allocations are left, vigil_allocations_known is %v", got, all, part.Node.Value(metric.AllocationsKnown))
	}
	reloaded := NewKubelet(n.cfg.Kubelet.dir)
	reloaded.Inherit(n.cfg.Kubelet)
	other := NewKubelet(t.TempDir())
	other.Inherit(n.cfg.Kubelet)
	if reloaded.last.Load() == nil || other.last.Load() != nil {
		t.Error("a new configuration forgets what the same kubelet said, or believes another's")
	}
	old := *n.cfg.Kubelet.last.Load()
	old.at = old.at.Add(-2 * n.cfg.KubeletKeep)
	n.cfg.Kubelet.last.Store(&old)
	part = n.sample(s)
	if len(part.Allocations) != 0 || part.Node.Value(metric.AllocationsKnown) != 0 || part.Node.Value(metric.KubeletAge) < n.cfg.KubeletKeep.Seconds() {
		t.Errorf("an answer that is too old still has %d allocations; its age is %v s", len(part.Allocations), part.Node.Value(metric.KubeletAge))
	}
}

func TestKubeletIsAbsent(t *testing.T) {
	for name, k := range map[string]*Kubelet{
		"no kubelet":      NewKubelet(t.TempDir()),
		"one that is old": NewKubelet(serveKubelet(t, podresources.UnimplementedPodResourcesListerServer{})),
	} {
		if part, err := k.Sample(t.Context()); !errors.Is(err, collector.ErrAbsent) || part.Time.IsZero() {
			t.Errorf("%s: error %v, want one that says it is not on this machine", name, err)
		}
		if !k.known(time.Now(), time.Minute) {
			t.Errorf("%s: it gives GPUs to nobody, and is waited for", name)
		}
	}
}

// TestLargeAnswer is that of a node with many fine virtual devices, which the default
// of gRPC refuses.
func TestLargeAnswer(t *testing.T) {
	large := handedAnswer(t)
	fine := &podresources.ContainerDevices{ResourceName: "example.com/fine"}
	for i := range 120_000 {
		fine.DeviceIds = append(fine.DeviceIds, fmt.Sprintf("%0200d", i))
	}
	large.PodResources[0].Containers[0].Devices = append(large.PodResources[0].Containers[0].Devices, fine)
	k := NewKubelet(serveKubelet(t, &kubelet{answer: func() (*podresources.ListPodResourcesResponse, error) { return large, nil }}))
	k.wait = time.Minute // it is size that is tried, on whatever machine
	if _, err := k.Sample(t.Context()); err != nil {
		t.Fatalf("an answer of 24 MB is refused: %v", err)
	}
	if n := len(k.last.Load().grants); n == 0 || n > 50 {
		t.Errorf("of the answer %d allocations of GPUs are kept", n)
	}
}

func TestJobsOfTheMappingFolder(t *testing.T) {
	n := newNode(t)
	n.snap.Instances = []collector.Instance{{GPU: 1, UUID: gpu(1), GI: 7, CI: 0}}
	n.cfg.JobMapping = n.path("jobs")
	for _, name := range []string{"0", "1.7", "2"} {
		content, err := os.ReadFile("testdata/job-mapping/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n.write(string(content), "jobs", name)
	}
	n.write("1\n", "jobs", "README")
	n.write("../../etc\n\x1b[31m\n", "jobs", "3")
	n.write("1320009\n", "jobs", "77") // the node has no such GPU
	given := func(part *collector.Part) []string {
		var out []string
		for _, a := range part.Allocations {
			out = append(out, fmt.Sprint(a.UUID[len(a.UUID)-1:], " ", a.MIG, " ", a.Owner))
		}
		slices.Sort(out)
		return out
	}
	s := n.source()
	part := n.sample(s)
	all := []string{"0  job:slurm/1320003", "0  job:slurm/1320004", "1 7/0 job:slurm/1320005"}
	if diff := cmp.Diff(all, given(part)); diff != "" {
		t.Errorf("jobs by GPU (-want +got):\n%s", diff)
	}
	if got := part.Node.Value(metric.AllocationsUnresolved); got != 1 {
		t.Errorf("%v jobs are of no GPU here, want 1", got)
	}

	// A crash: the epilog has not run, and of the jobs only one has a cgroup.
	n.write("", "sys", "fs", "cgroup", "system.slice", "slurmstepd.scope", "job_1320004", "cgroup.procs")
	s.jobs.read = time.Time{}
	if part = n.sample(s); len(part.Allocations) != 3 || part.Node.Value(metric.StaleJobs) != 0 {
		t.Errorf("files that the prolog has just written are taken for old: %v", given(part))
	}
	for _, name := range []string{"0", "1.7", "77"} {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(n.path("jobs", name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.jobs.read = time.Time{}
	part = n.sample(s)
	if diff := cmp.Diff(all[1:2], given(part)); diff != "" || part.Node.Value(metric.StaleJobs) != 3 {
		t.Errorf("after a crash (-want +got), %v stale:\n%s", part.Node.Value(metric.StaleJobs), diff)
	}
}

func TestRunningJobsOfCgroupV1(t *testing.T) {
	n := newNode(t)
	n.write("", "sys", "memory", "slurm_node1", "uid_1000", "job_9", "tasks")
	running, judged := runningJobs(n.path("sys"))
	if !judged || !running["9"] || len(running) != 1 {
		t.Errorf("running %v, judged %v: want job 9", running, judged)
	}
}

func FuzzDeviceID(f *testing.F) {
	for _, p := range handedAnswer(f).PodResources {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				for _, id := range d.DeviceIds {
					f.Add(id)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, id string) {
		d, ok := parseDevice(id, true)
		if named := d.uuid != "" || d.mig != "" || d.minor >= 0; named != ok {
			t.Errorf("%q: known %v, and it is %+v", id, ok, d)
		}
		if d.uuid != "" && !strings.Contains(id, d.uuid) || d.mig != "" && !strings.HasPrefix(id, d.mig) {
			t.Errorf("%q is not %+v", id, d)
		}
	})
}

func FuzzFiles(f *testing.F) {
	f.Add("1 (a) S 1 1 1 0 -1 4194304 0 0 0 0 100 20 0 0 20 0 1 0 5 0 0")
	f.Add("Uid:\t1000\t0\t0\t0\n")
	f.Add("root:x:0:0::/root:/bin/sh\n")
	f.Add(`{"Name":"/a","Config":{"Labels":{"a":"b"}}}`)
	f.Add("SLURM_JOB_ACCOUNT=a\n")
	f.Add("GPU UUID: GPU-00000000-0000-4000-8000-000000000001\nDevice Minor: 3\n")
	f.Add("nlp_train-0_" + podA)
	f.Fuzz(func(t *testing.T, content string) {
		if start, err := collector.ProcessStart(content); err != nil && start != 0 {
			t.Errorf("start time %d beside %v", start, err)
		}
		if uid, err := realUID(content); (uid < 0) != (err != nil) {
			t.Errorf("uid %d beside %v", uid, err)
		}
		for uid, name := range parsePasswd(strings.NewReader(content)) {
			if uid < 0 || len([]rune(name)) > maxName {
				t.Errorf("user %d is %q", uid, name)
			}
		}
		if c, err := parseDocker(content); err == nil && strings.ContainsAny(c.name, "\n\x00\x1b") {
			t.Errorf("a container is called %q", c.name)
		}
		if f := parseJobFacts(content); strings.ContainsAny(f.account+f.user+f.partition, "\n\x00\x1b") {
			t.Errorf("a job is %+v", f)
		}
		if minor, uuid := parseInformation(content); minor < -1 || uuid != "" && !strings.HasPrefix(uuid, "GPU-") {
			t.Errorf("GPU %q has minor %d", uuid, minor)
		}
		n := names{pods: map[string]pod{}, containers: map[string]string{}}
		n.readPod(content)
		n.readContainer(content)
		for _, p := range n.pods {
			if strings.Contains(p.namespace+p.name, "/") {
				t.Errorf("a pod is called %+v", p)
			}
		}
		if m := unescapeUnit(content); len(m) > len(content) {
			t.Errorf("%q became longer: %q", content, m)
		}
	})
}

// TestAFolderThatCannotBeListedLeavesUnknownWhoHasWhat is that of a prolog's folder in
// whose place there is something else: nobody may take its GPUs for free.
func TestAFolderThatCannotBeListedLeavesUnknownWhoHasWhat(t *testing.T) {
	n := newNode(t)
	n.cfg.JobMapping = n.path("jobs")
	if known := n.sample(n.source()).Node.Value(metric.AllocationsKnown); known != 1 {
		t.Errorf("without a folder, as before the first job, vigil_allocations_known is %v, want 1", known)
	}
	n.write("4711\n", "jobs")
	part, err := n.source().Sample(t.Context())
	if known := part.Node.Value(metric.AllocationsKnown); known != 0 || err == nil {
		t.Errorf("a file in the folder's place: vigil_allocations_known is %v and the error %v, want 0 and one", known, err)
	}
}
