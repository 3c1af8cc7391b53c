// Package report writes what GPUs cost, by team, job, model or GPU, from whatever
// source of costs there is. Lines sum to the total exactly, also as they are printed.
package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// Source is where costs are read from: the agent of a node, a time-series database.
type Source interface {
	// Costs returns what was booked from since to until, in whole hours; a zero until
	// is now. The answer says which span it has.
	Costs(ctx context.Context, since, until time.Time) (*cost.Answer, error)
}

// By is what a report has a line for.
type By string

// What there can be a line for.
const (
	ByTeam  By = "team"
	ByJob   By = "job" // or whatever the owner is: a pod, a container, a user
	ByModel By = "model"
	ByGPU   By = "gpu"
)

// Groups returns what there can be a line for.
func Groups() []string {
	return []string{string(ByTeam), string(ByJob), string(ByModel), string(ByGPU)}
}

// Format is how a report is written.
type Format string

// The formats.
const (
	Table Format = "table" // for people; rounded so that lines sum to the total
	CSV   Format = "csv"   // a line for each state, exact
	JSON  Format = "json"  // whole numbers, exact
	FOCUS Format = "focus" // FOCUS 1.2, by owner, model and state, whatever the lines are by
)

// Formats returns the formats.
func Formats() []string { return []string{string(Table), string(CSV), string(JSON), string(FOCUS)} }

// Report is costs by something.
type Report struct {
	Node      string       `json:"node"`
	Simulated bool         `json:"simulated"`
	Since     time.Time    `json:"since"`
	Until     time.Time    `json:"until"`
	By        By           `json:"by"`
	Busy      string       `json:"busy"`           // what counts as busy
	Prices    []cost.Price `json:"prices"`         // in force now
	Lines     []Line       `json:"lines"`          // the dearest first
	Totals    []Line       `json:"totals"`         // one for each currency
	Gaps      []cost.Gap   `json:"gaps,omitempty"` // what is missing from all of them

	answer *cost.Answer
	leaves []Line // what is rounded: jobs of teams, else the lines
}

// Line is what something cost.
type Line struct {
	Key      string                      `json:"key"`
	Currency string                      `json:"currency"`
	Total    cost.Amounts                `json:"total"` // with what is not known by state: energy and carbon, from a time-series database
	States   map[cost.State]cost.Amounts `json:"states"`

	// Work is what was done, by job and team only: of a GPU or a model it is not known.
	Work cost.Work `json:"work,omitzero"`

	// The first and the last step in which there was any time: from First on, to Last.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`

	team string // of a leaf: what it is rounded within
}

func (l *Line) add(r *cost.Row, from, until time.Time) {
	l.Total = l.Total.Plus(r.Amounts)
	l.States[r.State] = l.States[r.State].Plus(r.Amounts)
	if r.Time == 0 {
		return
	}
	if l.First.IsZero() || from.Before(l.First) {
		l.First = from
	}
	if until.After(l.Last) {
		l.Last = until
	}
}

// BusyShare returns which part of the time was busy, from 0 to 1; NaN without any.
func (l *Line) BusyShare() float64 { return float64(l.States[cost.Busy].Time) / float64(l.Total.Time) }

// PerBusyHour returns what an hour of useful work cost, in billionths of the
// currency: all that was paid, over the busy GPU-hours. It is NaN or infinite without
// any.
func (l *Line) PerBusyHour() float64 {
	return float64(l.Total.Effective) / (float64(l.States[cost.Busy].Time) / cost.PerHour)
}

// New adds up an answer. since is what was asked for; a zero one is whatever there
// is. A span that begins before the first that was booked is refused: what is not
// there would look like nothing spent.
func New(a *cost.Answer, since time.Time, by By) (*Report, error) {
	if len(a.Rows) == 0 {
		return nil, fmt.Errorf("nothing was booked on %s in that time: the ledger begins with the first look at a GPU, and is written every 30 s", a.Node)
	}
	if begins := a.Since.Add(-slack); !since.IsZero() && begins.After(since) {
		return nil, fmt.Errorf("%s has booked nothing before %s: %s", a.Node, a.Since.Format(time.RFC3339), advice(a.Since, a.Until))
	}
	r := &Report{Node: a.Node, Simulated: a.Simulated, Since: a.Since, Until: a.Until, By: by, Busy: a.Busy, Prices: a.Prices, Gaps: a.Gaps, answer: a}
	leaf := func(l lines, row cost.Row) *Line {
		job, team := key(row, by), key(row, by)
		if by == ByTeam || by == ByJob {
			job, team = key(row, ByJob), key(row, ByTeam)
		}
		return l.within(team, job, row.Currency)
	}
	lines, totals, leaves := lines{}, lines{}, lines{}
	for _, row := range a.Rows {
		end := stepEnd(row.Hour, a.Width(), a.Until)
		from := later(row.Hour, a.Since)
		lines.at(key(row, by), row.Currency).add(&row, from, end)
		totals.at("TOTAL", row.Currency).add(&row, from, end)
		leaf(leaves, row).add(&row, from, end)
	}
	if by != ByGPU {
		for _, s := range a.Shared {
			line := lines.at(key(cost.Row{Owner: s.Owner, Model: s.Model}, by), s.Currency)
			total := totals.at("TOTAL", s.Currency)
			line.Total, total.Total = line.Total.Plus(s.Amounts), total.Total.Plus(s.Amounts)
			l := leaf(leaves, cost.Row{Owner: s.Owner, Model: s.Model, Currency: s.Currency})
			l.Total = l.Total.Plus(s.Amounts)
		}
	}
	if by == ByJob || by == ByTeam {
		for _, w := range a.Work {
			line, total := lines.at(key(cost.Row{Owner: w.Owner}, by), w.Currency), totals.at("TOTAL", w.Currency)
			line.Work, total.Work = line.Work.Plus(w.Work), total.Work.Plus(w.Work)
			leaf(leaves, cost.Row{Owner: w.Owner, Currency: w.Currency})
		}
	}
	r.Lines, r.Totals, r.leaves = lines.sorted(), totals.sorted(), leaves.sorted()
	return r, nil
}

