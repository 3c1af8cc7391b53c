package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

func TestWhoMayReadWhat(t *testing.T) {
	const local, v6, mapped, remote = "127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5", "10.1.2.3:5"
	for name, c := range map[string]struct {
		peer, host, path string
		header           http.Header
		auth             bool
		want             int
	}{
		"page from here":                        {peer: local, host: "localhost:9400", path: "/", want: 200},
		"page by IPv4 address":                  {peer: local, host: "127.0.0.1:9400", path: "/", want: 200},
		"page by IPv6":                          {peer: v6, host: "[::1]:9400", path: "/", want: 200},
		"page by IPv6 without a port":           {peer: v6, host: "[::1]", path: "/", want: 200},
		"page by a mapped address":              {peer: mapped, host: "localhost", path: "/", want: 200},
		"API from here":                         {peer: local, host: "localhost", path: "/api/v1/findings", want: 200},
		"page from elsewhere":                   {peer: remote, host: "gpu-117:9400", path: "/", want: 403},
		"page from elsewhere that says it's us": {peer: remote, host: "localhost:9400", path: "/", want: 403},
		"API from elsewhere":                    {peer: remote, host: "gpu-117:9400", path: "/api/v1/snapshot", want: 403},
		"inventory from here":                   {peer: local, host: "localhost", path: "/api/v1/inventory", want: 200},
		"inventory from elsewhere":              {peer: remote, host: "gpu-117:9400", path: "/api/v1/inventory", want: 403},
		"inventory, authenticated":              {peer: remote, host: "gpu-117:9400", path: "/api/v1/inventory", auth: true, want: 200},
		"anything else from elsewhere":          {peer: remote, host: "gpu-117:9400", path: "/nothing", want: 403},
		"page from a nonsense peer":             {peer: "@", host: "localhost", path: "/", want: 403},
		"page under a foreign name (rebinding)": {peer: local, host: "evil.example:9400", path: "/", want: 403},
		"page without a host":                   {peer: local, host: "", path: "/", want: 403},
		"page through a proxy on this machine":  {peer: local, host: "localhost", path: "/", header: http.Header{"X-Forwarded-For": {"10.1.2.3"}}, want: 403},
		"page through a modern proxy":           {peer: local, host: "localhost", path: "/", header: http.Header{"Forwarded": {"for=10.1.2.3"}}, want: 403},
		"page from elsewhere, authenticated":    {peer: remote, host: "gpu-117:9400", path: "/", auth: true, want: 200},
		"API from elsewhere, authenticated":     {peer: remote, host: "gpu-117:9400", path: "/api/v1/findings", auth: true, want: 200},
		"metrics from elsewhere":                {peer: remote, host: "gpu-117:9400", path: "/metrics", want: 200},
		"health from elsewhere":                 {peer: remote, host: "gpu-117:9400", path: "/-/healthy", want: 200},
		"readiness from elsewhere":              {peer: remote, host: "gpu-117:9400", path: "/-/ready", want: 200},
		"profiling":                             {peer: local, host: "localhost", path: "/debug/pprof/cmdline", want: 404},
		"profiling, authenticated":              {peer: remote, host: "gpu-117:9400", path: "/debug/pprof/", auth: true, want: 404},
		"release over the network":              {peer: local, host: "localhost", path: "/api/v1/release?for=1m", auth: true, want: 404},
	} {
		t.Run(name, func(t *testing.T) {
			w := node(soon())
			w.auth = c.auth
			r := httptest.NewRequest("GET", c.path, nil)
			r.RemoteAddr, r.Host = c.peer, c.host
			if c.header != nil {
				r.Header = c.header
			}
			answer := httptest.NewRecorder()
			w.server(t).Handler().ServeHTTP(answer, r)
			if answer.Code != c.want {
				t.Errorf("answer %d, want %d: %.200s", answer.Code, c.want, answer.Body)
			}
			for _, h := range []string{"X-Content-Type-Options", "Content-Security-Policy", "X-Frame-Options", "Referrer-Policy"} {
				if answer.Header().Get(h) == "" {
					t.Errorf("no %s header", h)
				}
			}
		})
	}
}

func TestOnlyReadingIsAllowed(t *testing.T) {
	h := node(soon()).server(t).Handler()
	for _, path := range []string{"/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/findings", "/api/v1/snapshot"} {
		for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405} {
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(strings.Repeat("x", 1<<20)))
			r.RemoteAddr = "127.0.0.1:5"
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code != want {
				t.Errorf("%s %s answers %d, want %d", method, path, answer.Code, want)
			}
			if allow := answer.Header().Get("Allow"); want == 405 && allow != "GET, HEAD" {
				t.Errorf("%s %s is refused without saying what is allowed: %q", method, path, allow)
			}
		}
	}
}

