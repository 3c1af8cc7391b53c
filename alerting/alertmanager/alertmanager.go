// Package alertmanager tells incidents to Alertmanager through its API v2.
//
// It repeats what is so, as Prometheus does, and keeps no queue: the engine's incidents
// are the truth. An alert that fires is sent again and again and says that it ends
// several repetitions from now, so that it ends by itself if nobody is left to repeat
// it. One that has ended is repeated for a quarter of an hour with its end, so that
// none is open for longer than it was. Several Alertmanagers of one cluster are each
// told everything, by goroutines of their own: one that is down delays no other.
//
// What Alertmanager makes of the alerts, who is silenced and until when, is read back.
package alertmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/post"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

const (
	repeatEnded = 15 * time.Minute // an alert that has ended is repeated for so long
	endsAhead   = 4                // an alert that fires ends so many repetitions from now
)

// Config is how a Sender works. Name, URLs, Incidents, Message and Log are required.
type Config struct {
	Name  string         // of the receiver, in metrics and logs
	Least rules.Severity // what is below is not told; for who asks
	URLs  []string       // of each Alertmanager of one cluster, with a path prefix if it has one

	Server post.Config // credentials and certificates, the same for all of them
	Resend time.Duration
	Look   time.Duration // how often silences and inhibitions are read back; 0: never

	Options alert.Options

	// Incidents returns those that are open and those that have ended lately.
	Incidents func() []detect.Incident
	// Message adds to an incident what is said with it.
	Message func(*detect.Incident) alerting.Message
	// Allow says whether an incident may be told now; nil allows all. What was told once
	// is followed to its end, whatever Allow says then.
	Allow func(*detect.Incident) bool
	// Watchdog returns an alert that fires as long as all is well with ourselves, for
	// somebody to miss; nil, or an answer of nil: none fires.
	Watchdog func() *alert.Alert

	Log *slog.Logger
}

// Sender tells one cluster of Alertmanagers what is so.
type Sender struct {
	cfg     Config
	began   time.Time
	targets []*target

	mu    sync.Mutex
	mutes map[string][]Mute // by incident
	known map[string]string // fingerprint of each alert that fires: its incident

	there map[model.Fingerprint]bool // what our alerts were known by that were there before us; nil: not known yet
}

// New checks the configuration and reads each secret once.
func New(cfg Config) (*Sender, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("no URL of an Alertmanager: configure at least one")
	}
	if cfg.Resend <= 0 {
		cfg.Resend = time.Minute
	}
	s := &Sender{cfg: cfg, began: time.Now(), known: map[string]string{}}
	for _, raw := range cfg.URLs {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("the URL of an Alertmanager is not one (not shown, it may hold a password): it looks like http://alertmanager:9093")
		}
		client, err := post.New(cfg.Server)
		if err != nil {
			return nil, fmt.Errorf("reach Alertmanager at %s: %w", u.Host, err)
		}
		name := cfg.Name
		if len(cfg.URLs) > 1 {
			name += "/" + u.Host
		}
		s.targets = append(s.targets, newTarget(s, name, u, client))
	}
	return s, nil
}

// Name returns the receiver's name.
func (s *Sender) Name() string { return s.cfg.Name }

// Least returns how severe an incident has to be to be told.
func (s *Sender) Least() rules.Severity { return s.cfg.Least }

// Poke says that an incident has changed: it is told without waiting for the next
// repetition. It never blocks.
func (s *Sender) Poke() {
	for _, t := range s.targets {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// Run repeats what is so until ctx ends. Nothing is sent at the end: what fires goes on
// being true, and ends by itself if nobody takes over.
func (s *Sender) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for _, t := range s.targets {
		group.Go(func() { t.run(ctx) })
	}
	group.Go(func() { s.recall(ctx) })
	group.Go(func() { s.watch(ctx) })
	group.Wait()
	for _, t := range s.targets {
		t.client.Close()
	}
	return nil
}

// one is an alert and whose it is.
type one struct {
	alert.Alert
	incident string    // its id; empty for the watchdog
	updated  time.Time // of the state that it tells
	allowed  bool      // to be told to who does not know of it
}

// current returns the alerts that fire and those that have ended, by their labels. Two
// incidents that cannot be told apart by their labels are one alert, which fires while
// either does, and tells of the one that was opened first.
func (s *Sender) current(now time.Time) (firing, ended map[string]*one) {
	firing, ended = map[string]*one{}, map[string]*one{}
	incidents := slices.Clone(s.cfg.Incidents())
	slices.SortStableFunc(incidents, func(a, b detect.Incident) int { return cmp.Compare(b.Opened.UnixNano(), a.Opened.UnixNano()) })
	for k := range incidents {
		i := &incidents[k]
		if !heard(i) {
			continue
		}
		o := &one{Alert: alert.Of(s.cfg.Message(i), s.cfg.Options), incident: i.ID, updated: i.Updated, allowed: s.cfg.Allow == nil || s.cfg.Allow(i)}
		id := fingerprint(o)
		if i.State == detect.Firing {
			firing[id] = o
		} else if other := ended[id]; now.Sub(i.Resolved) < repeatEnded && (other == nil || o.EndsAt.After(other.EndsAt)) {
			ended[id] = o
		}
	}
	if s.cfg.Watchdog != nil {
		if a := s.cfg.Watchdog(); a != nil {
			o := &one{Alert: *a, updated: a.StartsAt, allowed: true}
			firing[fingerprint(o)] = o
		}
	}
	s.remember(firing)
	return firing, ended
}

func fingerprint(o *one) string { return o.Labels.Fingerprint().String() }

// heard reports whether anybody is to hear of the incident at all.
func heard(i *detect.Incident) bool {
	return slices.ContainsFunc(i.Members, func(f detect.Finding) bool { return f.Suppressed == "" })
}

// SilenceURL returns where a person can silence the alert of a message's incident in the
// first of the Alertmanagers, whatever its severity.
func (s *Sender) SilenceURL(m alerting.Message) string {
	u := *s.targets[0].base
	u.User = nil
	return SilenceURL(u.String(), alert.Of(m, s.cfg.Options))
}

// SilenceURL returns the page of an Alertmanager on which a silence of the alert is
// begun.
func SilenceURL(base string, a alert.Alert) string {
	identity := a.Identity()
	var matchers []string
	for name, value := range identity {
		matchers = append(matchers, fmt.Sprintf("%s=%q", name, value))
	}
	slices.Sort(matchers)
	return strings.TrimSuffix(base, "/") + "/#/silences/new?filter=" + url.PathEscape("{"+strings.Join(matchers, ",")+"}")
}
