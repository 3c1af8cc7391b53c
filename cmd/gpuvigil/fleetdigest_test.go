package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/fleet"
)

// The role sums up the day of all nodes: what fires, what fired, which versions changed.
func TestDigestOfACluster(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer silent.Close()
	a, err := loadFleet(fleetInput{file: file(t, fmt.Sprintf(`cluster: eu-1
fleet: {prometheus: {url: %q}}
alerting:
  slack: [{name: platform, channel: C0123456789, token_file: %s}]
  digest: {receivers: [platform], at: "08:00", weekday: monday, time_zone: UTC}
`, silent.URL, file(t, "xoxb-1")))}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	rec := &fleetRecorder{log: log, role: fleet.New(fleet.Config{Log: log})}
	at := time.Now().Add(-time.Hour)
	look := func(driver string, lost bool) {
		nodes := pagesOf(at, 3, lost)
		for _, s := range nodes {
			s.Node.Versions = []collector.Version{{Component: "driver", Value: driver}}
		}
		rec.role.Observe(at, nodes)
		at = at.Add(30 * time.Second)
	}
	look("580.82.07", false)
	for range 4 {
		look("580.95.05", true)
	}
	d := rec.digest(a)
	if d == nil || d.Receivers[0] != "platform" || !d.Daily {
		t.Fatalf("the role has the digest %+v", d)
	}
	got := map[string]string{}
	for _, l := range d.Write(at.Add(-24*time.Hour), at.Add(time.Hour)) {
		got[l.Label] = l.Text
	}
	for label, want := range map[string]string{
		"Cost":             "not known: what the agents booked cannot be read, see the role's log",
		"Findings":         "gpu_lost 3 ×",
		"Still fires":      "page ",
		"Versions changed": "driver 580.82.07 → 580.95.05 on 3 nodes",
		"Drivers":          "580.95.05 on 3 nodes",
	} {
		if !strings.Contains(got[label], want) {
			t.Errorf("of %s the digest says %q, want %q", label, got[label], want)
		}
	}
	week := ""
	for _, l := range d.Write(at.Add(-7*24*time.Hour), at.Add(time.Hour)) {
		if l.Label == "Findings" {
			week = l.Text
		}
	}
	if week != "gpu_lost 3 ×" {
		t.Errorf("the week's digest counts %q", week)
	}
}
