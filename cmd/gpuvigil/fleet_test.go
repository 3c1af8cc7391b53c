package main

import (
	"log/slog"
	"syscall"

	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gpuvigil/internal/fleet"
)

// fleetPage runs the role with the configuration until its page says what is wanted,
// and returns the page and the log.
func fleetPage(t *testing.T, configuration, want string) (page, log string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var errs strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"fleet", "--state.dir=" + t.TempDir(), "--config.file=" + file(t, configuration), "--web.listen-address=" + address}, io.Discard, &errs)
	}()
	for !strings.Contains(page, want) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue // it does not listen yet
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		page = string(body)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("fleet ends with %d: %s", code, errs.String())
	}
	if !strings.Contains(page, want) {
		t.Fatalf("the page never said %s:\n%s\n%s", want, page, errs.String())
	}
	return page, errs.String()
}

const fleetOwners = "owners: {mapping: [{account: proj1, partition: gpu, team: nlp}]}\n"

func TestFleetAsksSlurmrestd(t *testing.T) {
	var asked atomic.Int64
	slurm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-NAME") != "vigil" || r.Header.Get("X-SLURM-USER-TOKEN") != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			fmt.Fprint(w, `{"nodes": [{"name": "n1", "state": ["MIXED"], "partitions": ["gpu"], "gres": "gpu:8", "gres_used": "gpu:4"}]}`)
			return
		}
		fmt.Fprint(w, `{"jobs": [
			{"job_id": 62377, "user_id": {"set": true, "number": 1001}, "user_name": "ada", "account": "proj1", "partition": "gpu", "job_state": ["RUNNING"], "tres_alloc_str": "gres/gpu=4"},
			{"job_id": 62332, "partition": "gpu", "job_state": ["PENDING"], "state_reason": "Resources", "tres_per_node": "gres/gpu:1", "node_count": {"set": true, "number": 1}}]}`)
	}))
	defer slurm.Close()
	dir := t.TempDir()
	for name, secret := range map[string]string{"user": "vigil\n", "token": "hunter2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configuration := fleetOwners + fmt.Sprintf("fleet: {slurm: {slurmrestd_url: '%s/slurm/v0.0.40', user_file: %s/user, token_file: %s/token}}\n", slurm.URL, dir, dir)
	if code, out, errs := gpuvigil(t, "check", file(t, configuration)); code != 0 {
		t.Errorf("check: exit %d, %s%s", code, out, errs)
	}
	page, log := fleetPage(t, configuration, `vigil_job_info{owner_kind="job",owner="slurm/62377",array="",user="1001",account="proj1",partition="gpu",qos="",name="",team="nlp"} 1`)
	for _, want := range []string{`vigil_queue_gpus{scheduler="slurm",queue="gpu",state="waiting"} 1`, `vigil_pool_capacity_gpus{scheduler="slurm",pool="gpu",state="free"} 4`, `vigil_scheduler_up{scheduler="slurm"} 1`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page does not say %s:\n%s", want, page)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("Slurm was asked %d times however often the page was, want once for jobs and once for nodes", n)
	}
	if strings.Contains(log+page, "hunter2") || strings.Contains(page, `"ada"`) {
		t.Errorf("a secret or a name is shown:\n%s\n%s", log, page)
	}
}

