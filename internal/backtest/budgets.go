package backtest

import (
	"math"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Budgets are the alert budgets that a history is judged by: false tickets a week in the
// whole fleet, with a tenth as many false pages. The default is among them; the loosest is
// last.
var Budgets = []float64{1, defaultBudget, 100}

const (
	defaultBudget = 10.0
	ticketsAPage  = 10.0
)

// AtBudget is what would have been told under one budget.
type AtBudget struct {
	Pages, Tickets float64 // that may be false in a week
	Told           [3]int  // incidents by severity
	Figures        Figures // only with labels
}

// judge sums up under each budget; the result's own figures and incidents are those of the
// default one.
func (o HistoryOptions) judge(recordings []Recording, gpus int) *Replayed {
	var result *Replayed
	var all []AtBudget
	for _, tickets := range Budgets {
		under := make([]Recording, len(recordings))
		at := AtBudget{Pages: tickets / ticketsAPage, Tickets: tickets}
		for i, rec := range recordings {
			rec.Told = affordable(rec.Told, gpus, tickets)
			for s, n := range Severities(rec.Told) {
				at.Told[s] += n
			}
			under[i] = rec
		}
		r := ReplayOptions{Truths: o.Truths, Labelled: o.Labelled}.sum(under)
		at.Figures = r.Figures
		all = append(all, at)
		if tickets == defaultBudget {
			result = r
		}
	}
	result.History, result.Budgets, result.GPUs = true, all, gpus
	return result
}

// affordable returns what the budget lets through, as severe as it lets it be.
func affordable(told []Told, gpus int, tickets float64) []Told {
	var out []Told
	for _, t := range told {
		var kept []detect.Finding
		for _, f := range t.Incident.Members {
			switch {
			case f.Surprise == 0 || f.Together > 0:
			case f.Surprise < surprise(gpus, tickets):
				continue
			case f.Severity >= rules.Page && f.Surprise < surprise(gpus, tickets/ticketsAPage):
				f.Severity = rules.Ticket
			}
			kept = append(kept, f)
		}
		if len(kept) == 0 {
			continue
		}
		t.Incident.Severity = rules.Info
		t.First = kept[0].Fired
		for _, f := range kept {
			t.Incident.Severity = max(t.Incident.Severity, f.Severity)
			if f.Fired.Before(t.First) {
				t.First = f.Fired
			}
		}
		t.Incident.Members, t.Incident.Rule, t.Incident.Cause = kept, kept[0].Rule, kept[0].Cause
		out = append(out, t)
	}
	return out
}

// surprise is how many nats a statistical finding needs in a fleet of so many GPUs that
// may have so many false ones a week.
func surprise(gpus int, budget float64) float64 {
	n := 0
	for _, r := range rules.All() {
		if r.Statistical {
			n++
		}
	}
	return max(0, math.Log(float64(max(1, n)*max(1, gpus))/budget))
}
