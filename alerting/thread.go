package alerting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

const (
	maxReplies = 20              // in one thread; after them only what rings and the end are told
	joinPause  = 5 * time.Minute // between two replies on who joined or is over
)

// Told is what the thread of an incident's message knows of it: what is newer is news.
// Its text form is what a receiver remembers it by. The zero Told knows nothing.
type Told struct {
	At       time.Time      // the incident's Updated
	State    detect.State   // firing or resolved; empty: nothing was told
	Severity rules.Severity // the highest so far
	Members  int            // findings so far
	Over     int            // of them, those that had ended
	Replies  int            // in the thread
	Rung     int            // how often the incident has called again
}

// Begin returns what is told by the incident's first message.
func Begin(i *detect.Incident) Told {
	return Told{At: i.Updated, State: i.State, Severity: i.Severity, Members: len(i.Members), Over: over(i)}
}

// Reply is a piece of an incident's history.
type Reply struct {
	Lines []string // plain, bounded text of one line each, what matters most first
	Rings bool     // people who look at the channel only must see it
	Told  Told     // what is told with it
}

// News returns what is to be said to those who know what t knows, nil if that is
// nothing or can wait for the next news.
func (t Told) News(m *Message) *Reply {
	i := &m.Incident
	if t.State == "" || len(i.Members) == 0 {
		return nil
	}
	r := &Reply{Told: Begin(i)}
	r.Told.Severity = max(r.Told.Severity, t.Severity)
	r.Told.Replies = t.Replies + 1
	worse := i.State == detect.Firing && i.Severity > t.Severity
	back := i.State == detect.Firing && t.State == detect.Resolved
	ended := i.State == detect.Resolved && t.State == detect.Firing
	switch {
	case worse:
		r.Lines = append(r.Lines, fmt.Sprintf("Worse: %s, was %s", i.Severity, t.Severity))
	case back:
		r.Lines = append(r.Lines, "It is back: "+i.Severity.String())
	}
	r.Rings, r.Told.Rung = m.Ring != "" && m.Rung > t.Rung, max(m.Rung, t.Rung)
	if r.Rings && !worse && !back {
		r.Lines = append(r.Lines, m.Ring)
	}
	if !r.Rings && !worse && !back && !ended && (t.Replies >= maxReplies || i.Updated.Sub(t.At).Abs() < joinPause) {
		return nil
	}
	if ended {
		r.Lines = append(r.Lines, ending(m)...)
	}
	r.Lines = append(r.Lines, t.moved(i)...)
	if len(r.Lines) == 0 {
		return nil
	}
	return r
}

// moved says who joined and who is over.
func (t Told) moved(i *detect.Incident) []string {
	var lines []string
	if n := len(i.Members) - t.Members; n > 0 {
		lines = append(lines, fmt.Sprintf("%d more, %d in all: %s", n, len(i.Members), newest(i, n)))
	}
	switch n := over(i); {
	case i.State != detect.Firing:
	case n > t.Over:
		lines = append(lines, fmt.Sprintf("%d of %d are over", n, len(i.Members)))
	case n < t.Over:
		lines = append(lines, fmt.Sprintf("came back: %d of %d are over now, %d were", n, len(i.Members), t.Over))
	}
	return lines
}

// newest names the n findings that joined last.
func newest(i *detect.Incident, n int) string {
	byAge := make([]*detect.Finding, 0, len(i.Members))
	for k := range i.Members {
		byAge = append(byAge, &i.Members[k])
	}
	slices.SortStableFunc(byAge, func(a, b *detect.Finding) int { return b.Fired.Compare(a.Fired) })
	byAge = byAge[:min(n, len(byAge))]
	more := max(len(byAge)-shownMembers, 0)
	var said []string
	for _, f := range byAge[:len(byAge)-more] {
		said = append(said, member(i, &i.Members[0], f))
	}
	return list(said, more)
}

func over(i *detect.Incident) int {
	n := 0
	for k := range i.Members {
		if i.Members[k].State == detect.Resolved {
			n++
		}
	}
	return n
}

func ending(m *Message) []string {
	i, root := &m.Incident, &m.Incident.Members[0]
	lines := []string{"Resolved after " + lasted(i, root)}
	if cost := costs(&m.Context, i, root); cost != "" {
		lines = append(lines, "Cost: "+cost)
	}
	if l := lost(&m.Context, i); l != "" {
		lines = append(lines, "Lost: "+l)
	}
	return lines
}

// MarshalText writes what is known on one line of harmless characters.
func (t Told) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s %s %d %d %d %d %s", cmp.Or(t.State, "-"), t.Severity, t.Members, t.Over, t.Replies, t.Rung, t.At.UTC().Format(time.RFC3339Nano)), nil
}

// UnmarshalText reads what MarshalText writes.
func (t *Told) UnmarshalText(b []byte) error {
	var read Told
	var state, severity, at string
	if _, err := fmt.Sscanf(string(b), "%s %s %d %d %d %d %s", &state, &severity, &read.Members, &read.Over, &read.Replies, &read.Rung, &at); err != nil {
		return fmt.Errorf("read what a thread was told from %q: %w", b, err)
	}
	var err error
	if read.Severity, err = rules.ParseSeverity(severity); err != nil {
		return err
	}
	if read.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return err
	}
	if read.State = detect.State(strings.TrimPrefix(state, "-")); read.State != "" && read.State != detect.Firing && read.State != detect.Resolved {
		return fmt.Errorf("read what a thread was told: unknown state %q", state)
	}
	*t = read
	return nil
}
