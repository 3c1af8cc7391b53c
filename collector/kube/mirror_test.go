package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func contextOf(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(context.Background())
}

func TestListsInPagesAndWatches(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") != "500" {
			t.Errorf("a list without a limit: %s", r.URL)
		}
		if r.URL.Query().Get("continue") == "" {
			listOf(w, "10", "more", podJSON("a", "n1", "1"), podJSON("b", "n1", "2"))
			return
		}
		listOf(w, "10", "", podJSON("c", "n2", "3"))
	}
	s.onWatch = func(n int, w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch n {
		case 1:
			if q.Get("resourceVersion") != "10" || q.Get("allowWatchBookmarks") != "true" {
				t.Errorf("the watch does not begin where the list ended: %s", r.URL)
			}
			frame(w, "ADDED", podJSON("d", "n3", "11"))
			frame(w, "MODIFIED", podJSON("a", "n9", "12"))
			frame(w, "DELETED", podJSON("b", "n1", "13"))
			frame(w, "BOOKMARK", `{"metadata": {"resourceVersion": "20"}}`)
		default:
			if q.Get("resourceVersion") != "20" {
				t.Errorf("the watch goes on at %s, want where the bookmark was", q.Get("resourceVersion"))
			}
			hold(w, r)
		}
	}
	m := s.mirror(nil)
	until(t, "the changes of the watch are there", func() bool { return names(m) == "pod-a@n9 pod-c@n2 pod-d@n3" && m.Health().State == Up })
	until(t, "the watch is opened anew", func() bool { return m.Health().Good == 2 })
	if h := m.Health(); h.Failed != 0 || h.Skipped != 0 || h.Objects != 3 || h.Bytes == 0 || h.Synced.IsZero() {
		t.Errorf("health %+v, want no failure", h)
	}
	if n := len(s.asked()); n != 4 {
		t.Errorf("asked %d times: %v, want two pages and two watches", n, s.asked())
	}
	for _, r := range s.asked() {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("the reader does not only read: %s", r)
		}
	}
}

func TestGoneListsAnew(t *testing.T) {
	f := func(name string, gone func(http.ResponseWriter)) {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.onList = func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					listOf(w, "10", "", podJSON("a", "n1", "1"))
					return
				}
				listOf(w, "99", "", podJSON("b", "n2", "98"))
			}
			s.onWatch = func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					gone(w)
					return
				}
				hold(w, r)
			}
			m := s.mirror(nil)
			until(t, "what was deleted while nobody watched is gone", func() bool { return names(m) == "pod-b@n2" && m.Health().State == Up })
		})
	}
	f("as a status", func(w http.ResponseWriter) { status(w, http.StatusGone, "too old resource version") })
	f("as a frame", func(w http.ResponseWriter) {
		frame(w, "ERROR", `{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 10 (50)"}`)
	})
}

// A watch that breaks off in the middle of a frame goes on where it was.
func TestHalfAFrame(t *testing.T) {
	s := newServer(t)
	s.onList = func(n int, w http.ResponseWriter, _ *http.Request) { listOf(w, "10", "", podJSON("a", "n1", "1")) }
	s.onWatch = func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			frame(w, "ADDED", podJSON("b", "n2", "11"))
			if _, err := w.Write([]byte(`{"type": "ADDED", "object": {"metadata": {"uid"`)); err != nil {
				t.Error(err)
			}
			return
		}
		if v := r.URL.Query().Get("resourceVersion"); v != "11" {
			t.Errorf("the watch goes on at %q, want after the last whole frame", v)
		}
		frame(w, "ADDED", podJSON("c", "n3", "12"))
		hold(w, r)
	}
	m := s.mirror(nil)
	until(t, "what came after the broken frame is there", func() bool { return names(m) == "pod-a@n1 pod-b@n2 pod-c@n3" })
	if s.lists != 1 {
		t.Errorf("%d lists, want 1: a broken watch is no reason to list all again", s.lists)
	}
}

