package main

import (
	"context"
	"fmt"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/rules"
)

// reachNodes is of how many nodes of an incident it is worked out what it reaches.
const reachNodes = 64

// tellsFor says how the cluster role tells people by a configuration.
func (r *fleetRecorder) tellsFor(a *asking) error {
	a.outbox.Current, a.outbox.Context = r.incident, func(i *detect.Incident) alerting.Context { return r.reach(a.cfg, i) }
	links := (&pipeline{cfg: a.cfg}).links
	message := func(i *detect.Incident) alerting.Message {
		return alerting.Message{Incident: *i, Rule: rules.Get(i.Rule), Node: a.cluster, Links: links(i)}
	}
	senders, err := alertmanagers{
		incidents: r.incidents, message: message, context: a.outbox.Context,
		allow: r.outbox.Allow, watches: r.watches, log: r.log,
	}.senders(a.cfg)
	if err != nil {
		return err
	}
	a.receivers = append(a.receivers, digestReceivers(a.cfg, senders)...)
	a.outbox.Links = func(i *detect.Incident) []alerting.Link {
		out := links(i)
		for _, s := range senders {
			out = append(out, alerting.Link{Title: "Silence in " + s.Name(), URL: s.SilenceURL(message(i))})
		}
		return out
	}
	a.config.Tell = func(incidents []detect.Incident) {
		r.tell(incidents)
		poke(senders)
	}
	a.tell = func(ctx context.Context) []func() error {
		r.senders.Store(&senders)
		runs := []func() error{
			func() error { return r.outbox.Run(ctx) },
			func() error { return beats(ctx, r.outbox, a.cfg.Alerting.Heartbeat.Receivers, r.watches, r.seen) },
		}
		for _, listen := range listeners(a.cfg, a.receivers, r.desk().press) {
			runs = append(runs, func() error {
				listen(ctx)
				return nil
			})
		}
		for _, s := range senders {
			runs = append(runs, func() error { return s.Run(ctx) })
		}
		return runs
	}
	return nil
}

// configure says who is told from now on, and tells whoever is new of what is open.
func (r *fleetRecorder) configure(a *asking) error {
	err := r.outbox.Configure(a.outbox, a.receivers...)
	if err == nil {
		r.outbox.Take(open(r.role.View().Incidents))
	}
	return err
}

func poke(senders []*alertmanager.Sender) {
	for _, s := range senders {
		s.Poke()
	}
}

// incidents are those of the cluster, and of who rehearses.
func (r *fleetRecorder) incidents() []detect.Incident {
	return append(r.outbox.Drills(), r.role.View().Incidents...)
}

func (r *fleetRecorder) incident(id string) *detect.Incident {
	for _, i := range r.role.View().Incidents {
		if i.ID == id {
			return &i
		}
	}
	return nil
}

// watches reports whether there are looks at the nodes.
func (r *fleetRecorder) watches() bool { return time.Since(r.role.View().Time).Abs() < longStill }

// seen says what is watched, for a sign of life.
func (r *fleetRecorder) seen() string {
	v := r.role.View()
	gpus, open := 0, 0
	for i := range v.Nodes {
		gpus += v.Nodes[i].GPUs
	}
	for i := range v.Incidents {
		if v.Incidents[i].State == detect.Firing {
			open++
		}
	}
	said := fmt.Sprintf("%d GPUs on %d nodes are watched", gpus, len(v.Nodes))
	if open > 0 {
		said += fmt.Sprintf(", %d incidents are open", open)
	}
	return said
}

// reach is how far an incident reaches on its nodes: of many on the first of them. Money
// is the agents' to tell.
func (r *fleetRecorder) reach(cfg *config.Config, i *detect.Incident) alerting.Context {
	c := alerting.Context{Cluster: cfg.Cluster}
	all := &collector.Snapshot{}
	seen := map[string]bool{}
	v := r.role.View()
	for k := range i.Members {
		name := i.Members[k].Node
		if seen[name] || len(seen) >= reachNodes {
			continue
		}
		seen[name] = true
		if s := v.Snapshot(name); s != nil {
			all.Time = s.Time
			all.GPUs = append(all.GPUs, s.GPUs...)
			all.Endpoints = append(all.Endpoints, s.Endpoints...)
		}
	}
	of := reachOf(all, i)
	c.Owners, c.GPUs, c.Models = of.owners(), len(of.held), of.models(all)
	return c
}

// desk takes what people say to the role. A drill is about the cluster.
func (r *fleetRecorder) desk() *desk {
	return &desk{
		outbox: r.outbox, log: r.log,
		incidents: func() []detect.Incident { return r.role.View().Incidents },
		latest:    func() *collector.Snapshot { return nil },
		node:      func() string { return "cluster" },
		senders: func() []*alertmanager.Sender {
			if senders := r.senders.Load(); senders != nil {
				return *senders
			}
			return nil
		},
	}
}
