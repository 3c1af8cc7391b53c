package fleet

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector/owner"
	"gpuvigil/collector/slurm"
	"gpuvigil/internal/golden"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func pending(id string, gpus int, reason string, waited time.Duration, edit ...func(*slurm.Job)) slurm.Job {
	j := slurm.Job{ID: id, Tasks: 1, UID: 1000, Account: "proj1", Partitions: []string{"gpu", "long"}, State: "PENDING", Reason: reason, GPUs: gpus, Submitted: now.Add(-waited)}
	for _, e := range edit {
		e(&j)
	}
	return j
}

func cluster() *slurm.Answer {
	running := slurm.Job{ID: "7", Array: "5_7", Tasks: 1, Name: "secret plan", User: "ada", UID: 1000, Account: "proj1", QOS: "normal", Partitions: []string{"gpu"}, State: "RUNNING", GPUs: 8}
	other := running
	other.ID, other.Array, other.Account, other.State, other.GPUs = "9", "", "quo\"te\nline", "SUSPENDED", 2
	cpu := running
	cpu.ID, cpu.Array, cpu.GPUs = "10", "", 0
	done := running
	done.ID, done.Array, done.State = "11", "", "COMPLETED"
	untold := running
	untold.ID, untold.Array, untold.GPUs = "12", "", slurm.Unknown
	return &slurm.Answer{
		Time: now,
		Jobs: []slurm.Job{
			running, other, cpu, done, untold,
			pending("20", 4, "Resources", time.Hour),
			pending("21", 2, "Priority", 2*time.Hour, func(j *slurm.Job) { j.Eligible = now.Add(-10 * time.Minute) }),
			pending("5", 1, "Resources", 30*time.Minute, func(j *slurm.Job) { j.Array, j.Tasks, j.Limit = "5_[8-27%4]", 20, 4 }),
			pending("22", 8, "DependencyNeverSatisfied", 90*time.Hour),
			pending("23", 8, "JobArrayTaskLimit", 90*time.Hour),
			pending("24", 8, "QOSMaxGRESPerUser", 90*time.Hour),
			pending("25", 8, "BeginTime", 90*time.Hour),
			pending("26", 8, "ReqNodeNotAvail, UnavailableNodes:n1", 90*time.Hour),
			pending("29", 8, "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", 90*time.Hour),
			pending("27", 8, "Something new", 90*time.Hour),
			pending("28", 0, "Resources", 90*time.Hour),
		},
		Nodes: []slurm.Node{
			{Name: "n1", Partitions: []string{"gpu", "long"}, State: slurm.NodeUsable, GPUs: 8, Used: 6},
			{Name: "n2", Partitions: []string{"gpu"}, State: slurm.NodeDrained, GPUs: 8, Used: 2},
			{Name: "n3", Partitions: []string{"gpu"}, State: slurm.NodeReserved, GPUs: 8},
			{Name: "n4", Partitions: []string{"gpu"}, State: slurm.NodeBooting, GPUs: 4},
			{Name: "n5", Partitions: []string{"gpu"}, State: slurm.NodeDown, GPUs: 4, Used: slurm.Unknown},
			{Name: "n6", Partitions: []string{"cpu"}, State: slurm.NodeUsable},
		},
	}
}

func newTest(t *testing.T, a *slurm.Answer, names bool) *Fleet {
	t.Helper()
	jobs, err := owner.NewJobs(owner.UserID, nil, []owner.Rule{{Account: regexp.MustCompile("^proj1$"), Team: "nlp"}})
	if err != nil {
		t.Fatal(err)
	}
	health := func() slurm.Health {
		return slurm.Health{Up: true, Last: now.Add(-20 * time.Second), Good: 3, Failed: 1, Unreadable: 2}
	}
	f := New(Config{Schedulers: []Scheduler{Slurm(func() *slurm.Answer { return a }, health, jobs, names)}, Log: slog.New(slog.DiscardHandler)})
	f.loaded.Store(now.Unix())
	return f
}

