package alerting

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/common/model"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Window is a time in which what is wrong with certain things rings nobody. What still
// fires when it is over is told then.
type Window struct {
	Name      string
	Matchers  labels.Matchers
	From, To  time.Time
	Intervals []string // names of time intervals, in place of From and To
}

// GateConfig is what a gate goes by.
type GateConfig struct {
	Cluster string
	Node    string // of findings that name none

	// Shadow is for how long after the first start only pages of rules that may page
	// are sent, and what Promoted says. Zero sends everything from the start.
	Shadow   time.Duration
	Promoted map[rules.ID]bool // rules that the user wants to hear of at once

	Route       *Route // nil: every receiver hears of everything
	Intervals   map[string][]timeinterval.TimeInterval
	Maintenance []Window
}

// Gate decides what is sent to whom. There is one for all ways of telling, so that an
// outbox and a sender of its own never contradict each other. It may be used from several
// goroutines.
type Gate struct {
	mu    sync.RWMutex
	cfg   GateConfig
	first time.Time // when the agent was first started
	marks map[string]*Mark
	begun map[string]*Begun // maintenance, by name
}

// Allow reports whether the receiver of this name is to hear of the incident now: it is
// severe enough, a route leads there, and neither the first week nor maintenance, a
// snooze or a time interval keeps it back. Of what was allowed once, the end is to be
// told whatever Allow says then.
func (g *Gate) Allow(receiver string, least rules.Severity, i *detect.Incident) bool {
	return g.judge(receiver, least, i, time.Now()).outcome == told
}

// outcome is what becomes of an incident at one receiver.
type outcome uint8

const (
	told      outcome = iota
	beneath           // less severe than the receiver wants
	elsewhere         // no route leads to the receiver
	shadowed          // kept back in the first week
	held              // kept back for now
)

// decision is an outcome with what goes with it.
type decision struct {
	outcome
	why      string        // it is held
	repeat   time.Duration // see Route
	mentions []string      // see Route; nil: the receiver's own
}

// judge decides about one receiver.
func (g *Gate) judge(receiver string, least rules.Severity, i *detect.Incident, now time.Time) decision {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if i.Severity < least {
		return decision{outcome: beneath}
	}
	sets := labelSets(i, g.cfg.Cluster, g.cfg.Node)
	var d decision
	var routes []*Route
	if g.cfg.Route != nil {
		if routes = routesTo(g.cfg.Route, receiver, sets); len(routes) == 0 {
			return decision{outcome: elsewhere}
		}
		for _, r := range routes {
			if r.Repeat > 0 && (d.repeat == 0 || r.Repeat < d.repeat) {
				d.repeat = r.Repeat
			}
			for _, m := range r.Mentions {
				if !slices.Contains(d.mentions, m) {
					d.mentions = append(d.mentions, m)
				}
			}
		}
	}
	if g.inShadow(i, now) {
		return decision{outcome: shadowed}
	}
	if d.why = g.heldBy(i, sets, routes, now); d.why != "" {
		d.outcome = held
	}
	return d
}

// heldBy says what keeps an incident back for now, or nothing. The caller holds g.mu.
func (g *Gate) heldBy(i *detect.Incident, sets []model.LabelSet, routes []*Route, now time.Time) string {
	if name := g.maintained(sets, now); name != "" {
		return "maintenance " + name
	}
	if m := g.marks[i.ID]; m.snoozes(i, now) {
		return "snoozed until " + m.Until.UTC().Format("15:04 MST")
	}
	why := ""
	for _, r := range routes {
		by := g.mutedBy(r, now)
		if by == "" {
			return ""
		}
		why = by
	}
	return why
}

// maintained names the windows that now are, if they cover all that the incident is about.
func (g *Gate) maintained(sets []model.LabelSet, now time.Time) string {
	name, windows := "", g.all(now)
	for _, set := range sets {
		k := slices.IndexFunc(windows, func(w Window) bool { return g.within(&w, now) && w.Matchers.Matches(set) })
		if k < 0 {
			return ""
		}
		if name == "" {
			name = windows[k].Name
		}
	}
	return name
}

func (g *Gate) within(w *Window, now time.Time) bool {
	if len(w.Intervals) > 0 {
		return slices.ContainsFunc(w.Intervals, func(name string) bool { return g.contains(name, now) })
	}
	return !now.Before(w.From) && now.Before(w.To)
}

// mutedBy says which time interval keeps a route silent, or nothing.
func (g *Gate) mutedBy(r *Route, now time.Time) string {
	for _, name := range r.Mute {
		if g.contains(name, now) {
			return "time interval " + name
		}
	}
	if len(r.Active) > 0 && !slices.ContainsFunc(r.Active, func(name string) bool { return g.contains(name, now) }) {
		return fmt.Sprintf("outside of the time interval %s", r.Active[0])
	}
	return ""
}

func (g *Gate) contains(name string, now time.Time) bool {
	return slices.ContainsFunc(g.cfg.Intervals[name], func(t timeinterval.TimeInterval) bool { return t.ContainsTime(now.UTC()) })
}

// inShadow reports whether the incident is kept back because the agent is new. The caller
// holds g.mu.
func (g *Gate) inShadow(i *detect.Incident, now time.Time) bool {
	if now.Sub(g.first) >= g.cfg.Shadow || g.cfg.Promoted[i.Rule] || i.Drill {
		return false
	}
	rule := rules.Get(i.Rule)
	return rule == nil || !rule.Pages || i.Severity < rules.Page
}

// set replaces what the gate goes by.
func (g *Gate) set(cfg GateConfig, first time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg, g.first = cfg, first
}