func TestFleetAsksSqueue(t *testing.T) {
	squeue := filepath.Join(t.TempDir(), "squeue")
	row := "5_7|#7|#RUNNING|#None|#1000|#ada|#proj1|#gpu|#normal|#1|#2026-01-31T04:06:57|#N/A|#N/A|#UNLIMITED|#0:10|#N/A|#N/A|#N/A|#cpu=1,gres/gpu=2|#a name|#"
	if err := os.WriteFile(squeue, []byte("#!/bin/sh\necho '"+row+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	fleetPage(t, fleetOwners+"fleet: {slurm: {squeue: "+squeue+"}}\n",
		`vigil_job_info{owner_kind="job",owner="slurm/7",array="5_7",user="1000",account="proj1",partition="gpu",qos="normal",name="",team="nlp"} 1`)
}

func TestFleetThatCannotAsk(t *testing.T) {
	f := func(configuration, says string) {
		t.Helper()
		code, _, errs := gpuvigil(t, "fleet", "--web.listen-address=127.0.0.1:0", "--config.file="+file(t, configuration))
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("fleet with %q: exit %d, %q, want an error that says %q", configuration, code, errs, says)
		}
	}
	f("", "fleet.slurm.squeue")
	f("fleet: {slurm: {slurmrestd_url: 'http://127.0.0.1:1/slurm/v0.0.40', token_file: /absent}}", "fleet.slurm.token_file")
	f("fleet: {receive: {enabled: true}, remote_write: {url: 'http://127.0.0.1:1/w', bearer_token_file: /absent}}", "fleet.remote_write.bearer_token_file")
	f("fleet: {receive: {enabled: true}, remote_write: {url: 'https://127.0.0.1:1/w', tls: {ca_file: /absent}}}", "fleet.remote_write.tls.ca_file")
	f("fleet: {kubernetes: {enabled: true}}", "service account")
	f("fleet: {prometheus: {url: 'http://127.0.0.1:1', bearer_token_file: /absent}}", "fleet.prometheus.bearer_token_file")
	f("fleet: {prometheus: {url: 'http://127.0.0.1:1', headers: [{name: X-Key, value_file: /absent}]}}", "fleet.prometheus.headers[0].value_file")
	f("fleet: {prometheus: {url: 'https://127.0.0.1:1', tls: {cert_file: /absent, key_file: /absent}}}", "/absent")
	f("fleet: {kubernetes: {enabled: true, kubeconfig: /absent}}", "/absent")
	if code, _, errs := gpuvigil(t, "fleet"); code == 0 || !strings.Contains(errs, "--prometheus.url") {
		t.Errorf("fleet without a configuration: exit %d, %q", code, errs)
	}
	if code, _, errs := gpuvigil(t, "fleet", "--help"); code != 0 || !strings.Contains(strings.Join(strings.Fields(errs), " "), "Slurm or Kubernetes") {
		t.Errorf("fleet --help does not say what it is for: exit %d, %q", code, errs)
	}
}

// apiServer answers lists of pods and nodes, holds watches, and knows nothing else.
func apiServer(t *testing.T) (kubeconfig string) {
	t.Helper()
	lists := map[string]string{
		"/api/v1/nodes": `{"metadata": {"uid": "n", "name": "n1", "labels": {"pool": "h100"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}}}`,
		"/api/v1/pods": `{"metadata": {"uid": "a", "name": "a", "namespace": "ml", "labels": {"app": "chat"}}, "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "6"}}}]}, "status": {"phase": "Running"}},
			{"metadata": {"uid": "b", "name": "b", "namespace": "ml", "labels": {"app": "chat"}}, "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
			"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}]}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, ok := lists[r.URL.Path]
		switch {
		case !ok && strings.Contains(r.URL.Path, "kueue"):
			w.WriteHeader(http.StatusForbidden)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Has("watch"):
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"metadata": {"resourceVersion": "1"}, "items": [%s]}`, list)
		}
	}))
	t.Cleanup(s.Close)
	return file(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "k", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": ""}}]}`, s.URL))
}

func TestFleetAsksKubernetes(t *testing.T) {
	configuration := "fleet: {kubernetes: {enabled: true, pool_labels: [pool], kubeconfig: " + apiServer(t) + "}}\nowners: {mapping: [{label: {app: chat}, team: nlp}]}\n"
	page, _ := fleetPage(t, configuration, `vigil_scheduler_up{scheduler="kubernetes"} 1`)
	for _, want := range []string{`vigil_pool_free_gpus{scheduler="kubernetes",pool="h100",cause="fragmented"} 2`, `vigil_waiting_gpus{scheduler="kubernetes",queue="ml",account="ml",team="nlp",reason="no_free_gpu"} 4`,
		`vigil_config_last_reload_successful 1`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page does not say %s:\n%s", want, page)
		}
	}
}

