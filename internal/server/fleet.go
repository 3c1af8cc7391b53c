package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// maxNodes is how many nodes the page of a cluster lists; the API has all.
const maxNodes = 200

// FleetConfig says what the cluster role's page and API show. View, Pending and Log are required;
// the functions are called from many goroutines and must not block.
type FleetConfig struct {
	Cluster string // its name, for the page
	View    func() FleetView
	Pending func(job string) (jobs []PendingJob, answered int) // what has no GPUs yet, and how many schedulers have answered; an empty name stands for all
	Metrics http.Handler                                       // of /metrics and /-/…

	// Chart draws the incident with the id as a PNG, nil if there is nothing to draw; nil:
	// nothing is drawn. Unlike the others it may take some seconds.
	Chart func(ctx context.Context, id string) ([]byte, error)

	Telling       *Telling // see Config
	Version       Version
	Authenticated func() bool // see Config
	Log           *slog.Logger
}

// FleetView is what is known of a cluster.
type FleetView struct {
	Time      time.Time         // of the newest look; zero before the first
	Simulated bool              // some nodes are
	Findings  []detect.Finding  // those that fire, then those of the last day; the worst first
	Incidents []detect.Incident // open, then of the last day; the worst first
	Nodes     []FleetNode       // the worst first
	Notices   []string          // of where all this comes from, and what is missing
}

// FleetNode is one node of a cluster.
type FleetNode struct {
	Node     string          `json:"node"`
	State    string          `json:"state"` // judged, told by its agent, silent
	GPUs     int             `json:"gpus"`
	Model    string          `json:"model,omitempty"`
	Driver   string          `json:"driver,omitempty"`
	Findings int             `json:"findings"`
	Worst    *rules.Severity `json:"worst,omitempty"` // nil: none fires
	Seen     time.Time       `json:"seen"`
}

// FleetFindings is the answer of GET /api/v1/findings of the cluster role.
type FleetFindings struct {
	Time      time.Time `json:"time"`
	Cluster   string    `json:"cluster"`
	Simulated bool      `json:"simulated"`
	Findings  []Finding `json:"findings"` // firing, and resolved in the last 24 h
}

// FleetIncidents is the answer of GET /api/v1/incidents.
type FleetIncidents struct {
	Time      time.Time         `json:"time"`
	Cluster   string            `json:"cluster"`
	Simulated bool              `json:"simulated"`
	Incidents []detect.Incident `json:"incidents"` // open, and resolved in the last 24 h
}

// FleetNodes is the answer of GET /api/v1/nodes.
type FleetNodes struct {
	Time    time.Time   `json:"time"`
	Cluster string      `json:"cluster"`
	Nodes   []FleetNode `json:"nodes"`
}

// Fleet answers for the cluster role.
type Fleet struct {
	cfg    FleetConfig
	page   *pageTemplate
	server *Server // what both share: who is let in, how answers are written
}

// NewFleet returns a server for the configuration.
func NewFleet(cfg FleetConfig) *Fleet {
	return &Fleet{cfg: cfg, page: newPageTemplate(), server: &Server{cfg: Config{Log: cfg.Log, Authenticated: cfg.Authenticated, Telling: cfg.Telling}}}
}

// Handler returns what the TCP listener serves: /metrics and /-/… to all, page and API as
// Server.Handler does.
func (f *Fleet) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/-/"} {
		mux.Handle("GET "+path, f.cfg.Metrics)
		mux.HandleFunc(path, readOnly)
	}
	inner := f.api()
	inner.HandleFunc("GET /{$}", f.index)
	if f.cfg.Chart != nil {
		inner.HandleFunc("GET /incidents/{id}/chart.png", f.chart)
	}
	if f.cfg.Telling != nil {
		inner.Handle("POST /incidents/{id}/{what}", f.server.markOnPage())
	}
	mux.Handle("/", f.server.local(inner))
	return limited(mux)
}

// SocketHandler returns what the role's socket serves: the API and, because only the role's
// user can open the socket, what changes something.
func (f *Fleet) SocketHandler() http.Handler {
	mux := f.api()
	f.server.tell(mux)
	return limited(mux)
}

func (f *Fleet) api() *http.ServeMux {
	mux := http.NewServeMux()
	answer := func(of func(v *FleetView) any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			v := f.cfg.View()
			if v.Time.IsZero() {
				http.Error(w, "nothing was judged yet: try again in half a minute", http.StatusServiceUnavailable)
				return
			}
			f.server.reply(w, of(&v))
		}
	}
	mux.HandleFunc("GET /api/v1/findings", answer(func(v *FleetView) any {
		out := FleetFindings{Time: v.Time, Cluster: f.cfg.Cluster, Simulated: v.Simulated, Findings: []Finding{}}
		for _, m := range v.Findings {
			out.Findings = append(out.Findings, explained(m))
		}
		return out
	}))
	mux.HandleFunc("GET /api/v1/incidents", answer(func(v *FleetView) any {
		return FleetIncidents{v.Time, f.cfg.Cluster, v.Simulated, orEmpty(v.Incidents)}
	}))
	mux.HandleFunc("GET /api/v1/nodes", answer(func(v *FleetView) any {
		return FleetNodes{v.Time, f.cfg.Cluster, orEmpty(v.Nodes)}
	}))
	mux.HandleFunc("GET /api/v1/pending", f.apiPending)
	return mux
}

// fleetPage is what the template of a cluster shows, in words.
type fleetPage struct {
	page
	Nodes     []nodeRow
	MoreNodes int
}

