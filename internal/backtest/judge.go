package backtest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// aftermath is how long what follows a fault's end may still be told of.
const aftermath = 15 * time.Minute

// Truth is what was really wrong: what a finding is right or false by.
type Truth struct {
	Kind     string         `json:"kind"` // of fault, in any words
	Node     string         `json:"node,omitempty"`
	Subjects []string       `json:"subjects,omitempty"` // uuids, owners, URLs, any of them; none: all of the node
	Rules    []rules.ID     `json:"rules"`              // any of them finds it
	Also     []rules.ID     `json:"also,omitempty"`     // are right as well, and find nothing
	Least    rules.Severity `json:"least,omitempty"`    // that finds it; without one info does
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
}

// finds reports whether the finding tells of the truth while it holds.
func (t *Truth) finds(f *detect.Finding) bool {
	return slices.Contains(t.Rules, f.Rule) && f.Severity >= t.Least && t.concerns(f) && !f.Fired.Before(t.From) && !f.Fired.After(t.To)
}

// explains reports whether the finding is no false one in view of the truth.
func (t *Truth) explains(f *detect.Finding) bool {
	if f.Fired.Before(t.From) || f.Since.After(t.To.Add(aftermath)) || t.Node != "" && f.Node != t.Node {
		return false
	}
	return slices.Contains(t.Rules, f.Rule) && t.concerns(f) || slices.Contains(t.Also, f.Rule)
}

// concerns reports whether the finding is about what the truth is about. One about the
// node concerns all that is on it.
func (t *Truth) concerns(f *detect.Finding) bool {
	if t.Node != "" && f.Node != t.Node {
		return false
	}
	if len(t.Subjects) == 0 || f.Subject.Kind == "node" {
		return true
	}
	return slices.ContainsFunc(t.Subjects, func(s string) bool {
		return s == f.Owner.ID || s == f.Subject.String() || strings.Contains(f.Subject.ID, s)
	})
}

// Told is an incident that an engine opened, as it was at its worst.
type Told struct {
	Incident detect.Incident
	First    time.Time // when its first finding fired
}

// Watch runs an engine over snapshots and keeps what it tells.
type Watch struct {
	Engine *detect.Engine
	told   map[string]*Told
	order  []string
	last   time.Time
	// Watched is the time that snapshots stand for, times the GPUs in them.
	Watched time.Duration
}

// NewWatch returns a Watch of the engine.
func NewWatch(e *detect.Engine) *Watch { return &Watch{Engine: e, told: map[string]*Told{}} }

// Observe lets the engine judge a snapshot.
func (w *Watch) Observe(s *collector.Snapshot) {
	const longest = 5 * time.Minute // that a snapshot stands for
	if passed := s.Time.Sub(w.last) - s.Step; !w.last.IsZero() && passed > 0 {
		w.Watched += min(passed, longest) * time.Duration(len(s.GPUs))
	}
	w.last = s.Time
	for _, in := range w.Engine.Observe(s) {
		t := w.told[in.ID]
		if t == nil {
			t = &Told{First: in.Opened}
			w.told[in.ID] = t
			w.order = append(w.order, in.ID)
		}
		worst := max(t.Incident.Severity, in.Severity)
		members := merged(t.Incident.Members, in.Members)
		t.Incident = in
		t.Incident.Severity, t.Incident.Members = worst, members
	}
}

// merged has the members as they are now, the root cause first, and then those that
// left their incident: they were told of all the same.
func merged(old, now []detect.Finding) []detect.Finding {
	out := slices.Clone(now)
	for _, f := range old {
		if !slices.ContainsFunc(now, func(n detect.Finding) bool { return n.Key() == f.Key() && n.Fired.Equal(f.Fired) }) {
			out = append(out, f)
		}
	}
	return out
}

// Told returns the incidents in the order in which they were opened.
func (w *Watch) Told() []Told {
	out := make([]Told, 0, len(w.order))
	for _, id := range w.order {
		out = append(out, *w.told[id])
	}
	return out
}

// Found is a truth with whether it was found, by what and how late.
type Found struct {
	Truth Truth         `json:"truth"`
	Rule  rules.ID      `json:"rule,omitempty"` // that found it first; empty: missed
	After time.Duration `json:"after,omitempty"`
}

// Judgement is what incidents are worth in view of the truth.
type Judgement struct {
	Found []Found // one for each truth
	False []Told  // incidents of which no finding is right
	Right []Told
}

// Judge holds incidents against the truths. An incident is right if any of its
// findings is: what a person looks at is the incident.
func Judge(truths []Truth, told []Told) Judgement {
	var j Judgement
	for _, t := range truths {
		found := Found{Truth: t}
		var first time.Time
		for i := range told {
			for k := range told[i].Incident.Members {
				f := &told[i].Incident.Members[k]
				if t.finds(f) && (first.IsZero() || f.Fired.Before(first)) {
					first = f.Fired
					found.Rule, found.After = f.Rule, f.Fired.Sub(t.From)
				}
			}
		}
		j.Found = append(j.Found, found)
	}
	for _, in := range told {
		if !slices.ContainsFunc(in.Incident.Members, func(f detect.Finding) bool { return f.Suppressed == "" }) {
			continue // nobody is told of it
		}
		right := slices.ContainsFunc(in.Incident.Members, func(f detect.Finding) bool {
			return slices.ContainsFunc(truths, func(t Truth) bool { return t.explains(&f) })
		})
		if right {
			j.Right = append(j.Right, in)
		} else {
			j.False = append(j.False, in)
		}
	}
	return j
}

// quantileOf returns the nearest-rank quantile of durations; 0 if there are none.
func quantileOf(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.SortedFunc(slices.Values(of), cmp.Compare[time.Duration])
	return of[min(len(of)-1, int(q*float64(len(of))))]
}
