package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// The most of a kind that the page lists; it says how many more there are.
const (
	maxCards   = 20
	maxMembers = 8
	maxLines   = 20
)

// look is what the page is drawn from.
type look struct {
	snap    *collector.Snapshot // nil before the first
	history func(detect.Subject) []detect.History
	muted   map[string][]Mute // by incident
	now     time.Time
	nodes   bool // of several: what is found is told with its node
}

// card is one thing that is wrong: an incident, told by its root cause.
type card struct {
	Tone       tone
	Brief      bool // worth knowing only: without the background
	Severity   string
	Title      string
	Where      string
	Owner      string
	Since, For string
	Seen       string
	Expected   string
	Sure       string
	Muted      []string // what keeps people from being told
	Action     string
	Before     []line
	Members    []line // what else belongs to it
	Meaning    string
	Charts     []chart
	Incident   string // id; empty: it is none, or nobody can say anything of it
	Mark       string // what a person said of it
	Picture    string // path of a chart; empty: there is none

	subject  detect.Subject
	incident string
	drawn    bool // it is on a node, of which there are readings
}

// line is something that happened: when and what.
type line struct{ When, What string }

// findings fills in what is wrong, what may become so, and what was.
func (p *page) findings(v *detect.View, l *look) {
	told := map[string]bool{}
	for i := range v.Incidents {
		in := &v.Incidents[i]
		if in.State != detect.Firing || len(in.Members) == 0 {
			continue
		}
		for j := range in.Members {
			told[in.Members[j].Key()] = true
		}
		c := l.card(&in.Members[0], in.Severity)
		c.Members = l.members(in.Members[1:])
		c.incident = in.ID
		for _, m := range l.muted[in.ID] {
			c.Muted = append(c.Muted, m.String())
		}
		p.Cards = append(p.Cards, c)
	}
	for i := range v.Findings {
		f := &v.Findings[i]
		what := oneLine(f.Title()) + ": " + where(f)
		switch {
		case f.State == detect.Firing && !told[f.Key()]:
			p.Cards = append(p.Cards, l.card(f, f.Severity))
		case f.State == detect.Pending:
			p.Watching = append(p.Watching, line{"for " + duration(l.now.Sub(f.Since)), what})
		case f.State == detect.Resolved:
			p.Resolved = append(p.Resolved, line{clock(f.Resolved, l.now), what + ", after " + duration(f.Resolved.Sub(f.Since))})
		}
	}
	rank := map[tone]int{tonePage: 0, toneTicket: 1, toneInfo: 2}
	slices.SortStableFunc(p.Cards, func(a, b card) int { return cmp.Compare(rank[a.Tone], rank[b.Tone]) })
	p.Watching, p.Resolved = capped(p.Watching), capped(p.Resolved)
	if more := len(p.Cards) - maxCards; more > 0 {
		p.Cards = p.Cards[:maxCards]
		p.Notices = append(p.Notices, notice{toneInfo, "more", plural(more, "further finding is", "further findings are") +
			" not on this page: see /api/v1/findings."})
	}
}

// mark shows what people said of incidents, and lets them say it.
func (p *page) mark(marks map[string]Mark) {
	for i := range p.Cards {
		c := &p.Cards[i]
		c.Incident = c.incident
		if m, ok := marks[c.incident]; ok {
			c.Mark = m.String()
		}
	}
}

func capped(lines []line) []line {
	if more := len(lines) - maxLines; more > 0 {
		return append(lines[:maxLines:maxLines], line{What: fmt.Sprintf("and %d more", more)})
	}
	return lines
}

func (l *look) card(f *detect.Finding, severity rules.Severity) card {
	c := card{
		Tone:     tone(severity.String()),
		Brief:    severity == rules.Info,
		Severity: severity.String(),
		Title:    oneLine(f.Title()),
		Where:    l.where(f),
		Owner:    joined(", ", ownerText(f.Owner), teamText(f.Owner)),
		Since:    clock(f.Since, l.now),
		For:      duration(l.now.Sub(f.Since)),
		Seen:     oneLine(f.Evidence.Seen),
		Expected: oneLine(f.Evidence.Expected),
		Sure:     joined(": ", string(f.Evidence.Confidence), oneLine(f.Evidence.Why)),
		Action:   oneLine(f.Action()),
		subject:  f.Subject,
	}
	if r := rules.Get(f.Rule); r != nil && !c.Brief {
		c.Meaning, c.Charts = r.Meaning, l.charts(f.Subject, r.Watch)
	}
	if f.Suppressed != "" {
		c.Sure = joined("; ", c.Sure, "nobody was told, as the node was drained before")
	}
	for _, e := range f.Before {
		c.Before = append(c.Before, line{clock(e.Time, l.now), l.event(e, f.Subject)})
	}
	c.Before = capped(c.Before)
	return c
}

// joined joins what is not empty.
func joined(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

// members tells the incident's other findings, those that still fire.
func (l *look) members(findings []detect.Finding) []line {
	var lines []line
	more := 0
	for i := range findings {
		f := &findings[i]
		switch {
		case f.State != detect.Firing:
		case len(lines) == maxMembers:
			more++
		default:
			lines = append(lines, line{clock(f.Since, l.now), oneLine(f.Title()) + ": " + l.where(f)})
		}
	}
	if more > 0 {
		lines = append(lines, line{What: fmt.Sprintf("and %d more", more)})
	}
	return lines
}

// where names the subject, with its node where there are several.
func (l *look) where(f *detect.Finding) string {
	if !l.nodes || f.Node == "" || f.Subject.Kind == "node" {
		return where(f)
	}
	return oneLine(f.Node) + ", " + where(f)
}

// where names the subject as a person would.
func where(f *detect.Finding) string {
	if f.GPUIndex < 0 {
		return oneLine(f.Subject.Kind + " " + f.Subject.ID)
	}
	return joined(", ", fmt.Sprintf("GPU %d", f.GPUIndex), oneLine(f.GPUModel))
}

// event says what happened, and on which GPU unless it is the finding's own.
func (l *look) event(e collector.Event, of detect.Subject) string {
	text := joined(": ", happened(e), e.Text)
	if e.UUID != "" && e.UUID != of.ID {
		text += " on " + l.gpu(e.UUID)
	}
	return oneLine(text)
}

func (l *look) gpu(uuid string) string {
	if l.snap != nil {
		if g := l.snap.GPUByUUID(uuid); g != nil {
			return fmt.Sprintf("GPU %d", g.Index)
		}
	}
	return uuid
}

func happened(e collector.Event) string {
	switch e.Kind {
	case collector.XidEvent:
		return fmt.Sprintf("Xid %d", e.Code)
	case collector.SXidEvent:
		return strings.TrimSpace(fmt.Sprintf("SXid %d on NVSwitch %s %s", e.Code, e.PCI, e.Text))
	case collector.FabricEvent:
		return "fabric manager: " + e.Text
	case collector.VersionEvent, collector.InventoryEvent:
		text := e.Component + " " + orNone(e.From) + " → " + orNone(e.To)
		if e.Owner != (collector.Owner{}) {
			text += " (" + e.Owner.String() + ")"
		}
		return text
	case collector.GPUAppeared:
		return "a GPU appeared"
	case collector.GPUGone:
		return "a GPU is gone"
	case collector.ChildRestart:
		return "the process that talks to the driver was started again"
	case collector.ClocksEvent:
		return "clocks held down"
	case collector.OwnerEvent:
		return "owner " + orNone(e.From) + " → " + orNone(e.To)
	}
	return string(e.Kind)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
