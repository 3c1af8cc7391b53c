package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

// Commands that ask an agent ask the cluster role where no agent runs.
func TestCommandsAskTheRoleWhereThereIsNoAgent(t *testing.T) {
	dir := t.TempDir()
	answer := func(name, text string) {
		t.Helper()
		l, err := server.ListenSocket(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) })}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
	}
	asked := func(want string) {
		t.Helper()
		code, out, errs := gpuvigil(t, "maintenance", "list", "--state.dir="+dir)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %s%s, want an answer of %s", code, out, errs, want)
		}
	}
	answer(fleetSocket, `[{"name":"the role","matchers":[]}]`)
	asked("the role")
	answer(socketName, `[{"name":"the agent","matchers":[]}]`)
	asked("the agent")
}

// The role's own page tells whether its messages arrive.
func TestTheRolesPageCountsItsMessages(t *testing.T) {
	path := file(t, "fleet: {kubernetes: {enabled: true, kubeconfig: "+apiServer(t)+"}}\n")
	first, err := loadFleet(fleetInput{file: path}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	vm.GetOrCreateCounter(metric.NotificationsSent.Series(t.Name(), "sent")).Set(7)
	for _, name := range []string{metric.OutboxLength.Series(t.Name()), metric.OutboxAge.Series(t.Name()), metric.MaintenanceWindows.Series("command")} {
		vm.GetOrCreateGauge(name, func() float64 { return 3 })
		defer vm.UnregisterMetric(name)
	}
	w := httptest.NewRecorder()
	fleet.New(first.config).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		metric.NotificationsSent.Series(t.Name(), "sent") + " 7", metric.OutboxLength.Series(t.Name()) + " 3",
		metric.OutboxAge.Series(t.Name()) + " 3", metric.MaintenanceWindows.Series("command") + " 3",
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("the role's page does not say %s", want)
		}
	}
}

// Who is configured while something is open hears of it.
func TestAReceiverThatIsNewHearsWhatIsOpen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	rec, err := openFleetState(t.TempDir(), "prod", log)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.store.Close()
	rec.role = fleet.New(fleet.Config{Log: log, Tell: rec.tell, Detect: detect.FleetConfig{Cluster: "prod"}})
	at := time.Now().Add(-time.Hour)
	for k := range 12 {
		at = at.Add(30 * time.Second)
		rec.role.Observe(at, pagesOf(at, 3, k >= 6))
	}
	to := &notes{make(chan detect.Incident, 10)}
	cfg := alerting.OutboxConfig{GateConfig: alerting.GateConfig{Node: "prod"}, Log: log}
	if err := rec.configure(&asking{outbox: cfg, receivers: []alerting.Receiver{{Name: t.Name(), Notifier: to, MinSeverity: rules.Ticket}}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- rec.outbox.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the outbox ends with: %v", err)
		}
	}()
	select {
	case in := <-to.told:
		if in.State != detect.Firing || in.Severity != rules.Page {
			t.Errorf("told is a %s that is %s", in.Severity, in.State)
		}
	case <-time.After(time.Minute):
		t.Error("a receiver that is new is told nothing of what is open")
	}
}
