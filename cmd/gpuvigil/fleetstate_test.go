package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/lease"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// notes is a receiver that notes which incidents it was told of.
type notes struct{ told chan detect.Incident }

func (n *notes) Notify(_ context.Context, m alerting.Message, _ string) (string, error) {
	n.told <- m.Incident
	return "ref-" + m.Incident.ID, nil
}

// pagesOf are snapshots of nodes each of whose agents tells of a lost GPU.
func pagesOf(at time.Time, nodes int, lost bool) (out []*collector.Snapshot) {
	for i := range nodes {
		name := fmt.Sprintf("gpu-%03d", i)
		s := &collector.Snapshot{Time: at, Node: collector.Node{Name: name, Readings: collector.NewReadings(metric.Node)}, Agent: &collector.Agent{Instance: name + ":9836"},
			GPUs: []collector.GPU{{UUID: "GPU-" + name, Present: true, Readings: collector.NewReadings(metric.GPU)}}}
		if lost {
			s.Agent.Findings = []collector.Told{{Rule: "gpu_lost", Severity: "page", Subject: "gpu:GPU-" + name, Cause: "gone", Since: at, Score: 1}}
		}
		out = append(out, s)
	}
	return out
}

// Whatever 200 agents page, one message goes out; after a kill and a restart none goes out
// again, and what ends is told of the same incident.
func TestFleetTellsOnce(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	to := &notes{make(chan detect.Incident, 100)}
	at := time.Now().Add(-time.Hour)
	var rec *fleetRecorder
	begin := func() (end func()) {
		var err error
		if rec, err = openFleetState(dir, "prod", log); err != nil {
			t.Fatal(err)
		}
		rec.role = fleet.New(fleet.Config{Log: log, Tell: rec.tell, Detect: detect.FleetConfig{Cluster: "prod"}})
		if err := rec.restore(); err != nil {
			t.Fatal(err)
		}
		cfg := alerting.OutboxConfig{GateConfig: alerting.GateConfig{Node: "prod"}, Log: log, Pause: time.Millisecond}
		if err := rec.outbox.Configure(cfg, alerting.Receiver{Name: t.Name(), Notifier: to, MinSeverity: rules.Ticket}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rec.outbox.Run(ctx) }()
		return func() {
			rec.write()
			stop()
			if err := <-done; err != nil {
				t.Errorf("the outbox ends with: %v", err)
			}
			if err := rec.store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	play := func(d time.Duration, lost bool) {
		for end := at.Add(d); at.Before(end); {
			at = at.Add(30 * time.Second)
			rec.role.Observe(at, pagesOf(at, 200, lost))
		}
	}
	next := func() detect.Incident {
		t.Helper()
		rec.write()
		select {
		case in := <-to.told:
			return in
		case <-time.After(time.Minute):
			t.Fatal("nothing was told")
			return detect.Incident{}
		}
	}

	end := begin()
	play(20*time.Minute, false)
	play(2*time.Minute, true)
	first := next()
	// The message may go out before all nodes are known to belong to it, and is then edited.
	for last := first; ; last = next() {
		if last.ID != first.ID || last.Rule != rules.IDSuspectMonitor || last.State != detect.Firing {
			t.Fatalf("told is %s of %d nodes, want one message that suspects what they share", last.Rule, last.Nodes)
		}
		if last.Nodes == 200 {
			break
		}
	}
	end()
	end = begin()
	play(5*time.Minute, true)
	play(15*time.Minute, false)
	for in := next(); ; in = next() {
		if in.ID != first.ID {
			t.Fatalf("after a restart another incident is told: %s %s", in.ID, in.Rule)
		}
		if in.State == detect.Resolved {
			break
		}
	}
	end()
}

// A part of the state that is damaged costs itself alone, and is kept.
func TestFleetSetsDamageAside(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	rec, err := openFleetState(dir, "prod", log)
	if err != nil {
		t.Fatal(err)
	}
	rec.role = fleet.New(fleet.Config{Log: log})
	at := time.Now().Add(-time.Hour)
	for range 4 {
		at = at.Add(30 * time.Second)
		rec.role.Observe(at, pagesOf(at, 3, true))
	}
	rec.write()
	if err := rec.store.Update(func(tx *store.Tx) error { return tx.Put(store.Engine, fleetPrefix+"cluster", []byte("{")) }); err != nil {
		t.Fatal(err)
	}
	rec.role = fleet.New(fleet.Config{Log: log})
	if err := rec.restore(); err != nil {
		t.Errorf("a damaged part stops the start: %v", err)
	}
	at = at.Add(30 * time.Second)
	if told := rec.role.Observe(at, pagesOf(at, 3, true)); len(told) != 0 {
		t.Errorf("what was open is told anew after damage elsewhere: %d incidents", len(told))
	}
	if err := rec.store.Close(); err != nil {
		t.Error(err)
	}
}

// The page and the API answer on the node itself, and over the socket.
func TestFleetServesPageAndSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var errs strings.Builder
	ended := make(chan int, 1)
	configuration := file(t, "cluster: prod\nfleet: {kubernetes: {enabled: true, kubeconfig: "+apiServer(t)+"}}\n")
	go func() {
		ended <- run(ctx, []string{"fleet", "--state.dir=" + dir, "--config.file=" + configuration, "--web.listen-address=" + address}, io.Discard, &errs)
	}()
	get := func(client *http.Client, url string) (int, string) {
		for {
			resp, err := client.Get(url)
			if err == nil {
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(body)
			}
			if ctx.Err() != nil {
				t.Fatalf("%s does not answer: %v", url, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if code, body := get(http.DefaultClient, "http://"+address+"/"); code != 200 || !strings.Contains(body, "Starting") || !strings.Contains(body, "prod") {
		t.Errorf("the page answers %d:\n%s", code, body)
	}
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, fleetSocket))
	}}}
	if code, body := get(socket, "http://localhost/api/v1/incidents"); code != http.StatusServiceUnavailable {
		t.Errorf("before the first look the socket answers %d: %s", code, body)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("fleet ends with %d: %s", code, errs.String())
	}
	if _, err := os.Stat(filepath.Join(dir, fleetSocket)); !os.IsNotExist(err) {
		t.Errorf("the socket stays behind: %v", err)
	}
}

