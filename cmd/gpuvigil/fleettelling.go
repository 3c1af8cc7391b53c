package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// tellsFor says how the cluster role tells people by a configuration.
func (r *fleetRecorder) tellsFor(a *asking) error {
	a.outbox.Current, a.outbox.Context = r.incident, func(i *detect.Incident) alerting.Context { return reachAcross(a.cfg.Cluster, r.role.View(), i) }
	a.outbox.Digest = r.digest(a)
	if a.charts != nil {
		a.charts.view = r.role.View
		a.outbox.Chart = func(i *detect.Incident) *alerting.Chart { return a.charts.of(context.Background(), i) }
	}
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
	a.config.Follows = r.follows
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

// watches reports whether there are looks at the nodes, or at the schedulers where no
// nodes are read. Nodes may be read each five minutes.
func (r *fleetRecorder) watches() bool { return time.Since(r.role.Watched()).Abs() < 3*longStill }

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
		elsewhere: func() error {
			if r.follows() {
				leader := cmp.Or(r.elector.Leader(), "another one")
				return fmt.Errorf("this replica tells nobody, as %s leads: say it there", leader)
			}
			return nil
		},
	}
}
