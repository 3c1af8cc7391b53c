package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tellingHook is an incoming webhook that notes what it is posted.
type tellingHook struct {
	mu     sync.Mutex
	posted []string
}

func (h *tellingHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.posted = append(h.posted, string(body))
	io.WriteString(w, "ok")
}

func (h *tellingHook) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.posted, "\n")
}

// tellingAgent runs a demo that tells the hook by a route, until the test ends.
func tellingAgent(t *testing.T, h *tellingHook) (state string) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Setenv("GPUVIGIL_TEST_HOOK", srv.URL+"/services/T0/B0/secret")
	cfg := file(t, `
alerting:
  slack:
  - {name: oncall, webhook_url_env: GPUVIGIL_TEST_HOOK, mentions: [S0123456789]}
  route:
    receiver: none
    routes:
    - matchers: [drill="true", gpu="3"]
      receiver: oncall
`)
	t.Cleanup(srv.Close)
	return startDemo(t, cfg)
}

// startDemo runs a simulated agent until the test ends, and returns its state directory.
func startDemo(t *testing.T, cfg string) (state string) {
	state = filepath.Join(t.TempDir(), "state")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"demo", "--config.file=" + cfg, "--state.dir=" + state, "--web.listen-address=127.0.0.1:0"}, io.Discard, t.Output())
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != 0 {
			t.Errorf("the agent ended with %d", code)
		}
	})
	return state
}

// tellingSoon runs a command until it succeeds.
func tellingSoon(t *testing.T, args ...string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		code, out, errs := gpuvigil(t, args...)
		if code == 0 {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("%v: exit code %d after a minute: %s%s", args, code, out, errs)
		}
	}
}

func TestADrillReachesThoseWhomTheRoutesName(t *testing.T) {
	h := &tellingHook{}
	state := "--state.dir=" + tellingAgent(t, h)
	if out := tellingSoon(t, "drill", "gpu_lost", "--gpu=3", "--for=1h", state); !strings.Contains(out, "oncall is told") {
		t.Errorf("the drill says:\n%s", out)
	}
	if out := tellingSoon(t, "drill", "gpu_lost", "--gpu=2", "--for=1h", state); !strings.Contains(out, "no route leads there") {
		t.Errorf("a drill that no route takes says:\n%s", out)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(h.all(), "DRILL PAGE"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a minute after the drill the channel has: %q", h.all())
		}
	}
	if said := h.all(); strings.Count(said, "DRILL PAGE demo-gpu-01/3") == 0 || strings.Contains(said, "demo-gpu-01/2") || !strings.Contains(said, `subteam^S0123456789`) {
		t.Errorf("the channel has:\n%s", said)
	}
	if out := tellingSoon(t, "notify", "test", "oncall", state); out != "oncall was delivered\n" || !strings.Contains(h.all(), "TEST demo-gpu-01") {
		t.Errorf("notify test says %q, and the channel has:\n%s", out, h.all())
	}
	if code, _, errs := gpuvigil(t, "ack", "drill-", "--by=ana", state); code != 1 || !strings.Contains(errs, "2 incidents begin with") {
		t.Errorf("an ack of two incidents: exit code %d: %s", code, errs)
	}
	if code, _, errs := gpuvigil(t, "snooze", "nothing", "--by=ana", state); code != 1 || !strings.Contains(errs, "no incident that fires is called") {
		t.Errorf("a snooze of nothing: exit code %d: %s", code, errs)
	}
	status, _, _ := strings.Cut(statusOf(t, state), "\nGPU")
	_, id, _ := strings.Cut(status, "incident ")
	id, _, _ = strings.Cut(id, "\n")
	id = strings.TrimSpace(id)
	if out := tellingSoon(t, "ack", id, "--by=ana", state); !strings.Contains(out, "acknowledged by ana") {
		t.Errorf("ack %s says: %s", id, out)
	}
	if status := statusOf(t, state); !strings.Contains(status, "incident "+id+", acknowledged by ana") {
		t.Errorf("after an ack the status is:\n%s", status)
	}
}

func statusOf(t *testing.T, state string) string {
	t.Helper()
	_, out, _ := gpuvigil(t, "status", state)
	return out
}
