package alertmanager

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting/alert"
	"gpuvigil/internal/text"
)

// What an Alertmanager has when a sender begins was told by the one before, and is
// followed to its end, also if it may not be told anew: who snoozes an incident that
// people know of must not seem to have ended it by a restart.

// recall asks what is there until an Alertmanager answers, and has all of them look again.
func (s *Sender) recall(ctx context.Context) {
	pause := firstBackoff
	for said := ""; ctx.Err() == nil; pause = min(2*pause, s.cfg.Resend) {
		there, err := s.whatIsThere(ctx)
		if err == nil {
			s.mu.Lock()
			s.there = there
			s.mu.Unlock()
			s.Poke()
			return
		}
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			s.cfg.Log.Warn("what was told before is not known: what is snoozed or held by maintenance may end in Alertmanager", "receiver", s.cfg.Name, "err", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// whatIsThere returns what each alert of ours is known by, from the first Alertmanager that
// answers.
func (s *Sender) whatIsThere(ctx context.Context) (there map[model.Fingerprint]bool, err error) {
	for _, t := range s.targets {
		var all []struct {
			Labels model.LabelSet `json:"labels"`
		}
		if err = t.get(ctx, t.ours(nil), &all); err != nil {
			continue
		}
		there = map[model.Fingerprint]bool{}
		for _, a := range all {
			there[identityOf(alert.Alert{Labels: a.Labels})] = true
		}
		return there, nil
	}
	return nil, err
}

func identityOf(a alert.Alert) model.Fingerprint { return a.Identity().Fingerprint() }

// ours is the URL of our alerts in an Alertmanager, of which more says which.
func (t *target) ours(more url.Values) *url.URL {
	u := t.base.JoinPath("api/v2/alerts")
	q := url.Values{"filter": {fmt.Sprintf("source=%q", alert.Source)}}
	if t.cfg.Options.Cluster != "" {
		q.Add("filter", fmt.Sprintf("cluster=%q", text.Clean(t.cfg.Options.Cluster, 256)))
	}
	maps.Copy(q, more)
	u.RawQuery = q.Encode()
	return u
}

// inherit returns what was there before us, once.
func (t *target) inherit() map[model.Fingerprint]bool {
	t.Sender.mu.Lock()
	defer t.Sender.mu.Unlock()
	if t.inherited || t.there == nil {
		return nil
	}
	t.inherited = true
	return t.there
}
