package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"gpuvigil/internal/text"
)

// maxBy bounds what a person may be called.
const maxBy = 80

// Mark is what a person said of an incident: that somebody is at it, or that it is to be
// silent for a while.
type Mark struct {
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	Until time.Time `json:"until,omitzero"` // of a snooze; zero: acknowledged
}

// String says it in a line: acknowledged by ana 03:20 UTC.
func (m Mark) String() string {
	who := text.Clean(m.By, maxBy)
	if m.Until.IsZero() {
		return "acknowledged by " + who + " " + m.At.UTC().Format("15:04 MST")
	}
	return "snoozed by " + who + " until " + m.Until.UTC().Format("2 Jan 15:04 MST")
}

// Marked is the answer of POST /api/v1/incidents/ID/…: the incident and what is said of it.
type Marked struct {
	Incident string `json:"incident"`
	Title    string `json:"title"`
	Mark     *Mark  `json:"mark"` // nil: nothing any more
}

// Told says what became of a message at one receiver.
type Told struct {
	Receiver string `json:"receiver"`
	What     string `json:"what"`
	Good     bool   `json:"good"` // it is told, or was delivered
}

// Drilled is the answer of POST /api/v1/drill.
type Drilled struct {
	Incident string    `json:"incident"`
	Title    string    `json:"title"`
	Until    time.Time `json:"until"`
	Told     []Told    `json:"told"` // what each receiver makes of it
}

// Telling is what can be said to, and through, the part that tells people.
type Telling struct {
	// Marks returns what people said of incidents that have not ended, by id.
	Marks func() map[string]Mark
	// Mark notes what a person says of the incident whose id begins so; nil: nothing
	// any more. The error is to be shown.
	Mark func(id string, m *Mark) (*Marked, error)
	// Drill sends an incident that is none.
	Drill func(rule, gpu string, d time.Duration) (*Drilled, error)
	// Try sends a test message to a receiver, empty for all, and waits for what becomes
	// of it.
	Try func(ctx context.Context, receiver string) ([]Told, error)

	// Maintenance returns the maintenance windows.
	Maintenance func() []Maintenance
	// Maintain begins the window of this name, with its matchers, until its To.
	Maintain func(Maintenance) error
	// EndMaintenance ends a window that somebody has begun.
	EndMaintenance func(name string) error
}

func (s *Server) marks() map[string]Mark {
	if s.cfg.Telling == nil {
		return nil
	}
	return s.cfg.Telling.Marks()
}

// tell adds what the agent's socket takes for the part that tells people.
func (s *Server) tell(mux *http.ServeMux) {
	if s.cfg.Telling == nil {
		return
	}
	mux.HandleFunc("POST /api/v1/incidents/{id}/{what}", func(w http.ResponseWriter, r *http.Request) {
		by := text.Clean(r.URL.Query().Get("by"), maxBy)
		answer, err := s.mark(r, by, r.URL.Query().Get("for"))
		s.answer(w, answer, err)
	})
	s.maintenance(mux)
	mux.HandleFunc("POST /api/v1/drill", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		d, err := time.ParseDuration(q.Get("for"))
		if err != nil {
			s.answer(w, nil, fmt.Errorf("the time of a drill is such as 5m, found %.40q", q.Get("for")))
			return
		}
		answer, err := s.cfg.Telling.Drill(q.Get("rule"), q.Get("gpu"), d)
		s.answer(w, answer, err)
	})
	mux.HandleFunc("POST /api/v1/notify", func(w http.ResponseWriter, r *http.Request) {
		answer, err := s.cfg.Telling.Try(r.Context(), r.URL.Query().Get("receiver"))
		s.answer(w, answer, err)
	})
}

// answer writes an answer, or why there is none.
func (s *Server) answer(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.reply(w, answer)
}

// mark notes what a request says of the incident in its path.
func (s *Server) mark(r *http.Request, by, snooze string) (*Marked, error) {
	if by == "" {
		return nil, errors.New("it is not said who says so")
	}
	m := &Mark{By: by, At: time.Now()}
	switch r.PathValue("what") {
	case "ack":
	case "unack":
		m = nil
	case "snooze":
		d, err := time.ParseDuration(snooze)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("the time of a snooze is such as 2h, found %.40q", snooze)
		}
		m.Until = m.At.Add(d)
	default:
		return nil, errors.New("of an incident can be said: ack, snooze, unack")
	}
	return s.cfg.Telling.Mark(r.PathValue("id"), m)
}

// pageSnooze is for how long the page snoozes.
const pageSnooze = "2h"

// markOnPage takes a button of the page. Other sites cannot press it: browsers say where
// a request comes from, and what a browser does not say is no browser's.
func (s *Server) markOnPage() http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := "somebody at the page"
		if user, _, ok := r.BasicAuth(); ok && s.authenticated() {
			by = text.Clean(user, maxBy)
		}
		if _, err := s.mark(r, by, pageSnooze); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
	}))
}

// Mark tells the agent what a person says of the incident whose id begins so: ack, unack
// or, for a while, snooze.
func (c *Client) Mark(ctx context.Context, id, what, by string, snooze time.Duration) (*Marked, error) {
	q := url.Values{"by": {by}}
	if what == "snooze" {
		q.Set("for", snooze.String())
	}
	return ask[Marked](ctx, c, http.MethodPost, "/api/v1/incidents/"+url.PathEscape(id)+"/"+what+"?"+q.Encode())
}

// Drill makes the agent send an incident that is none.
func (c *Client) Drill(ctx context.Context, rule, gpu string, d time.Duration) (*Drilled, error) {
	q := url.Values{"rule": {rule}, "gpu": {gpu}, "for": {d.String()}}
	return ask[Drilled](ctx, c, http.MethodPost, "/api/v1/drill?"+q.Encode())
}

// Try makes the agent send a test message and returns what became of it.
func (c *Client) Try(ctx context.Context, receiver string) ([]Told, error) {
	told, err := ask[[]Told](ctx, c, http.MethodPost, "/api/v1/notify?receiver="+url.QueryEscape(receiver))
	if err != nil {
		return nil, err
	}
	return *told, nil
}