func TestPage(t *testing.T) {
	page := string(newTest(t, cluster(), false).page(now))
	golden.Check(t, "testdata/page.prom", page, "the page of the cluster role is another one")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
		t.Errorf("Prometheus cannot read the page: %v", err)
	}
	if strings.Contains(page, "secret plan") || strings.Contains(page, `"ada"`) {
		t.Error("the page names a job or a user though neither is switched on")
	}
	for _, want := range []string{
		`vigil_job_info{owner_kind="job",owner="slurm/7",array="5_7",user="1000",account="proj1",partition="gpu",qos="normal",name="",team="nlp"} 1`,
		`vigil_job_gpus{owner_kind="job",owner="slurm/7"} 8`,
		`vigil_queue_jobs{scheduler="slurm",queue="gpu",state="waiting"} 5`, // 20, 21, and of the array what its limit lets start beside 5_7
		`vigil_queue_gpus{scheduler="slurm",queue="gpu",state="waiting"} 9`,
		`vigil_queue_jobs{scheduler="slurm",queue="gpu",state="limited"} 19`,
		`vigil_queue_gpus{scheduler="slurm",queue="gpu",state="running"} 8`,
		`vigil_queue_jobs{scheduler="slurm",queue="gpu",state="unavailable"} 2`,
		`vigil_queue_gpus{scheduler="slurm",queue="gpu",state="suspended"} 2`,
		`vigil_waiting_gpus{scheduler="slurm",queue="gpu",account="proj1",team="nlp",reason="resources"} 7`,
		`vigil_waiting_jobs{scheduler="slurm",queue="gpu",account="proj1",team="nlp",reason="priority"} 1`,
		`vigil_pool_nodes{scheduler="slurm",pool="gpu",state="cordoned"} 1`,
		`vigil_queue_wait_longest_seconds{scheduler="slurm",queue="gpu"} 3600`,
		`vigil_queue_wait_typical_seconds{scheduler="slurm",queue="gpu"} 1800`,
		`vigil_pool_capacity_gpus{scheduler="slurm",pool="gpu",state="used"} 8`,
		`vigil_pool_capacity_gpus{scheduler="slurm",pool="gpu",state="free"} 2`,
		`vigil_pool_capacity_gpus{scheduler="slurm",pool="gpu",state="drained"} 6`,
		`vigil_pool_capacity_gpus{scheduler="slurm",pool="gpu",state="unknown"} 4`,
		`vigil_scheduler_answer_age_seconds{scheduler="slurm"} 20`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page does not say %s", want)
		}
	}
	for _, state := range []string{"dependent", "scheduled", "other"} {
		if !strings.Contains(page, fmt.Sprintf("vigil_queue_jobs{scheduler=\"slurm\",queue=\"gpu\",state=%q} 1\n", state)) {
			t.Errorf("no job is %s", state)
		}
	}
	if named := string(newTest(t, cluster(), true).page(now)); !strings.Contains(named, `name="secret plan"`) {
		t.Error("jobs have no names though they are switched on")
	}
}

func TestSeriesAreBounded(t *testing.T) {
	a := &slurm.Answer{Time: now}
	for i := range maxJobs + 5 {
		a.Jobs = append(a.Jobs, slurm.Job{ID: fmt.Sprint(i + 1), Tasks: 1, State: "RUNNING", GPUs: 1, Partitions: []string{fmt.Sprintf("p%03d", i%(maxQueues+3))}})
	}
	page := string(newTest(t, a, false).page(now))
	for _, want := range []string{`vigil_series_capped_total{kind="job"} 5`, `vigil_series_capped_total{kind="queue"} 3`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page does not say %s", want)
		}
	}
	if n := strings.Count(page, "\nvigil_job_gpus{"); n != maxJobs {
		t.Errorf("%d jobs have series, want %d", n, maxJobs)
	}
}

func TestWithoutAnAnswer(t *testing.T) {
	f := newTest(t, nil, false)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, page := get("/metrics"); code != 200 || strings.Contains(page, "vigil_queue") || !strings.Contains(page, "vigil_scheduler_up") {
		t.Errorf("/metrics: %d\n%s", code, page)
	}
	if code, _ := get("/-/ready"); code != 503 {
		t.Errorf("/-/ready: %d, want 503", code)
	}
	if code, _ := get("/-/healthy"); code != 200 {
		t.Errorf("/-/healthy: %d, want 200", code)
	}
}