// slack is by how much what is known may begin after a report does: counters are
// scraped a few times in it.
const slack = 2 * time.Minute

// advice says which --since is not refused where there is something from first on.
func advice(first, until time.Time) string {
	known := until.Sub(first)
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if n := int(known / unit.length); n > 0 {
			return fmt.Sprintf("ask with --since=%d%s, or --since=all for what there is", n, unit.name)
		}
	}
	return "ask with --since=all for what there is"
}

// lines are by team, where that matters, key and currency.
type lines map[[3]string]*Line

func (l lines) at(key, currency string) *Line { return l.within("", key, currency) }

func (l lines) within(team, key, currency string) *Line {
	k := [3]string{team, key, currency}
	if l[k] == nil {
		l[k] = &Line{Key: key, Currency: currency, States: map[cost.State]cost.Amounts{}, team: team}
	}
	return l[k]
}

func (l lines) sorted() []Line {
	var out []Line
	for _, line := range l {
		out = append(out, *line)
	}
	slices.SortFunc(out, func(a, b Line) int {
		return cmp.Or(strings.Compare(a.Currency, b.Currency), cmp.Compare(b.Total.Effective, a.Total.Effective),
			cmp.Compare(b.Total.Time, a.Total.Time), strings.Compare(a.Key, b.Key), strings.Compare(a.team, b.team))
	})
	return out
}

// maxKey is what fits on a line.
const maxKey = 80

// key returns what the row is added up under. Names are untrusted.
func key(r cost.Row, by By) string {
	switch by {
	case ByTeam:
		return text.Clean(cost.Team(r.Owner), maxKey)
	case ByJob:
		return text.Clean(r.Owner.String(), maxKey)
	case ByModel:
		return text.Clean(cmp.Or(r.Model, "unknown model"), maxKey)
	default:
		return text.Clean(fmt.Sprintf("%d %s", r.GPU, r.UUID), maxKey)
	}
}

// Write writes the report.
func (r *Report) Write(w io.Writer, f Format) error {
	switch f {
	case CSV:
		return r.csv(w)
	case JSON:
		return r.json(w)
	case FOCUS:
		return focus(w, r.answer)
	}
	return r.grids(w)
}

// header says of what the report is, what counts as busy and whose prices it goes by.
func (r *Report) header() []string {
	simulated := ""
	if r.Simulated {
		simulated = " (SIMULATED)"
	}
	out := []string{
		fmt.Sprintf("Cost of the GPUs of %s%s by %s, from %s to %s", text.Clean(r.Node, maxKey), simulated, r.By, r.Since.UTC().Format(minute), r.Until.UTC().Format(minute)),
		"Busy: " + r.Busy + ".",
	}
	return append(append(out, r.prices()...), saysGaps(r.Gaps)...)
}

const minute = "2006-01-02 15:04 MST"

// prices says what each kind of GPU costs now, and who says so.
func (r *Report) prices() []string {
	count := map[string]int{}
	for _, p := range r.Prices {
		says := fmt.Sprintf("%s: no price is known: give one under prices.own", text.Clean(p.Model, maxKey))
		if p.Kind != "" {
			says = fmt.Sprintf("%s: %s %s per GPU-hour, %s price", text.Clean(p.Model, maxKey), decimal(p.Nano, 9, 2), p.Currency, p.Kind)
			for _, more := range []string{strings.TrimSpace(p.Provider + " " + p.Region), p.Source} {
				if more != "" {
					says += ", " + text.Clean(more, maxKey)
				}
			}
			if p.AsOf != "" {
				says += ", as of " + p.AsOf
			}
		}
		count[says]++
	}
	var out []string
	for _, says := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("Price now: %d × %s.", count[says], says))
	}
	return out
}
