package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/rules"
)

// weekOf is what was told in one week.
type weekOf struct {
	From  time.Time
	Weeks float64 // GPU-weeks that were watched in it
	Told  [3]int
}

// weeks returns what was told week by week.
func (r *Replayed) weeks() []weekOf {
	by := map[time.Time]*weekOf{}
	at := func(t time.Time) *weekOf {
		if by[t] == nil {
			by[t] = &weekOf{From: t}
		}
		return by[t]
	}
	for _, rec := range r.Recordings {
		for from, watched := range rec.weeks {
			at(from).Weeks += watched.Hours() / week.Hours()
		}
		for _, t := range rec.Told {
			at(monday(t.First)).Told[t.Incident.Severity]++
		}
	}
	var out []weekOf
	for _, from := range slices.SortedFunc(maps.Keys(by), time.Time.Compare) {
		out = append(out, *by[from])
	}
	return out
}

// subjectWeeks is how often something was what an incident was about.
type subjectWeeks struct {
	Node    string         `json:"node"`
	Subject string         `json:"subject"`
	All     int            `json:"incidents"`
	Weeks   map[string]int `json:"by_week"` // by the week's Monday
}

// subjects returns what incidents were about, most incidents first.
func (r *Replayed) subjects() []subjectWeeks {
	by := map[[2]string]*subjectWeeks{}
	for _, t := range r.Told() {
		f := &t.Incident.Members[0]
		key := [2]string{f.Node, f.Subject.String()}
		if by[key] == nil {
			by[key] = &subjectWeeks{Node: key[0], Subject: key[1], Weeks: map[string]int{}}
		}
		by[key].All++
		by[key].Weeks[monday(t.First).Format(time.DateOnly)]++
	}
	out := make([]subjectWeeks, 0, len(by))
	for _, s := range by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b subjectWeeks) int {
		return cmp.Or(cmp.Compare(b.All, a.All), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

const (
	shownSubjects = 20
	shownWeeks    = 8 // in columns; the table of weeks has all
)

// writeHistory writes what a history has beside a recording.
func (r *Replayed) writeHistory(t *table) {
	weeks := r.weeks()
	t.line("\nWEEK OF\tGPU-WEEKS\tPAGES\tTICKETS\tINFO\tALL A GPU-WEEK")
	for _, w := range weeks {
		per := "-"
		if w.Weeks > 0 {
			per = decimal(float64(w.Told[0]+w.Told[1]+w.Told[2]) / w.Weeks)
		}
		t.line("%s\t%s\t%d\t%d\t%d\t%s", w.From.Format(time.DateOnly), decimal(w.Weeks), w.Told[rules.Page], w.Told[rules.Ticket], w.Told[rules.Info], per)
	}
	if subjects := r.subjects(); len(subjects) > 0 {
		columns := weeks[max(0, len(weeks)-shownWeeks):]
		head := "\nSUBJECT\tNODE\tINCIDENTS"
		for _, w := range columns {
			head += "\t" + w.From.Format(time.DateOnly)
		}
		t.line("%s", head)
		for _, s := range subjects[:min(len(subjects), shownSubjects)] {
			row := []string{clean(s.Subject), clean(s.Node), fmt.Sprint(s.All)}
			for _, w := range columns {
				row = append(row, fmt.Sprint(s.Weeks[w.From.Format(time.DateOnly)]))
			}
			t.line("%s", strings.Join(row, "\t"))
		}
		if more := len(subjects) - shownSubjects; more > 0 {
			t.line("and %s.", some(more, "other subject", "other subjects"))
		}
	}
	r.writeBudgets(t)
}

func (r *Replayed) writeBudgets(t *table) {
	t.line("\nALERT BUDGET OF %d GPUS\tPAGES\tTICKETS\tINFO%s", r.GPUs, r.column("\tPRECISION\tRECALL\tF1\tDELAY MEDIAN\tDELAY 95 %"))
	for i := range r.Budgets {
		b, f := &r.Budgets[i], &r.Budgets[i].Figures
		t.line("false a week: pages %s, tickets %s\t%d\t%d\t%d%s", decimal(b.Pages), decimal(b.Tickets), b.Told[rules.Page], b.Told[rules.Ticket], b.Told[rules.Info],
			r.column(fmt.Sprintf("\t%s\t%s\t%s\t%s\t%s", shareText(f.Precision()), shareText(f.Recall()), shareText(f.F1()), f.delayText(0.5), f.delayText(0.95))))
	}
}

// historyJSON is what a history has beside a recording.
type historyJSON struct {
	GPUs     int            `json:"gpus"` // the most at one time
	Weeks    []weekJSON     `json:"weeks"`
	Subjects []subjectWeeks `json:"subjects"`
	Budgets  []budgetJSON   `json:"budgets"`
}

type weekJSON struct {
	From    string  `json:"from"`
	Weeks   float64 `json:"gpu_weeks"`
	Pages   int     `json:"pages"`
	Tickets int     `json:"tickets"`
	Info    int     `json:"info"`
}

type budgetJSON struct {
	FalsePages   float64      `json:"false_pages_a_week"`
	FalseTickets float64      `json:"false_tickets_a_week"`
	Pages        int          `json:"pages"`
	Tickets      int          `json:"tickets"`
	Info         int          `json:"info"`
	Figures      *figuresJSON `json:"figures,omitempty"` // only with labels
}

func (r *Replayed) historyJSON() *historyJSON {
	if !r.History {
		return nil
	}
	h := &historyJSON{GPUs: r.GPUs, Subjects: r.subjects()}
	for _, w := range r.weeks() {
		h.Weeks = append(h.Weeks, weekJSON{w.From.Format(time.DateOnly), w.Weeks, w.Told[rules.Page], w.Told[rules.Ticket], w.Told[rules.Info]})
	}
	for i := range r.Budgets {
		b := &r.Budgets[i]
		one := budgetJSON{b.Pages, b.Tickets, b.Told[rules.Page], b.Told[rules.Ticket], b.Told[rules.Info], nil}
		if r.Labelled {
			one.Figures = r.figuresJSON(&b.Figures)
		}
		h.Budgets = append(h.Budgets, one)
	}
	return h
}

// historyBars are the charts of weeks and budgets.
func (r *Replayed) historyBars() []bars {
	if !r.History {
		return nil
	}
	byWeek, byBudget := bars{Title: "Incidents by week"}, bars{Title: fmt.Sprintf("Incidents by alert budget of %d GPUs", r.GPUs)}
	group := func(b *bars, name string, told [3]int, most int) {
		for s := len(told) - 1; s >= 0; s-- {
			if told[s] > 0 {
				b.add(name, rules.Severity(s).String(), float64(told[s])/float64(most), fmt.Sprint(told[s]))
			}
		}
	}
	most := 1
	weeks := r.weeks()
	for _, w := range weeks {
		most = max(most, slices.Max(w.Told[:]))
	}
	for _, w := range weeks {
		group(&byWeek, "week of "+w.From.Format(time.DateOnly), w.Told, most)
	}
	most = 1
	for _, b := range r.Budgets {
		most = max(most, slices.Max(b.Told[:]))
	}
	for _, b := range r.Budgets {
		group(&byBudget, decimal(b.Tickets)+" tickets a week", b.Told, most)
	}
	return []bars{byWeek, byBudget}
}