// A new configuration is taken by SIGHUP, one that does not work is not.
func TestFleetReloads(t *testing.T) {
	kubeconfig := apiServer(t)
	path := file(t, "fleet: {kubernetes: {enabled: true, pool_labels: [pool], kubeconfig: "+kubeconfig+"}}\n")
	log := slog.New(slog.DiscardHandler)
	first, err := loadFleet(fleetInput{file: path}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	role := fleet.New(first.config)
	rec, err := openFleetState(t.TempDir(), first.cluster, log)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.store.Close()
	rec.role = role
	if err := rec.tellsFor(first); err != nil {
		t.Fatal(err)
	}
	hup := make(chan os.Signal, 1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := runAsking(ctx, log, fleetInput{file: path}, rec, &remotes{}, first, hup); err != nil {
			t.Errorf("the role ends with: %v", err)
		}
	}()
	says := func(want string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			w := httptest.NewRecorder()
			role.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if strings.Contains(w.Body.String(), want+"\n") {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the page never said %s:\n%s", want, w.Body)
			}
		}
	}
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hup <- syscall.SIGHUP
	}
	says(`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="h100",state="free"} 2`)
	change("fleet: {kubernets: {}}\n")
	says("vigil_config_last_reload_successful 0")
	says(`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="h100",state="free"} 2`)
	change("fleet: {kubernetes: {enabled: true, pool_labels: [none-has-it], kubeconfig: " + kubeconfig + "}}\n")
	says(`vigil_pool_capacity_gpus{scheduler="kubernetes",pool="none",state="free"} 2`)
	says("vigil_config_last_reload_successful 1")
	stop()
	<-done
}

// What is known of series stays known over a reload that reads the same of the same server.
func TestReloadKeepsWhatSeriesSay(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	load := func(configuration string, before *asking) *asking {
		t.Helper()
		a, err := loadFleet(fleetInput{file: file(t, configuration)}, before, log)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const from = "fleet: {prometheus: {url: 'http://127.0.0.1:1', match: ['cluster=\"a\"']}}\n"
	first := load(from, nil)
	if load(from+"alerting: {burst: 3}\n", first).assembler != first.assembler {
		t.Error("another burst for people, and nothing is known any more of what series said")
	}
	for _, other := range []string{
		"fleet: {prometheus: {url: 'http://127.0.0.1:2', match: ['cluster=\"a\"']}}\n", "fleet: {prometheus: {url: 'http://127.0.0.1:1'}}\n",
		from + "owners: {mapping: [{account: proj1, team: nlp}]}\n",
	} {
		if load(other, first).assembler == first.assembler {
			t.Errorf("what another server says, or says of others, is taken for the same: %s", other)
		}
	}
}

// Nobody is told that somebody watches before a node was seen.
func TestNoSignOfLifeBeforeTheFirstNode(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	rec := &fleetRecorder{log: log, role: fleet.New(fleet.Config{Log: log, Brought: true})}
	rec.role.Observe(time.Now(), nil)
	if rec.watches() || strings.Contains(string(rec.role.Page(time.Now())), "vigil_heartbeat_timestamp_seconds ") {
		t.Error("a role that has seen no node yet says that it watches")
	}
	at := time.Now()
	rec.role.Observe(at, pagesOf(at, 3, false))
	if !rec.watches() || rec.seen() != "3 GPUs on 3 nodes are watched" {
		t.Errorf("a role that sees three nodes says %v, %s", rec.watches(), rec.seen())
	}
	want := "vigil_heartbeat_timestamp_seconds " + strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64) + "\n"
	if page := string(rec.role.Page(at)); !strings.Contains(page, want) {
		t.Errorf("its page does not say %s:\n%s", want, page)
	}
	alone := &fleetRecorder{log: log, role: fleet.New(fleet.Config{Log: log})}
	alone.role.Observe(time.Now(), nil)
	if !alone.watches() {
		t.Error("a role that only asks schedulers never says that it watches")
	}
}
