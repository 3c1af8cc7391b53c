package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// marksDesk stands for the part that tells people.
type marksDesk struct {
	marks map[string]Mark
	said  []string
	tried []string

	windows []Maintenance
}

func (d *marksDesk) mark(id string, m *Mark) (*Marked, error) {
	if id != "abc" {
		return nil, errors.New("no incident that fires is called so")
	}
	delete(d.marks, id)
	what := "nothing"
	if m != nil {
		d.marks[id] = *m
		what = m.By + " acknowledges"
		if !m.Until.IsZero() {
			what = m.By + " " + m.Until.Sub(m.At).String()
		}
	}
	d.said = append(d.said, what)
	return &Marked{Incident: id, Title: "x", Mark: m}, nil
}

// marksServer is a server with one incident that a person can say something of.
func marksServer(t *testing.T, authenticated bool) (*Server, *marksDesk) {
	t.Helper()
	d := &marksDesk{marks: map[string]Mark{}}
	w := node(soon())
	f := detect.Finding{Rule: rules.IDXid, State: detect.Firing, Severity: rules.Page, GPUIndex: -1, Subject: detect.Subject{Kind: "node", ID: "n"}}
	view := &detect.View{Time: time.Now(), Findings: []detect.Finding{f}, Incidents: []detect.Incident{{ID: "abc", Rule: f.Rule, State: detect.Firing, Severity: rules.Page, Members: []detect.Finding{f}}}}
	return New(Config{
		Snapshot: func() *collector.Snapshot { return w.snap }, View: func() *detect.View { return view },
		Authenticated: func() bool { return authenticated }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Telling: &Telling{
			Marks: func() map[string]Mark { return d.marks }, Mark: d.mark,
			Maintenance: func() []Maintenance { return d.windows },
			Maintain: func(m Maintenance) error {
				m.Holds = true
				d.windows = append(d.windows, m)
				return nil
			},
			EndMaintenance: func(name string) error {
				if len(d.windows) == 0 || d.windows[0].Name != name {
					return errors.New("nobody has begun one of this name")
				}
				d.windows = nil
				return nil
			},
			Drill: func(rule, gpu string, d time.Duration) (*Drilled, error) {
				return &Drilled{Incident: "drill-1", Title: rule + " " + gpu + " " + d.String(), Told: []Told{{"oncall", "is told", true}}}, nil
			},
			Try: func(_ context.Context, receiver string) ([]Told, error) {
				d.tried = append(d.tried, receiver)
				return []Told{{"oncall", "was delivered", true}}, nil
			},
		},
	}), d
}

func TestOnlyThePagesOwnButtonsAcknowledge(t *testing.T) {
	const local, remote = "127.0.0.1:40000", "10.0.0.5:40000"
	f := func(name, peer, host, path string, auth bool, header map[string]string, want int, said string) {
		t.Helper()
		s, d := marksServer(t, auth)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://"+host+path, nil)
		r.RemoteAddr = peer
		for k, v := range header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := strings.Join(d.said, ";"); w.Code != want || got != said {
			t.Errorf("%s: answer %d and said %q, want %d and %q: %.200s", name, w.Code, got, want, said, w.Body)
		}
	}
	ana := map[string]string{"Authorization": "Basic YW5hOng=", "Origin": "http://gpu-117:9836"}
	f("the page on the node", local, "localhost:9836", "/incidents/abc/ack", false, map[string]string{"Sec-Fetch-Site": "same-origin"}, 303, "somebody at the page acknowledges")
	f("a snooze", local, "localhost:9836", "/incidents/abc/snooze", false, map[string]string{"Origin": "http://localhost:9836"}, 303, "somebody at the page 2h0m0s")
	f("another site", local, "localhost:9836", "/incidents/abc/ack", false, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "")
	f("another site, older browser", local, "localhost:9836", "/incidents/abc/ack", false, map[string]string{"Origin": "https://evil.example"}, 403, "")
	f("another site's name for us", local, "evil.example:9836", "/incidents/abc/ack", false, map[string]string{"Sec-Fetch-Site": "same-origin"}, 403, "")
	f("elsewhere without authentication", remote, "gpu-117:9836", "/incidents/abc/ack", false, map[string]string{"Origin": "http://gpu-117:9836"}, 403, "")
	f("elsewhere, authenticated", remote, "gpu-117:9836", "/incidents/abc/ack", true, ana, 303, "ana acknowledges")
	f("a name without authentication", local, "localhost:9836", "/incidents/abc/ack", false, map[string]string{"Authorization": "Basic YW5hOng="}, 303, "somebody at the page acknowledges")
	f("taken back", local, "localhost:9836", "/incidents/abc/unack", false, nil, 303, "nothing")
	f("an incident that is not there", local, "localhost:9836", "/incidents/abd/ack", false, nil, 400, "")
	f("something else", local, "localhost:9836", "/incidents/abc/delete", false, nil, 400, "")
	f("the socket's path over the network", local, "localhost:9836", "/api/v1/incidents/abc/ack?by=x", true, nil, 404, "")
}

