package server

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"gpuvigil/internal/metric"
)

// expected is the page as expfmt writes it.
func expected(t testing.TB, families []*dto.MetricFamily, format expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.(expfmt.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sameText fails where the text of a page is not byte by byte that of expfmt.
func sameText(t testing.TB, e *exposition) {
	t.Helper()
	families := e.gathered()
	for format, open := range map[expfmt.Format]bool{expfmt.FmtText: false, expfmt.FmtOpenMetrics_1_0_0: true, expfmt.FmtOpenMetrics_0_0_1: true} {
		if open && e.dcgm != nil {
			continue // is never asked for
		}
		got, err := e.write(open)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.SplitAfter(expected(t, families, format), "\n"), strings.SplitAfter(string(got), "\n")); diff != "" {
			t.Errorf("the page as %s is another than expfmt's (-expfmt +ours):\n%s", format, diff)
		}
	}
}

func TestTextIsThatOfExpfmt(t *testing.T) {
	hostile := node(soon())
	hostile.snap.Node.Name = "a\\b\"c\nd\xffé"
	hostile.snap.GPUs[0].Model = "\\n\\\"{},=#"
	odd := node(soon())
	for i, v := range []float64{
		math.Copysign(0, -1), 1, -1, 1e6, 1e21, 123456789, 5e-324, math.MaxFloat64, -1.5e-7, 1 << 53, 0.1, math.NaN(), math.Inf(1), math.Inf(-1),
	} {
		odd.snap.GPUs[0].Set(metric.Of(metric.GPU)[i+5], v)
	}
	dcgm := node(soon()).server(t)
	dcgm.cfg.DCGM = true
	for name, s := range map[string]*Server{
		"a node": node(soon()).server(t), "nothing": (&world{}).server(t), "a large node": big(1000).server(t),
		"hostile names": hostile.server(t), "odd numbers": odd.server(t), "DCGM's names": dcgm,
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time, labels are used again
				e, done := s.fresh()
				sameText(t, e)
				done()
			}
		})
	}
}

func FuzzTextIsThatOfExpfmt(f *testing.F) {
	f.Add("python", 0.5)
	f.Add("a\\\"\n\xff\u2028", math.Copysign(0, -1))
	f.Add("", 1e300)
	f.Fuzz(func(t *testing.T, name string, v float64) {
		e := newExposition(newLayout(false))
		e.reset()
		e.one(metric.NodeInfo, v, name, "true")
		e.one(metric.SourceErrors, math.Abs(v), name)
		sameText(t, e)
	})
}

// scraped asks for the page and returns the answer.
func scraped(s *Server, query, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/metrics"+query, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// What Prometheus 3 asks with, by default and when it scrapes native histograms.
const (
	prometheus3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
	prometheus3Proto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8;q=0.7," + prometheus3
)

func TestEveryFormatIsThePage(t *testing.T) {
	s := node(soon()).server(t)
	for accept, want := range map[string]string{
		"":               "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
		"text/html":      "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
		prometheus3:      "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
		prometheus3Proto: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=allow-utf-8",
	} {
		w := scraped(s, "", accept)
		if got := w.Header().Get("Content-Type"); w.Code != 200 || got != want {
			t.Errorf("who accepts %q is answered %d in %q, want %q", accept, w.Code, got, want)
		}
		if vary := w.Header().Values("Vary"); !cmp.Equal(vary, []string{"Accept-Encoding", "Accept"}) {
			t.Errorf("the answer varies with %q", vary)
		}
	}
	var names []string
	for d := expfmt.NewDecoder(scraped(s, "", prometheus3Proto).Body, expfmt.FmtProtoDelim); ; {
		var f dto.MetricFamily
		if err := d.Decode(&f); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.GetName())
	}
	var want []string
	for _, f := range gather(t, s) {
		want = append(want, f.GetName())
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("as protobuf the page has other families (-want +got):\n%s", diff)
	}
}

func TestPartOfThePageCanBeAskedFor(t *testing.T) {
	w := scraped(node(soon()).server(t), "?name[]=vigil_gpu_present&name[]=vigil_gpu_hung", "")
	if families := parse(t, w.Body.String()); len(families) != 2 || families["vigil_gpu_present"] == nil {
		t.Errorf("of two families that were asked for, the page has %d", len(families))
	}
}

func TestScrapesAtOnceAreBounded(t *testing.T) {
	s := node(soon()).server(t)
	for range maxScrapes {
		s.scrapes <- struct{}{}
	}
	if w := scraped(s, "", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("scrape %d at once is answered %d", maxScrapes+1, w.Code)
	}
	<-s.scrapes
	for range 2 {
		if w := scraped(s, "", ""); w.Code != http.StatusOK {
			t.Errorf("with %d others a scrape is answered %d", maxScrapes-1, w.Code)
		}
	}
}

// A client that goes away costs a line at debug level, and the page is used again.
func TestClientThatGoesAway(t *testing.T) {
	s := node(soon()).server(t)
	var log bytes.Buffer
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.scrape(broken{http.Header{}}, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(log.String(), "level=DEBUG") || len(s.spare) != 1 {
		t.Errorf("%d pages are kept, and the log says %q", len(s.spare), log.String())
	}
}

type broken struct{ h http.Header }

func (b broken) Header() http.Header     { return b.h }
func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (broken) WriteHeader(int)           {}

// pipes is a listener of connections that hold nothing back: what is not read is
// not sent.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// asks sends a scrape and does not read the answer.
func (p pipes) asks(t *testing.T) net.Conn {
	client, server := net.Pipe()
	p <- server
	if _, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestClientsThatDoNotReadKeepNobodyOutForLong: as many of them as may ask at once
// would make the node unwatched.
func TestClientsThatDoNotReadKeepNobodyOutForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		server := HTTPServer(http.HandlerFunc(node(soon()).server(t).scrape), slog.New(slog.DiscardHandler))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(listener)
		}()
		for range maxScrapes {
			defer listener.asks(t).Close()
		}
		synctest.Wait()
		status := func() int {
			conn := listener.asks(t)
			defer conn.Close()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode
		}
		if got := status(); got != http.StatusServiceUnavailable {
			t.Fatalf("beside %d scrapes another one is answered %d: the test proves nothing", maxScrapes, got)
		}
		time.Sleep(scrapeLimit + time.Second)
		if got := status(); got != http.StatusOK {
			t.Errorf("%d clients that do not read keep a scrape out (%d) after %v", maxScrapes, got, scrapeLimit+time.Second)
		}
		close(listener)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}
