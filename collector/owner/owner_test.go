package owner

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestProcessesHaveOwners(t *testing.T) {
	n := newNode(t)
	n.process(10, 0, 0, inPodA)
	n.process(11, 0, 0, inPodB)
	n.process(12, 20417, 1, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
	n.process(13, 0, 2, "0::/system.slice/docker-"+containerA+".scope\n")
	n.process(14, 999, 2, "0::/system.slice/ollama.service\n")
	n.process(15, 1000, 3, "0::/user.slice/user-1000.slice/session-18.scope\n")
	n.process(16, 1001, 3, "0::/\n") // without systemd only the uid is left
	n.process(17, 0, 3, "0::/\n")    // root's without a runtime is nobody's in particular
	n.process(18, 0, 3, "0::/system.slice/slurmstepd.scope/system\n")
	n.write("", "pods", "nlp_train-0_"+podA, "main", "0.log")
	n.write("", "pods", "no_name_in_between_"+podB, "x")

	part := n.sample(n.source())
	want := map[int]string{
		10: "pod:nlp/train-0 main", 11: "pod:" + podB + " abababababab", 12: "job:slurm/4711", 13: "container:111111111111 111111111111",
		14: "service:ollama.service", 15: "user:1000", 16: "user:1001",
	}
	if diff := cmp.Diff(want, owners(part)); diff != "" {
		t.Errorf("owners of processes by pid (-want +got):\n%s", diff)
	}
	if len(part.Workloads) != 7 || len(part.Allocations) != 0 {
		t.Errorf("%d workloads and %d allocations, want 7 and none", len(part.Workloads), len(part.Allocations))
	}
}

func TestContainersOfPodsHaveNames(t *testing.T) {
	n := newNode(t)
	n.process(10, 0, 0, inPodA)
	n.write("", "pods", "nlp_train-0_"+podA, "main", "0.log")
	n.write("", "pods", "nlp_train-0_"+podA, "sidecar", "0.log")
	if got := owners(n.sample(n.source()))[10]; got != "pod:nlp/train-0 111111111111" {
		t.Errorf("a container that could be either of two is %q, want its id", got)
	}
	n.write("", "containers", "train-0_nlp_sidecar-"+containerA+".log")
	if got := owners(n.sample(n.source()))[10]; got != "pod:nlp/train-0 sidecar" {
		t.Errorf("a container with a link to its log is %q, want sidecar", got)
	}
}

func TestDockerNamesContainers(t *testing.T) {
	n := newNode(t)
	n.process(10, 0, 0, "0::/system.slice/docker-"+containerA+".scope\n")
	n.cfg.Docker = n.path("docker")
	n.cfg.Rules = []Rule{{Labels: map[string]*regexp.Regexp{"team": regexp.MustCompile("^nlp$")}, Team: "nlp"}}
	n.write(`{"Name":"/vllm\u0000\n-70b","Config":{"Labels":{"team":"nlp"}}}`, "docker", containerA, "config.v2.json")
	part := n.sample(n.source())
	if got := part.Attributions[0].Owner; got != (collector.Owner{Kind: "container", ID: "vllm -70b", Team: "nlp"}) {
		t.Errorf("the container is %+v, want the name that Docker has for it, made safe, and the team of its label", got)
	}
	n.write(`{`, "docker", containerA, "config.v2.json")
	part, err := n.source().Sample(t.Context())
	if err == nil || !strings.Contains(err.Error(), "config.v2.json") || owners(part)[10] != "container:111111111111 111111111111" {
		t.Errorf("a file that Docker has half written: %v, %v; want its id and an error that names the file", err, owners(part))
	}
}

// TestOneProcessCostsOnlyItself has every way in which a process can fail to be read.
func TestOneProcessCostsOnlyItself(t *testing.T) {
	n := newNode(t)
	counts := func() [4]uint64 {
		return [4]uint64{readVanished.Get(), readReused.Get(), readDenied.Get(), readInvalid.Get()}
	}
	before := counts()
	n.process(10, 0, 0, inPodA)
	n.process(11, 0, 0, inPodA)
	n.process(12, 0, 0, inPodA)
	n.process(13, 0, 0, strings.Repeat("1:memory:/"+strings.Repeat("x", 4000)+"\n", 100))
	n.process(14, 0, 0, inPodA)
	n.process(15, 0, 0, inPodA)
	n.process(16, 0, 0, inPodA)
	if err := os.RemoveAll(n.path("proc", "11")); err != nil {
		t.Fatal(err)
	}
	n.snap.Processes[2].Start++ // its pid is another process's by now
	n.write("no parentheses\n", "proc", "14", "stat")
	n.snap.Processes[5].Start = 0 // nobody knows which process it was
	if err := os.Remove(n.path("proc", "16", "cgroup")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", n.path("proc", "16", "cgroup")); err != nil {
		t.Fatal(err)
	}
	part := n.sample(n.source())
	if diff := cmp.Diff(map[int]string{10: "pod:" + podA + " 111111111111"}, owners(part)); diff != "" {
		t.Errorf("the one process that can be read has no owner, or another has (-want +got):\n%s", diff)
	}
	after := counts()
	for i, want := range [4]uint64{1, 1, 0, 3} {
		if got := after[i] - before[i]; got != want {
			t.Errorf("failure %d was counted %d times, want %d", i, got, want)
		}
	}
}

func TestProcessesAreReadOnce(t *testing.T) {
	n := newNode(t)
	n.process(10, 1000, 0, inPodA)
	s := n.source()
	n.sample(s)
	n.write("0::/user.slice/user-1000.slice/session-1.scope\n", "proc", "10", "cgroup")
	if got := owners(n.sample(s))[10]; !strings.HasPrefix(got, "pod:") {
		t.Errorf("a process that is known was read again at the next tick: %s", got)
	}
	for _, k := range s.known {
		k.at = k.at.Add(-verifyAge)
	}
	if got := owners(n.sample(s))[10]; got != "user:1000" {
		t.Errorf("a process that has moved is still %s after %v", got, verifyAge)
	}
	n.snap.Processes = nil
	n.sample(s)
	if len(s.known) != 0 {
		t.Errorf("%d processes that have ended are kept", len(s.known))
	}
}

// TestOneOwnerHasOneTeam has a job that is known from the prolog and from a process: a
// rule may look at either.
func TestOneOwnerHasOneTeam(t *testing.T) {
	n := newNode(t)
	n.process(10, 1000, 0, "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
	n.write("7\n", "jobs", "1")
	n.write("SLURM_JOB_ACCOUNT=physics\nSLURM_JOB_PARTITION=gpu\n", "details", "7")
	n.write("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n", "passwd")
	n.cfg.JobMapping, n.cfg.JobDetails, n.cfg.Passwd = n.path("jobs"), n.path("details"), n.path("passwd")
	yes, no := true, false
	n.cfg.Rules = []Rule{
		{User: regexp.MustCompile("^alice$"), Team: "lattice"},
		{Account: regexp.MustCompile("^physics$"), Team: "physics", CostCenter: "cc-1", Critical: &no},
		{Kind: regexp.MustCompile("^job$"), CostCenter: "cc-2", Stage: "training", Critical: &yes},
	}
	s := n.source()
	part := n.sample(s)
	owner := collector.Owner{Kind: "job", ID: "slurm/7", Team: "lattice"}
	if len(part.Attributions) != 1 || len(part.Allocations) != 1 || part.Attributions[0].Owner != owner || part.Allocations[0].Owner != owner {
		t.Fatalf("the job that uses GPU 0 and was given GPU 1 is %+v and %+v, want one owner %+v", part.Attributions, part.Allocations, owner)
	}
	if w := part.Workloads; len(w) != 1 || w[0].CostCenter != "cc-1" || w[0].Stage != "training" || w[0].Critical {
		t.Errorf("the job is described as %+v, want each field from the first rule that has it", w)
	}
	n.snap.Processes = nil
	if part = n.sample(s); part.Allocations[0].Owner != owner {
		t.Errorf("when its processes have ended the job is %+v, want the team that it had", part.Allocations[0].Owner)
	}
}

func TestUsersAreShownAsConfigured(t *testing.T) {
	f := func(form UserForm, key string, want string) {
		t.Helper()
		n := newNode(t)
		n.process(10, 1000, 0, "0::/user.slice/user-1000.slice/session-18.scope\n")
		n.write("alice:x:1000:1000::/:/bin/sh\nalso:x:1000:1::/:/bin/sh\nbroken\n", "passwd")
		n.cfg.Users, n.cfg.UserKey, n.cfg.Passwd = form, []byte(key), n.path("passwd")
		if got := owners(n.sample(n.source()))[10]; got != want {
			t.Errorf("users as %s: %s, want %s", form, got, want)
		}
	}
	f(UserID, "", "user:1000")
	f(UserName, "", "user:alice")
	f(UserHash, "0123456789abcdef", "user:c78741753c95")
	if _, err := New(Config{Users: UserHash, UserKey: []byte("short")}); err == nil {
		t.Error("a key that can be guessed is accepted")
	}
}

func TestForeignPIDsHaveNoOwners(t *testing.T) {
	n := newNode(t)
	n.process(10, 1000, 0, inPodA)
	s := n.source()
	s.foreign = true
	part, err := s.Sample(t.Context())
	if !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "hostPID") || len(part.Attributions) != 0 {
		t.Errorf("in a pid namespace of its own: %v and %d owners, want an error that says what to do and none", err, len(part.Attributions))
	}
}

func TestChangesOfOwnersAreEvents(t *testing.T) {
	n := newNode(t)
	n.process(10, 1000, 0, "0::/user.slice/user-1000.slice/session-18.scope\n")
	s := n.source()
	if part := n.sample(s); len(part.Events) != 0 {
		t.Errorf("an agent that starts tells of %v", part.Events)
	}
	s.began = s.began.Add(-2 * settle)
	n.snap.Processes = nil
	part := n.sample(s)
	want := collector.Event{Kind: collector.OwnerEvent, UUID: gpu(0), From: "user:1000", To: "unattributed"}
	if diff := cmp.Diff([]collector.Event{want}, part.Events); diff != "" {
		t.Errorf("events when a user has left (-want +got):\n%s", diff)
	}
	if part := n.sample(s); len(part.Events) != 0 {
		t.Errorf("the same is told again: %v", part.Events)
	}
}

func TestNoSnapshotNoOwners(t *testing.T) {
	n := newNode(t)
	n.snap = nil
	if part := n.sample(n.source()); part.Time.IsZero() || len(part.Attributions) != 0 {
		t.Errorf("before the first snapshot the part is %+v", part)
	}
}

func TestOwnersAreForgotten(t *testing.T) {
	n := newNode(t)
	n.process(10, 1000, 0, inPodA)
	s := n.source()
	n.sample(s)
	n.snap.Processes = nil
	for _, id := range s.identities {
		id.seen = time.Now().Add(-2 * remember)
	}
	if n.sample(s); len(s.identities) != 0 {
		t.Errorf("%d owners are kept that nobody has seen for %v", len(s.identities), 2*remember)
	}
}

func TestOwnerShareIsOfAKnownDimension(t *testing.T) {
	if metric.OwnerShare.Dim != metric.ShareOf || len(metric.ShareOf.Values) != 2 {
		t.Errorf("an owner's share is of %v", metric.OwnerShare.Dim)
	}
}