func TestWhatIsMissingOrForbiddenIsSaidOnce(t *testing.T) {
	f := func(code int, want State) {
		t.Helper()
		s := newServer(t)
		s.onList = func(_ int, w http.ResponseWriter, _ *http.Request) { status(w, code, "no: "+s.token[:0]+"refused") }
		var log logged
		m := s.mirror(slog.New(slog.NewTextHandler(&log, nil)))
		until(t, "it is "+string(want), func() bool { return m.Health().State == want })
		if err := m.Health().Err; err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%d: error %v, want what the server says", code, err)
		}
		if n := strings.Count(log.String(), "msg="); n != 1 {
			t.Errorf("%d: %d lines in the log, want 1:\n%s", code, n, log.String())
		}
		if h := m.Health(); (h.Absent > 0) != (want == Missing) || (h.Failed > 0) != (want != Missing) {
			t.Errorf("%d: %d calls count as absent and %d as failed, though what is missing is no failure", code, h.Absent, h.Failed)
		}
		if m.All() != nil {
			t.Errorf("%d: something is known all the same", code)
		}
	}
	f(http.StatusNotFound, Missing)
	f(http.StatusForbidden, Forbidden)
	f(http.StatusUnauthorized, Failing) // a token that has just ended
	f(http.StatusInternalServerError, Failing)
}

// logged is a log that may be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAnOlderVersionOfTheAPI(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/v1beta2/") {
			status(w, http.StatusNotFound, "the server could not find the requested resource")
			return
		}
		listOf(w, "5", "", `{"metadata": {"uid": "q", "name": "q", "namespace": "ml"}, "spec": {"clusterQueue": "gpu-a"}}`)
	}
	s.onWatch = func(_ int, w http.ResponseWriter, r *http.Request) { hold(w, r) }
	m := NewMirror(s.client(), LocalQueues, DecodeLocalQueue, slog.New(slog.DiscardHandler))
	ctx, stop := contextOf(t)
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	until(t, "the queue of the older version is there", func() bool { return m.Health().State == Up && len(m.All()) == 1 })
	stop()
	<-done
	if q := m.All()[0]; q.ClusterQueue != "gpu-a" {
		t.Errorf("the queue is %+v", q)
	}
}

// A server that asks for a pause gets it, within bounds.
func TestBackOff(t *testing.T) {
	m := NewMirror(nil, Pods, DecodePod, slog.New(slog.DiscardHandler))
	bad := errors.New("broken")
	var waits []time.Duration
	wait := time.Duration(0)
	for range 9 {
		wait = m.settle(bad, wait)
		waits = append(waits, wait)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if waits[i] != want*time.Second {
			t.Errorf("the waits are %v, want them to double up to a minute", waits)
			break
		}
	}
	for _, c := range []struct {
		retry string
		want  time.Duration
	}{{"17", 17 * time.Second}, {"99999999", maxRetry}, {"-5", time.Second}, {"soon", time.Second}, {"", time.Second}} {
		if got := m.settle(answered(http.StatusTooManyRequests, nil, c.retry), 0); got != c.want {
			t.Errorf("Retry-After %q: wait %v, want %v", c.retry, got, c.want)
		}
	}
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound} {
		if got := m.settle(answered(code, nil, ""), 0); got != missingWait {
			t.Errorf("after %d it waits %v, want %v", code, got, missingWait)
		}
	}
}

func TestHostileLists(t *testing.T) {
	huge := `{"metadata": {"uid": "huge", "annotations": {"a": "` + strings.Repeat("x", maxObject) + `"}}}`
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, _ *http.Request) {
		listOf(w, "10", "", podJSON("a", "n1", "1"), huge, `{"metadata": {"name": "no-uid"}}`, `{"metadata": 7}`, `null`,
			`{"metadata": {"uid": "b"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}`)
	}
	s.onWatch = func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			frame(w, "ADDED", `{"metadata": {"uid": "c", "resourceVersion": "11"}, "spec": "none"}`)
			frame(w, "ADDED", strings.Replace(huge, `"uid"`, `"resourceVersion": "12", "uid"`, 1))
			frame(w, "ADDED", strings.Replace(huge, `xx`, strings.Repeat("x", maxObject), 1))
		}
		hold(w, r)
	}
	m := s.mirror(nil)
	until(t, "a frame that is too large makes it list again", func() bool { return m.Health().Good == 2 })
	if got := names(m); got != "pod-a@n1" {
		t.Errorf("it has %q, want the one object that can be read", got)
	}
	if h := m.Health(); h.Skipped != 12 {
		t.Errorf("%d objects are counted as skipped, want 5 of each list and 2 of the watch", h.Skipped)
	}
}

