package alerting

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

const (
	marksKey  = "marks"
	maxMarks  = 1000
	keepMark  = 24 * time.Hour      // after the end of its incident
	staleMark = 30 * 24 * time.Hour // of an incident whose end was never seen

	// MaxSnooze is for how long an incident can be snoozed at most.
	MaxSnooze = 30 * 24 * time.Hour
)

// Mark is what a person said of an incident last: that somebody is at it, or that it is
// to be silent for a while. It holds until the incident gets worse.
type Mark struct {
	By       string         `json:"by"` // as the person says; may be anything
	At       time.Time      `json:"at"`
	Until    time.Time      `json:"until,omitzero"` // of a snooze; zero: acknowledged
	Severity rules.Severity `json:"severity"`       // of the incident then
	Ended    time.Time      `json:"ended,omitzero"` // when the incident ended
}

// String says who said what, for a message.
func (m *Mark) String() string {
	who := text.Clean(m.By, nameSize)
	if m.Until.IsZero() {
		return "acknowledged by " + who + " " + m.At.UTC().Format("15:04 MST")
	}
	return "snoozed by " + who + " until " + m.Until.UTC().Format("2 Jan 15:04 MST")
}

// snoozes reports whether the incident is to be silent now.
func (m *Mark) snoozes(i *detect.Incident, now time.Time) bool {
	return m != nil && i.Severity <= m.Severity && now.Before(m.Until)
}

// acknowledges reports whether somebody is at the incident.
func (m *Mark) acknowledges(i *detect.Incident) bool {
	return m != nil && i.Severity <= m.Severity && m.Until.IsZero()
}

// over reports whether a snooze has ended since the given time.
func (m *Mark) over(since, now time.Time) bool {
	return m != nil && !m.Until.IsZero() && !now.Before(m.Until) && since.Before(m.Until)
}

// Mark notes what a person says of an incident, nil that nothing is said any more, and
// lets its messages show it. It is on disk with the next transaction.
func (o *Outbox) Mark(i detect.Incident, m *Mark) error {
	now := time.Now()
	if i.State == detect.Resolved {
		return fmt.Errorf("mark incident %s: it has ended", i.ID)
	}
	if m != nil && !m.Until.IsZero() && (!m.Until.After(now) || m.Until.Sub(now) > MaxSnooze) {
		return fmt.Errorf("snooze incident %s: give a time of at most %s", i.ID, text.Span(MaxSnooze))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.gate.mark(i.ID, m); err != nil {
		return err
	}
	o.extras[marksKey].gen++
	for _, q := range o.queues {
		q.looked = time.Time{}
		r := q.records[i.ID]
		if r == nil || !r.told() || r.Merged != "" {
			continue // also what waits is put anew: it may be on its way, without the mark
		}
		state := &i
		if r.Incident != nil && r.Incident.Updated.After(i.Updated) {
			state = r.Incident
		}
		waited := r.waits()
		if o.renew(r, state, now); !waited && r.waits() {
			q.put(r)
		}
	}
	o.wakeAll()
	poke(o.save)
	return nil
}

// Marks returns what people said of incidents that have not ended, by the incident's id.
func (o *Outbox) Marks() map[string]Mark { return o.gate.open() }

func (g *Gate) mark(id string, m *Mark) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m == nil {
		delete(g.marks, id)
		return nil
	}
	if g.marks[id] == nil && len(g.marks) >= maxMarks {
		return fmt.Errorf("mark incident %s: %d incidents are marked already", id, maxMarks)
	}
	said := *m
	said.Ended = time.Time{}
	g.marks[id] = &said
	return nil
}

func (g *Gate) open() map[string]Mark {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := map[string]Mark{}
	for id, m := range g.marks {
		if m.Ended.IsZero() {
			out[id] = *m
		}
	}
	return out
}

// count returns how many incidents that have not ended are acknowledged or snoozed.
func (o *Outbox) count(snoozed bool) func() float64 {
	return func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		n, now := 0, time.Now()
		for id, m := range o.gate.open() {
			if m.Until.IsZero() != snoozed && (!snoozed || now.Before(m.Until)) && o.current(id) != nil {
				n++
			}
		}
		return float64(n)
	}
}

// current returns an incident as it is now, nil if there is none. The caller holds o.mu.
func (o *Outbox) current(id string) *detect.Incident {
	if d := o.drills[id]; d != nil {
		return &d.Incident
	}
	if o.cfg.Current == nil {
		return nil
	}
	return o.cfg.Current(id)
}

func (g *Gate) markOf(id string) *Mark {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if m := g.marks[id]; m != nil {
		said := *m
		return &said
	}
	return nil
}

// standing returns the mark of an incident if it still holds.
func (g *Gate) standing(i *detect.Incident, now time.Time) *Mark {
	if m := g.markOf(i.ID); m.acknowledges(i) || m.snoozes(i, now) {
		return m
	}
	return nil
}

// follow notes whether the incident of a mark goes on, and reports whether that is news.
func (g *Gate) follow(i *detect.Incident, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.marks[i.ID]
	if m == nil || (i.State == detect.Resolved) == !m.Ended.IsZero() {
		return false
	}
	said := *m
	if said.Ended = (time.Time{}); i.State == detect.Resolved {
		said.Ended = now
	}
	g.marks[i.ID] = &said
	return true
}

// sweep forgets the marks of what ended long ago, and reports whether there were any.
func (g *Gate) sweep(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.marks)
	maps.DeleteFunc(g.marks, func(_ string, m *Mark) bool {
		if m.Ended.IsZero() {
			return now.Sub(m.At) > staleMark
		}
		return now.Sub(m.Ended) > keepMark
	})
	return len(g.marks) < before
}

// readMeta reads a value that an earlier run left. What cannot be read costs only itself.
func (o *Outbox) readMeta(key string, into any) error {
	var damage error
	err := o.store.View(func(tx *store.Tx) error {
		if v := tx.Get(store.Meta, key); v != nil {
			damage = json.Unmarshal(v, into)
		}
		return nil
	})
	if damage != nil {
		o.store.SetAside(store.Meta, key, damage)
	}
	return err
}

// loadMarks reads what people said in an earlier run.
func (o *Outbox) loadMarks() error {
	marks := map[string]*Mark{}
	if err := o.readMeta(marksKey, &marks); err != nil {
		return err
	}
	for id, m := range marks {
		if m != nil {
			o.gate.marks[id] = m
		}
	}
	return nil
}

// marksText is what is to be stored of the marks.
func (g *Gate) marksText() ([]byte, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return json.Marshal(g.marks)
}
