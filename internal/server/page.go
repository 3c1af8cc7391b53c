package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

//go:embed page.html
var pageHTML string

//go:embed page_fleet.html
var pageFleetHTML string

//go:embed page.css
var pageCSS string

// pageTemplate is the parsed page with the policy that lets a browser use its
// own style and nothing else.
type pageTemplate struct {
	*template.Template
	policy string
}

func newPageTemplate() *pageTemplate {
	sum := sha256.Sum256([]byte(pageCSS))
	return &pageTemplate{
		Template: template.Must(template.Must(template.New("page").Funcs(template.FuncMap{
			"css":   func() template.CSS { return template.CSS(pageCSS) },
			"icon":  icon,
			"bound": bound,
		}).Parse(pageHTML)).Parse(pageFleetHTML)),
		policy: "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	}
}

// tone is how a thing feels: a colour on the page, never without a word.
type tone string

const (
	tonePage   tone = "page"
	toneTicket tone = "ticket"
	toneInfo   tone = "info"
	toneOK     tone = "ok"
	toneQuiet  tone = "quiet"
)

// icon is a dot in the tab, in the colour of the verdict.
func icon(t tone) template.URL {
	colour := map[tone]string{tonePage: "c62828", toneTicket: "d98200", toneInfo: "2f6fde", toneOK: "2e8b57", toneQuiet: "888888"}[t]
	return template.URL("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='7' fill='%23" + colour + "'/%3E%3C/svg%3E")
}

// page is everything that the template shows, in words.
type page struct {
	Paused    bool // it does not reload itself
	Node      string
	Version   string
	Simulated bool
	Sampled   string // when the snapshot was made
	Verdict   verdict
	Notices   []notice

	Cards    []card
	Watching []line // pending findings
	Resolved []line

	GPUs      []gpuRow
	Model     string // of all GPUs, if it is the same
	Drawn     bool   // some GPU has a sparkline
	Sources   []sourceRow
	Host      []fact
	Versions  []fact
	Endpoints []endpointRow

	Work          []workRow // what owners run, where it was looked at
	Processes     []processRow
	MoreProcesses int
}

// verdict is what a tired person reads first.
type verdict struct {
	Tone     tone
	Headline string
	Detail   string
}

// notice says what keeps the agent from seeing.
type notice struct {
	Tone tone
	Word string
	Text string
}

// fact is a name and what is true of it.
type fact struct{ Name, Value, More string }

func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	p := s.pageOf(s.cfg.Snapshot(), s.cfg.View(), time.Now())
	if s.cfg.Telling != nil {
		p.mark(s.marks())
		p.Notices = append(p.Notices, s.cfg.Telling.maintained()...)
	}
	p.Paused = r.URL.Query().Has("paused")
	var body bytes.Buffer
	if err := s.page.Execute(&body, p); err != nil {
		s.cfg.Log.Error("drawing the page", "err", err)
		http.Error(w, "drawing the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", s.page.policy)
	w.Header().Set("Referrer-Policy", "same-origin") // or browsers would not say where the page's own buttons are
	w.Write(body.Bytes())                            // an error means that the client has gone
}

func (s *Server) pageOf(snap *collector.Snapshot, view *detect.View, now time.Time) *page {
	p := &page{Version: oneLine(s.cfg.Version.Version)}
	if view != nil {
		p.findings(view, &look{snap: snap, history: s.cfg.History, muted: s.muted(), now: now})
	}
	if until := s.releasedUntil(); until.After(now) {
		p.Notices = append(p.Notices, notice{toneInfo, "released", "The GPU driver is released until " + clock(until, now) +
			" UTC: no GPU is sampled until then."})
	}
	if snap == nil {
		p.Verdict = verdict{toneQuiet, "Starting", "The first samples are being taken."}
		return p
	}
	p.Node, p.Simulated = oneLine(snap.Node.Name), snap.Simulated
	p.Sampled = clock(snap.Time, now) + " UTC, " + ago(now.Sub(snap.Time))
	p.sources(snap, now)
	if stale(snap, now) {
		p.Notices = append(p.Notices, notice{tonePage, "stopped", "The last snapshot is " + duration(now.Sub(snap.Time)) +
			" old: the sampler has stopped. What follows is how things were then."})
	}
	var verdicts []detect.Verdict
	if view != nil {
		verdicts = view.Verdicts
	}
	p.gpus(&look{snap: snap, history: s.cfg.History, now: now}, verdicts)
	p.host(snap)
	p.work(snap.Inventory)
	p.endpoints(snap)
	p.processes(snap)
	p.Verdict = p.judge(snap)
	return p
}

// judge says the one thing to remember: what needs a person, or that nothing does
// as far as can be seen.
func (p *page) judge(s *collector.Snapshot) verdict {
	v := p.judged()
	v.Detail = strings.Join(p.summary(s), " · ")
	return v
}

func (p *page) judged() verdict {
	count := map[tone]int{}
	for _, c := range p.Cards {
		count[c.Tone]++
	}
	blind := false
	for _, n := range p.Notices {
		switch n.Tone {
		case tonePage:
			count[tonePage]++
		case toneTicket:
			blind = true
		}
	}
	var v verdict
	switch {
	case count[tonePage] > 0:
		v.Tone, v.Headline = tonePage, plural(count[tonePage], "thing needs you now", "things need you now")
	case blind:
		v.Tone, v.Headline = toneTicket, "Not everything can be seen"
	case count[toneTicket] > 0:
		v.Tone, v.Headline = toneTicket, plural(count[toneTicket], "thing needs somebody today", "things need somebody today")
	case count[toneInfo] > 0:
		v.Tone, v.Headline = toneInfo, "Nothing needs you"
	default:
		v.Tone, v.Headline = toneOK, "Nothing is wrong"
	}
	return v
}

// summary counts what the node does.
func (p *page) summary(s *collector.Snapshot) []string {
	if len(s.GPUs) == 0 {
		return []string{"no GPU seen"}
	}
	var words []string
	states := map[string]int{}
	for _, g := range p.GPUs {
		if states[g.State]++; states[g.State] == 1 {
			words = append(words, g.State)
		}
	}
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", states[w], w)
	}
	parts := []string{plural(len(s.GPUs), "GPU", "GPUs") + ": " + strings.Join(words, ", ")}
	draw := 0.0
	for i := range s.GPUs {
		if v := s.GPUs[i].Value(metric.PowerDraw); finite(v) {
			draw += v
		}
	}
	if draw > 0 {
		parts = append(parts, fmt.Sprintf("%.1f kW", draw/1e3))
	}
	if cpu := s.Node.Value(metric.CPUBusy); finite(cpu) {
		parts = append(parts, "CPU "+percent(cpu))
	}
	return parts
}
