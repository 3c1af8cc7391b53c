package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// The page of a cluster links the chart of each incident of a node, and
// serves it to whoever may see the page.
func TestChartsOfACluster(t *testing.T) {
	now := time.Now()
	incident := func(id string, rule rules.ID, of string) detect.Incident {
		return detect.Incident{ID: id, Rule: rule, Severity: rules.Page, State: detect.Firing, Opened: now, Members: []detect.Finding{
			{Rule: rule, Node: "n1", Subject: detect.Subject{Kind: of, ID: "a"}, Severity: rules.Page, State: detect.Firing, Since: now}}}
	}
	f := NewFleet(FleetConfig{
		Log: slog.New(slog.DiscardHandler), Metrics: http.NotFoundHandler(), Authenticated: func() bool { return false },
		View: func() FleetView {
			return FleetView{Time: now, Incidents: []detect.Incident{incident("i1", rules.IDGPULost, "gpu"), incident("i2", rules.IDSpend, "team")}}
		},
		Chart: func(_ context.Context, id string) ([]byte, error) {
			switch id {
			case "i1":
				return []byte("png"), nil
			case "bad":
				return nil, errors.New("hunter2")
			}
			return nil, nil
		},
	})
	get := func(path, from string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host, r.RemoteAddr = "localhost", from
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const here, elsewhere = "127.0.0.1:1", "10.1.2.3:1"
	if code, page := get("/", here); code != http.StatusOK || !strings.Contains(page, `href="/incidents/i1/chart.png"`) || strings.Contains(page, "/incidents/i2/chart.png") {
		t.Errorf("%d: the page links no chart of a GPU, or one of a team:\n%s", code, page)
	}
	for path, want := range map[string]int{"/incidents/i1/chart.png": http.StatusOK, "/incidents/none/chart.png": http.StatusNotFound, "/incidents/bad/chart.png": http.StatusInternalServerError} {
		if code, body := get(path, here); code != want || strings.Contains(body, "hunter2") {
			t.Errorf("GET %s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, _ := get("/incidents/i1/chart.png", elsewhere); code == http.StatusOK {
		t.Error("a chart is shown to somebody who may not see the page")
	}
}
