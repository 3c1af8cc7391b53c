package main

import (
	"time"

	"github.com/prometheus/alertmanager/timeinterval"

	"gpuvigil/alerting"
	"gpuvigil/internal/config"
)

// gate is what decides who is told, as the configuration has it.
func gate(cfg *config.Config) alerting.GateConfig {
	a := &cfg.Alerting
	g := alerting.GateConfig{
		Cluster: cfg.Cluster, Node: cfg.Node, Shadow: time.Duration(a.Shadow), Promoted: promoted(cfg.Rules),
		Intervals: map[string][]timeinterval.TimeInterval{},
	}
	for _, t := range a.TimeIntervals {
		g.Intervals[t.Name] = t.Intervals
	}
	if a.Route != nil {
		g.Route = route(a.Route, &alerting.Route{})
	}
	for i := range a.Maintenance {
		m := &a.Maintenance[i]
		from, to := m.Span()
		g.Maintenance = append(g.Maintenance, alerting.Window{Name: m.Name, Matchers: m.Matchers.Labels(), From: from, To: to, Intervals: m.TimeIntervals})
	}
	return g
}

// route fills in what a route has from the one above. Time intervals are not inherited,
// as Alertmanager does not do it either.
func route(r *config.Route, above *alerting.Route) *alerting.Route {
	out := &alerting.Route{
		Receiver: above.Receiver, Matchers: r.Matchers.Labels(), Continue: r.Continue, Mute: r.MuteTimeIntervals, Active: r.ActiveTimeIntervals,
		Repeat: above.Repeat, Mentions: above.Mentions,
	}
	switch r.Receiver {
	case "":
	case config.Nobody:
		out.Receiver = ""
	default:
		out.Receiver = r.Receiver
	}
	if r.RepeatInterval != nil {
		out.Repeat = time.Duration(*r.RepeatInterval)
	}
	if r.Mentions != nil {
		out.Mentions = r.Mentions
	}
	for i := range r.Routes {
		out.Routes = append(out.Routes, route(&r.Routes[i], out))
	}
	return out
}
