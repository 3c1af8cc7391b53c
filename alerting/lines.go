package alerting

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/text"
)

// owner names who holds the GPU. A person's name does not go into a channel.
func owner(o collector.Owner) string {
	var who string
	switch o.Kind {
	case "":
		return ""
	case "user":
		who = "a user (name withheld)"
	default:
		who = o.Kind + " " + o.ID
	}
	if o.Team != "" {
		who += ", team " + o.Team
	}
	return text.Clean(who, nameSize)
}

// who adds that the severity is higher for the sake of a critical workload.
func who(f *detect.Finding) string {
	said := owner(f.Owner)
	if !f.Critical {
		return said
	}
	if said == "" {
		return "a critical workload"
	}
	return said + " (critical)"
}

func sure(e detect.Evidence) string {
	if e.Why == "" {
		return string(e.Confidence)
	}
	return text.Clean(string(e.Confidence)+": "+e.Why, nameSize)
}

// before tells what changed shortly before it began, the latest last.
func before(f *detect.Finding) string {
	more := max(len(f.Before)-shownEvents, 0)
	var said []string
	for _, e := range f.Before[more:] {
		if e.UUID == f.Subject.ID {
			e.UUID = "this GPU"
		}
		said = append(said, text.Clean(e.Time.UTC().Format("15:04:05 ")+event(e), nameSize))
	}
	return list(said, more)
}

func event(e collector.Event) string {
	switch e.Kind {
	case collector.XidEvent:
		return fmt.Sprintf("Xid %d on %s", e.Code, cmp.Or(e.UUID, e.PCI))
	case collector.SXidEvent:
		return strings.TrimSpace(fmt.Sprintf("SXid %d on NVSwitch %s %s", e.Code, e.PCI, e.Text))
	case collector.FabricEvent:
		return "fabric manager: " + e.Text
	case collector.VersionEvent:
		return fmt.Sprintf("%s %s → %s", e.Component, known(e.From), known(e.To)) + of(e.Owner)
	case collector.InventoryEvent:
		return change(e) + of(e.Owner)
	case collector.GPUAppeared:
		return e.UUID + " appeared"
	case collector.GPUGone:
		return e.UUID + " is gone"
	case collector.ChildRestart:
		return "reading of the GPUs restarted: " + e.Text
	case collector.ClocksEvent:
		return "clocks held down: " + e.Text
	case collector.OwnerEvent:
		return fmt.Sprintf("%s passed from %s to %s", e.UUID, holder(e.From), holder(e.To))
	default:
		return string(e.Kind) + " " + e.Text
	}
}

// change says what came or went. Where data lies is not told: it may be an address,
// or name somebody.
func change(e collector.Event) string {
	from, to := e.From, e.To
	what := e.Component
	if what == "dataset" {
		what = e.Text + " data set"
		if e.Text != "claim" {
			from, to = mark(from), mark(to)
		}
	}
	switch {
	case from == "":
		return strings.TrimSpace(what+" "+to) + " came"
	case to == "":
		return strings.TrimSpace(what+" "+from) + " went"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s → %s", what, from, to))
}

// mark is a text that is not shown, but is there.
func mark(s string) string {
	if s == "" {
		return ""
	}
	return " "
}

// of names whose it is that changed.
func of(o collector.Owner) string {
	if who := owner(o); who != "" {
		return " (" + who + ")"
	}
	return ""
}

func known(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

func holder(owner string) string {
	if owner == "" {
		return "nobody"
	}
	if strings.HasPrefix(owner, "user:") {
		return "a user"
	}
	return owner
}

// also names the other findings of the incident.
func also(i *detect.Incident) string {
	root, others := &i.Members[0], i.Members[1:]
	more := max(len(others)-shownMembers, 0)
	var said []string
	for k := range others[:len(others)-more] {
		said = append(said, member(i, root, &others[k]))
	}
	return list(said, more)
}

// member names one of the incident's findings.
func member(i *detect.Incident, root, f *detect.Finding) string {
	what := subject(f, "")
	if f.Rule != root.Rule || f.Cause != root.Cause {
		title := f.Title()
		if rest := withoutSubject(title, f); rest != title {
			what += " " + rest
		} else {
			what += ": " + title
		}
	}
	what = text.Clean(what, nameSize)
	if f.State == detect.Resolved && i.State == detect.Firing {
		what += " (over)"
	}
	return what
}

func list(said []string, more int) string {
	if len(said) == 0 {
		return ""
	}
	text := strings.Join(said, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

var endings = map[string]string{
	"cleared": "no longer seen",
	"expired": "nothing more was heard of it",
	"hidden":  "explained by another finding",
}

func lasted(i *detect.Incident, root *detect.Finding) string {
	from := since(i, root).UTC()
	text := fmt.Sprintf("%s, from %s to %s", text.Span(i.Resolved.Sub(from)),
		from.Format("2006-01-02 15:04:05"), i.Resolved.UTC().Format("15:04:05 MST"))
	if ended := endings[root.Ended]; ended != "" {
		text += "; " + ended
	}
	return text
}

// where tells in full what the headline names in short.
func where(m Message, root *detect.Finding) string {
	var parts []string
	if m.Context.Cluster != "" {
		parts = append(parts, "cluster "+m.Context.Cluster)
	}
	if n := nodes(&m.Incident); n > 1 {
		parts = append(parts, fmt.Sprintf("%d nodes, first of all %s", n, m.Node))
	} else if root.Subject.Kind != "queue" {
		parts = append(parts, "node "+m.Node)
	}
	if root.GPUIndex >= 0 {
		parts = append(parts, "GPU "+strconv.Itoa(root.GPUIndex))
	}
	if root.GPUModel != "" {
		parts = append(parts, root.GPUModel)
	}
	switch root.Subject.Kind {
	case "gpu":
		parts = append(parts, root.Subject.ID)
	case "endpoint":
		_, served, _ := strings.Cut(root.Subject.ID, "#")
		engine, _, _ := strings.Cut(served, "/")
		if engine != "" {
			parts = append(parts, "served by "+engine)
		}
	}
	return text.Clean(strings.Join(parts, ", "), valueSize)
}

// nodes counts those that the incident is on.
func nodes(i *detect.Incident) int {
	seen := map[string]bool{}
	for k := range i.Members {
		if n := i.Members[k].Node; n != "" {
			seen[n] = true
		}
	}
	return len(seen)
}