func TestThePageShowsWhatWasSaidAndLetsSayIt(t *testing.T) {
	s, d := marksServer(t, false)
	page := get(t, s, "/")
	if html := page.Body.String(); !strings.Contains(html, `action="/incidents/abc/ack"`) || !strings.Contains(html, `formaction="/incidents/abc/snooze"`) {
		t.Error("nobody can acknowledge on the page")
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self'") || page.Header().Get("Referrer-Policy") != "same-origin" {
		t.Errorf("a browser would not send the page's buttons: %s", policy)
	}
	d.marks["abc"] = Mark{By: "<b>ana", At: time.Date(2026, 3, 14, 3, 20, 0, 0, time.UTC)}
	if html := get(t, s, "/").Body.String(); !strings.Contains(html, "acknowledged by &lt;b&gt;ana 03:20 UTC") || !strings.Contains(html, `action="/incidents/abc/unack"`) {
		t.Errorf("the page does not show who is at the incident:\n%s", inWords(html))
	}
	if api := get(t, s, "/api/v1/findings").Body.String(); !strings.Contains(api, `"marks":{"abc":{"by":`) {
		t.Error("the API does not say who is at the incident")
	}
	if html := pageOf(t, node(soon())); strings.Contains(html, "<form") {
		t.Error("where nobody is told there are buttons")
	}
}

func TestTheSocketTakesWhatCommandsSay(t *testing.T) {
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
	if m, err := c.Mark(t.Context(), "abc", "snooze", "ana", 90*time.Minute); err != nil || m.Mark == nil || m.Mark.Until.Sub(m.Mark.At) != 90*time.Minute || m.Mark.By != "ana" {
		t.Errorf("snooze answers %+v, %v", m, err)
	}
	if m, err := c.Mark(t.Context(), "abc", "unack", "ana", 0); err != nil || m.Mark != nil || len(d.marks) != 0 {
		t.Errorf("unack answers %+v, %v", m, err)
	}
	if _, err := c.Mark(t.Context(), "abc", "ack", " ", 0); err == nil || !strings.Contains(err.Error(), "who says so") {
		t.Errorf("somebody without a name acknowledges: %v", err)
	}
	if _, err := c.Mark(t.Context(), "a/../b?x", "ack", "ana", 0); err == nil || !strings.Contains(err.Error(), "no incident") {
		t.Errorf("an odd name of an incident: %v", err)
	}
	if a, err := c.Drill(t.Context(), "xid", "3", time.Minute); err != nil || a.Title != "xid 3 1m0s" || len(a.Told) != 1 {
		t.Errorf("drill answers %+v, %v", a, err)
	}
	if told, err := c.Try(t.Context(), "on call"); err != nil || len(told) != 1 || !told[0].Good || d.tried[0] != "on call" {
		t.Errorf("notify answers %+v, %v, of %v", told, err, d.tried)
	}
}