// A log that anybody can fill hides what its reader looks for.
func TestNoClientFillsTheLog(t *testing.T) {
	var said strings.Builder
	w := node(soon())
	s := New(Config{
		Snapshot: func() *collector.Snapshot { return w.snap }, View: func() *detect.View { return w.view },
		Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	for _, accept := range []string{"gzip;q=0", "identity;q=0, gzip;q=0", "*;q=0", "br", "gzip;q=nonsense"} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", accept)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, r)
		if answer.Code != 200 || answer.Header().Get("Content-Encoding") != "" || !strings.Contains(answer.Body.String(), "\nvigil_gpu_info{") {
			t.Errorf("Accept-Encoding: %s gets %d, encoded %q", accept, answer.Code, answer.Header().Get("Content-Encoding"))
		}
	}
	out := HTTPServer(s.Handler(), s.cfg.Log).ErrorLog
	out.Printf("http: TLS handshake error from 10.1.2.3:5: EOF")
	out.Printf("http2: server: error reading preface from client 10.1.2.3:5: EOF")
	if said.Len() > 0 {
		t.Errorf("clients fill the log:\n%s", said.String())
	}
	out.Printf("http: panic serving 10.1.2.3:5: nil map")
	out.Printf("http: Accept error: too many open files; retrying in 1s")
	if got := strings.Count(said.String(), "level=WARN"); got != 2 {
		t.Errorf("want a warning of a panic and of a listener that fails, got:\n%s", said.String())
	}
}

func TestReady(t *testing.T) {
	source := func(name string, age time.Duration, err string, expected bool) collector.SourceState {
		s := collector.SourceState{Name: name, Interval: time.Second, Err: err, Expected: expected}
		if age >= 0 {
			s.Last = time.Now().Add(-age)
		}
		return s
	}
	type list = []collector.SourceState
	for name, c := range map[string]struct {
		age     time.Duration // of the snapshot
		sources func() list
		want    string
	}{
		"fresh":         {0, func() list { return list{source("nvml", time.Second, "", true), source("host", 0, "", true)} }, ""},
		"no driver":     {0, func() list { return list{source("nvml", -1, "no driver", false), source("host", 0, "", true)} }, ""},
		"never sampled": {0, func() list { return list{source("nvml", -1, "", true)} }, "nvml: no good sample yet, expected every 1 s\n"},
		"late": {0, func() list { return list{source("nvml", 12*time.Second, "", true)} },
			"nvml: last good sample 12 s ago, expected every 1 s\n"},
		"failing": {0, func() list {
			return list{source("nvml", time.Second, "init: no\nluck", true), source("host", 0, "", true)}
		},
			"nvml: last good sample 1 s ago, expected every 1 s: init: no luck\n"},
		"sampler stopped": {time.Minute, func() list { return list{source("host", time.Minute, "", true)} },
			"the last snapshot is 1 min old: the sampler has stopped\nhost: last good sample 1 min ago, expected every 1 s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := world{snap: &collector.Snapshot{Time: time.Now().Add(-c.age), Sources: c.sources()}}
				answer := get(t, w.server(t), "/-/ready")
				code, text := http.StatusOK, "ready\n"
				if c.want != "" {
					code, text = http.StatusServiceUnavailable, "not ready\n"+c.want
				}
				if answer.Code != code || answer.Body.String() != text {
					t.Errorf("answer %d %q, want %d %q", answer.Code, answer.Body, code, text)
				}
			})
		})
	}
}

func TestStartingAgentIsAliveAndNotReady(t *testing.T) {
	s := (&world{}).server(t)
	if answer := get(t, s, "/-/healthy"); answer.Code != http.StatusOK {
		t.Errorf("a starting agent is not healthy: %d", answer.Code)
	}
	if answer := get(t, s, "/-/ready"); answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "no snapshot yet") {
		t.Errorf("a starting agent answers %d %s", answer.Code, answer.Body)
	}
}

func TestAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(time.Now())
		w.snap.GPUs, w.snap.Processes = w.snap.GPUs[4:8], w.snap.Processes[4:6]
		w.released = time.Now().Add(time.Minute)
		for path, file := range map[string]string{"/api/v1/snapshot": "snapshot.json", "/api/v1/findings": "findings.json", "/api/v1/inventory": "inventory.json"} {
			answer := get(t, w.server(t), path)
			if got := answer.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("%s is %s", path, got)
			}
			var v any
			if err := json.Unmarshal(answer.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			shortenHistory(v)
			text, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", file), string(text)+"\n", "the API answers differently")
		}
	})
}

