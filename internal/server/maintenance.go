package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// Maintenance is a window in which what it matches is told nobody.
type Maintenance struct {
	Name      string    `json:"name"`
	Matchers  []string  `json:"matchers"` // all must match
	From      time.Time `json:"from,omitzero"`
	To        time.Time `json:"to,omitzero"`
	Intervals []string  `json:"time_intervals,omitempty"` // in place of From and To
	By        string    `json:"by,omitempty"`             // who has begun it; empty: it is in the configuration
	Holds     bool      `json:"holds"`                    // now
	Keeps     int       `json:"keeps_back"`               // incidents that it keeps back now
}

// maxWindowName bounds what a window may be called, in runes.
const maxWindowName = 80

// maintenance adds what the socket takes for maintenance windows.
func (s *Server) maintenance(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/maintenance", func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, s.cfg.Telling.Maintenance())
	})
	mux.HandleFunc("POST /api/v1/maintenance", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		d, err := time.ParseDuration(q.Get("for"))
		if err != nil {
			s.answer(w, nil, fmt.Errorf("the time of a window is such as 2h, found %.40q", q.Get("for")))
			return
		}
		m := Maintenance{Name: text.Clean(q.Get("name"), maxWindowName), Matchers: q["matcher"], To: time.Now().Add(d), By: text.Clean(q.Get("by"), maxBy)}
		if m.By == "" {
			s.answer(w, nil, fmt.Errorf("it is not said who begins it"))
			return
		}
		err = s.cfg.Telling.Maintain(m)
		s.answer(w, s.cfg.Telling.Maintenance(), err)
	})
	mux.HandleFunc("POST /api/v1/maintenance/end", func(w http.ResponseWriter, r *http.Request) {
		err := s.cfg.Telling.EndMaintenance(r.URL.Query().Get("name"))
		s.answer(w, s.cfg.Telling.Maintenance(), err)
	})
}

// String says a window in a line.
func (m Maintenance) String() string {
	said := m.Name
	switch {
	case len(m.Intervals) > 0:
		said += ", in " + strings.Join(m.Intervals, " and ")
	case m.Holds:
		said += ", until " + m.To.UTC().Format("2 Jan 15:04 MST")
	default:
		said += ", from " + m.From.UTC().Format("2 Jan 15:04") + " to " + m.To.UTC().Format("2 Jan 15:04 MST")
	}
	if m.By != "" {
		said += ", by " + m.By
	}
	said += ": " + strings.Join(m.Matchers, ", ")
	if m.Keeps > 0 {
		said += "; keeps back " + plural(m.Keeps, "incident", "incidents")
	}
	return said
}

// maintained returns a notice for each window that holds: who looks at the page must see
// why nobody was told.
func (t *Telling) maintained() (out []notice) {
	for _, m := range t.Maintenance() {
		if m.Holds {
			out = append(out, notice{toneInfo, "maintenance", oneLine(m.String())})
		}
	}
	return out
}

// Maintenance returns the maintenance windows.
func (c *Client) Maintenance(ctx context.Context) ([]Maintenance, error) {
	return windows(ask[[]Maintenance](ctx, c, http.MethodGet, "/api/v1/maintenance"))
}

// Maintain begins a window for so long, and returns all of them.
func (c *Client) Maintain(ctx context.Context, name string, matchers []string, d time.Duration, by string) ([]Maintenance, error) {
	q := url.Values{"name": {name}, "matcher": matchers, "for": {d.String()}, "by": {by}}
	return windows(ask[[]Maintenance](ctx, c, http.MethodPost, "/api/v1/maintenance?"+q.Encode()))
}

// EndMaintenance ends a window that somebody has begun, and returns the rest.
func (c *Client) EndMaintenance(ctx context.Context, name string) ([]Maintenance, error) {
	return windows(ask[[]Maintenance](ctx, c, http.MethodPost, "/api/v1/maintenance/end?name="+url.QueryEscape(name)))
}

func windows(all *[]Maintenance, err error) ([]Maintenance, error) {
	if err != nil {
		return nil, err
	}
	return *all, nil
}
