package trial

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/backtest"
	"gpuvigil/internal/synth"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// Row is what came of all trials of one case.
type Row struct {
	Case   *synth.Case
	Trials int
	backtest.Figures
	By   map[rules.ID]int // trials in which the rule told of it, whatever else did
	Seen []string         // of what was told and is false
}

// Report is what came of many trials.
type Report struct {
	Rows     []Row
	All      backtest.Figures
	Verdicts map[string]map[string]int // GPU-minutes by the true verdict and the one told
}

// Sum puts the results of trials together, a row for each case.
func Sum(results []*Result) *Report {
	r := &Report{Verdicts: map[string]map[string]int{}}
	for _, one := range results {
		i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Case == one.Case })
		if i < 0 {
			i = len(r.Rows)
			r.Rows = append(r.Rows, Row{Case: one.Case, By: map[rules.ID]int{}})
		}
		r.Rows[i].add(one)
		r.All.Add(one.Judgement, one.Watched)
		r.judge(one)
	}
	return r
}

// judge adds the verdicts of a trial. Where several are right, and one of them was
// told, that is the true one.
func (r *Report) judge(one *Result) {
	for name, n := range one.Verdicts {
		truth := one.Case.Verdicts[0]
		if slices.Contains(one.Case.Verdicts, name) {
			truth = name
		}
		if r.Verdicts[truth] == nil {
			r.Verdicts[truth] = map[string]int{}
		}
		r.Verdicts[truth][name] += n
	}
}

func (row *Row) add(one *Result) {
	row.Trials++
	row.Figures.Add(one.Judgement, one.Watched)
	told := map[rules.ID]bool{}
	for _, in := range one.Right {
		for i := range in.Incident.Members {
			told[in.Incident.Members[i].Rule] = true
		}
	}
	for _, in := range one.False {
		if in.Incident.Severity == rules.Info {
			continue
		}
		f := &in.Incident.Members[0]
		told[f.Rule] = true
		row.Seen = append(row.Seen, fmt.Sprintf("%s %s/%s on %s at %s: %s", in.Incident.Severity, f.Rule, f.Cause, f.Subject, in.First.UTC().Format(time.DateTime), f.Evidence.Seen))
	}
	for id := range told {
		row.By[id]++
	}
}

// Right is the share of the time in which GPUs of which a verdict is true are given it.
func (r *Report) Right(truth string) float64 {
	total := 0
	for _, n := range r.Verdicts[truth] {
		total += n
	}
	return float64(r.Verdicts[truth][truth]) / float64(max(1, total))
}

// told lists the rules that told of a case, in the order of the rule book, with how
// often.
func (row *Row) told() string {
	var out []string
	for _, r := range rules.All() {
		if n := row.By[r.ID]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", r.ID, n))
		}
	}
	return strings.Join(out, ", ")
}

// Write writes the report as tables of Markdown.
func (r *Report) Write(w io.Writer) error {
	p := &printer{w: w}
	f := &r.All
	p.printf("| F1 | precision | recall | after, median and 95 %% |\n| --- | --- | --- | --- |\n")
	p.printf("| %.3f | %.3f | %.3f (%d of %d) | %s, %s |\n\n", f.F1(), f.Precision(), f.Recall(), f.Found, f.Truths, short(f.Delay(0.5)), short(f.Delay(0.95)))
	p.printf("| told of what was nothing | how often | in GPU-weeks | at most, by the 95 %% interval |\n| --- | --- | --- | --- |\n")
	for _, s := range []rules.Severity{rules.Ticket, rules.Page} {
		rate := f.Rate(s)
		p.printf("| %ss | %d | %.1f | %.3f a GPU-week |\n", s, rate.Count, rate.Exposure, rate.AtMost())
	}
	p.printf("\n")
	p.printf("| fault | its size | found | after, median and most | told by, in how many trials |\n| --- | --- | --- | --- | --- |\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		if !row.Case.Healthy() {
			p.printf("| %s | %s | %d of %d | %s | %s |\n", row.Case.Name, row.Case.Effect, row.Found, row.Trials, row.delays(), row.told())
		}
	}
	p.printf("\n| look-alike | what it is | false tickets, pages | told by |\n| --- | --- | --- | --- |\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Case.Healthy() {
			p.printf("| %s | %s | %d, %d | %s |\n", row.Case.Name, row.Case.Effect, row.False[rules.Ticket], row.False[rules.Page], row.told())
		}
	}
	if len(r.Verdicts) > 0 {
		r.writeVerdicts(p)
	}
	return p.err
}

func (row *Row) delays() string {
	if row.Found == 0 {
		return ""
	}
	return short(row.Delay(0.5)) + ", " + short(row.Delay(1))
}

// writeVerdicts writes the confusion matrix of the verdicts in per cent of each row.
func (r *Report) writeVerdicts(p *printer) {
	var truths, names []string
	for truth, told := range r.Verdicts {
		truths = append(truths, truth)
		for name := range told {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(truths)
	slices.Sort(names)
	p.printf("\n| true, and told in %% of the time | %s |\n| --- |%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)))
	for _, truth := range truths {
		total := 0
		for _, n := range r.Verdicts[truth] {
			total += n
		}
		p.printf("| %s |", truth)
		for _, name := range names {
			if n := r.Verdicts[truth][name]; n > 0 {
				p.printf(" %.0f |", 100*float64(n)/float64(total))
			} else {
				p.printf(" |")
			}
		}
		p.printf("\n")
	}
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// short writes a duration to the minute.
func short(d time.Duration) string {
	if d = d.Round(time.Minute); d == 0 {
		return "at once"
	}
	return text.Span(d)
}
