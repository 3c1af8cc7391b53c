package backtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

//go:embed charts.html
var chartsHTML string

// charts is parsed once. The template escapes everything that it shows by where it
// stands: names in a recording are anybody's.
var charts = template.Must(template.New("charts").Parse(chartsHTML))

// Sizes of the drawings, in pixels.
const (
	chartWidth = 900.0
	chartLeft  = 190.0
	chartRow   = 24.0
)

// timeline is one recording: a row for the labels and for each rule that told anything, with
// its findings.
type timeline struct {
	File, Node, From, To string
	Height               float64
	Rows                 []timelineRow
}

type timelineRow struct {
	Y     float64
	Name  string
	Marks []mark
}

type mark struct {
	X, Width    float64
	Class, Says string
}

// bars is one group of horizontal bars.
type bars struct {
	Title  string
	Height float64
	Bars   []bar
}

type bar struct {
	Y, Width         float64
	Name, Value, Css string
}

// WriteCharts writes one HTML page with all its drawings in it.
func (r *Replayed) WriteCharts(w io.Writer) error {
	page := struct {
		Width, Left, Row float64
		Labelled         bool
		Summary          [][2]string
		Timelines        []timeline
		Bars             []bars
	}{Width: chartWidth + chartLeft + 70, Left: chartLeft, Row: chartRow, Labelled: r.Labelled, Summary: r.summary()}
	for i := range r.Recordings {
		if t := r.timeline(&r.Recordings[i]); len(t.Rows) > 0 || !r.History { // of a fleet most nodes have nothing
			page.Timelines = append(page.Timelines, t)
		}
	}
	page.Bars = append(r.bars(), r.historyBars()...)
	return charts.Execute(w, page)
}

func (r *Replayed) summary() [][2]string {
	x := r.Alerts(rules.Page)
	what := "recordings"
	if r.History {
		what = "nodes"
	}
	out := [][2]string{{what, fmt.Sprint(len(r.Recordings))}, {"GPU-weeks", decimal(x.Exposure)},
		{"pages", fmt.Sprint(x.Count)}, {"tickets", fmt.Sprint(r.Alerts(rules.Ticket).Count)}}
	if r.Labelled {
		f := &r.Figures
		out = append(out, [2]string{"precision", shareText(f.Precision())}, [2]string{"recall", shareText(f.Recall())}, [2]string{"F1", shareText(f.F1())})
	}
	return out
}

func (r *Replayed) timeline(rec *Recording) timeline {
	t := timeline{File: clean(rec.File), Node: clean(rec.Node), From: stamp(rec.From), To: stamp(rec.To)}
	lasts := rec.To.Sub(rec.From).Seconds()
	place := func(from, to time.Time, class, says string) mark {
		if to.IsZero() || to.After(rec.To) {
			to = rec.To
		}
		if from.Before(rec.From) {
			from = rec.From
		}
		x := chartWidth * from.Sub(rec.From).Seconds() / max(lasts, 1)
		return mark{X: chartLeft + x, Width: max(3, chartWidth*to.Sub(from).Seconds()/max(lasts, 1)), Class: class, Says: says}
	}
	row := func(name string) *timelineRow {
		i := slices.IndexFunc(t.Rows, func(r timelineRow) bool { return r.Name == name })
		if i < 0 {
			i = len(t.Rows)
			t.Rows = append(t.Rows, timelineRow{Name: name, Y: float64(i) * chartRow})
		}
		return &t.Rows[i]
	}
	for _, truth := range r.Truths {
		if (truth.Node == "" || truth.Node == rec.Node) && truth.From.Before(rec.To) && truth.To.After(rec.From) {
			l := row("labels")
			l.Marks = append(l.Marks, place(truth.From, truth.To, "label", clean(truth.Kind)))
		}
	}
	for i := range rec.Told {
		for _, f := range rec.Told[i].Incident.Members {
			l := row(string(f.Rule))
			l.Marks = append(l.Marks, place(f.Fired, f.Resolved, f.Severity.String(), clean(f.Subject.String()+": "+f.Evidence.Seen)))
		}
	}
	t.Height = float64(max(1, len(t.Rows))) * chartRow
	return t
}

func (r *Replayed) bars() []bars {
	byRule := bars{Title: "Findings by rule"}
	count := map[rules.ID][3]int{}
	for _, t := range r.Told() {
		for _, f := range t.Incident.Members {
			n := count[f.Rule]
			n[f.Severity]++
			count[f.Rule] = n
		}
	}
	most := 1
	for _, n := range count {
		most = max(most, n[0], n[1], n[2])
	}
	for _, rule := range rules.All() {
		for s, n := range count[rule.ID] {
			if n > 0 {
				byRule.add(string(rule.ID), rules.Severity(s).String(), float64(n)/float64(most), fmt.Sprint(n))
			}
		}
	}
	out := []bars{byRule}
	if r.Labelled {
		delays := bars{Title: "Time from the beginning of a fault to its finding"}
		longest := max(r.Figures.Delay(1), time.Second)
		for _, f := range r.Found {
			if f.Rule == "" {
				delays.add(clean(f.Truth.Kind), "missed", 0, "missed")
			} else {
				delays.add(clean(f.Truth.Kind), "found", f.After.Seconds()/longest.Seconds(), fmt.Sprintf("%s, %s", text.Span(f.After), f.Rule))
			}
		}
		out = append(out, delays)
	}
	return out
}

func (b *bars) add(name, class string, share float64, value string) {
	b.Bars = append(b.Bars, bar{Y: float64(len(b.Bars)) * chartRow, Width: max(1, 0.8*chartWidth*share), Name: name, Value: value, Css: class})
	b.Height = float64(len(b.Bars)) * chartRow
}
