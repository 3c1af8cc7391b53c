package inference

import (
	"context"
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
	s, err := New(targets, timeout, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func serve(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
}

func one(t *testing.T, s *Inference) collector.Endpoint {
	t.Helper()
	part, err := s.Sample(context.Background())
	if err != nil {
		t.Fatalf("a good page gives an error: %v", err)
	}
	if len(part.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1: %v", len(part.Endpoints), part.Endpoints)
	}
	return part.Endpoints[0]
}

func TestRecordedPages(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		file, model                  string
		running, waiting, kv, tokens float64
	}{
		// Two engines: queues add up, the fuller KV cache counts, the split by reason is not added.
		{"vllm-v1.prom", "acme/chat-8b", 42, 12, 0.96875, 206222},
		{"vllm-v0.prom", "acme/chat-8b", 6, 3, 0.8125, 64210},
		{"vllm-no-samples-yet.prom", "", nan, nan, nan, nan},
	} {
		e := one(t, source(t, "auto", serve(recorded(t, c.file))))
		if e.Engine != "vllm" || e.Value(metric.EndpointUp) != 1 {
			t.Errorf("%s: engine %q, up %v", c.file, e.Engine, e.Value(metric.EndpointUp))
		}
		if e.Model != c.model {
			t.Errorf("%s: model %q, want %q", c.file, e.Model, c.model)
		}
		if strings.Contains(e.URL, "hunter2") {
			t.Errorf("%s: the endpoint's name shows the query: %s", c.file, e.URL)
		}
		for d, want := range map[*metric.Def]float64{
			metric.RequestsRunning: c.running, metric.RequestsWaiting: c.waiting, metric.KVCacheUsage: c.kv, metric.GeneratedTokens: c.tokens,
		} {
			if got := e.Value(d); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%s: %s = %v, want %v (absent is NaN)", c.file, d, got, want)
			}
		}
	}
}

func TestQueueTimeIsOfNow(t *testing.T) {
	served := 0
	s := source(t, "vllm", func(w http.ResponseWriter, _ *http.Request) {
		// A day of fast requests, then ten that waited between 1 and 2 s.
		slow := min(served, 1) * 10
		fmt.Fprintf(w, "# TYPE vllm:request_queue_time_seconds histogram\n")
		fmt.Fprintf(w, "vllm:request_queue_time_seconds_bucket{model_name=\"m\",le=\"1\"} 100000\n")
		fmt.Fprintf(w, "vllm:request_queue_time_seconds_bucket{model_name=\"m\",le=\"2\"} %d\n", 100000+slow)
		fmt.Fprintf(w, "vllm:request_queue_time_seconds_bucket{model_name=\"m\",le=\"+Inf\"} %d\n", 100000+slow)
		fmt.Fprintf(w, "vllm:request_queue_time_seconds_count{model_name=\"m\"} %d\n", 100000+slow)
		fmt.Fprintf(w, "vllm:request_queue_time_seconds_sum{model_name=\"m\"} 5\n")
		fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 1\n")
		served++
	})
	if e := one(t, s); e.Has(metric.QueueTimeP95) {
		t.Errorf("a single page gives a queue time of %v: that is over the whole life of the server", e.Value(metric.QueueTimeP95))
	}
	if got := one(t, s).Value(metric.QueueTimeP95); math.Abs(got-1.95) > 1e-9 {
		t.Errorf("queue-time p95 = %v, want 1.95: only the ten new requests count", got)
	}
}

