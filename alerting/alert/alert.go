// Package alert puts incidents into the form that Prometheus and Alertmanager have
// for alerts: labels that say which one it is, annotations that say what is known.
//
// An alert is known by its labels alone, so they are made of what opened the incident
// and never change while it lasts, with one exception: the severity, by which alerts
// are routed. When an incident gets worse, its alert of the lesser severity ends and
// one of the greater begins.
package alert

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// Source is the value of the label source of each alert: it tells them from alerts
// that Prometheus makes of the same findings, under the same names.
const Source = "gpuvigil"

// Severity is the label that is no part of what an incident is known by.
const Severity = "severity"

// How long a value may be, in runes.
const (
	labelSize      = 256
	annotationSize = 1000
)

// Options is what is said with each alert.
type Options struct {
	Cluster string            // label; empty: none
	Labels  map[string]string // further labels, which cannot take the place of ours
}

// Alert is an incident as Prometheus would tell it.
type Alert struct {
	Labels       model.LabelSet
	Annotations  model.LabelSet
	StartsAt     time.Time
	EndsAt       time.Time // zero while it fires
	GeneratorURL string    // where to look at it; may be empty
}

// Of returns the alert of an incident.
func Of(m alerting.Message, o Options) Alert {
	i := &m.Incident
	a := Alert{Labels: o.labels(&m), Annotations: annotations(m), StartsAt: i.Opened, GeneratorURL: look(m.Links)}
	if i.State == detect.Resolved {
		a.EndsAt = i.Resolved
		if a.EndsAt.Before(a.StartsAt) { // the clock was set back
			a.EndsAt = a.StartsAt
		}
	}
	return a
}

// As returns the same alert under another severity.
func (a Alert) As(s rules.Severity) Alert {
	a.Labels = maps.Clone(a.Labels)
	a.Labels[Severity] = model.LabelValue(s.String())
	return a
}

// Identity returns the labels that never change within an incident.
func (a Alert) Identity() model.LabelSet {
	identity := maps.Clone(a.Labels)
	delete(identity, Severity)
	return identity
}

// labels are bounded and hold nothing that was measured.
func (o Options) labels(m *alerting.Message) model.LabelSet {
	i := &m.Incident
	began := i.Origin()
	l := model.LabelSet{}
	for name, value := range o.Labels {
		set(l, name, value)
	}
	node := began.Node
	if node == "" {
		node = m.Node
	}
	set(l, "source", Source)
	set(l, model.AlertNameLabel, rules.AlertName(began.Rule))
	set(l, "rule", string(began.Rule))
	set(l, "cause", began.Cause)
	set(l, Severity, i.Severity.String())
	set(l, "cluster", o.Cluster)
	set(l, "node", node)
	set(l, "team", began.Team)
	if began.Subject.Kind != "" {
		set(l, "subject", began.Subject.String())
	}
	if began.Subject.Kind == "gpu" && began.GPUIndex >= 0 {
		set(l, "gpu", strconv.Itoa(began.GPUIndex))
	}
	if i.Drill {
		set(l, "drill", "true")
	}
	if len(i.Members) > 0 && i.Members[0].Simulated {
		set(l, "simulated", "true")
	}
	return l
}

func set(l model.LabelSet, name, value string) {
	if value = text.Clean(value, labelSize); value != "" {
		l[model.LabelName(name)] = model.LabelValue(value)
	}
}

// contexts are the lines of a message that have an annotation of their own, as templates
// ask for: how far an incident reaches, what it costs, and what changed before it.
var contexts = map[string]string{
	"Who": "who", "Teams": "teams", "Serves": "serves", "Before": "before", "Lost": "lost", "Cost": "cost", "Lasted": "lasted", "Also": "also",
}

// annotations are what a person reads. They may change with each state.
func annotations(m alerting.Message) model.LabelSet {
	said := alerting.Render(m)
	a := model.LabelSet{}
	add := func(name, value string, size int) {
		if value = text.Clean(value, size); value != "" {
			a[model.LabelName(name)] = model.LabelValue(value)
		}
	}
	add("summary", said.Headline, annotationSize)
	add("incident", m.Incident.ID, labelSize)
	if said.Simulated {
		add("simulated", alerting.SimulatedMark, annotationSize)
	}
	var lines []string
	for _, l := range said.Lines {
		lines = append(lines, l.Label+": "+l.Text)
	}
	if len(lines) > 0 {
		a["description"] = model.LabelValue(cut(strings.Join(lines, "\n"), 4*annotationSize))
	}
	if len(m.Incident.Members) > 0 {
		root := &m.Incident.Members[0]
		add("title", root.Title(), annotationSize)
		add("seen", root.Evidence.Seen, annotationSize)
		add("expected", root.Evidence.Expected, annotationSize)
		add("action", root.Action(), annotationSize)
	}
	for _, l := range said.Lines {
		if name := contexts[l.Label]; name != "" {
			add(name, l.Text, annotationSize)
		}
	}
	for _, link := range m.Links {
		add(linkName(link.Title), link.URL, 2*annotationSize)
	}
	return a
}

// linkName makes the name of an annotation of a link's title: Runbook is runbook_url,
// as everywhere.
func linkName(title string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(text.Clean(title, 40)))
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "link_" + name
	}
	return name + "_url"
}

// cut bounds text of several lines, which are clean.
func cut(s string, size int) string {
	if r := []rune(s); len(r) > size {
		return string(r[:size-1]) + "…"
	}
	return s
}

// look is the first of the links that shows what is the matter.
func look(links []alerting.Link) string {
	for _, l := range links {
		if strings.HasPrefix(l.URL, "http://") || strings.HasPrefix(l.URL, "https://") {
			return l.URL
		}
	}
	return ""
}
