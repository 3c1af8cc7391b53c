package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// caseColumns are those that squeue was asked for in the recorded outputs.
var caseColumns = []string{"tres-per-node", "MinCPUs", "JobArrayID", "JobID", "Name", "TimeLimit", "MinMemory", "State", "UserName",
	"NumCPUs", "NumNodes", "TimeLeft", "TimeUsed", "NodeList", "StartTime", "SubmitTime", "Partition", "Account", "QOS", "Reason", "tres-alloc"}

func at(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		panic("BUG: " + s)
	}
	return t
}

const day = 24 * time.Hour

func TestQueue(t *testing.T) {
	jobs, bad := ParseQueue(read(t, "squeue-O-delimited.txt"), "|#", caseColumns, true)
	if bad != 0 {
		t.Errorf("%d rows cannot be read", bad)
	}
	gpu := []string{"gpu"}
	want := []Job{
		{ID: "45704744", Tasks: 1, Name: "bash", User: "user1", UID: Unknown, Account: "proj1", QOS: "normal", Partitions: gpu, State: "RUNNING", GPUs: 2, Nodes: 1,
			TimeLimit: 14 * day, Elapsed: 17*time.Hour + 22*time.Minute + 49*time.Second, Started: at("2026-04-10T13:44:41"), Submitted: at("2026-04-10T13:44:39")},
		{ID: "42953598", Array: "42953390_320", Tasks: 1, Name: "run1", User: "user1", UID: Unknown, Account: "proj1", QOS: "normal", Partitions: gpu, State: "RUNNING", GPUs: 1, Nodes: 1,
			TimeLimit: 3 * day, Elapsed: 6*time.Hour + 3*time.Minute + 26*time.Second, Started: at("2026-03-06T21:01:21"), Submitted: at("2026-03-06T20:59:59"), Memory: 60 << 30},
		{ID: "42956774", Array: "42956774_3", Tasks: 1, Name: "run3", User: "user2", UID: Unknown, Account: "proj2", QOS: "normal", Partitions: gpu, State: "RUNNING", GPUs: 256, Type: "h100", Nodes: 32,
			TimeLimit: 3 * day, Elapsed: 4*time.Minute + 59*time.Second, Started: at("2026-03-07T04:16:04"), Submitted: at("2026-03-07T04:15:46"), Memory: 60 << 30},
		{ID: "50000", Array: "50000_[1-100%10]", Tasks: 100, Limit: 10, Name: "sweep", User: "user3", UID: Unknown, Account: "proj3", QOS: "low", Partitions: gpu, State: "PENDING",
			Reason: "JobArrayTaskLimit", GPUs: 4, Type: "a100", Nodes: 100, TimeLimit: time.Hour, Submitted: at("2026-01-31T04:06:57"), Memory: 21 << 29},
		{ID: "22783212", Tasks: 1, Name: "run4", User: "user4", UID: Unknown, Account: "proj4", QOS: "normal", Partitions: gpu, State: "PENDING",
			Reason: "DependencyNeverSatisfied", GPUs: 0, Nodes: 1, TimeLimit: time.Hour, Submitted: at("2026-01-31T04:06:57"), Memory: 21 << 29},
		{ID: "60001", Array: "60000+1", Tasks: 1, Name: "het", User: "user5", UID: Unknown, Account: "proj5", QOS: "normal", Partitions: gpu, State: "COMPLETING", GPUs: 2, Nodes: 1,
			TimeLimit: Unlimited, Elapsed: day, Started: at("2026-01-31T04:06:57"), Submitted: at("2026-01-31T04:06:57")},
	}
	if diff := cmp.Diff(want, jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}

func TestCutOutputIsNotTakenForNoGPUs(t *testing.T) {
	columns := []string{"JobID", "Account", "State", "NumNodes", "NumCPUs", "tres-alloc"}
	if jobs, bad := ParseQueue(read(t, "squeue-O-fixed-width-truncated.txt"), "|", columns, false); len(jobs) != 0 || bad != 2 {
		t.Errorf("columns cut at 20 characters: %d jobs and %d bad rows, want 0 and 2", len(jobs), bad)
	}
}

func TestNamesMayHoldAnything(t *testing.T) {
	columns := []string{"JobID", "State", "tres-alloc", "Name"}
	jobs, bad := ParseQueue("1|#RUNNING|#gres/gpu=2|#a|#b|#\n2|#RUNNING|#gres/gpu=1|#line one\nline\xff two|#\n3|#RUNNING|#gres/gpu=many|#x|#\nbroken\n4|#RUNNING|#gres/gpu=1|#x|#\n", "|#", columns, true)
	var got []string
	for _, j := range jobs {
		got = append(got, j.ID+" "+j.Name)
	}
	if diff := cmp.Diff([]string{"1 a|#b", "2 line one line\uFFFD two", "4 x"}, got); diff != "" || bad != 2 {
		t.Errorf("%d bad rows, want 2; jobs (-want +got):\n%s", bad, diff)
	}
}

// TestGPUsWithoutAccounting: without slurmdbd the trackable resources have no GPUs.
func TestGPUsWithoutAccounting(t *testing.T) {
	columns := []string{"JobID", "NumNodes", "tres-per-job", "tres-per-node", "tres-per-task", "tres-alloc"}
	for row, want := range map[string]int{
		"N/A|N/A|N/A|cpu=1,mem=1000M,node=1,billing=1":       0,
		"gres:gpu:5|N/A|N/A|cpu=1,node=3":                    5,
		"N/A|gres:gpu:a100:2|N/A|cpu=1,node=3":               6,
		"N/A|N/A|gres:gpu:1|cpu=1,node=3":                    Unknown,
		"gres:gpu:5|N/A|N/A|cpu=1,node=3,gres/gpu=4":         4,
		"N/A|gres/gpu:2|N/A|N/A":                             6,
		"N/A|N/A|N/A|N/A":                                    Unknown,
		"gres:shard:5|N/A|N/A|cpu=1,mem=1000M,node=1":        0,
		"N/A|gres:gpu:1000000|N/A|cpu=1,mem=1000M,node=1000": Unknown,
	} {
		jobs, bad := ParseQueue("7|3|"+row+"\n", "|", columns, false)
		if bad != 0 || len(jobs) != 1 || jobs[0].GPUs != want {
			t.Errorf("%s: %d bad rows, %+v; want %d GPUs", row, bad, jobs, want)
		}
	}
	for body, want := range map[string]int{
		`"tres_alloc_str": "cpu=1", "gres_detail": ["gpu:2(IDX:0-1)", "gpu:1(IDX:3)"]`:                3,
		`"tres_req_str": "cpu=1", "tres_per_task": "gres:gpu:2", "tasks": {"set": true, "number": 4}`: 8,
		`"tres_req_str": "cpu=1", "tres_per_job": "gres:gpu:3", "tasks": 4`:                           3,
		`"tres_req_str": "cpu=1"`: 0,
		`"tres_per_node": ""`:     Unknown,
	} {
		jobs, bad, err := ParseRESTJobs([]byte(`{"jobs": [{"job_id": 7, ` + body + `}]}`))
		if err != nil || bad != 0 || len(jobs) != 1 || jobs[0].GPUs != want {
			t.Errorf("%s: %d bad jobs, error %v, %+v; want %d GPUs", body, bad, err, jobs, want)
		}
	}
	jobs, _ := ParseDetails("JobId=2 JobName=job.sh\n   JobState=PENDING\n   NumNodes=1 NumCPUs=1\n   TRES=cpu=1,mem=1000M,node=1,billing=1\n   TresPerJob=gres:gpu:2\n")
	if len(jobs) != 1 || jobs[0].GPUs != 2 {
		t.Errorf("scontrol: %+v, want 2 GPUs", jobs)
	}
}

func TestNodes(t *testing.T) {
	columns := []string{"NodeHost", "AllocMem", "Memory", "CPUsState", "StateLong", "Gres", "GresUsed"}
	nodes, bad := ParseNodes(read(t, "sinfo-N-O.txt"), "", columns)
	want := []Node{
		{Name: "node-001", State: NodeUsable, GPUs: 4, Used: 4, Type: "tesla"},
		{Name: "node-002", State: NodeUsable, GPUs: 4, Used: 3, Type: "tesla"},
		{Name: "node-003", State: NodeUsable, GPUs: 4, Used: 0, Type: "tesla"},
		{Name: "node-004", State: NodeDrained, GPUs: 8, Used: 0, Type: "h100"},
		{Name: "node-005", State: NodeUsable, GPUs: 8, Used: 3},
		{Name: "node-006", State: NodeUsable, GPUs: 0, Used: 0},
		{Name: "node-007", State: NodeDown, GPUs: 8, Used: 0},
	}
	if diff := cmp.Diff(want, nodes); diff != "" || bad != 0 {
		t.Errorf("%d bad rows; nodes (-want +got):\n%s", bad, diff)
	}
}

func TestAccounting(t *testing.T) {
	jobs, bad, err := ParseAccounting(read(t, "sacct-parsable2.txt"))
	if err != nil || bad != 0 {
		t.Fatalf("%d bad rows, error %v", bad, err)
	}
	type row struct {
		ID, Array, Name string
		State           State
		GPUs            int
		Elapsed         time.Duration
		Memory          int64
	}
	var got []row
	for _, j := range jobs {
		got = append(got, row{j.ID, j.Array, j.Name, j.State, j.GPUs, j.Elapsed, j.Memory})
	}
	want := []row{
		{"3557891", "", "bash", "CANCELLED", 8, 99 * time.Second, 64 << 30},
		{"8084960", "8012944_24093", "train", "COMPLETED", 1024, 87356 * time.Second, 0},
		{"9000001", "", "nb", "RUNNING", 1, 10 * time.Minute, 32 << 30},
		{"9000002", "", "nb", "PENDING", Unknown, 0, 32 << 30},
		{"9000003", "", "odd|name|with|pipes", "TIMEOUT", 0, 2879 * time.Second, 32 << 30},
		{"9000004", "", "line one line two of the same job name", "NODE_FAIL", 1, 5 * time.Minute, 32 << 30},
		{"9000005", "", "last", "OUT_OF_MEMORY", 1, 5 * time.Minute, 32 << 30},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if !jobs[2].Submitted.Equal(at("2026-06-28T11:59:00")) || jobs[1].User != "user2" || jobs[1].Account != "proj2" {
		t.Errorf("who and when: %+v", jobs[1:3])
	}
	if _, _, err := ParseAccounting("1|2|3\n"); err == nil || !strings.Contains(err.Error(), "--parsable2") {
		t.Errorf("without names of columns: error %v, want what to do", err)
	}
}

func TestDetails(t *testing.T) {
	jobs, bad := ParseDetails(read(t, "scontrol-show-job-d.txt"))
	want := []Job{{
		ID: "1320003", Array: "1320000_3", Tasks: 1, Name: "train", User: "user1", UID: 1000, Account: "proj1", QOS: "normal", Partitions: []string{"gpu"},
		State: "RUNNING", GPUs: 12, Type: "a100", Nodes: 2, TimeLimit: 3 * day, Elapsed: 26*time.Hour + 3*time.Minute + 4*time.Second, Memory: Unknown,
		Places: []Place{{Nodes: "node-001", GPUs: 8, Index: []int{0, 1, 2, 3, 4, 5, 6, 7}}, {Nodes: "node-002", GPUs: 4, Index: []int{0, 2, 4, 5}}},
	}}
	if diff := cmp.Diff(want, jobs); diff != "" || bad != 0 {
		t.Errorf("%d bad jobs (-want +got):\n%s", bad, diff)
	}
	two := read(t, "scontrol-show-job-d.txt") + "\nJobId=x JobName=bad\n\nJobId=7 ArrayJobId=7 ArrayTaskId=1-9%2 JobName=a b JobId=9\n   JobState=PENDING NumNodes=1-4 NumCPUs=1\n"
	jobs, bad = ParseDetails(two)
	if len(jobs) != 2 || bad != 1 || jobs[1].ID != "7" || jobs[1].Tasks != 9 || jobs[1].Limit != 2 || jobs[1].Nodes != 1 {
		t.Errorf("three jobs, of which one is bad: %d bad, %+v", bad, jobs)
	}
}

func TestRESTJobs(t *testing.T) {
	jobs, bad, err := ParseRESTJobs([]byte(read(t, "slurmrestd-jobs-new.json")))
	if err != nil || bad != 0 {
		t.Fatalf("%d bad jobs, error %v", bad, err)
	}
	unix := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	gpu := []string{"gpu"}
	want := []Job{
		{ID: "62377", Tasks: 1, Name: "train", User: "user1", UID: Unknown, Account: "proj1", QOS: "12h", Partitions: gpu, State: "RUNNING", GPUs: 4, Type: "a100", Nodes: 2, Memory: Unknown,
			Submitted: unix(1787212000), Started: unix(1787212927), TimeLimit: 2880 * time.Minute,
			Places: []Place{{GPUs: 2, Index: []int{0, 1}}, {GPUs: 2, Index: []int{2, 3}}}},
		{ID: "62332", Tasks: 1, Name: "wait", User: "user2", UID: Unknown, Account: "proj2", Partitions: gpu, State: "PENDING", Reason: "Resources", GPUs: 1, Type: "a100", Nodes: 1, Memory: Unknown,
			Submitted: unix(1787200000), TimeLimit: Unlimited},
		{ID: "62400", Tasks: 1, Name: "stop", User: "user3", UID: Unknown, Account: "proj3", Partitions: gpu, State: "COMPLETING", GPUs: 1, Nodes: Unknown, Memory: Unknown,
			Started: unix(1787212927), Places: []Place{{GPUs: 1, Index: []int{2}}}},
	}
	if diff := cmp.Diff(want, jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}

func TestOlderREST(t *testing.T) {
	body := `{"errors": [], "jobs": [
		{"job_id": 7, "user_id": 1000, "user_name": "a", "job_state": "RUNNING", "partition": "gpu", "time_limit": 4294967295, "node_count": 2, "tres_alloc_str": "gres/gpu:a100=8,gres/gpu=8", "start_time": 1787212927},
		{"job_id": 8, "array_job_id": 8, "array_task_string": "1-20", "array_max_tasks": 5, "job_state": "PENDING", "state_reason": "Priority", "time_limit": 60, "tres_req_str": "cpu=1,gres/gpu=2"},
		{"job_id": 9, "job_state": "PENDING", "tres_per_node": "gres:gpu:4", "node_count": 3, "time_limit": 4611686018427387904},
		{"job_id": "ten"}, {"job_id": 0}, 5]}`
	jobs, bad, err := ParseRESTJobs([]byte(body))
	if err != nil || bad != 3 || len(jobs) != 3 {
		t.Fatalf("%d jobs, %d bad, error %v; want 3, 3, none", len(jobs), bad, err)
	}
	if j := jobs[0]; j.UID != 1000 || j.State != "RUNNING" || j.GPUs != 8 || j.TimeLimit != Unlimited || j.Nodes != 2 {
		t.Errorf("plain numbers: %+v", j)
	}
	if j := jobs[1]; j.Tasks != 20 || j.Limit != 5 || j.GPUs != 2 || j.Array != "8_[1-20%5]" || j.TimeLimit != time.Hour {
		t.Errorf("pending array: %+v", j)
	}
	if j := jobs[2]; j.GPUs != 12 || j.TimeLimit != 0 {
		t.Errorf("asks by node, with an absurd limit: %+v", j)
	}
	nodes, bad, err := ParseRESTNodes([]byte(`{"nodes": [
		{"name": "a", "state": "idle", "state_flags": ["DRAIN"], "partitions": ["gpu", "long"], "gres": "gpu:h100:8(S:0-1)", "gres_used": "gpu:h100:2(IDX:0-1)"},
		{"name": "b", "state": ["MIXED"], "gres": "gpu:8", "gres_used": "gpu:3"}, {"name": "c", "state": [], "gres": "gpu:x:y"}, {"state": "idle"}]}`))
	want := []Node{{Name: "a", Partitions: []string{"gpu", "long"}, State: NodeDrained, GPUs: 8, Used: 2, Type: "h100"}, {Name: "b", State: NodeUsable, GPUs: 8, Used: 3}}
	if diff := cmp.Diff(want, nodes); diff != "" || err != nil || bad != 2 {
		t.Errorf("nodes: %d bad, error %v (-want +got):\n%s", bad, err, diff)
	}
	for _, broken := range []string{"", "<html>", "[]", "{}", `{"jobs": null, "errors": [{"error": "Authentication failure"}]}`, `{"jobs": [], "errors": [{"error": "Authentication failure"}]}`} {
		if _, _, err := ParseRESTJobs([]byte(broken)); err == nil || strings.Contains(broken, "Auth") && !strings.Contains(err.Error(), "Authentication") {
			t.Errorf("%q: error %v, want one that says what slurmrestd says", broken, err)
		}
	}
}

func TestGPUForms(t *testing.T) {
	for in, want := range map[string]int{
		"gpu:8": 8, "gpu:a100:4": 4, "gpu:tesla:3(IDX:0,2-3)": 3, "gpu:h100:8(S:0-1)": 8, "gres/gpu=2": 2,
		"gres/gpu:a100=2,gres/gpu=2": 2, "gres/gpu=2,gres/gpu:a100=2": 2, "gres/gpu:a100=2,gres/gpu:h100=3": 5, "gres:gpu:4": 4,
		"gpu:a100_3g.20gb:2,gpu:a100:6,shard:48": 8, "shard:0(0/8,0/8)": 0, "(null)": 0, "N/A": 0, "gpu:0": 0, "": 0, "gpu": 1, "gpu:a100": 1,
		"cpu=1,mem=64G,gres/shard=2": 0, "gpu:tesla:0(IDX:N/A)": 0,
	} {
		if g, err := ParseGPUs(in); err != nil || g.Total != want {
			t.Errorf("%q is %d GPUs, error %v; want %d", in, g.Total, err, want)
		}
	}
	for _, in := range []string{"cpu=2,mem=512M,node=", "gres/gpu=x", "gpu:a:b:2", "gpu:-1", "gpu:99999999", "gpu:2(IDX:3-1)", "gres/gpu="} {
		if g, err := ParseGPUs(in); err == nil {
			t.Errorf("%q passes for %d GPUs", in, g.Total)
		}
	}
}

func TestValues(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"14-00:00:00": 14 * day, "1:00:00": time.Hour, "4:59": 4*time.Minute + 59*time.Second, "00:01:39": 99 * time.Second, "1-12": 36 * time.Hour,
		"UNLIMITED": Unlimited, "INVALID": 0, "NOT_SET": 0, "N/A": 0, "Unknown": 0, "": 0,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("duration %q is %s, error %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"1", "x", "1:2:3:4", "-1:00", "1--2", "999999999-00:00:00"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("duration %q passes for %s", in, got)
		}
	}
	for in, want := range map[string]int64{"64Gn": 64 << 30, "250.5G": 501 << 29, "0n": 0, "10.5G": 21 << 29, "4000Mc": 4000 << 20, "512": 512 << 20, "": Unknown, "N/A": Unknown} {
		if got, err := ParseMemory(in); err != nil || got != want {
			t.Errorf("memory %q is %d, error %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string][2]int{"123": {1, 0}, "123_4": {1, 0}, "123+1": {1, 0}, "123_[1-100%10]": {100, 10}, "1_[1,3,5-9:2]": {5, 0}} {
		if tasks, limit, err := ParseArray(in); err != nil || [2]int{tasks, limit} != want {
			t.Errorf("%q is %d tasks, at once %d, error %v; want %v", in, tasks, limit, err, want)
		}
	}
	for in, want := range map[string]NodeState{
		"idle": NodeUsable, "mixed": NodeUsable, "drained*": NodeDrained, "down~": NodeDown, "idle~": NodeOff, "idle#": NodeBooting, "idle$": NodeReserved,
		"mixed+drain": NodeDrained, "reserved": NodeReserved, "idle*": NodeDown, "allocated@": NodeUsable, "idle^": NodeBooting, "mixed-": NodeUsable, "odd": NodeUnknown, "": NodeUnknown,
	} {
		if got := ParseNodeState(in); got != want {
			t.Errorf("node state %q is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string][2]bool{"allocated": {true, false}, "ALLOCATED+PLANNED": {true, true}, "mixed-": {false, true}, "alloc@": {true, false}, "mixed": {}, "": {}} {
		if got := [2]bool{isFull(in), isPlanned(in)}; got != want {
			t.Errorf("node state %q: full and planned are %v, want %v", in, got, want)
		}
	}
	for in, want := range map[string]string{"gres/gpu=4,gres/gpu:a100=4": "a100", "gpu:h100:8(S:0-1)": "h100", "gpu:a100:2,gpu:h100:2": "", "gpu:8": "", "": ""} {
		if g, err := ParseGPUs(in); err != nil || g.only() != want {
			t.Errorf("the GPUs of %q are of type %q, error %v; want %q", in, g.only(), err, want)
		}
	}
	if got := ParseState("CANCELLED by 1001"); got != "CANCELLED" || ParseState("RUNNING", "COMPLETING") != "COMPLETING" || ParseState() != "" {
		t.Errorf("states are not read: %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"squeue-O-delimited.txt", "sinfo-N-O.txt", "sacct-parsable2.txt", "scontrol-show-job-d.txt", "slurmrestd-jobs-new.json"} {
		f.Add(read(f, name))
	}
	f.Add("gpu:a100:4(IDX:0,2-4)")
	f.Add("50000_[1-100%10]")
	f.Add("1-02:03:04")
	f.Fuzz(func(t *testing.T, in string) {
		check := func(what string, jobs []Job, bad int) {
			for _, j := range jobs {
				if j.ID == "" || j.Tasks < 1 || j.GPUs < Unknown || bad < 0 || j.Elapsed < 0 || slices.Contains(j.Partitions, "") {
					t.Errorf("%s: %+v passes for a job", what, j)
				}
			}
		}
		jobs, bad := ParseQueue(in, Delimiter, caseColumns, true)
		check("squeue", jobs, bad)
		jobs, bad, _ = ParseAccounting(in)
		check("sacct", jobs, bad)
		jobs, bad = ParseDetails(in)
		check("scontrol", jobs, bad)
		jobs, bad, _ = ParseRESTJobs([]byte(in))
		check("slurmrestd", jobs, bad)
		nodes, _ := ParseNodes(in, "", nodeColumns)
		more, _ := ParseNodes(in, Delimiter, nodeColumns)
		rest, _, _ := ParseRESTNodes([]byte(in))
		for _, n := range slices.Concat(nodes, more, rest) {
			if n.Name == "" || n.GPUs < Unknown || n.Used < Unknown || n.State == "" {
				t.Errorf("%+v passes for a node", n)
			}
		}
		if g, err := ParseGPUs(in); err == nil && (g.Total < 0 || g.Total > maxGPUs) {
			t.Errorf("%q is %d GPUs", in, g.Total)
		}
		if d, err := ParseDuration(in); err == nil && d < 0 {
			t.Errorf("%q lasts %s", in, d)
		}
		if m, err := ParseMemory(in); err == nil && m < Unknown {
			t.Errorf("%q is %d bytes", in, m)
		}
		if n, limit, err := ParseArray(in); err == nil && (n < 1 || n > maxGPUs || limit < 0) {
			t.Errorf("%q is %d tasks, at once %d", in, n, limit)
		}
	})
}
