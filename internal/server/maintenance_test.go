package server

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheSocketBeginsAndEndsMaintenance(t *testing.T) {
	s, d := marksServer(t, false)
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := ListenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s.SocketHandler()}
	go srv.Serve(l)
	defer srv.Close()
	c := NewClient(path)
	all, err := c.Maintain(t.Context(), "driver\nroll-out", []string{`node=~"gpu-1.*"`, "team=nlp"}, 2*time.Hour, "ana")
	if err != nil || len(all) != 1 || all[0].Name != "driver roll-out" || all[0].By != "ana" || len(all[0].Matchers) != 2 || time.Until(all[0].To).Round(time.Hour) != 2*time.Hour {
		t.Errorf("a window is begun as %+v, %v", all, err)
	}
	if html := get(t, s, "/").Body.String(); !strings.Contains(html, "driver roll-out, until") || !strings.Contains(html, "by ana") {
		t.Errorf("the page does not say why nobody is told:\n%s", inWords(html))
	}
	if _, err := c.Maintain(t.Context(), "x", []string{"node=x"}, time.Hour, " "); err == nil || !strings.Contains(err.Error(), "who begins it") {
		t.Errorf("somebody without a name begins a window: %v", err)
	}
	if _, err := c.EndMaintenance(t.Context(), "another"); err == nil || !strings.Contains(err.Error(), "nobody has begun one") {
		t.Errorf("the end of what nobody has begun: %v", err)
	}
	if all, err := c.EndMaintenance(t.Context(), "driver roll-out"); err != nil || len(all) != 0 || d.windows != nil {
		t.Errorf("after the end there are %+v, %v", all, err)
	}
	if all, err := c.Maintenance(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("listed are %+v, %v", all, err)
	}
	if code := post(s, "/api/v1/maintenance?name=x&for=1h&by=x&matcher=node%3Dx"); code == http.StatusOK {
		t.Error("maintenance begins over the network")
	}
}

func post(s *Server, path string) int {
	r := httptest.NewRequest("POST", "http://localhost:9836"+path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code
}
