package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/text"
)

// maxWords is more than any name or sentence that is printed needs.
const maxWords = 1000

// printable makes text that others wrote fit for a terminal: no control
// characters, which could move the cursor or change what was printed before.
func printable(s string) string { return text.Clean(s, maxWords) }

// timeOfDay is by the clock of all that is said of findings, wherever one stands.
func timeOfDay(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// since tells a time and how long ago it was.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	at := timeOfDay(t)
	if now.Sub(t) > 20*time.Hour {
		at = t.UTC().Format("2 Jan 15:04 UTC")
	}
	return fmt.Sprintf("%s (%s ago)", at, text.Span(now.Sub(t)))
}

// reading formats a reading; "-" if it was not reported.
func reading(r server.Readings, d *metric.Def, format string, factor float64) string {
	v, ok := r[d.Name]
	if !ok || math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(format, v*factor)
}

func memoryShare(g server.GPU) string {
	used, ok1 := g.Readings[metric.MemoryUsed.Name]
	capacity, ok2 := g.Readings[metric.MemoryCapacity.Name]
	if !ok1 || !ok2 || capacity <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*used/capacity)
}

func gpuState(g server.GPU) string {
	switch {
	case g.GivenAway:
		return "GIVEN AWAY"
	case !g.Present:
		return "LOST"
	case g.Hung:
		return "HUNG"
	case g.MIG:
		return "MIG"
	}
	return "ok"
}

// gpuOwner says in a line whose the GPU is: who uses it, and who only was given it. Who
// uses one is known only if its processes are seen.
func gpuOwner(g server.GPU, processes bool) string {
	using, unused := holders(g)
	switch {
	case unused == nil:
		return some(using)
	case !processes && len(g.Users) == 0:
		return "given to " + some(unused) + ", use unknown"
	}
	return strings.Join(append(nonEmpty(some(using)), "given to and not used by "+some(unused)), ", ")
}

// maxNamed is how many owners a line names: a GPU may be cut into dozens of shares.
const maxNamed = 3

// some names the first owners and counts the others.
func some(owners []string) string {
	if more := len(owners) - maxNamed; more > 1 { // instead of one more its name fits
		return fmt.Sprintf("%s and %d more", strings.Join(owners[:maxNamed], ", "), more)
	}
	return strings.Join(owners, ", ")
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// holders returns who uses the GPU and who was given it and does not.
func holders(g server.GPU) (using, unused []string) {
	for _, o := range g.Owners {
		if slices.Contains(g.Users, o) || len(g.Given) == 0 {
			using = append(using, withTeam(o))
		} else {
			unused = append(unused, withTeam(o))
		}
	}
	if nobody := (collector.Owner{}); slices.Contains(g.Users, nobody) || len(g.Owners) == 0 {
		using = append(using, withTeam(nobody))
	}
	return using, unused
}

func withTeam(o collector.Owner) string {
	if o.Team == "" {
		return o.String()
	}
	return o.String() + " (team " + o.Team + ")"
}

func ownerName(f server.Finding) string { return withTeam(f.Owner) }

// subjectName is a finding's subject as an operator calls it.
func subjectName(f server.Finding) string {
	if f.GPUIndex >= 0 {
		return printable(fmt.Sprintf("%s/%d", f.Node, f.GPUIndex))
	}
	if f.Subject.Kind == "node" {
		return printable(f.Subject.ID)
	}
	return printable(f.Subject.String())
}

func eventText(e collector.Event) string {
	switch e.Kind {
	case collector.XidEvent:
		return fmt.Sprintf("Xid %d on %s", e.Code, cmp.Or(e.UUID, e.PCI))
	case collector.SXidEvent:
		return strings.TrimSpace(fmt.Sprintf("SXid %d on NVSwitch %s %s", e.Code, e.PCI, e.Text))
	case collector.FabricEvent:
		return "fabric manager: " + e.Text
	case collector.VersionEvent, collector.InventoryEvent:
		if e.Owner == (collector.Owner{}) {
			return changeText(e)
		}
		return changeText(e) + " (" + e.Owner.String() + ")"
	case collector.GPUAppeared:
		return e.UUID + " appeared"
	case collector.GPUGone:
		return e.UUID + " is gone"
	case collector.OwnerEvent:
		return fmt.Sprintf("owner of %s changed from %s to %s", e.UUID, e.From, e.To)
	}
	return strings.TrimSpace(string(e.Kind) + " " + e.Text)
}

// number counts things by their name, which takes an s for the plural.
func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