func TestFleetAPI(t *testing.T) {
	role := fleet.New(fleet.Config{Log: slog.New(slog.DiscardHandler), Detect: detect.FleetConfig{Cluster: "prod"}})
	at := time.Now().Add(-3 * time.Minute)
	for range 6 {
		at = at.Add(30 * time.Second)
		role.Observe(at, pagesOf(at, 3, true))
	}
	srv := server.NewFleet(server.FleetConfig{Cluster: "prod", View: fleetView(&fleetRecorder{role: role}), Pending: pendingJobs(&fleetRecorder{role: role}), Metrics: role.Handler(), Log: slog.New(slog.DiscardHandler)})
	ts := httptest.NewServer(srv.Handler())
	defer ts.Close()
	client := func(path string) string {
		t.Helper()
		resp, err := http.Get(ts.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s answers %s: %v", path, resp.Status, err)
		}
		return string(body)
	}
	var in server.FleetIncidents
	if err := json.Unmarshal([]byte(client("/api/v1/incidents")), &in); err != nil || len(in.Incidents) != 1 || in.Incidents[0].Nodes != 3 {
		t.Errorf("the API tells of %d incidents: %v", len(in.Incidents), err)
	}
	var nodes server.FleetNodes
	if err := json.Unmarshal([]byte(client("/api/v1/nodes")), &nodes); err != nil || len(nodes.Nodes) != 3 || nodes.Nodes[0].Worst == nil || *nodes.Nodes[0].Worst != rules.Page {
		t.Errorf("the API tells of nodes %+v: %v", nodes.Nodes, err)
	}
	var findings server.FleetFindings
	if err := json.Unmarshal([]byte(client("/api/v1/findings")), &findings); err != nil || len(findings.Findings) != 3 || findings.Findings[0].Action == "" {
		t.Errorf("the API tells of %d findings: %v", len(findings.Findings), err)
	}
	page := client("/")
	for _, want := range []string{"1 thing needs you now", "gpu-000", "3 nodes in all", "3 nodes, 3 GPUs"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	if metrics := client("/metrics"); !strings.Contains(metrics, `vigil_fleet_finding{node="gpu-000",rule="gpu_lost",severity="page",subject="gpu:GPU-gpu-000",cause="gone"} 1`) ||
		!strings.Contains(metrics, `vigil_fleet_incidents{severity="page"} 1`) || strings.Contains(metrics, "\nvigil_finding{") {
		t.Errorf("the metrics do not tell of the agents' findings by a name of their own:\n%s", metrics)
	}
}

// Whoever speaks to the replica that tells nobody is sent on, not given an answer that
// nobody acts on.
func TestFleetFollowerTakesNothing(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	rec, err := openFleetState(dir, "prod", log)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.store.Close()
	rec.role = fleet.New(fleet.Config{Log: log})
	rec.elector = lease.New(lease.Config{Store: lease.File{Path: dir + "/leader"}, Identity: "b", Duration: time.Minute, Log: log})
	d := rec.desk()
	_, marked := d.mark("any", nil)
	_, drilled := d.drill("gpu_lost", "", time.Minute)
	for what, err := range map[string]error{
		"a mark": marked, "a drill": drilled, "the end of maintenance": d.endMaintenance("x"),
		"maintenance": d.maintain(server.Maintenance{Name: "x", Matchers: []string{`node="a"`}, To: time.Now().Add(time.Hour)}),
	} {
		if err == nil || !strings.Contains(err.Error(), "leads: say it there") {
			t.Errorf("%s on the replica that does not lead: %v", what, err)
		}
	}
}
