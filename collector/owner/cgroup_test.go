package owner

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// handed are the kinds of expected-cgroup.csv.
var handed = map[string]string{"pod": kindPod, "container": kindContainer, "slurm": kindJob, "none": "", "session": kindUser, "service": kindService}

func TestEveryRuntimesCgroup(t *testing.T) {
	f, err := os.Open("testdata/expected-cgroup.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/proc-cgroup-*.txt")
	if err != nil || len(files) != len(rows)-1 {
		t.Fatalf("%d files for %d expected answers: %v", len(files), len(rows)-1, err)
	}
	for _, row := range rows[1:] {
		content, err := os.ReadFile("testdata/" + row[0])
		if err != nil {
			t.Fatal(err)
		}
		p := parseCgroup(string(content))
		id := map[string]string{kindPod: p.pod, kindJob: p.job, kindService: p.unit}[p.kind]
		container := row[4]
		if strings.HasSuffix(row[0], "lxc.txt") {
			container = "ct101"
		}
		if p.kind != handed[row[1]] || id != row[2] || p.step != row[3] || p.container != container {
			t.Errorf("%s: found %+v, want %v", row[0], p, row)
		}
		if row[1] == "session" && p.uid != 1000 {
			t.Errorf("%s: the session is of user %d, want 1000", row[0], p.uid)
		}
	}
}

var wanted = regexp.MustCompile(`(pod|ctr|job|step|uid|unit)=(\S+)`)

// TestSampleLines reads each line with the answer below it.
func TestSampleLines(t *testing.T) {
	content, err := os.ReadFile("testdata/cgroup-lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	read := 0
	for i := 0; i+1 < len(lines); i += 2 {
		line, answer, ok := lines[i], lines[i+1], strings.Contains(lines[i+1], "=>")
		if !ok {
			t.Fatalf("line %d has no answer: %q", i, line)
		}
		read++
		p := parseCgroup(line + "\n")
		got := map[string]string{"pod": p.pod, "job": p.job, "step": p.step}
		got["ctr"] = p.container[:min(8, len(p.container))]
		if p.uid >= 0 {
			got["uid"] = strconv.Itoa(p.uid)
		}
		if p.unit != "" && (p.kind == kindService || p.kind == kindUser) {
			got["unit"] = p.unit
		}
		want := map[string]string{}
		for _, m := range wanted.FindAllStringSubmatch(answer, -1) {
			want[m[1]] = m[2]
		}
		for _, key := range []string{"pod", "ctr", "job", "step", "uid", "unit"} {
			if got[key] != want[key] {
				t.Errorf("%s\n%s: %s is %q", line, answer, key, got[key])
			}
		}
	}
	if read != 28 {
		t.Errorf("read %d sample lines, want 28", read)
	}
}

func TestCgroupsFromTheField(t *testing.T) {
	const (
		id  = "1111111111111111111111111111111111111111111111111111111111111111"
		id2 = "abababababababababababababababababababababababababababababababab"
		uid = "0a1b2c3d-0000-4000-8000-00000000000a"
		pod = "kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice"
	)
	f := func(content string, want place) {
		t.Helper()
		if got := parseCgroup(content); got != want {
			t.Errorf("%q\n got %+v\nwant %+v", content, got, want)
		}
	}
	none := place{uid: -1}
	f("", none)
	f("0::\n", none)
	f("garbage\n", none)
	f("0::/init.scope\n", none)
	f("0::/user.slice/user-4294967296.slice\n", none)
	f("0::/"+pod+"/cri-containerd-"+id+".scope (deleted)\n", place{kind: kindPod, pod: uid, container: id, uid: -1})

	// A Slurm node that is a pod itself: the job is what pays.
	f("0::/"+pod+"/cri-containerd-"+id+".scope/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
		place{kind: kindJob, pod: uid, container: id, job: "7", step: "0", uid: -1})
	// A pod in a pod is the outer pod's business.
	f("0::/"+pod+"/cri-containerd-"+id+".scope/kubepods/pod11111111-0000-4000-8000-00000000000b/"+id2+"\n",
		place{kind: kindPod, pod: uid, container: id, uid: -1})
	// Docker in docker, without Kubernetes.
	f("0::/system.slice/docker-"+id+".scope/docker/"+id2+"\n", place{kind: kindContainer, container: id2, uid: -1})
	// A user's own tree says whatever the user likes.
	f("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_0\n", place{kind: kindUser, unit: "", uid: 1000})
	f("0::/user.slice/user-1000.slice/user@1000.service/"+pod+"/cri-containerd-"+id+".scope\n", place{kind: kindContainer, container: id, uid: 1000})
	// Podman in a batch job.
	f("0::/system.slice/slurmstepd.scope/job_9/step_batch/user/task_0/libpod-"+id+".scope\n",
		place{kind: kindJob, job: "9", step: "batch", container: id, uid: -1})
	f("0::/../../job_9/step_interactive/user\n", place{kind: kindJob, job: "9", step: "interactive", uid: -1})
	f("0::/machine.slice/libpod-conmon-"+id+".scope\n", none)
	// Hybrid: the line of version 2 is of the runtime's daemon.
	f("5:memory:/docker/"+id+"\n0::/system.slice/containerd.service\n", place{kind: kindContainer, container: id, uid: -1})

	f("3:cpuset:/ecs/3f5c/"+id+"\n", place{kind: kindContainer, container: id, uid: -1})
	f("3:cpuset:/ecs/9781c248-0edd-4cdb-9a93-f63cb662a5d3/short-1\n", place{kind: kindContainer, container: "short-1", uid: -1})
	f("0::/ecstasks.slice/ecstasks-9781.slice/docker-"+id+".scope\n", place{kind: kindContainer, container: id, uid: -1})
	f("0::/nomad.slice/share.slice/0b9c2d13-48a5-5b6d-1f5e-8ad3e4b1c2d3.serve.scope\n", place{kind: kindContainer, container: "serve.0b9c2d13", uid: -1})
	f(`0::/machine.slice/machine-qemu\x2d1\x2dtrain.scope`+"\n", place{kind: kindContainer, container: "qemu-1-train", uid: -1})
	f("0::/lxc.payload.ct7\n", place{kind: kindContainer, container: "ct7", uid: -1})
	f("7:pids:/lxc/ct8\n", place{kind: kindContainer, container: "ct8", uid: -1})
	f("0::/default/"+id+"\n", place{kind: kindContainer, container: id, uid: -1})
}

func FuzzCgroup(f *testing.F) {
	files, err := filepath.Glob("testdata/proc-cgroup-*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(files, "testdata/cgroup-lines.txt") {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content))
	}
	f.Fuzz(func(t *testing.T, content string) {
		p := parseCgroup(content)
		if p.kind == kindPod && p.pod == "" || p.kind == kindJob && p.job == "" || p.kind == kindUser && p.uid < 0 ||
			p.kind == kindContainer && p.container == "" || p.kind == kindService && p.unit == "" {
			t.Errorf("a %s without a name: %+v", p.kind, p)
		}
		if p.uid < -1 || p.uid > 1<<32-1 {
			t.Errorf("uid %d", p.uid)
		}
	})
}
