package alerting

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
)

const (
	drillsKey = "drills"
	maxDrills = 20

	// keepDrill is for how long the end of a drill is kept: senders without an outbox
	// repeat it.
	keepDrill = 30 * time.Minute

	// MaxDrill is for how long a drill goes on at most.
	MaxDrill = 24 * time.Hour
)

// drill is an incident that somebody rehearses.
type drill struct {
	Incident detect.Incident `json:"incident"`
	Until    time.Time       `json:"until"`
}

// Sent says what becomes of an incident at one receiver.
type Sent struct {
	Receiver string `json:"receiver"`
	What     string `json:"what"` // in words: "is told", "no route leads there" …
	Good     bool   `json:"good"` // it is told, or was delivered
}

// Drill sends an incident that is none, marked as a drill, on the way of all others, and
// ends it after the given time, also over a restart. It returns what each receiver makes
// of it.
func (o *Outbox) Drill(i detect.Incident, d time.Duration) ([]Sent, error) {
	if d <= 0 || d > MaxDrill {
		return nil, fmt.Errorf("drill %s for %s: give a time of at most %s", i.Rule, text.Span(d), text.Span(MaxDrill))
	}
	now := time.Now()
	i.Drill, i.State, i.Opened, i.Updated = true, detect.Firing, now, now
	o.mu.Lock()
	if len(o.drills) >= maxDrills {
		o.mu.Unlock()
		return nil, fmt.Errorf("drill %s: %d drills go on or have just ended; try again in half an hour", i.Rule, maxDrills)
	}
	o.drills[i.ID] = &drill{i, now.Add(d)}
	o.extras[drillsKey].gen++
	sent := make([]Sent, 0, len(o.queues))
	for _, q := range o.queues {
		if q.DigestOf != "" {
			continue
		}
		d := o.gate.judge(q.Name, q.MinSeverity, &i, now)
		sent = append(sent, Sent{q.Name, d.words(), d.outcome == told})
	}
	o.mu.Unlock()
	o.Take([]detect.Incident{i})
	poke(o.save)
	return sent, nil
}

// Drills returns the incidents that are rehearsed, also those that have ended lately, for
// senders that need no outbox.
func (o *Outbox) Drills() []detect.Incident {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []detect.Incident
	for _, d := range slices.SortedFunc(maps.Values(o.drills), func(a, b *drill) int { return cmp.Compare(a.Incident.ID, b.Incident.ID) }) {
		out = append(out, d.Incident)
	}
	return out
}

// endDrills resolves the drills whose time is over.
func (o *Outbox) endDrills(now time.Time) {
	o.mu.Lock()
	var ended []detect.Incident
	for id, d := range o.drills {
		if now.Before(d.Until) {
			continue
		}
		i := d.Incident
		if i.State == detect.Resolved {
			if now.Sub(d.Until) > keepDrill {
				delete(o.drills, id)
				o.extras[drillsKey].gen++
			}
			continue
		}
		i.State, i.Resolved, i.Updated = detect.Resolved, now, now
		i.Members = slices.Clone(i.Members)
		for k := range i.Members {
			i.Members[k].State, i.Members[k].Resolved, i.Members[k].Ended = detect.Resolved, now, "cleared"
		}
		ended = append(ended, i)
		d.Incident = i
		o.extras[drillsKey].gen++
	}
	o.mu.Unlock()
	if len(ended) > 0 {
		o.Take(ended)
	}
}

func (o *Outbox) loadDrills() error {
	drills := map[string]*drill{}
	if err := o.readMeta(drillsKey, &drills); err != nil {
		return err
	}
	for id, d := range drills {
		if d != nil {
			o.drills[id] = d
		}
	}
	return nil
}

// drillsText is what is to be stored of the drills. The caller holds o.mu.
func (o *Outbox) drillsText() ([]byte, error) { return json.Marshal(o.drills) }

// words says a decision to a person.
func (d decision) words() string {
	switch d.outcome {
	case beneath:
		return "is not told: less severe than its min_severity"
	case elsewhere:
		return "is not told: no route leads there"
	case shadowed:
		return "is not told: it is one of the first days"
	case held:
		return "is told later, if it still fires then: " + d.why
	}
	return "is told"
}
