package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/alertmanager"
	"gpuvigil/alerting/post"
	"gpuvigil/alerting/webhook"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

var heartbeat = vm.GetOrCreateGauge(metric.Heartbeat.Series(), nil)

// given returns a secret that the configuration names, nil if it names none.
func given(file, env string) post.Secret {
	if file == "" && env == "" {
		return nil
	}
	return secret(file, env)
}

// alertServer is how a server that alerts are sent to is talked to.
func alertServer(s *config.Server) post.Config {
	return post.Config{
		CAFile: s.TLS.CAFile, ServerName: s.TLS.ServerName, Insecure: s.TLS.Insecure, CertFile: s.TLS.CertFile, KeyFile: s.TLS.KeyFile,
		Token: given(s.BearerTokenFile, s.BearerTokenEnv), User: s.Username, Password: given(s.PasswordFile, s.PasswordEnv),
		Timeout: time.Duration(s.Timeout),
	}
}

// webhookNotifier returns the way to a server that the configuration names. It reads
// the secrets once, so that one that cannot be read stops the start.
func webhookNotifier(cfg *config.Config, w *config.Webhook) (*webhook.Webhook, error) {
	to := given(w.URLFile, w.URLEnv)
	if to == nil {
		to = func() (string, error) { return w.URL, nil }
	}
	return webhook.New(webhook.Config{
		Name: w.Name, URL: to, Key: given(w.KeyFile, w.KeyEnv), Server: alertServer(&w.Server),
		Options: alert.Options{Cluster: cfg.Cluster, Labels: w.Labels}, ExternalURL: cfg.Links.Page,
	})
}

// alertmanagers says who repeats what is so, and where that is asked.
type alertmanagers struct {
	incidents func() []detect.Incident
	message   func(*detect.Incident) alerting.Message // without context
	context   func(*detect.Incident) alerting.Context
	allow     func(receiver string, least rules.Severity, i *detect.Incident) bool
	watches   func() bool // whether incidents are still being found
	log       *slog.Logger
}

