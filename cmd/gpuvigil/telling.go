package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

// desk takes what people say of incidents, for whatever process has an outbox.
type desk struct {
	outbox    *alerting.Outbox
	incidents func() []detect.Incident
	latest    func() *collector.Snapshot // for GPUs by their index; nil before the first
	node      func() string              // what a drill about no GPU is about
	senders   func() []*alertmanager.Sender
	elsewhere func() error // why what people say must be said to another process; nil: to this one
	log       *slog.Logger
}

// desk is the agent's, whatever its configuration becomes.
func (a *agent) desk() *desk {
	return &desk{
		outbox: a.outbox, log: a.log,
		incidents: func() []detect.Incident { return a.pipeline.Load().engine.View().Incidents },
		latest:    func() *collector.Snapshot { return a.pipeline.Load().sampler.Latest() },
		node:      func() string { return a.pipeline.Load().cfg.Node },
		senders:   func() []*alertmanager.Sender { return a.pipeline.Load().senders },
		elsewhere: func() error { return nil },
	}
}

// telling is what page and socket can say to the outbox.
func (d *desk) telling() *server.Telling {
	return &server.Telling{
		Marks: func() map[string]server.Mark {
			out := map[string]server.Mark{}
			for id, m := range d.outbox.Marks() {
				out[id] = server.Mark{By: m.By, At: m.At, Until: m.Until}
			}
			return out
		},
		Mark:  d.mark,
		Drill: d.drill,
		Try:   d.try,

		Maintenance: d.maintenance, Maintain: d.maintain, EndMaintenance: d.endMaintenance,
	}
}

func toldBy(sent []alerting.Sent) []server.Told {
	out := []server.Told{}
	for _, s := range sent {
		out = append(out, server.Told(s))
	}
	return out
}

// try sends a test message to a receiver of either kind, empty for all.
func (d *desk) try(ctx context.Context, receiver string) ([]server.Told, error) {
	var sent []alerting.Sent
	names := d.outbox.Receivers()
	if len(names) > 0 && receiver == "" || slices.Contains(names, receiver) {
		var err error
		if sent, err = d.outbox.Try(ctx, receiver); err != nil {
			return toldBy(sent), err
		}
	}
	for _, s := range d.senders() {
		names = append(names, s.Name())
		if receiver == "" || receiver == s.Name() {
			sent = append(sent, s.Try(ctx, d.node())...)
		}
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("send a test message: no receiver is configured under alerting")
	case len(sent) == 0:
		return nil, fmt.Errorf("send a test message: no receiver is called %q, there are: %q", receiver, names)
	}
	return toldBy(sent), nil
}

// mark notes what a person says of an incident.
func (d *desk) mark(id string, m *server.Mark) (*server.Marked, error) {
	if err := d.elsewhere(); err != nil {
		return nil, err
	}
	all := append(d.outbox.Drills(), d.incidents()...)
	i, err := incidentOf(all, id)
	if err != nil {
		return nil, err
	}
	var said *alerting.Mark
	if m != nil {
		said = &alerting.Mark{By: m.By, At: m.At, Until: m.Until, Severity: i.Severity}
	}
	if err := d.outbox.Mark(*i, said); err != nil {
		return nil, err
	}
	d.log.Info("Somebody has said something of an incident.", "incident", i.ID, "rule", i.Rule, "said", saidOf(m))
	return &server.Marked{Incident: i.ID, Title: titleOf(i), Mark: m}, nil
}

func saidOf(m *server.Mark) string {
	if m == nil {
		return "nothing any more"
	}
	return m.String()
}