func TestWhatIsNoAPIServer(t *testing.T) {
	f := func(name, wants string, answer func(w http.ResponseWriter, r *http.Request)) {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.onList = func(_ int, w http.ResponseWriter, r *http.Request) { answer(w, r) }
			m := s.mirror(nil)
			until(t, "it fails", func() bool { return m.Health().State == Failing })
			if err := m.Health().Err.Error(); !strings.Contains(err, wants) || strings.Contains(err, s.token) || strings.Contains(err, s.url) {
				t.Errorf("error %q, want one that says %q and neither token nor address", err, wants)
			}
		})
	}
	f("HTML", "proxy", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte("<html>please log in</html>")); err != nil {
			t.Error(err)
		}
	})
	f("redirect", "302", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
	})
	f("no version", "resourceVersion", func(w http.ResponseWriter, _ *http.Request) { listOf(w, "", "") })
	f("half an answer", "breaks off", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		if _, err := w.Write([]byte(`{"items": [`)); err != nil {
			t.Error(err)
		}
	})
	f("throttled", "429", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		status(w, http.StatusTooManyRequests, "slow down")
	})
	f("a page that is not answered", "EOF", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "x" {
			panic(http.ErrAbortHandler)
		}
		listOf(w, "1", "x")
	})
}

func TestSlowServer(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	c := s.client()
	c.timeout = 50 * time.Millisecond
	_, _, err := c.list(t.Context(), Pods, Pods.Paths[0], nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that it took too long", err)
	}
}

func TestTokenIsReadAgain(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, _ *http.Request) { listOf(w, "1", "") }
	c := s.client()
	s.token = "another"
	_, _, err := c.list(t.Context(), Pods, Pods.Paths[0], nil)
	if err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a token that has ended: error %v, want 401", err)
	}
}

func TestOnOneNode(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("fieldSelector") != "spec.nodeName=gpu-1" || q.Get("resourceVersion") != "0" || !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			t.Errorf("asked %s, accepting %s: want this node's pods from the server's cache, metadata only", r.URL, r.Header.Get("Accept"))
		}
		listOf(w, "1", "", `{"metadata": {"uid": "a", "name": "p", "namespace": "ml", "labels": {"app": "x\u202ey", "secret": "s"}}}`)
	}
	k := Pods.OnNode("gpu-1")
	k.Meta = true
	var got []Labels
	_, _, err := s.client().list(t.Context(), k, k.Paths[0], func(json.RawMessage) {})
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLabels([]string{"app", "absent"})([]byte(`{"metadata": {"uid": "a", "name": "p", "namespace": "ml", "labels": {"app": "x\u202ey", "secret": "s"}}}`))
	if got = append(got, l); err != nil || len(l.Labels) != 1 || l.Labels["app"] != "xy" {
		t.Errorf("labels %+v, error %v: want the one that is allowed, without what cannot be seen", got, err)
	}
}

func TestSourceOfANode(t *testing.T) {
	s := newServer(t)
	s.onList = func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/v1/"):
			listOf(w, "3", "", `{"metadata": {"uid": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "gpu-1", "pool": {"name": "gpu-1"}, "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}]}}`)
		default:
			status(w, http.StatusForbidden, "pods is forbidden")
		}
	}
	s.onWatch = func(_ int, w http.ResponseWriter, r *http.Request) { hold(w, r) }
	n := NewNodeSource(NodeSourceConfig{Client: s.client(), Node: "gpu-1", Labels: []string{"app"}, Slices: true, Keep: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err := n.Try(t.Context()); !errors.Is(err, ErrForbidden) {
		t.Errorf("what the account may not read is tried with error %v", err)
	}
	ctx, stop := contextOf(t)
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	defer func() { stop(); <-done }()
	until(t, "the claim's GPU is known, and the labels are not allowed", func() bool {
		_, err := n.Sample(ctx)
		return n.Device("gpu-1", "gpu-0") == "GPU-1" && errors.Is(err, ErrForbidden)
	})
	if n.Device("gpu-1", "gpu-9") != "" || n.PodLabels("ml", "a") != nil {
		t.Error("something is known that nobody told")
	}
	broken := NewNodeSource(NodeSourceConfig{Err: errors.New("no account"), Labels: []string{"app"}})
	broken.Run(ctx)
	if part, err := broken.Sample(ctx); part == nil || err == nil || !strings.Contains(err.Error(), "no account") {
		t.Errorf("a source without a client gives %v, error %v: want a part and why", part, err)
	}
}