// A target that misbehaves costs itself: the good one beside it stays complete.
func TestBadTargetsCostOnlyThemselves(t *testing.T) {
	good := serve(recorded(t, "vllm-v1.prom"))
	elsewhere := httptest.NewServer(good)
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"html":        {serve([]byte("<!doctype html><title>login</title>")), "HTML"},
		"json":        {serve(recorded(t, "trtllm-metrics-is-json.json")), "JSON"},
		"empty":       {serve(nil), "empty"},
		"half a page": {serve(recorded(t, "vllm-v1.prom")[:3000]), "text format"},
		"unknown":     {serve([]byte("# TYPE up gauge\nup 1\n")), "no known inference server"},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			line := []byte(strings.Repeat("# comment\n", 100000))
			for range 20 {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, "larger than 16 MiB"},
		"refused":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "403"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "redirects elsewhere"},
		"hangs":    {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "exceeded"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte("# TYPE vllm:x gauge\n"))
		}, "breaks off"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, "auto", c.handler, good)
			if name == "hangs" {
				s = hurriedSource(t, "auto", 2*time.Second, c.handler, good)
			}
			part, err := s.Sample(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error does not say %q: %v", c.says, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the URL's query: %v", err)
			}
			if len(part.Endpoints) != 2 {
				t.Fatalf("%d endpoints, want the bad one and the good one", len(part.Endpoints))
			}
			if bad := part.Endpoints[0]; bad.Value(metric.EndpointUp) != 0 || bad.Has(metric.RequestsRunning) {
				t.Errorf("the bad target is up=%v with %v requests", bad.Value(metric.EndpointUp), bad.Value(metric.RequestsRunning))
			}
			if fine := part.Endpoints[1]; fine.Value(metric.EndpointUp) != 1 || fine.Value(metric.RequestsWaiting) != 12 {
				t.Errorf("the good target suffers: up=%v, waiting=%v", fine.Value(metric.EndpointUp), fine.Value(metric.RequestsWaiting))
			}
		})
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
	part, err := s.Sample(context.Background())
	if err == nil {
		t.Fatal("a server that answers 500 gives no error")
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
	s, err := New([]Target{{URL: srv.URL, Engine: "auto", Token: func() (string, error) { return "hunter2", nil }}}, time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Sample(context.Background())
	if got != "Bearer hunter2" {
		t.Errorf("the target was asked with %q", got)
	}
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error = %v, want one without the token", err)
	}
}

func TestLinkLocalIsRefused(t *testing.T) {
	for _, url := range []string{"http://169.254.169.254/latest/meta-data", "http://[fe80::1]:80/"} {
		s, err := New([]Target{{URL: url, Engine: "auto"}}, time.Second, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sample(context.Background()); err == nil || !strings.Contains(err.Error(), "link-local") {
			t.Errorf("%s: error %v, want a refusal before anything is sent", url, err)
		}
	}
}

func TestWindowSurvivesARestart(t *testing.T) {
	w := &window{length: time.Minute}
	h := func(n float64) buckets { return buckets{upper: []float64{1, math.Inf(1)}, count: []float64{n, n}} }
	at := time.Unix(1000, 0)
	w.add(at, h(100))
	if got := w.add(at.Add(5*time.Second), h(110)).count[1]; got != 10 {
		t.Errorf("%v requests since the last page, want 10", got)
	}
	if got := w.add(at.Add(10*time.Second), h(3)); len(got.count) != 0 {
		t.Errorf("the server restarted, the window still shows %v", got.count)
	}
	if got := w.add(at.Add(15*time.Second), h(8)).count[1]; got != 5 {
		t.Errorf("after the restart %v, want 5", got)
	}
	for i := range 100 {
		w.add(at.Add(time.Duration(20+5*i)*time.Second), h(float64(10+i)))
	}
	if len(w.kept) > 14 {
		t.Errorf("a window of a minute at 5 s keeps %d histograms", len(w.kept))
	}
}

// histogram_quantile's own interpolation, by hand.
func TestQuantile(t *testing.T) {
	b := buckets{upper: []float64{1, 2, 4, math.Inf(1)}, count: []float64{10, 20, 40, 40}}
	for q, want := range map[float64]float64{0.125: 0.5, 0.25: 1, 0.5: 2, 0.75: 3, 1: 4} {
		if got := b.quantile(q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	overflow := buckets{upper: []float64{1, math.Inf(1)}, count: []float64{0, 5}}
	if got := overflow.quantile(0.95); got != 1 {
		t.Errorf("all beyond the last bound: %v, want that bound", got)
	}
	if got := (buckets{}).quantile(0.5); !math.IsNaN(got) {
		t.Errorf("nothing observed: %v, want NaN", got)
	}
}

func FuzzPage(f *testing.F) {
	for _, name := range []string{"vllm-v0.prom", "vllm-v1.prom", "vllm-no-samples-yet.prom"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running NaN\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, models, err := parse(body, "auto")
		if err != nil {
			return
		}
		for name, p := range models {
			for d, v := range p.values {
				if math.IsNaN(v) || math.IsInf(v, 0) && d.Max != 0 {
					t.Errorf("model %q: %s = %v from a page", name, d, v)
				}
			}
		}
	})
}

func BenchmarkPage(b *testing.B) {
	body := recorded(b, "vllm-v1.prom")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := parse(body, "auto"); err != nil {
			b.Fatal(err)
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
				part, err := s.Sample(context.Background())
				if name == "alone" && err == nil {
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
