package movement

import (
	"encoding/csv"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// ownersIn is where the recorded processes' owners have their directories.
var ownersIn = map[string]string{
	"proc-cgroup-v2-k8s-systemd-containerd-burstable.txt":  "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v2-k8s-systemd-containerd-guaranteed.txt": "kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v2-k8s-cgroupfs-containerd.txt":           "kubepods/burstable/pod0a1b2c3d-0000-4000-8000-00000000000a",
	"proc-cgroup-v2-k8s-cgroupfs-guaranteed.txt":           "kubepods/pod0a1b2c3d-0000-4000-8000-00000000000a",
	"proc-cgroup-v2-k8s-docker-systemd.txt":                "kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v1-k8s-cgroupfs.txt":                      "memory/kubepods/burstable/pod0a1b2c3d-0000-4000-8000-00000000000a",
	"proc-cgroup-v2-k8s-systemd-besteffort-crio.txt":       "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v2-k8s-systemd-crio-container-child.txt":  "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v2-k8s-relative-namespace.txt":            "kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice",
	"proc-cgroup-v2-docker-systemd.txt":                    "system.slice/docker-" + id64 + ".scope",
	"proc-cgroup-v2-docker-cgroupfs.txt":                   "docker/" + id64,
	"proc-cgroup-v1-docker.txt":                            "memory/docker/" + id64,
	"proc-cgroup-v2-podman-rootless.txt":                   "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id64 + ".scope",
	"proc-cgroup-v2-slurm-task.txt":                        "system.slice/slurmstepd.scope/job_1320003",
	"proc-cgroup-v2-slurm-batch.txt":                       "system.slice/slurmstepd.scope/job_1320003",
	"proc-cgroup-v2-slurm-extern.txt":                      "system.slice/slurmstepd.scope/job_1320003",
	"proc-cgroup-v2-slurm-multiple-slurmd.txt":             "system.slice/node1_slurmstepd.scope/job_1320003",
	"proc-cgroup-v2-slurm-slurmstepd-itself.txt":           "system.slice/slurmstepd.scope/job_1320003",
	"proc-cgroup-v2-slurm-system-infinity.txt":             "",
	"proc-cgroup-v1-slurm.txt":                             "memory/slurm/uid_1000/job_1320003",
	"proc-cgroup-v1-slurm-multiple-slurmd.txt":             "memory/slurm_node1/uid_1000/job_1320003",
	"proc-cgroup-v2-user-session.txt":                      "user.slice/user-1000.slice",
	"proc-cgroup-v2-systemd-service.txt":                   "system.slice/ollama.service",
	"proc-cgroup-v2-lxc.txt":                               "lxc.payload.ct101/system.slice/vllm.service",
}

const id64 = "1111111111111111111111111111111111111111111111111111111111111111"

// Each recorded path leads to the directory that is all of its owner's and nothing
// of another's.
func TestRecordedPaths(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "expected-cgroup.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"slurm": "job", "session": "user"}
	for _, row := range rows[1:] {
		file, kind := row[0], row[1]
		if k := kinds[kind]; k != "" {
			kind = k
		}
		want, listed := ownersIn[file]
		if !listed {
			t.Errorf("%s has no expected directory", file)
			continue
		}
		n := newNode(t)
		if strings.Contains(file, "-v1-") {
			n.remove("sys/fs/cgroup/cgroup.controllers")
		}
		n.process(100, 7, recorded(t, file), hostDev)
		n.uses(100, 7, collector.Owner{Kind: kind, ID: "x"}, "GPU-a")
		if want != "" {
			n.file(path.Join("sys/fs/cgroup", want, "memory.stat"), "anon 77\ntotal_rss 77\n")
		}
		w := n.sample()[kind+":x"]
		if want == "" {
			n.is(w, metric.WorkloadMemory, 0, absent)
			n.says(w, "memory", "no_cgroup")
			continue
		}
		if n.is(w, metric.WorkloadMemory, 0, 77); t.Failed() {
			t.Fatalf("%s: the owner's directory %s was not found", file, want)
		}
	}
}

// What is within another is not counted twice, nor for two owners.
func TestNestedGroups(t *testing.T) {
	n := newNode(t)
	one, two := collector.Owner{Kind: "service", ID: "a.service"}, collector.Owner{Kind: "service", ID: "b.service"}
	user := collector.Owner{Kind: "user", ID: "1000"}
	groups := map[int]struct {
		o    collector.Owner
		path string
	}{
		10: {one, "/system.slice/a.service"},
		11: {one, "/system.slice/a.service/worker/inner.service"},
		20: {two, "/system.slice/b.service/sub"},
		30: {user, "/user.slice/user-1000.slice/session-1.scope"},
		40: {collector.Owner{Kind: "container", ID: "c"}, "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id64 + ".scope/container"},
	}
	for pid, g := range groups {
		n.process(pid, 1, "0::"+g.path+"\n", hostDev)
		n.uses(pid, 1, g.o, "GPU-a")
	}
	for _, dir := range []string{"/system.slice/a.service", "/system.slice/a.service/worker/inner.service", "/system.slice/b.service", "/user.slice/user-1000.slice",
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id64 + ".scope"} {
		n.group(dir)
	}
	got := n.sample()
	n.is(got[one.String()], metric.WorkloadMemory, 0, 1000)
	n.is(got[two.String()], metric.WorkloadMemory, 0, 1000)
	n.is(got["container:c"], metric.WorkloadMemory, 0, 1000)
	n.is(got[user.String()], metric.WorkloadMemory, 0, absent) // the container's would be in it
	n.says(got[user.String()], "memory", "shared_cgroup")
}

// A path never leads out of where control groups are mounted.
func TestPathsDoNotLeadOut(t *testing.T) {
	n := newNode(t)
	n.file("sys/secret.service/memory.stat", "anon 5\n")
	evil := collector.Owner{Kind: "service", ID: "x"}
	n.process(100, 7, "0::/a/../../../secret.service\n", hostDev)
	n.uses(100, 7, evil, "GPU-a")
	if err := os.Symlink("../../secret.service", n.path("sys/fs/cgroup/link.service")); err != nil {
		t.Fatal(err)
	}
	n.process(101, 7, "0::/link.service\n", hostDev)
	n.uses(101, 7, evil, "GPU-a")
	n.is(n.sample()[evil.String()], metric.WorkloadMemory, 0, absent)
}
