package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// selector picks the series of one catalogue row that the reader has chosen.
type selector struct {
	row    *metric.Def
	where  []string
	suffix string // of the row's name: _bucket of a histogram
}

// sel selects a row's series of the chosen instances and GPUs that match all of
// where, too.
func sel(row *metric.Def, where ...string) selector { return selector{row: row, where: where} }

// String writes the selector in PromQL.
func (s selector) String() string {
	matchers := []string{fmt.Sprintf(`instance=~"$%s"`, VarInstance)}
	if slices.Contains(s.row.LabelNames(), "gpu") {
		matchers = append(matchers, fmt.Sprintf(`gpu=~"$%s"`, VarGPU))
	}
	return fmt.Sprintf("%s%s{%s}", s.row, s.suffix, strings.Join(append(matchers, s.where...), ","))
}

// query is one expression of a panel.
type query struct {
	legend string // legend format; in a table the title of the column, none hides it
	expr   string
	unit   string
	whole  bool   // 1 is all that there can be
	alarm  string // colour of a value of 1 and more
	words  []word // what the values mean
	lead   bool   // in a table its column stands before the labels
	rows   []*metric.Def
}

// ask is the general query: format with the selectors in it.
func ask(legend, unit, format string, selectors ...selector) query {
	args := make([]any, len(selectors))
	q := query{legend: legend, unit: unit}
	for i, s := range selectors {
		args[i] = s
		q.rows = append(q.rows, s.row)
	}
	q.expr = fmt.Sprintf(format, args...)
	return q
}

// value asks for a gauge as it is. Grafana's dates are in milliseconds.
func value(legend string, s selector) query {
	u := unitOf(s.row)
	if u.value == unitDate {
		return ask(legend, u.value, "%s * 1000", s)
	}
	q := ask(legend, u.value, "%s", s)
	q.whole = isShare(s.row)
	return q
}

// rate asks how fast a counter grows.
func rate(legend, by string, s selector) query {
	return ask(legend, unitOf(s.row).perSecond, "sum by ("+by+") (rate(%s[$__rate_interval]))", s)
}

// increase asks by how much a counter that is always exported has grown.
func increase(legend, by, window string, s selector) query {
	return ask(legend, unitOf(s.row).value, "sum by ("+by+") (increase(%s["+window+"]))", s)
}

// grown is increase for a counter that appears only with its first event: what
// was not there at the beginning of the window has grown by all that it shows,
// which increase alone would miss.
func grown(legend, by, window string, s selector) query {
	return ask(legend, unitOf(s.row).value,
		"sum by ("+by+") ((%[1]s unless %[1]s offset "+window+") or increase(%[1]s["+window+"]))", s)
}

// share asks for one gauge as a part of another with the same labels.
func share(legend string, part, all selector) query {
	q := ask(legend, unitShare, "%s / %s", part, all)
	q.whole = true
	return q
}

// per keeps only the labels in by, so that queries of one table have the same.
func per(by string, q query) query {
	q.expr = fmt.Sprintf("max by (%s) (%s)", by, q.expr)
	return q
}

// total adds a gauge up over everything chosen, at each instant.
func total(legend string, s selector) query {
	return ask(legend, unitOf(s.row).value, "sum(%s)", s)
}

// orZero makes a count 0 where nothing is counted but an agent tells: no series
// of known means that nobody knows, and the count stays absent.
func (q query) orZero(known selector) query {
	q.expr = fmt.Sprintf("%s or 0 * count(%s)", q.expr, known)
	q.rows = append(q.rows, known.row)
	return q
}

// alarming colours the query's value if it is 1 or more.
func (q query) alarming(color string) query {
	q.alarm = color
	return q
}

// meaning shows words for the query's values.
func (q query) meaning(words ...word) query {
	q.words = words
	return q
}

// leading puts the query's column before the labels.
func (q query) leading() query {
	q.lead = true
	return q
}