type nodeRow struct {
	Name, State, Model, Driver, Seen string
	Tone                             tone
	Findings, GPUs                   int
}

func (f *Fleet) index(w http.ResponseWriter, r *http.Request) {
	v := f.cfg.View()
	p := f.pageOf(&v, time.Now())
	p.Paused = r.URL.Query().Has("paused")
	var body bytes.Buffer
	if err := f.page.ExecuteTemplate(&body, "fleet", p); err != nil {
		f.cfg.Log.Error("drawing the page", "err", err)
		http.Error(w, "drawing the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", f.page.policy)
	w.Write(body.Bytes()) // an error means that the client has gone
}

// chart draws an incident for whoever asks for it: the page only links to it, so that it
// costs nothing to look at the page.
func (f *Fleet) chart(w http.ResponseWriter, r *http.Request) {
	png, err := f.cfg.Chart(r.Context(), r.PathValue("id"))
	switch {
	case err != nil:
		f.cfg.Log.Error("drawing a chart", "err", err)
		http.Error(w, "drawing the chart: see the role's log", http.StatusInternalServerError)
	case png == nil:
		http.Error(w, "there is no chart of it: nothing tells of what its rule watches", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "image/png")
		w.Write(png) // an error means that the client has gone
	}
}

func (f *Fleet) pageOf(v *FleetView, now time.Time) *fleetPage {
	p := &fleetPage{page: page{Version: oneLine(f.cfg.Version.Version), Node: oneLine(f.cfg.Cluster), Simulated: v.Simulated}}
	if v.Time.IsZero() {
		p.Verdict = verdict{toneQuiet, "Starting", "The first look is being taken."}
		for _, text := range v.Notices {
			p.Notices = append(p.Notices, notice{toneInfo, "source", text})
		}
		return p
	}
	p.Sampled = clock(v.Time, now) + " UTC, " + ago(now.Sub(v.Time))
	if age := now.Sub(v.Time); age > 3*time.Minute {
		p.Notices = append(p.Notices, notice{tonePage, "stopped", "The last look is " + duration(age) + " old. What follows is how things were then."})
	}
	for _, text := range v.Notices {
		p.Notices = append(p.Notices, notice{toneInfo, "source", text})
	}
	l := &look{now: now, nodes: true}
	p.incidents(v, l)
	if f.cfg.Chart != nil {
		p.pictures()
	}
	if f.cfg.Telling != nil {
		p.mark(f.cfg.Telling.Marks())
		p.Notices = append(p.Notices, f.cfg.Telling.maintained()...)
	}
	p.nodes(v.Nodes, now)
	p.Verdict = p.judged()
	gpus, silent := 0, 0
	for i := range v.Nodes {
		gpus += v.Nodes[i].GPUs
		if v.Nodes[i].State == "silent" {
			silent++
		}
	}
	p.Verdict.Detail = plural(len(v.Nodes), "node", "nodes") + ", " + plural(gpus, "GPU", "GPUs")
	if silent > 0 {
		p.Verdict.Detail += fmt.Sprintf(" · %d silent", silent)
	}
	return p
}

// incidents fills in the open incidents, and what was over lately.
func (p *fleetPage) incidents(v *FleetView, l *look) {
	for i := range v.Incidents {
		in := &v.Incidents[i]
		if len(in.Members) == 0 {
			continue
		}
		if in.State != detect.Firing {
			m := &in.Members[0]
			p.Resolved = append(p.Resolved, line{clock(in.Resolved, l.now), oneLine(m.Title()) + ": " + l.where(m) + ", after " + duration(in.Resolved.Sub(in.Opened))})
			continue
		}
		c := l.card(&in.Members[0], in.Severity)
		c.incident = in.ID
		switch c.subject.Kind {
		case "gpu", "node", "endpoint", "job", "pod":
			c.drawn = true
		}
		c.Members = l.members(in.Members[1:])
		if in.Nodes > 1 {
			c.Where += ", and others: " + plural(in.Nodes, "node", "nodes") + " in all"
		}
		p.Cards = append(p.Cards, c)
	}
	p.Resolved = capped(p.Resolved)
	if more := len(p.Cards) - maxCards; more > 0 {
		p.Cards = p.Cards[:maxCards]
		p.Notices = append(p.Notices, notice{toneInfo, "more", plural(more, "further incident is", "further incidents are") + " not on this page: see /api/v1/incidents."})
	}
}

// pictures links the cards of what is on a node, and has readings, to their charts.
func (p *fleetPage) pictures() {
	for i := range p.Cards {
		if c := &p.Cards[i]; c.drawn {
			c.Picture = "/incidents/" + url.PathEscape(c.incident) + "/chart.png"
		}
	}
}

func (p *fleetPage) nodes(all []FleetNode, now time.Time) {
	for i := range all[:min(len(all), maxNodes)] {
		n := &all[i]
		row := nodeRow{Name: oneLine(n.Node), State: n.State, Model: orNA(n.Model), Driver: orNA(n.Driver), Seen: ago(now.Sub(n.Seen)), Tone: toneOK, Findings: n.Findings, GPUs: n.GPUs}
		switch {
		case n.Worst != nil:
			row.Tone = tone(n.Worst.String())
		case n.State == "silent":
			row.Tone = toneQuiet
		}
		p.Nodes = append(p.Nodes, row)
	}
	p.MoreNodes = len(all) - len(p.Nodes)
}

func orNA(s string) string {
	if s == "" {
		return "n/a"
	}
	return oneLine(s)
}