// incidentOf finds the one that fires and whose id begins so.
func incidentOf(all []detect.Incident, id string) (*detect.Incident, error) {
	var found, open []*detect.Incident
	for k := range all {
		i := &all[k]
		if i.State != detect.Firing {
			continue
		}
		open = append(open, i)
		if i.ID == id {
			return i, nil
		}
		if id != "" && strings.HasPrefix(i.ID, id) {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%d incidents begin with %.20q: give more letters of it", len(found), id)
	}
	var known []string
	for _, i := range open {
		known = append(known, fmt.Sprintf("%s (%s)", shortID(i.ID), titleOf(i)))
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("no incident that fires is called %.20q: none fires", id)
	}
	return nil, fmt.Errorf("no incident that fires is called %.20q: there are %s", id, firstFew(known))
}

func titleOf(i *detect.Incident) string {
	if len(i.Members) == 0 {
		return string(i.Rule)
	}
	return printable(i.Members[0].Title())
}

// shortID is as much of an incident's id as people type.
func shortID(id string) string {
	if strings.HasPrefix(id, drillPrefix) {
		return id
	}
	return id[:min(len(id), 8)]
}

const drillPrefix = "drill-"

// drill sends an incident that is none through the outbox.
func (d *desk) drill(rule, gpu string, length time.Duration) (*server.Drilled, error) {
	if err := d.elsewhere(); err != nil {
		return nil, err
	}
	i, err := rehearsal(rule, gpu, d.latest(), d.node(), time.Now())
	if err != nil {
		return nil, err
	}
	sent, err := d.outbox.Drill(*i, length)
	if err != nil {
		return nil, err
	}
	for _, s := range d.senders() {
		sent = append(sent, d.outbox.Decide(s.Name(), s.Least(), i))
	}
	poke(d.senders())
	d.log.Info("A drill has begun.", "incident", i.ID, "rule", i.Rule, "for", length)
	return &server.Drilled{Incident: i.ID, Title: titleOf(i), Until: i.Opened.Add(length), Told: toldBy(sent)}, nil
}

// rehearsal is an incident as the rule would make one, about a GPU if one is named, else
// about the node. Nothing in it was measured, and it says so.
func rehearsal(rule, gpu string, s *collector.Snapshot, node string, now time.Time) (*detect.Incident, error) {
	r := rules.Get(rules.ID(rule))
	if r == nil {
		return nil, fmt.Errorf("no rule is called %.40q: gpuvigil promote lists them", rule)
	}
	f := detect.Finding{
		Rule: r.ID, Cause: "drill", Severity: r.Severity, State: detect.Firing, Since: now, Fired: now, LastSeen: now, LastTrue: now, Score: 1, Count: 1,
		Node: node, Subject: detect.Subject{Kind: "node", ID: node}, GPUIndex: -1, Simulated: s != nil && s.Simulated,
		Evidence: detect.Evidence{Seen: "nothing: somebody rehearses with gpuvigil drill", Expected: "that the right people notice", Confidence: detect.Certain, Why: "it is a drill", Title: r.Title, Action: r.Action},
	}
	if gpu != "" && s == nil {
		return nil, errors.New("no GPU was seen yet: try again in a few seconds")
	}
	if gpu != "" {
		g := gpuOf(s, gpu)
		if g == nil {
			return nil, fmt.Errorf("no GPU is called %.60q: give its index or uuid, as gpuvigil status shows them", gpu)
		}
		f.Subject, f.GPUIndex, f.GPUModel = detect.Subject{Kind: "gpu", ID: g.UUID}, g.Index, g.Model
		if len(g.Owners) > 0 {
			f.Owner = g.Owners[0]
		}
	}
	return &detect.Incident{
		ID: drillPrefix + strconv.FormatInt(now.UnixMicro(), 36), Rule: r.ID, Cause: f.Cause, Severity: r.Severity, State: detect.Firing,
		Opened: now, Updated: now, Members: []detect.Finding{f}, Drill: true,
	}, nil
}

func gpuOf(s *collector.Snapshot, name string) *collector.GPU {
	for k := range s.GPUs {
		if g := &s.GPUs[k]; g.UUID == name || strconv.Itoa(g.Index) == name {
			return g
		}
	}
	return nil
}
