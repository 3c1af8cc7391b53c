package inference

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// source serves the handlers and returns a source that reads them, patiently.
func source(t *testing.T, engine string, handlers ...http.HandlerFunc) *Inference {
	t.Helper()
	return hurriedSource(t, engine, time.Minute, handlers...)
}

func hurriedSource(t *testing.T, engine string, timeout time.Duration, handlers ...http.HandlerFunc) *Inference {
	t.Helper()
	var targets []Target
	for _, h := range handlers {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		targets = append(targets, Target{URL: srv.URL + "/metrics?key=hunter2", Engine: engine})
	}
	return ofTargets(t, timeout, targets...)
}

func ofTargets(t testing.TB, timeout time.Duration, targets ...Target) *Inference {
	t.Helper()
	s, err := New(Config{Targets: targets, Timeout: timeout, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, x := range s.targets {
			x.page.Close()
		}
	})
	return s
}

func serve(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
}

// sampled takes a sample, which is never an error of the source, and returns with it
// what is logged of targets that cannot be read any more; empty: nothing.
func sampled(ctx context.Context, t testing.TB, s *Inference) (*collector.Part, string) {
	t.Helper()
	var said strings.Builder
	s.cfg.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	part, err := s.Sample(ctx)
	if err != nil {
		t.Fatalf("what is wrong with a target is an error of the whole source, and makes the node blind: %v", err)
	}
	return part, said.String()
}

func one(t *testing.T, s *Inference) collector.Endpoint {
	t.Helper()
	part, said := sampled(t.Context(), t, s)
	if said != "" {
		t.Fatalf("a good page is said not to be: %s", said)
	}
	if len(part.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1: %v", len(part.Endpoints), part.Endpoints)
	}
	return part.Endpoints[0]
}

// A target that misbehaves costs itself: the good one beside it stays complete.
func TestBadTargetsCostOnlyThemselves(t *testing.T) {
	good := serve(recorded(t, "vllm-v1.prom"))
	elsewhere := httptest.NewServer(good)
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string
		says    string
	}{
		"html":            {serve([]byte("\n <!doctype html><title>login</title>")), "html", "HTML"},
		"json":            {serve([]byte(`{"status":"ok","error":{"code":7}}`)), "json", "JSON"},
		"a list":          {serve([]byte("[]")), "json", "JSON"},
		"half JSON":       {serve([]byte(`[{"numActiveRequests": 1`)), "json", "JSON"},
		"much JSON":       {serve([]byte("[" + strings.Repeat("1,", 1<<20) + "1]")), "too_large", "1 MiB"},
		"empty":           {serve(nil), "empty", "empty"},
		"half a page":     {serve(recorded(t, "vllm-v1.prom")[:3000]), "cut_off", "not whole"},
		"unknown":         {serve([]byte("# TYPE up gauge\nup 1\n")), "unknown_engine", "no inference server that is known"},
		"100 MB":          {endless("# comment\n"), "too_large", "larger than 16 MiB"},
		"one long line":   {endless("x"), "syntax", "line of more than 256 KiB"},
		"too many series": {endless("vllm:num_requests_running 1\n"), "too_large", "more than 20000 samples"},
		"refused":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "credentials", "403"},
		"broken":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status", "502"},
		"redirect":        {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "redirect", "redirects elsewhere"},
		"loop":            {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/metrics", http.StatusFound) }, "redirect", "redirects elsewhere"},
		"hangs":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout", "exceeded"},
		"slow loris": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("#"))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, "timeout", "breaks off"},
		"closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "unreachable", "EOF"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte("# TYPE vllm:x gauge\n"))
		}, "cut_off", "breaks off"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, "auto", c.handler, good)
			if c.reason == "timeout" {
				s = hurriedSource(t, "auto", 2*time.Second, c.handler, good)
			}
			part, said := sampled(t.Context(), t, s)
			if !strings.Contains(said, c.says) {
				t.Errorf("the log does not say %q: %s", c.says, said)
			}
			if strings.Contains(said, "hunter2") {
				t.Errorf("the log shows the URL's query: %s", said)
			}
			if len(part.Endpoints) != 2 || len(part.Targets) != 2 {
				t.Fatalf("%d endpoints of %d targets, want the bad one and the good one", len(part.Endpoints), len(part.Targets))
			}
			if bad := part.Endpoints[0]; bad.Value(metric.EndpointUp) != 0 || bad.Has(metric.RequestsRunning) {
				t.Errorf("the bad target is up=%v with %v requests", bad.Value(metric.EndpointUp), bad.Value(metric.RequestsRunning))
			}
			bad := part.Targets[0]
			for i, reason := range metric.TargetReasons.Values {
				if v := bad.ValueAt(metric.TargetFailing, i); (v == 1) != (reason == c.reason) {
					t.Errorf("reason %s is %v, the reason is %s", reason, v, c.reason)
				}
			}
			if bad.Value(metric.TargetUp) != 0 || !bad.Has(metric.TargetDuration) || bad.Has(metric.TargetAge) {
				t.Errorf("the bad target's health: up=%v duration=%v age=%v", bad.Value(metric.TargetUp), bad.Value(metric.TargetDuration), bad.Value(metric.TargetAge))
			}
			if fine := part.Endpoints[1]; fine.Value(metric.EndpointUp) != 1 || fine.Value(metric.RequestsWaiting) != 12 {
				t.Errorf("the good target suffers: up=%v, waiting=%v", fine.Value(metric.EndpointUp), fine.Value(metric.RequestsWaiting))
			}
			if fine := part.Targets[1]; fine.Value(metric.TargetUp) != 1 || fine.Value(metric.TargetBytes) < 1000 || fine.Has(metric.TargetFailing) {
				t.Errorf("the good target's health: up=%v bytes=%v", fine.Value(metric.TargetUp), fine.Value(metric.TargetBytes))
			}
		})
	}
}

