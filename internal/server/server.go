// Package server is what the agent shows: the scrape endpoint, the page, the
// API, readiness, and the socket over which the agent's own commands talk to it.
//
// It reads the last snapshot and the engine's view and never waits for a
// sample: a driver that hangs cannot hold up a scrape.
package server

import (
	"log/slog"
	"net/http"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/cost"
)

// Config says what the server shows. Snapshot, View and Log are required; the
// functions are called from many goroutines and must not block.
type Config struct {
	Snapshot func() *collector.Snapshot            // nil before the first
	View     func() *detect.View                   // nil before the first
	History  func(detect.Subject) []detect.History // nil: no history is shown
	Changes  func() []collector.Event              // what has changed on the node, oldest first; nil: it is not told

	// Release ends the child that talks to the driver and keeps it away for the
	// given time; nil if there is none. ReleasedUntil is when it comes back, zero
	// if it is not away.
	Release       func(time.Duration) error
	ReleasedUntil func() time.Time

	// Telling is the part that tells people; nil: there is none.
	Telling *Telling
	// Muted returns, by the incident's id, what keeps people from being told of it; nil
	// where that is not known.
	Muted func() map[string][]Mute

	// Booked is what the scrape page shows of the ledger, and Costs what it has booked
	// from since to until; nil without a ledger. Costs may read the disk.
	Booked func() *cost.Export
	Costs  func(since, until time.Time) (*cost.Answer, error)

	Version Version

	// Full makes series of the rows that are details, too, and of each NVLink.
	Full bool

	// Processes says which processes have series; nil: none.
	Processes *ProcessSeries

	// DCGM adds the series under the names of dcgm-exporter. The page is then never
	// in OpenMetrics, which would add _total to the names of its counters.
	DCGM bool

	// Authenticated says whether the listener asks every client who it is; it is
	// asked for each request, because that can change while the agent runs. Without
	// it, page and API answer clients on this machine only.
	Authenticated func() bool

	Log *slog.Logger
}

// Version is the build of the agent.
type Version struct{ Version, Revision, GoVersion string }

// Server answers for one agent.
type Server struct {
	cfg     Config
	layout  *layout
	bridge  *bridge
	spare   chan *exposition
	page    *pageTemplate
	scrapes chan struct{} // one for each scrape that is being answered
	metrics http.Handler
}

// New returns a server for the configuration.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, layout: newLayout(cfg.Full), page: newPageTemplate(),
		spare: make(chan *exposition, sparePages), scrapes: make(chan struct{}, maxScrapes),
	}
	s.bridge = newBridge(s.layout, cfg.Log)
	s.metrics = compressed(s.exposed())
	return s
}

// Handler returns what the TCP listener serves to those it lets in: /metrics and
// /-/… to all, the page and the API to clients on this machine or, if the listener
// authenticates them, to all too.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]http.HandlerFunc{"/metrics": s.scrape, "/-/healthy": healthy, "/-/ready": s.ready} {
		mux.HandleFunc("GET "+path, answer)
		mux.HandleFunc(path, readOnly) // or the pattern / would take it and know of no such path
	}
	inner := s.api()
	inner.HandleFunc("GET /{$}", s.index)
	if s.cfg.Telling != nil {
		inner.Handle("POST /incidents/{id}/{what}", s.markOnPage())
	}
	mux.Handle("/", s.local(inner))
	return limited(mux)
}

// readOnly refuses every method but those that read.
func readOnly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
}

// SocketHandler returns what the agent's socket serves: the API and, because
// only the agent's user can open the socket, what changes something.
func (s *Server) SocketHandler() http.Handler {
	mux := s.api()
	mux.HandleFunc("POST /api/v1/release", s.release)
	s.tell(mux)
	return limited(mux)
}

func (s *Server) api() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/findings", s.apiFindings)
	mux.HandleFunc("GET /api/v1/snapshot", s.apiSnapshot)
	mux.HandleFunc("GET /api/v1/inventory", s.apiInventory)
	mux.HandleFunc("GET /api/v1/costs", s.apiCosts)
	return mux
}