// senders returns one sender for each cluster of Alertmanagers that the configuration
// names.
func (a alertmanagers) senders(cfg *config.Config) ([]*alertmanager.Sender, error) {
	var out []*alertmanager.Sender
	began := time.Now()
	known := &reaches{of: a.context, by: map[string]*known{}}
	for i := range cfg.Alerting.Alertmanager {
		t := &cfg.Alerting.Alertmanager[i]
		options := alert.Options{Cluster: cfg.Cluster, Labels: t.Labels}
		c := alertmanager.Config{
			Name: t.Name, URLs: t.URLs, Server: alertServer(&t.Server), Resend: time.Duration(t.Resend), Look: time.Duration(*t.ReadBack),
			Options: options, Least: *t.MinSeverity, Incidents: a.incidents, Log: a.log,
			Message: func(i *detect.Incident) alerting.Message {
				m := a.message(i)
				m.Context = known.context(i)
				return m
			},
			Allow: func(i *detect.Incident) bool { return a.allow(t.Name, *t.MinSeverity, i) },
		}
		if cfg.Alerting.Heartbeat.Alertmanager {
			life := alert.Of(a.message(alerting.SignOfLife(cfg.Node, "", began)), options)
			c.Watchdog = func() *alert.Alert {
				if !a.watches() {
					return nil
				}
				return &life
			}
		}
		s, err := alertmanager.New(c)
		if err != nil {
			return nil, fmt.Errorf("alerting.alertmanager[%d]: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// digestReceivers are the ways of digests to Alertmanagers, which are told all else without
// an outbox.
func digestReceivers(cfg *config.Config, senders []*alertmanager.Sender) []alerting.Receiver {
	var out []alerting.Receiver
	for _, s := range senders {
		if slices.Contains(cfg.Alerting.Digest.Receivers, s.Name()) {
			out = append(out, alerting.Receiver{Name: s.Name() + "/digest", DigestOf: s.Name(), Notifier: s.Digests()})
		}
	}
	return out
}

// reaches knows how far the incidents reach that Alertmanagers are told of: it is worked
// out when one changes, and what it reached at its worst is kept until it is forgotten.
type reaches struct {
	of func(*detect.Incident) alerting.Context

	mu sync.Mutex
	by map[string]*known // by incident
}

type known struct {
	updated time.Time
	asked   time.Time
	context alerting.Context
}

func (r *reaches) context(i *detect.Incident) alerting.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	k := r.by[i.ID]
	if k != nil && k.updated.Equal(i.Updated) {
		k.asked = now
		return k.context
	}
	maps.DeleteFunc(r.by, func(_ string, k *known) bool { return now.Sub(k.asked) > time.Hour })
	c := r.of(i)
	if k != nil {
		c = c.Following(&k.context)
	}
	r.by[i.ID] = &known{i.Updated, now, c}
	return c
}

// beats sends signs of life through the outbox until ctx ends, as long as watches says
// that there is life.
func beats(ctx context.Context, outbox *alerting.Outbox, receivers map[string]config.Duration, watches func() bool, seen func() string) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, every := range receivers {
		group.Go(func() error {
			for ctx.Err() == nil {
				wait := lookAgain
				if watches() {
					wait = outbox.Beat(name, time.Duration(every), seen())
				}
				t := time.NewTimer(wait)
				select {
				case <-ctx.Done():
				case <-t.C:
				}
				t.Stop()
			}
			return nil
		})
	}
	return group.Wait()
}

// lookAgain is how often it is looked whether what was still has begun again.
const lookAgain = 5 * time.Second

// longStill is for how long no snapshot may be judged before nobody watches any more.
const longStill = 2 * time.Minute

// watches reports whether snapshots are judged: an earlier agent's are no sign of life.
func (p *pipeline) watches() bool {
	return p.sampler.Latest() != nil && time.Since(p.engine.View().Time).Abs() < longStill
}

// settled reports whether each source has answered or has had time to: a sign of life
// before that would count no GPUs.
func (p *pipeline) settled() bool {
	if time.Since(p.began) > longStill {
		return true
	}
	s := p.sampler.Latest()
	return s != nil && !slices.ContainsFunc(s.Sources, func(src collector.SourceState) bool { return src.Expected && src.Last.IsZero() })
}

// seen says what is watched, for a sign of life.
func (p *pipeline) seen() string {
	gpus := 0
	if s := p.sampler.Latest(); s != nil {
		gpus = len(s.GPUs)
	}
	said := fmt.Sprintf("%d GPUs are watched", gpus)
	if n := len(firingOf(p.engine.View())); n > 0 {
		said += fmt.Sprintf(", %d incidents are open", n)
	}
	return said
}

func firingOf(v *detect.View) (open []detect.Incident) {
	for _, i := range v.Incidents {
		if i.State == detect.Firing {
			open = append(open, i)
		}
	}
	return open
}

// message adds to an incident what Alertmanager is told with it.
func (p *pipeline) message(i *detect.Incident) alerting.Message {
	return alerting.Message{Incident: *i, Rule: rules.Get(i.Rule), Node: p.cfg.Node, Links: p.links(i)}
}

// mutes returns what Alertmanager keeps from people, by incident.
func (p *pipeline) mutes() map[string][]server.Mute {
	all := map[string][]server.Mute{}
	for _, s := range p.senders {
		for id, mutes := range s.Mutes() {
			for _, m := range mutes {
				all[id] = append(all[id], server.Mute{Receiver: s.Name(), By: m.By, ID: m.ID, Until: m.Until, Comment: m.Comment})
			}
		}
	}
	return all
}

// checkTargetSecrets reads each secret and certificate of Alertmanagers and webhooks
// once.
func checkTargetSecrets(c *config.Config) error {
	var errs []error
	for i := range c.Alerting.Webhook {
		w := &c.Alerting.Webhook[i]
		if _, err := webhookNotifier(c, w); err != nil {
			errs = append(errs, placed(c, fmt.Sprintf("alerting.webhook[%d]", i), fmt.Errorf("receiver %s: %w", w.Name, err)))
		}
	}
	for i := range c.Alerting.Alertmanager {
		t := &c.Alerting.Alertmanager[i]
		if _, err := post.New(alertServer(&t.Server)); err != nil {
			errs = append(errs, placed(c, fmt.Sprintf("alerting.alertmanager[%d]", i), fmt.Errorf("receiver %s: %w", t.Name, err)))
		}
	}
	return errors.Join(errs...)
}
