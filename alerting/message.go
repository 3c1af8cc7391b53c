package alerting

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// SimulatedMark is the first line of a message whose numbers are made up.
const SimulatedMark = "SIMULATED: the numbers come from a simulator, nothing is wrong."

// DrillMark is what a message of a drill says first.
const DrillMark = "Somebody rehearses: nothing is wrong, and nothing is to be done."

// What is shown of a list, and of one text in runes, before it is cut.
const (
	shownMembers = 5
	shownEvents  = 5
	headlineSize = 140
	valueSize    = 600
	nameSize     = 120
	shownID      = 8 // of an incident's id, which is known by its first letters
)

// Text is a message in words, without the markup of any receiver. Its strings are
// single lines of valid UTF-8 without control characters and of bounded length,
// but they may hold names that anybody chose: a receiver escapes them.
type Text struct {
	Severity  rules.Severity
	Resolved  bool
	Simulated bool
	Headline  string // urgency, where, what, when: enough to decide whether to get up
	Lines     []Line
	Links     []Link
	Mentions  []string // ids of those whom it calls; from the configuration only
}

// Line is one labelled line of a message.
type Line struct{ Label, Text string }

// Render puts a message into words. Equal messages give equal words.
func Render(m Message) Text {
	i := &m.Incident
	if m.Words != nil {
		return ready(m.Words, m.Links)
	}
	t := Text{Severity: i.Severity, Resolved: i.State == detect.Resolved, Links: m.Links, Mentions: m.Mentions}
	if len(i.Members) == 0 {
		t.Headline = text.Clean(fmt.Sprintf("%s %s: %s", urgency(i), m.Node, i.Rule), headlineSize)
		return t
	}
	root := &i.Members[0]
	for k := range i.Members {
		t.Simulated = t.Simulated || i.Members[k].Simulated
	}
	t.Headline = headline(m, root)
	if i.Drill {
		t.add("Drill", DrillMark)
	}
	if m.Mark != nil {
		t.add("Marked", m.Mark.String())
	}
	t.add("Who", reach(&m.Context, root))
	t.add("Teams", teams(&m.Context))
	t.add("Serves", serves(&m.Context))
	t.add("Seen", text.Clean(root.Evidence.Seen, valueSize))
	t.add("Expected", text.Clean(root.Evidence.Expected, valueSize))
	t.add("How sure", sure(root.Evidence))
	t.add("Before", before(root))
	t.add("Lost", lost(&m.Context, i))
	if t.Resolved {
		t.add("Lasted", lasted(i, root))
		t.add("Cost", costs(&m.Context, i, root))
	} else {
		t.add("Cost", costs(&m.Context, i, root))
		t.add("First", text.Clean(root.Action(), valueSize))
	}
	t.add("Also", also(i))
	if !t.Resolved {
		t.add("Since", since(i, root).UTC().Format("2006-01-02 15:04:05 MST"))
	}
	t.add("Where", where(m, root))
	if !t.Resolved && m.Mark == nil && m.Rule != nil {
		t.add("Acknowledge", "gpuvigil ack "+i.ID[:min(len(i.ID), shownID)])
	}
	return t
}

// ready returns words that did not come from an incident, safe to be shown.
func ready(w *Text, links []Link) Text {
	t := *w
	t.Headline, t.Lines, t.Links = text.Clean(w.Headline, headlineSize), nil, links
	for _, l := range w.Lines {
		t.add(l.Label, text.Clean(l.Text, valueSize))
	}
	return t
}

func (t *Text) add(label, text string) {
	if text != "" {
		t.Lines = append(t.Lines, Line{label, text})
	}
}

// String returns the message as plain text, one line for each thing to know.
func (t Text) String() string {
	var b strings.Builder
	if t.Simulated {
		b.WriteString(SimulatedMark + "\n")
	}
	b.WriteString(t.Headline + "\n")
	for _, l := range t.Lines {
		b.WriteString(l.Label + ": " + l.Text + "\n")
	}
	for _, l := range t.Links {
		b.WriteString(l.Title + ": " + l.URL + "\n")
	}
	return b.String()
}

func urgency(i *detect.Incident) string {
	word := strings.ToUpper(i.Severity.String())
	if i.State == detect.Resolved {
		word = "RESOLVED"
	}
	if i.Drill {
		return "DRILL " + word
	}
	return word
}

// headline says urgency, where, what and when.
func headline(m Message, root *detect.Finding) string {
	i := &m.Incident
	at := since(i, root).UTC().Format("15:04 MST")
	if i.State == detect.Resolved {
		at = "after " + text.Span(i.Resolved.Sub(since(i, root)))
	}
	place, title := subject(root, m.Node), root.Title()
	named := strings.Contains(title, root.Subject.ID)
	sep := ": "
	if n := len(i.Members) - 1; n > 0 {
		place += fmt.Sprintf(" +%d", n)
	} else if rest := withoutSubject(title, root); rest != title {
		title, sep = rest, " "
	} else if named && root.Subject.Kind != "node" {
		place = cmp.Or(root.Node, m.Node)
	}
	head := urgency(i) + " " + text.Clean(place, nameSize/2) + sep
	room := headlineSize - len([]rune(head)) - len(", ") - len(at)
	return head + text.Clean(title, room) + ", " + at
}

// withoutSubject returns a title without the words at its beginning that say what it
// is about: the headline says that before it.
func withoutSubject(title string, f *detect.Finding) string {
	if f.Subject.Kind != "gpu" {
		return strings.TrimPrefix(title, f.Subject.String()+" ")
	}
	if rest, ok := strings.CutPrefix(title, "The GPU "); ok {
		return rest
	}
	return strings.TrimPrefix(title, fmt.Sprintf("GPU %d ", f.GPUIndex))
}

func since(i *detect.Incident, root *detect.Finding) time.Time {
	if root.Since.IsZero() {
		return i.Opened
	}
	return root.Since
}

// subject names what a finding is about as people write it: node/3 for a GPU, the model
// for an endpoint.
func subject(f *detect.Finding, node string) string {
	node = cmp.Or(f.Node, node)
	id := f.Subject.ID
	switch f.Subject.Kind {
	case "node":
		return node
	case "gpu":
		if f.GPUIndex >= 0 {
			return node + "/" + strconv.Itoa(f.GPUIndex)
		}
	case "endpoint":
		return endpoint(id) + " on " + node
	case "user":
		return "a user on " + node
	case "queue":
		return "queue " + id
	case "":
		return node
	default:
		id = f.Subject.Kind + " " + id
	}
	if f.Subject.ID == "" {
		return node
	}
	return id + " on " + node
}

// endpoint names a model without its address: the model, else the server, else what is
// known of it. The id is URL#engine/model.
func endpoint(id string) string {
	address, served, _ := strings.Cut(id, "#")
	engine, model, _ := strings.Cut(served, "/")
	if name := cmp.Or(model, engine); name != "" {
		return name
	}
	if u, err := url.Parse(address); err == nil && u.Port() != "" {
		return "the server on port " + u.Port()
	}
	return "an inference server"
}
