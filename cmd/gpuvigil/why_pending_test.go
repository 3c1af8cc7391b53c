package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

// A user asks why the job waits while they see free GPUs. Another is held by a limit, one
// runs, and of one nobody knows.
func TestWhyPending(t *testing.T) {
	submitted := time.Now().Add(-3 * time.Hour).Unix()
	slurm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			io.WriteString(w, `{"nodes": [
				{"name": "n1", "state": ["MIXED"], "partitions": ["gpu"], "gres": "gpu:8", "gres_used": "gpu:4"},
				{"name": "n2", "state": ["MIXED"], "partitions": ["gpu"], "gres": "gpu:8", "gres_used": "gpu:2"},
				{"name": "n3", "state": ["IDLE", "DRAIN"], "partitions": ["gpu"], "gres": "gpu:8", "gres_used": "gpu:0"}]}`)
			return
		}
		job := func(id int, state, reason string, gpus, age int64) string {
			return fmt.Sprintf(`{"job_id": %d, "account": "proj1", "partition": "gpu", "job_state": ["%s"], "state_reason": "%s", "tres_per_node": "gres/gpu:%d",
				"node_count": {"set": true, "number": 1}, "submit_time": {"set": true, "number": %d}, "eligible_time": {"set": true, "number": %d}}`, id, state, reason, gpus, submitted-age, submitted-age)
		}
		fmt.Fprintf(w, `{"jobs": [%s, %s, %s, %s]}`, job(4711, "PENDING", "Resources", 8, 0), job(4700, "PENDING", "Priority", 16, 3600),
			job(4712, "PENDING", "QOSMaxGRESPerUser", 4, 0), job(4600, "RUNNING", "None", 4, 0))
	}))
	defer slurm.Close()
	state := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var errs strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"fleet", "--state.dir=" + state, "--web.listen-address=127.0.0.1:0",
			"--config.file=" + file(t, fleetOwners+"fleet: {slurm: {slurmrestd_url: '"+slurm.URL+"/slurm/v0.0.40'}}\n")}, io.Discard, &errs)
	}()
	ask := func(job ...string) (int, string) {
		code, out, errs := gpuvigil(t, append([]string{"why", "pending", "--state.dir=" + state}, job...)...)
		return code, strings.Join(strings.Fields(out), " ") + errs
	}
	for out := ""; !strings.Contains(out, "4711") && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		_, out = ask()
	}
	for _, c := range []struct {
		job  string
		code int
		says []string
	}{
		{"4711", 0, []string{"job:slurm/4711 WAITS FOR GPUS, for 3 h", "queue slurm/gpu, account proj1", "asks 8 GPUs", "slurm says: Resources",
			"free 10 that are right for it; nodes of its queue have free: 6 on 1 node, 4 on 1 node", "blocked 10 on 2 nodes with fewer than 8, most of them on n2", "not for it 8 on nodes that are drained",
			"before it 1 job for 16 GPUs", "helps Move small jobs together so that whole nodes become free, most of all on n2."}},
		{"slurm/4711", 0, []string{"job:slurm/4711"}},
		{"job:slurm/4712", 0, []string{"IS HELD BACK BY A QUOTA OR LIMIT", "QOSMaxGRESPerUser", "More GPUs would not start it."}},
		{"4700", 0, []string{"asks 16 GPUs", "helps Wait until 6 GPUs more become free, or ask for fewer."}},
		{"4600", 0, []string{"job:slurm/4600 RUNS", "it has its GPUs"}},
		{"999", 3, []string{`UNKNOWN no scheduler knows a job "999" that asks for GPUs`}},
		{"", 0, []string{"job:slurm/4700 WAITS FOR GPUS, for 4 h 16 GPUs", "job:slurm/4711", "job:slurm/4712"}},
	} {
		args := []string{}
		if c.job != "" {
			args = append(args, c.job)
		}
		code, out := ask(args...)
		for _, want := range c.says {
			if code != c.code || !strings.Contains(out, want) {
				t.Errorf("why pending %s exits with %d, want %d, and says\n%s\nwant it to say %q", c.job, code, c.code, out, want)
			}
		}
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("fleet ends with %d: %s", code, errs.String())
	}
	if code, out, _ := gpuvigil(t, "why", "pending", "4711", "--state.dir="+t.TempDir()); code != 3 || !strings.Contains(out, "the cluster role knows what is pending") {
		t.Errorf("without a cluster role it exits with %d and says %q, want 3 and where to ask", code, out)
	}
	if code, _, errs := gpuvigil(t, "why", "0", "4711", "--state.dir="+filepath.Join(state, "x")); code == 0 || !strings.Contains(errs, "only why pending takes a job") {
		t.Errorf("a job behind another subject: exit %d, %q", code, errs)
	}
}

// A script can ask: the worst finding of the job's queue decides, as for other subjects.
func TestWhyPendingExitsByWhatIsFoundOfTheQueue(t *testing.T) {
	of := func(s rules.Severity, state detect.State) server.Finding {
		return server.Finding{Finding: detect.Finding{Severity: s, State: state}}
	}
	for _, c := range []struct {
		findings []server.Finding
		want     error
	}{
		{nil, nil}, {[]server.Finding{of(rules.Info, detect.Firing)}, nil}, {[]server.Finding{of(rules.Ticket, detect.Resolved)}, nil},
		{[]server.Finding{of(rules.Ticket, detect.Firing)}, exitTicket}, {[]server.Finding{of(rules.Ticket, detect.Firing), of(rules.Page, detect.Firing)}, exitPage},
	} {
		if got := pendingExit(c.findings); got != c.want {
			t.Errorf("with %+v it exits with %v, want %v", c.findings, got, c.want)
		}
	}
}
