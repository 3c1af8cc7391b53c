package backtest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// FleetSizes are those for which alarms are worked out, in GPUs.
var FleetSizes = []int{8, 200, 2000, 10000}

// WriteText writes what came of a replay for people.
func (r *Replayed) WriteText(w io.Writer) error {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.line("RECORDING\tNODE\tGPUS\tFROM\tTO\tFRAMES\tGPU-WEEKS\tPAGES\tTICKETS\tINFO")
	for _, rec := range r.Recordings {
		n := Severities(rec.Told)
		t.line("%s\t%s\t%d\t%s\t%s\t%d\t%s\t%d\t%d\t%d", clean(rec.File), clean(rec.Node), rec.GPUs, stamp(rec.From), stamp(rec.To), rec.Frames, decimal(rec.GPUWeeks),
			n[rules.Page], n[rules.Ticket], n[rules.Info])
	}
	if damaged := r.damaged(); damaged > 0 {
		t.line("\n%s left out.", some(damaged, "damaged frame was", "damaged frames were"))
	}
	for _, rec := range r.Recordings {
		if rec.Missing != "" {
			t.line("\n%s could be read up to %s: %s. Of what came after it nothing is known here.", clean(rec.File), stamp(rec.To), clean(rec.Missing))
		}
	}
	r.writeTold(t)
	if r.Labelled {
		r.writeLabelled(t)
	}
	r.writeRates(t)
	if r.History {
		r.writeHistory(t)
	}
	return t.flush()
}

func (r *Replayed) damaged() (n int) {
	for _, rec := range r.Recordings {
		n += rec.Damaged
	}
	return n
}

func (r *Replayed) writeTold(t *table) {
	told := r.Told()
	if len(told) == 0 {
		t.line("\nNothing was found.")
		return
	}
	t.line("\nTIME\tINCIDENT\tRULE\tFINDING\tSUBJECT\tNODE\tLASTED\t%sWHAT WAS SEEN", r.column("LABEL\t"))
	for i := range told {
		in := &told[i].Incident
		f := &in.Members[0]
		lasted := "to the end"
		if !in.Resolved.IsZero() {
			lasted = text.Span(in.Resolved.Sub(in.Opened))
		}
		severity := in.Severity.String()
		if by := gravest(in); by != nil && by != f {
			severity += " by " + string(by.Rule)
		}
		t.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s", stamp(told[i].First), severity, f.Rule, f.Severity, clean(f.Subject.String()), clean(f.Node), lasted, r.column(r.verdictOf(&told[i])+"\t"), clean(f.Evidence.Seen))
	}
}

// gravest returns the finding by which the incident is as severe as it is; nil if that
// one has become less severe since.
func gravest(in *detect.Incident) *detect.Finding {
	for i := range in.Members {
		if f := &in.Members[i]; f.Severity == in.Severity && f.Suppressed == "" {
			return f
		}
	}
	return nil
}

// column is there only if there are labels.
func (r *Replayed) column(s string) string {
	if r.Labelled {
		return s
	}
	return ""
}

func (r *Replayed) verdictOf(t *Told) string {
	for i := range r.False {
		if r.False[i].Incident.ID == t.Incident.ID {
			return "false"
		}
	}
	return "right"
}

func (r *Replayed) writeLabelled(t *table) {
	head := "\nLABEL\tNODE\tFROM\tTO\tFOUND BY\tAFTER"
	if len(r.Found) == 0 {
		head = "\nNo labels of the recorded time: there is nothing to find, and whatever was told counts as false."
	}
	t.line("%s", head)
	for _, f := range r.Found {
		by, after := "missed", "-"
		if f.Rule != "" {
			by, after = string(f.Rule), text.Span(f.After)
		}
		t.line("%s\t%s\t%s\t%s\t%s\t%s", clean(f.Truth.Kind), clean(f.Truth.Node), stamp(f.Truth.From), stamp(f.Truth.To), by, after)
	}
	if r.Outside > 0 {
		t.line("%s of no recorded time and %s not count.", some(r.Outside, "label is", "labels are"), verb(r.Outside, "does", "do"))
	}
	f := &r.Figures
	t.line("\nPRECISION\tRECALL\tF1\tFOUND\tFALSE PAGES\tFALSE TICKETS\tDELAY MEDIAN\tDELAY 95 %%")
	t.line("%s\t%s\t%s\t%d of %d\t%d\t%d\t%s\t%s", shareText(f.Precision()), shareText(f.Recall()), shareText(f.F1()), f.Found, f.Truths, f.False[rules.Page], f.False[rules.Ticket],
		f.delayText(0.5), f.delayText(0.95))
}

// shareText is "-" for a share of nothing.
func shareText(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.3f", share)
}

// delayText is "-" where nothing was found: that is no finding at once.
func (f *Figures) delayText(q float64) string {
	if f.Found == 0 {
		return "-"
	}
	return text.Span(f.Delay(q))
}

// writeRates writes how often people would have been told, here and in a fleet like it.
func (r *Replayed) writeRates(t *table) {
	what, rate := "ALERTS", r.Alerts
	if r.Labelled {
		what, rate = "FALSE ALERTS", r.Figures.Rate
	}
	head := what + "\tCOUNT\tA GPU-WEEK\tAT MOST (95 %%)"
	for _, n := range FleetSizes {
		head += fmt.Sprintf("\tA WEEK AT %d GPUS", n)
	}
	t.line("\n" + head)
	for _, s := range []rules.Severity{rules.Page, rules.Ticket, rules.Info} {
		x := rate(s)
		if x.Exposure == 0 {
			t.line("%s\t%d\tone frame is no time", s, x.Count)
			continue
		}
		row := fmt.Sprintf("%s\t%d\t%s\t%s", s, x.Count, decimal(x.Per()), decimal(x.AtMost()))
		for _, n := range FleetSizes {
			in := r.weekly(s, n)
			row += fmt.Sprintf("\t%s (at most %s)", decimal(in.Per()*float64(n)), decimal(in.AtMost()*float64(n)))
		}
		t.line("%s", row)
	}
}

// weekly is how often a GPU would have an alert of the severity in a fleet of so many
// GPUs, under its alert budget: what is a fact comes in proportion, and what is told from
// what is usual must be the more surprising.
func (r *Replayed) weekly(s rules.Severity, gpus int) Incidence {
	counted := r.Told()
	if r.Labelled {
		counted = r.False
	}
	need, n := needed(s, gpus), 0
	for i := range counted {
		in := &counted[i].Incident
		if in.Severity == s && slices.ContainsFunc(in.Members, func(f detect.Finding) bool { return f.Surprise == 0 || f.Surprise >= need }) {
			n++
		}
	}
	return Incidence{n, r.Figures.Watched.Hours() / week.Hours()}
}

// needed is the surprise, in nats, that the default budget asks of a statistical finding
// in a fleet of so many GPUs.
func needed(s rules.Severity, gpus int) float64 {
	if s >= rules.Page {
		return surprise(gpus, defaultBudget/ticketsAPage)
	}
	return surprise(gpus, defaultBudget)
}

// table keeps the first error.
type table struct {
	w   *tabwriter.Writer
	err error
}

func (t *table) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

func (t *table) flush() error {
	if t.err != nil {
		return t.err
	}
	return t.w.Flush()
}

func clean(s string) string { return text.Clean(s, 160) }

// decimal writes a number with four digits that count, and never with an exponent.
func decimal(x float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 3, 64), 64)
	if err != nil {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

func some(n int, one, many string) string { return fmt.Sprintf("%d %s", n, verb(n, one, many)) }

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
