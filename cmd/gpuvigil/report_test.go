package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhereCostsComeFrom holds that a report says what it lacks, and never a secret.
func TestWhereCostsComeFrom(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"give --prometheus.url":         {"cost"},
		"allowed: one of them":          {"cost", "--local", "--prometheus.url=http://db"},
		"--prometheus.password-file":    {"cost", "--prometheus.url=http://me:hunter2@db"},
		"both or none":                  {"cost", "--prometheus.url=http://db", "--prometheus.username=me"},
		"name a file":                   {"budget", "--prometheus.url=http://127.0.0.1:1", "--prometheus.bearer-token-file=" + missing},
		"found --month without":         {"cost", "--local", "--month=2026-01"},
		"found --accept-gap without":    {"cost", "--local", "--accept-gap=n1"},
		"what is not over":              {"cost", "--local", "--freeze=" + missing, "--month=2999-01"},
		"127.0.0.1:1: connect: connect": {"cost", "--prometheus.url=http://127.0.0.1:1"},
	} {
		code, out, errs := gpuvigil(t, append([]string{"report"}, args...)...)
		wrong := 3 // usage
		if strings.Contains(strings.Join(args, " "), "127.0.0.1:1") {
			wrong = 1 // the database is not there
		}
		if code != wrong || out != "" || !strings.Contains(errs, want) || strings.Contains(errs, "hunter2") {
			t.Errorf("report %v: exit %d, %q, want %d and that it says %q", args, code, errs, wrong, want)
		}
	}
}

func TestASlowDatabaseIsGivenUp(t *testing.T) {
	gone := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-gone }))
	defer s.Close()
	defer close(gone)
	if code, _, errs := gpuvigil(t, "report", "cost", "--prometheus.url="+s.URL, "--prometheus.timeout=50ms"); code != 1 || !strings.Contains(errs, "deadline") {
		t.Errorf("exit %d, %q, want the time-out said", code, errs)
	}
}