// endless serves the line again and again, up to 100 MB.
func endless(line string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		piece := []byte(strings.Repeat(line, 1<<20/len(line)))
		for range 100 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
}

// Each of several targets that all fail says so for itself, and the source sees.
func TestAllTargetsFail(t *testing.T) {
	part, said := sampled(t.Context(), t, source(t, "auto", serve(nil), serve([]byte("<html>"))))
	for i, reason := range []string{"empty", "html"} {
		x := part.Targets[i]
		if x.Value(metric.TargetUp) != 0 || x.ValueAt(metric.TargetFailing, metric.TargetReasons.Index(reason)) != 1 || !strings.Contains(said, x.URL) {
			t.Errorf("target %s does not say %s for itself; the log says %s", x.URL, reason, said)
		}
	}
}

func TestTargetThatGoesAndComesBack(t *testing.T) {
	broken := false
	s := source(t, "auto", func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(recorded(t, "vllm-v1.prom"))
	})
	one(t, s)
	broken = true
	part, said := sampled(t.Context(), t, s)
	if !strings.Contains(said, "500") {
		t.Fatalf("of a server that answers 500 the log says %q", said)
	}
	if e := part.Endpoints[0]; e.Model != "acme/chat-8b" || e.Has(metric.RequestsWaiting) {
		t.Errorf("a server that is down keeps its name and loses its numbers, got model %q, waiting %v", e.Model, e.Value(metric.RequestsWaiting))
	}
	broken = false
	if e := one(t, s); e.Value(metric.RequestsWaiting) != 12 {
		t.Errorf("the server is back, its numbers are not")
	}
}

func TestTokenIsSentAndNotShown(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	s := ofTargets(t, time.Minute, Target{URL: srv.URL, Engine: "auto", Token: func() (string, error) { return "hunter2", nil }})
	_, said := sampled(t.Context(), t, s)
	if got != "Bearer hunter2" {
		t.Errorf("the target was asked with %q", got)
	}
	if !strings.Contains(said, "401") || strings.Contains(said, "hunter2") {
		t.Errorf("the log says %q, want the refusal without the token", said)
	}
}

func TestLinkLocalIsRefused(t *testing.T) {
	for _, url := range []string{"http://169.254.169.254/latest/meta-data", "http://[fe80::1]:80/"} {
		s := ofTargets(t, time.Minute, Target{URL: url, Engine: "auto"})
		if _, said := sampled(t.Context(), t, s); !strings.Contains(said, "link-local") {
			t.Errorf("%s: the log says %q, want a refusal before anything is sent", url, said)
		}
	}
}

// Pages that real exporters have served: blank values, carriage returns, bytes that
// are no UTF-8. Each costs its own target, and none is taken for a server's.
func TestOddPagesCostOnlyThemselves(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("testdata", "exposition", "*"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("%d recorded pages, error %v", len(pages), err)
	}
	good := recorded(t, "vllm-v1.prom")
	for _, path := range pages {
		t.Run(filepath.Base(path), func(t *testing.T) {
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for name, odd := range map[string][]byte{
				"alone":             body,
				"behind a server's": append([]byte("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 1\n"), body...),
			} {
				s := source(t, "auto", serve(odd), serve(good))
				part, said := sampled(t.Context(), t, s)
				if name == "alone" && said == "" {
					t.Error("a page that is of no inference server was accepted")
				}
				for _, e := range part.Endpoints {
					for _, d := range metric.Of(metric.Endpoint) {
						if v := e.Value(d); !math.IsNaN(v) && !d.Plausible(v) {
							t.Errorf("%s: %s = %v from %s", name, d, v, e.URL)
						}
					}
				}
				if fine := part.Endpoints[len(part.Endpoints)-1]; fine.Value(metric.EndpointUp) != 1 || fine.Value(metric.RequestsWaiting) != 12 {
					t.Errorf("%s: the good server beside it suffers", name)
				}
			}
		})
	}
}

