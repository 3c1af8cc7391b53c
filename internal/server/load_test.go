package server

import (
	"compress/gzip"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("the open files cannot be counted here: %v", err)
	}
	return len(list)
}

func TestThousandScrapesLeaveNoFileOpen(t *testing.T) {
	w := node(soon())
	w.snap.GPUs = w.snap.GPUs[:1]
	s := w.server(t)
	before := openFiles(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = HTTPServer(s.Handler(), slog.New(slog.DiscardHandler))
	srv.Start()
	client := srv.Client()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	for range 1000 {
		answer, err := client.Get(srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	srv.Close()
	if after := openFiles(t); after > before+2 { // the poller's own, made on first use
		t.Errorf("%d files were open before 1000 scrapes, %d are now", before, after)
	}
}

// TestScrapesWhileSnapshotsArrive must be run with -race to prove something about
// shared memory; without it, it proves that every page is whole and of one snapshot.
func TestScrapesWhileSnapshotsArrive(t *testing.T) {
	var latest atomic.Pointer[world]
	latest.Store(node(soon()))
	s := latest.Load().server(t)
	s.cfg.Snapshot = func() *collector.Snapshot { return latest.Load().snap }
	var published atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for range 50 {
			latest.Store(node(soon()))
		}
		published.Store(true)
	})
	h := s.Handler()
	for _, path := range []string{"/metrics", "/metrics", "/", "/api/v1/snapshot", "/api/v1/findings", "/-/ready"} {
		all.Go(func() {
			for more := true; more; more = !published.Load() {
				r := httptest.NewRequest("GET", "http://localhost"+path, nil)
				r.RemoteAddr = "127.0.0.1:5"
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, r)
				if answer.Code != http.StatusOK {
					t.Errorf("%s answers %d: %s", path, answer.Code, answer.Body)
				}
				if path != "/metrics" {
					continue
				}
				p := expfmt.NewTextParser(model.LegacyValidation)
				if _, err := p.TextToMetricFamilies(answer.Body); err != nil {
					t.Errorf("a page under load cannot be read: %v", err)
				}
			}
		})
	}
	all.Wait()
}

func TestCompressedScrapeIsTheSamePage(t *testing.T) {
	h := node(soon()).server(t).Handler()
	ask := func(encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	packed := ask("gzip")
	if got := packed.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text; version=1.0.0") {
		t.Errorf("OpenMetrics was asked for, the answer is %s", got)
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatalf("the page is not compressed: %v", err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	plain := ask("identity").Body.String()
	if got, want := samples(string(text)), samples(plain); got != want {
		t.Errorf("the compressed page has %d samples, the plain one %d", got, want)
	}
}

// What a scrape allocates is of the scrape, and none of it of a series.
func TestScrapeAllocatesNothingForASeries(t *testing.T) {
	allocated := func(series int) float64 {
		s := big(series).server(t)
		r := httptest.NewRequest("GET", "/metrics", nil)
		return testing.AllocsPerRun(20, func() { s.scrape(discard{http.Header{}}, r) })
	}
	if few, many := allocated(150), allocated(3000); many > few+10 {
		t.Errorf("a scrape of 3000 series allocates %v times, one of 150 %v times", many, few)
	}
}

// big is a node of H100s that tell everything, in numbers with three decimals, with
// about the given number of series.
func big(series int) *world {
	now := soon()
	rng := rand.New(rand.NewPCG(1, 2))
	w := node(now)
	w.snap.GPUs = nil
	for i := range series / 138 {
		g := h100(i, now)
		g.Readings = everything(metric.GPU, notOnHopper, byLocation)
		v := g.Vector()
		for c := range v {
			if v[c] == 0 {
				v[c] = math.Round(1e3*rng.ExpFloat64()) / 1e3
			}
		}
		g.Stamp(metric.Fast, now)
		w.snap.GPUs = append(w.snap.GPUs, g)
	}
	return w
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// cpuTime is what the process has used: on a busy machine it says more than the
// time on the wall.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkScrape(b *testing.B) {
	s := big(5000).server(b)
	families := gather(b, s)
	n := 0
	for _, f := range families {
		n += len(f.Metric)
	}
	b.Run("gather", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, done, err := s.Gather()
			if err != nil {
				b.Fatal(err)
			}
			done()
		}
	})
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Header.Set("Accept-Encoding", encoding)
			var took, used []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start, before := time.Now(), cpuTime(b)
				s.scrape(discard{http.Header{}}, r)
				took, used = append(took, time.Since(start)), append(used, cpuTime(b)-before)
			}
			b.ReportMetric(float64(n), "series")
			for name, times := range map[string][]time.Duration{"ms": took, "cpu-ms": used} {
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Microseconds())/1e3, "p50-"+name)
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1e3, "p99-"+name)
			}
		})
	}
}

func BenchmarkPage(b *testing.B) {
	s := node(soon()).server(b)
	r := httptest.NewRequest("GET", "/", nil)
	for b.Loop() {
		s.index(discard{http.Header{}}, r)
	}
}