// shortenHistory keeps three points of each series: the golden file shows the shape.
func shortenHistory(v any) {
	histories, _ := v.(map[string]any)["history"].(map[string]any)
	for _, list := range histories {
		for _, h := range list.([]any) {
			h := h.(map[string]any)
			h["points"] = h["points"].([]any)[:3]
		}
	}
}

func TestAPIBeforeTheFirstSnapshot(t *testing.T) {
	s := (&world{}).server(t)
	for _, path := range []string{"/api/v1/snapshot", "/api/v1/findings", "/api/v1/inventory"} {
		if answer := get(t, s, path); answer.Code != http.StatusServiceUnavailable {
			t.Errorf("%s answers %d before there is anything to tell", path, answer.Code)
		}
	}
}

func TestAPIOfTenThousandProcesses(t *testing.T) {
	w := node(soon())
	w.snap.Processes = nil
	for i := range 10000 {
		process(w.snap, i%8, i, "x", collector.Owner{}, float64(i), 0)
	}
	var answer Snapshot
	if err := json.Unmarshal(get(t, w.server(t), "/api/v1/snapshot").Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Processes) != maxProcesses || answer.ProcessCount != 10000 || answer.Processes[0].PID != 9999 {
		t.Errorf("%d processes of %d, the first is %d; want %d of 10000, the biggest first", len(answer.Processes), answer.ProcessCount, answer.Processes[0].PID, maxProcesses)
	}
}

// agent serves a world on a socket and returns its path.
func agent(t *testing.T, cfg func(*Config)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := ListenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s := node(soon()).server(t)
	cfg(&s.cfg)
	srv := HTTPServer(s.SocketHandler(), slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the socket's server ended with %v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there after the agent ended: %v", err)
		}
	})
	return path
}

func TestSocket(t *testing.T) {
	until := time.Now().Add(15 * time.Minute)
	var asked time.Duration
	path := agent(t, func(c *Config) {
		c.Release = func(d time.Duration) error { asked = d; return nil }
		c.ReleasedUntil = func() time.Time { return until }
	})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others may open the socket: %s", info.Mode())
	}
	c := NewClient(path)
	snap, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if snap.Node.Name != "gpu-117" || snap.GPUs[4].Readings[metric.PowerDraw.Name] != 600 || snap.GPUs[4].Readings[`vigil_gpu_clock_hertz{clock="sm"}`] != 1.98e9 {
		t.Errorf("the snapshot over the socket is not the node's: %+v", snap.GPUs[4])
	}
	findings, err := c.Findings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := findings.Findings[0]; f.Cause != "xid_79" || f.Action == "" || len(findings.History[f.Subject.String()]) == 0 {
		t.Errorf("the finding over the socket is incomplete: %+v", f)
	}
	r, err := c.Release(t.Context(), 15*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if asked != 15*time.Minute || !r.Until.Equal(until) {
		t.Errorf("released for %s until %s, want 15m until %s", asked, r.Until, until)
	}
	if _, err := c.Release(t.Context(), 0); err != nil || asked != 0 {
		t.Errorf("taking the driver up again by a release for no time: %v", err)
	}
}

func TestReleaseThatCannotBe(t *testing.T) {
	path := agent(t, func(c *Config) {
		c.Release = func(time.Duration) error { return errors.New("the child does not end") }
	})
	c := NewClient(path)
	for d, want := range map[time.Duration]string{-time.Second: `cannot release the GPU driver for "-1s"`, 25 * time.Hour: `"25h0m0s": the time is at most 24h, such as 15m`, time.Minute: "releasing the GPU driver: the child does not end"} {
		if _, err := c.Release(t.Context(), d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("release for %s: %v, want an error that says %q", d, err, want)
		}
	}
	none := NewClient(agent(t, func(*Config) {}))
	if _, err := none.Release(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "does not use one") {
		t.Errorf("release of an agent without a driver: %v", err)
	}
}

func TestSocketThatIsTaken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.sock")
	first, err := ListenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another agent answers") {
		t.Errorf("a second agent: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	second, err := ListenSocket(t.Context(), path)
	if err != nil {
		t.Fatalf("a socket that a dead agent left is in the way: %v", err)
	}
	second.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "it is no socket") {
		t.Errorf("a file in the way: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() != "agent.sock" }) {
		t.Errorf("left behind: %v", left)
	}
	if _, err := NewClient(filepath.Join(dir, "none")).Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("no agent: %v", err)
	}
}
