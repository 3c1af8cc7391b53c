package alertmanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// Ways in which Alertmanager keeps an alert from people.
const (
	BySilence    = "silence"
	ByInhibition = "inhibition"
	ByTime       = "time_interval"
)

var ways = []string{BySilence, ByInhibition, ByTime}

const (
	maxSilences = 50 // that are asked for one by one
	maxMutes    = 10 // of one alert
	commentSize = 120
)

// silenceName is what the id of a silence may be: it becomes a part of a URL.
var silenceName = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// Mute says that people are not told of an incident, and why.
type Mute struct {
	By      string    `json:"by"`                // silence, inhibition or time_interval
	ID      string    `json:"id,omitempty"`      // of the silence, the alert that inhibits it, or the interval's name
	Until   time.Time `json:"until,omitzero"`    // of a silence
	Comment string    `json:"comment,omitempty"` // of a silence, as its author wrote it
}

// Mutes returns, by the id of the incident, what keeps its alert from people. What
// cannot be read from any Alertmanager is not in it.
func (s *Sender) Mutes() map[string][]Mute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mutes)
}

// remember keeps which alert is which incident's, for the answers of Alertmanager.
func (s *Sender) remember(firing map[string]*one) {
	known := make(map[string]string, len(firing))
	for id, o := range firing {
		if o.incident != "" {
			known[id] = o.incident
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
}

// watch reads back what Alertmanager makes of our alerts, from the first that answers.
func (s *Sender) watch(ctx context.Context) {
	if s.cfg.Look <= 0 {
		return
	}
	for _, way := range ways {
		name := metric.AlertsMuted.Series(s.cfg.Name, way)
		vm.GetOrCreateGauge(name, func() float64 { return float64(s.mutedBy(way)) })
		defer vm.UnregisterMetric(name)
	}
	tick := time.NewTicker(s.cfg.Look)
	defer tick.Stop()
	said := ""
	for {
		mutes, err := s.look(ctx)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.mutes = mutes
		s.mu.Unlock()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			s.cfg.Log.Warn("what is silenced in Alertmanager is not known", "receiver", s.cfg.Name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// mutedBy counts the incidents that are kept from people in one way.
func (s *Sender) mutedBy(way string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, mutes := range s.mutes {
		if slices.ContainsFunc(mutes, func(m Mute) bool { return m.By == way }) {
			n++
		}
	}
	return n
}

// look asks the Alertmanagers in turn until one answers: those of a cluster share their
// silences.
func (s *Sender) look(ctx context.Context) (mutes map[string][]Mute, err error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if len(known) == 0 {
		return nil, nil
	}
	for _, t := range s.targets {
		if mutes, err = t.look(ctx, known); err == nil {
			return mutes, nil
		}
	}
	return nil, err
}

// gettable is what GET /api/v2/alerts says of an alert, of which we read how it stands.
type gettable struct {
	Fingerprint string `json:"fingerprint"`
	Status      struct {
		State       string   `json:"state"` // unprocessed, active or suppressed
		SilencedBy  []string `json:"silencedBy"`
		InhibitedBy []string `json:"inhibitedBy"`
		MutedBy     []string `json:"mutedBy"`
	} `json:"status"`
}

// silence is what GET /api/v2/silence/ID says.
type silence struct {
	EndsAt  time.Time `json:"endsAt"`
	Comment string    `json:"comment"`
}

// look reads how our alerts stand at one Alertmanager.
func (t *target) look(ctx context.Context, known map[string]string) (map[string][]Mute, error) {
	var all []gettable
	if err := t.get(ctx, t.ours(url.Values{"active": {"false"}}), &all); err != nil {
		return nil, err
	}
	return mutesOf(all, known, func(id string) (s silence, err error) {
		return s, t.get(ctx, t.base.JoinPath("api/v2/silence", id), &s)
	})
}

// mutesOf picks what keeps our alerts from people, and asks for each silence once.
func mutesOf(all []gettable, known map[string]string, ask func(id string) (silence, error)) (map[string][]Mute, error) {
	mutes := map[string][]Mute{}
	silences := map[string]silence{}
	for _, g := range all {
		id := known[g.Fingerprint]
		if id == "" || g.Status.State != "suppressed" {
			continue
		}
		for _, by := range g.Status.SilencedBy {
			s, asked := silences[by]
			if !asked && len(silences) < maxSilences && silenceName.MatchString(by) {
				var err error
				if s, err = ask(by); err != nil {
					return nil, err
				}
				silences[by] = s
			}
			mutes[id] = append(mutes[id], Mute{By: BySilence, ID: text.Clean(by, commentSize), Until: s.EndsAt, Comment: text.Clean(s.Comment, commentSize)})
		}
		for way, names := range map[string][]string{ByInhibition: g.Status.InhibitedBy, ByTime: g.Status.MutedBy} {
			for _, name := range names {
				mutes[id] = append(mutes[id], Mute{By: way, ID: text.Clean(name, commentSize)})
			}
		}
		slices.SortFunc(mutes[id], func(a, b Mute) int {
			return cmp.Or(cmp.Compare(slices.Index(ways, a.By), slices.Index(ways, b.By)), b.Until.Compare(a.Until), cmp.Compare(a.ID, b.ID))
		})
		mutes[id] = mutes[id][:min(len(mutes[id]), maxMutes)]
	}
	return mutes, nil
}

// get reads one answer of the API.
func (t *target) get(ctx context.Context, u *url.URL, into any) error {
	answer, err := t.client.Do(ctx, http.MethodGet, u.String(), http.Header{"Accept": {"application/json"}}, nil)
	if err == nil {
		err = answer.Judge(time.Now())
	}
	if err == nil {
		err = json.Unmarshal(answer.Body, into)
	}
	if err != nil {
		return fmt.Errorf("ask Alertmanager at %s: %w", t.base.Host, err)
	}
	return nil
}

// Check asks each of the Alertmanagers what it is, and says it.
func (s *Sender) Check(ctx context.Context) (string, error) {
	var said []string
	var errs []error
	for _, t := range s.targets {
		var answer struct {
			Cluster struct {
				Status string
				Peers  []struct{ Name string }
			}
			VersionInfo struct{ Version string }
		}
		if err := t.get(ctx, t.base.JoinPath("api/v2/status"), &answer); err != nil {
			errs = append(errs, err)
			continue
		}
		said = append(said, text.Clean(fmt.Sprintf("Alertmanager %s at %s, cluster %s with %d members",
			answer.VersionInfo.Version, t.base.Host, answer.Cluster.Status, len(answer.Cluster.Peers)), 200))
	}
	return strings.Join(said, "; "), errors.Join(errs...)
}
