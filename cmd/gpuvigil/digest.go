package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/report"
	"gpuvigil/rules"
)

// digestTop is how many of a kind a digest names before it counts the rest.
const digestTop = 5

// digest is when what happened is summed up, nil if nobody wants to read it.
func (p *pipeline) digest() *alerting.DigestConfig { return digestAt(p.cfg, p.writeDigest, p.log) }

// digestAt is when the configuration wants what happened to be summed up.
func digestAt(cfg *config.Config, write func(from, to time.Time) []alerting.Line, log *slog.Logger) *alerting.DigestConfig {
	d := &cfg.Alerting.Digest
	if len(d.Receivers) == 0 {
		return nil
	}
	zone, err := d.Location()
	if err != nil {
		log.Error("The digest goes by UTC: its time zone is not known any more.", "time_zone", d.TimeZone, "err", err)
		zone = time.UTC
	}
	hour, minute := d.Clock()
	return &alerting.DigestConfig{
		Receivers: d.Receivers, Daily: d.Daily, Weekly: d.Weekly, Hour: hour, Minute: minute, Weekday: d.Day(), Location: zone,
		Write: write,
	}
}

// writeDigest says what happened between two times.
func (p *pipeline) writeDigest(from, to time.Time) []alerting.Line {
	var lines []alerting.Line
	costs, err := p.ledger.Costs(from, to)
	switch {
	case err != nil:
		p.log.Error("The digest is without what the GPUs cost.", "err", err)
		lines = append(lines, alerting.Line{Label: "Cost", Text: "not known: what was booked cannot be read, see the agent's log"})
	case len(costs.Rows) > 0:
		lines = append(lines, moneyLines(costs)...)
	}
	return append(lines, eventLines(p.engine.View(), p.engine.Changes(), from, to)...)
}

// moneyLines say what was paid, and for what nothing was done.
func moneyLines(a *cost.Answer) []alerting.Line {
	r, err := report.New(a, time.Time{}, report.ByTeam)
	if err != nil {
		return nil // there is not one row
	}
	var lines []alerting.Line
	for i := range r.Totals {
		t := &r.Totals[i]
		text := hoursAndMoney(t.Total, t.Currency)
		if t.Total.Time > 0 {
			text += fmt.Sprintf("; busy %.0f %% of the time", 100*t.BusyShare())
		}
		lines = append(lines, alerting.Line{Label: "Cost", Text: text})
		if line := wasteLine(r, t); line != "" {
			lines = append(lines, alerting.Line{Label: "Idle and held", Text: line})
		}
		lines = append(lines, alerting.Line{Label: "Not in that", Text: fmt.Sprintf("free %s; unavailable %s; not observed %s",
			gpuHours(t.States[cost.Free].Time), gpuHours(t.States[cost.Unavailable].Time), gpuHours(t.States[cost.Unobserved].Time))})
	}
	return lines
}

// waste is what somebody held and did not use.
func waste(l *report.Line) cost.Amounts {
	return l.States[cost.IdleHeld].Plus(l.States[cost.HeldWithoutProcess])
}

// wasteLine names the teams that held most without using it.
func wasteLine(r *report.Report, total *report.Line) string {
	all := waste(total)
	if all.Time == 0 {
		return ""
	}
	var teams []report.Line
	for _, l := range r.Lines {
		if l.Currency == total.Currency && waste(&l).Time > 0 {
			teams = append(teams, l)
		}
	}
	slices.SortStableFunc(teams, func(a, b report.Line) int {
		return cmp.Or(cmp.Compare(waste(&b).Effective, waste(&a).Effective), cmp.Compare(waste(&b).Time, waste(&a).Time))
	})
	var said []string
	for _, l := range teams {
		said = append(said, l.Key+" "+hoursAndMoney(waste(&l), l.Currency))
	}
	return hoursAndMoney(all, total.Currency) + ": " + firstFew(said)
}

func hoursAndMoney(a cost.Amounts, currency string) string {
	text := gpuHours(a.Time)
	if a.Priced() && currency != "" {
		text += fmt.Sprintf(", %.2f %s", float64(a.Effective)/1e9, currency)
	}
	return text
}

func gpuHours(ns int64) string { return fmt.Sprintf("%.1f GPU-h", time.Duration(ns).Hours()) }

// eventLines say what fires, what fired, and which versions have changed.
func eventLines(v *detect.View, changes []collector.Event, from, to time.Time) []alerting.Line {
	var open, versions []string
	for _, i := range v.Incidents {
		if i.State == detect.Firing && len(i.Members) > 0 && !i.Drill {
			open = append(open, fmt.Sprintf("%s %s since %s", i.Severity, i.Members[0].Title(), i.Opened.UTC().Format("2 Jan 15:04 MST")))
		}
	}
	fired := map[rules.ID]int{}
	if to.Sub(from) > 25*time.Hour { // the view keeps findings for a day, and counts them for a week
		for _, s := range v.Standings {
			fired[s.Rule] = s.Fired
		}
	} else {
		for _, f := range v.Findings {
			if !f.Fired.IsZero() && !f.Fired.Before(from) && f.Fired.Before(to) {
				fired[f.Rule]++
			}
		}
	}
	maps.DeleteFunc(fired, func(_ rules.ID, n int) bool { return n == 0 })
	var findings []string
	for _, id := range slices.SortedFunc(maps.Keys(fired), func(a, b rules.ID) int {
		return cmp.Or(cmp.Compare(fired[b], fired[a]), cmp.Compare(a, b))
	}) {
		findings = append(findings, fmt.Sprintf("%s %d ×", id, fired[id]))
	}
	for _, e := range changes {
		if e.Kind == collector.VersionEvent && !e.Time.Before(from) && e.Time.Before(to) {
			versions = append(versions, fmt.Sprintf("%s %s → %s", e.Component, cmp.Or(e.From, "none"), cmp.Or(e.To, "none")))
		}
	}
	var lines []alerting.Line
	for _, l := range []struct {
		label string
		said  []string
	}{{"Still fires", open}, {"Findings", findings}, {"Versions changed", versions}} {
		if len(l.said) > 0 {
			lines = append(lines, alerting.Line{Label: l.label, Text: firstFew(l.said)})
		}
	}
	return lines
}

func firstFew(said []string) string {
	if more := len(said) - digestTop; more > 0 {
		said = append(said[:digestTop:digestTop], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}