// patient is for tests in which time does not matter.
const patient = time.Minute

// serverOf serves one page and returns its URL.
func serverOf(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL + "/metrics"
}

func TestTLSAndBasicAuthentication(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "reader" || password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(recorded(t, "vllm-v1.prom"))
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	password := func() (string, error) { return "hunter2", nil }
	for name, c := range map[string]struct {
		target Target
		reason string // empty: it is read
	}{
		"its certificate is trusted":    {Target{TLS: page.TLS{CAFile: ca}, User: "reader", Password: password}, ""},
		"another name":                  {Target{TLS: page.TLS{CAFile: ca, ServerName: "example.com"}, User: "reader", Password: password}, ""},
		"a name that it is not for":     {Target{TLS: page.TLS{CAFile: ca, ServerName: "other.test"}, User: "reader", Password: password}, "tls"},
		"its certificate is not known":  {Target{User: "reader", Password: password}, "tls"},
		"any certificate":               {Target{TLS: page.TLS{Insecure: true}, User: "reader", Password: password}, ""},
		"no password":                   {Target{TLS: page.TLS{CAFile: ca}}, "credentials"},
		"a password that is not there":  {Target{TLS: page.TLS{CAFile: ca}, User: "reader", Password: func() (string, error) { return "", os.ErrNotExist }}, "credentials"},
		"a bearer token is not a basic": {Target{TLS: page.TLS{CAFile: ca}, Token: password}, "credentials"},
	} {
		c.target.URL, c.target.Engine = srv.URL, "auto"
		part, said := sampled(t.Context(), t, ofTargets(t, patient, c.target))
		if (said == "") != (c.reason == "") || strings.Contains(said, "hunter2") {
			t.Errorf("%s: the log says %q", name, said)
		}
		if c.reason != "" && part.Targets[0].ValueAt(metric.TargetFailing, metric.TargetReasons.Index(c.reason)) != 1 {
			t.Errorf("%s: the reason is not %s: %s", name, c.reason, said)
		}
	}
	if _, err := New(Config{Targets: []Target{{URL: srv.URL, Engine: "auto", TLS: page.TLS{CAFile: ca + "x"}}}}); err == nil {
		t.Error("a file of certificates that is not there is accepted")
	}
	if _, err := New(Config{Targets: []Target{{URL: srv.URL, Engine: "ollama"}}}); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("an engine that is not known: %v", err)
	}
}

// A redirect within the server is followed; collector/page holds which are not.
func TestRedirectWithinTheServer(t *testing.T) {
	s := source(t, "auto", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.Redirect(w, r, "/metrics/", http.StatusMovedPermanently)
			return
		}
		_, _ = w.Write(recorded(t, "vllm-v1.prom"))
	})
	if part, said := sampled(t.Context(), t, s); said != "" || part.Endpoints[0].Value(metric.RequestsWaiting) != 12 {
		t.Errorf("a redirect to the same server: %s", said)
	}
}

// page40 is a page of vLLM with 40 models, as large as real ones are.
func page40(t testing.TB) []byte {
	one := string(recorded(t, "vllm-v1.prom"))
	var b strings.Builder
	for i := range 40 {
		b.WriteString(strings.ReplaceAll(one, "acme/chat-8b", fmt.Sprintf("acme/adapter-%02d", i)))
	}
	return []byte(b.String())
}

func BenchmarkPage(b *testing.B) {
	for name, page := range map[string][]byte{"vllm": recorded(b, "vllm-v1.prom"), "vllm with 40 models": page40(b)} {
		b.Run(name, func(b *testing.B) {
			book := newBook(indexes()["auto"], "auto", "")
			at := time.Unix(1790000000, 0)
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := book.read(bytes.NewReader(page)); err != nil {
					b.Fatal(err)
				}
				at = at.Add(5 * time.Second)
				book.settle("http://x", nil, at)
			}
		})
	}
}

// BenchmarkTargets is one sample of 64 targets, which is due every 5 s, with the
// servers that are read.
func BenchmarkTargets(b *testing.B) {
	page := recorded(b, "vllm-v1.prom")
	targets := make([]Target, 64)
	for i := range targets {
		targets[i] = Target{URL: serverOf(b, serve(page)), Engine: "auto"}
	}
	s := ofTargets(b, patient, targets...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Sample(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
