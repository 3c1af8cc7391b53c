package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is an API server that can be made to misbehave.
type server struct {
	t     testing.TB
	url   string
	token string

	mu       sync.Mutex
	requests []string
	lists    int
	watches  int
	onList   func(n int, w http.ResponseWriter, r *http.Request) // n counts from 1
	onWatch  func(n int, w http.ResponseWriter, r *http.Request)
}

func newServer(t testing.TB) *server {
	s := &server{t: t, token: "hunter2"}
	h := httptest.NewTLSServer(http.HandlerFunc(s.answer))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		status(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	var n int
	handle := s.onList
	if r.URL.Query().Has("watch") {
		s.watches++
		n, handle = s.watches, s.onWatch
	} else {
		s.lists++
		n = s.lists
	}
	s.mu.Unlock()
	handle(n, w, r)
}

func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// client is one with a kubeconfig whose token is in a file.
func (s *server) client() *Client {
	s.t.Helper()
	dir := s.t.TempDir()
	token := filepath.Join(dir, "token")
	write(s.t, token, s.token)
	config := filepath.Join(dir, "config")
	write(s.t, config, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "k", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "u", "user": {"tokenFile": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, s.url, token))
	c, err := New(Config{Kubeconfig: config, UserAgent: "gpuvigil-test", Timeout: 5 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func status(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": %q, "code": %d}`, message, code)
}

// listOf writes a page of a list.
func listOf(w http.ResponseWriter, version, next string, items ...string) {
	fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": %q, "continue": %q}, "items": [%s]}`, version, next, strings.Join(items, ","))
}

func frame(w http.ResponseWriter, kind, object string) {
	fmt.Fprintf(w, "{\"type\": %q, \"object\": %s}\n", kind, object)
	w.(http.Flusher).Flush()
}

// hold keeps a watch open until the client goes.
func hold(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func podJSON(uid, node, version string) string {
	return fmt.Sprintf(`{"metadata": {"name": "pod-%[1]s", "namespace": "ml", "uid": %[1]q, "resourceVersion": %[3]q, "labels": {"app": "x"}},
		"spec": {"nodeName": %[2]q, "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "500m"}}}]}, "status": {"phase": "Running"}}`, uid, node, version)
}

// mirror is a running mirror of the server's pods.
func (s *server) mirror(log *slog.Logger) *Mirror[Pod] {
	s.t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := NewMirror(s.client(), Pods, DecodePod, log)
	done := make(chan struct{})
	ctx, stop := contextOf(s.t)
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	s.t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			s.t.Error("the mirror does not end with its context")
		}
	})
	return m
}

// names are those of the pods that a mirror has, sorted.
func names(m *Mirror[Pod]) string {
	var all []string
	for _, p := range m.All() {
		all = append(all, p.Name+"@"+p.Node)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// until waits for something to become so.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func items(t *testing.T, path string) []json.RawMessage {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(content, &list); err != nil || len(list.Items) == 0 {
		t.Fatalf("%s: %d items, error %v", path, len(list.Items), err)
	}
	return list.Items
}
