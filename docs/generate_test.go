// Package docs_test holds the documentation to the product: what is generated is
// up to date, commands do what the text says, links lead somewhere.
package docs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// pages are the files that people read, from the root of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 8 {
		t.Fatalf("only %d pages of documentation were found: %v", len(all), all)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// generated matches a part of a page that is written by a generator.
var generated = regexp.MustCompile(`(?s)(<!-- generated: ([a-z_ ]+) -->\n)(.*?)(<!-- end -->)`)

// generators gives each generated part its content, in Markdown.
func generators(t *testing.T) map[string]func(*testing.T) string {
	all := map[string]func(*testing.T) string{
		"alert_budget": func(*testing.T) string { return budgetTable() },

		"rules":    func(*testing.T) string { return ruleTable() },
		"xid":      func(*testing.T) string { return xidTable() },
		"alerts":   alertTable,
		"commands": commandTable,

		"known_bad": func(*testing.T) string { return badVersionTable() },

		"series":  func(*testing.T) string { return seriesTable() },
		"engines": func(*testing.T) string { return engineTable() },
	}
	for _, r := range rules.All() {
		all["rule "+string(r.ID)] = func(*testing.T) string { return ruleFacts(r) }
	}
	for _, e := range entities() {
		all["metrics "+e.String()] = func(*testing.T) string { return metricTable(e) }
	}
	return all
}

func TestGeneratedPartsAreUpToDate(t *testing.T) {
	all := generators(t)
	used := map[string]bool{}
	for _, page := range pages(t) {
		content := read(t, page)
		want := generated.ReplaceAllStringFunc(content, func(part string) string {
			m := generated.FindStringSubmatch(part)
			used[m[2]] = true
			generate := all[m[2]]
			if generate == nil {
				t.Errorf("%s: nothing generates %q", page, m[2])
				return part
			}
			return m[1] + generate(t) + m[4]
		})
		if strings.Count(content, "<!-- generated:") != len(generated.FindAllString(content, -1)) {
			t.Errorf("%s: a generated part has no end", page)
		}
		golden.Check(t, page, want, "a generated part of the documentation is not what the code says")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !used[name] {
			t.Errorf("no page shows %q: put it between <!-- generated: %s --> and <!-- end -->", name, name)
		}
	}
}

// table writes a Markdown table; cells must not hold line breaks.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

func ruleTable() string {
	var rows [][]string
	for _, r := range rules.All() {
		severity := "at most " + r.Severity.String()
		if r.Severity == rules.Page {
			severity = "up to page"
		}
		rows = append(rows, []string{fmt.Sprintf("[%s](docs/rules.md#%s)", r.Title, r.Runbook), "`" + string(r.ID) + "`", severity, r.Meaning})
	}
	return table([]string{"finding", "rule", "severity", "what it means"}, rows)
}

// budgetTable is what the default alert budget asks of the statistical rules, as the
// engine says it of fleets of several sizes.
func budgetTable() string {
	var rows [][]string
	n := 0
	for _, gpus := range []int{8, 200, 2000, 10000} {
		standings := detect.NewEngine(detect.Config{Budget: detect.Budget{GPUs: gpus}}, detect.Detectors(detect.DetectorConfig{})).View().Standings
		standings = slices.DeleteFunc(standings, func(s detect.Standing) bool { return !s.Statistical })
		n = len(standings)
		s := standings[0]
		rows = append(rows, []string{fmt.Sprint(gpus), fmt.Sprintf("%.1f nats", s.Need), fmt.Sprintf("%.1f nats", s.NeedPage), fmt.Sprintf("%.0f", s.ProofWeeks)})
	}
	return table([]string{fmt.Sprintf("GPUs, with all %d such rules", n), "a ticket takes", "a page takes", "and clean GPU-weeks"}, rows)
}

func badVersionTable() string {
	var rows [][]string
	for _, b := range rules.BadVersionsKnown() {
		versions := "before " + b.Before
		if b.From != "" {
			versions = "from " + b.From + ", " + versions
		}
		if len(b.Models) > 0 {
			versions += "; beside " + strings.Join(b.Models, ", ")
		}
		rows = append(rows, []string{"`" + b.Component + "`", versions, b.Severity.String(), fmt.Sprintf("[%s](%s)", b.Why, b.Source)})
	}
	return table([]string{"component", "versions", "severity", "why"}, rows)
}

// ruleFacts is what the rule book says about one rule.
func ruleFacts(r *rules.Rule) string {
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	fires := "at once"
	if r.For > 0 {
		fires = "after the condition has held for " + span(r.For)
	}
	var watched []string
	for _, d := range r.Watch {
		watched = append(watched, "`"+d.Name+"`")
	}
	rows := [][]string{
		{"finding", r.Title},
		{"severity", "at most " + r.Severity.String()},
		{"sent in the first week", yes(r.Pages) + map[bool]string{true: ", as a page", false: ""}[r.Pages]},
		{"fires", fires},
		{"resolves", span(r.Hold) + " after the condition has gone"},
		{"observed and expected are in", r.Unit},
		{"watched readings", strings.Join(watched, ", ")},
	}
	if len(r.HiddenBy) > 0 {
		var by []string
		for _, id := range r.HiddenBy {
			by = append(by, "`"+string(id)+"`")
		}
		silent := "silent while the same GPU, its job or, of a job, one of its GPUs has as urgent a ticket or page of"
		if r.Work {
			silent = "silent while the same GPU, its job or any GPU of its job has as urgent a ticket or page of"
		}
		rows = append(rows, []string{silent, strings.Join(by, ", ")})
	}
	if r.Whole {
		var hides []string
		for _, other := range rules.All() {
			if slices.Contains(other.HiddenBy, r.ID) {
				hides = append(hides, "`"+string(other.ID)+"`")
			}
		}
		rows = append(rows, []string{"keeps silent on all GPUs of the node", strings.Join(hides, ", ")})
	}
	if r.State {
		rows = append(rows, []string{"state metric", fmt.Sprintf("`%s{rule=%q}`, with or without a finding", metric.Condition, r.ID)})
	}
	return table([]string{"", ""}, rows)
}

func xidTable() string {
	var rows [][]string
	last := rules.Xid{}
	unknown := rules.XidInfo(1 << 20)
	for code := range 1 << 10 {
		x := rules.XidInfo(code)
		if x == unknown {
			continue
		}
		if x == last {
			row := rows[len(rows)-1]
			row[0] += fmt.Sprintf(", %d", code)
			continue
		}
		rows = append(rows, []string{fmt.Sprint(code), string(x.Class), x.Severity.String(), x.Meaning, x.Action})
		last = x
	}
	return table([]string{"Xid", "class", "severity", "meaning", "what to do first"}, rows)
}

// entities are those with rows, in the catalogue's order of entities.
func entities() []metric.Entity {
	var out []metric.Entity
	for _, d := range metric.All() {
		if !slices.Contains(out, d.Entity) {
			out = append(out, d.Entity)
		}
	}
	slices.Sort(out)
	return out
}

func metricTable(e metric.Entity) string {
	var rows [][]string
	for _, d := range metric.Of(e) {
		kind := d.Kind.String()
		if d.Kind == metric.Info {
			kind = "info"
		}
		rows = append(rows, []string{"`" + d.Name + "`", kind, labelsOf(d), tierOf(d), sourceOf(d), d.Help})
	}
	return table([]string{"metric", "type", "further labels", "sampled", "from", "what it says"}, rows)
}

// labelsOf lists the labels that are the row's own, with the values of a closed one.
func labelsOf(d *metric.Def) string {
	var out []string
	for _, name := range d.LabelNames()[len(d.Entity.Labels()):] {
		label := "`" + name + "`"
		if d.Dim != nil && name == d.Dim.Label {
			label += ": " + strings.Join(d.Dim.Values, ", ")
		}
		out = append(out, label)
	}
	return strings.Join(out, "; ")
}

func tierOf(d *metric.Def) string {
	switch {
	case d.Sparse:
		return "a series from its first event on"
	case d.Detail && d.Entity == metric.Agent:
		return "a series in the full profile only"
	}
	switch d.Entity {
	case metric.Agent, metric.Source, metric.Finding, metric.Job, metric.Queue, metric.Waiting, metric.Pool, metric.Resource, metric.Scaler, metric.Scheduler, metric.Reader, metric.Role:
		return ""
	}
	if d.Detail {
		return d.Tier.String() + "; a series in the full profile only"
	}
	return d.Tier.String()
}

// sourceOf says which call of the driver a row comes from, and what DCGM calls it.
func sourceOf(d *metric.Def) string {
	var out []string
	if d.NVML != "" {
		out = append(out, "`"+d.NVML+"` in "+d.Raw)
	}
	if len(d.DCGM) > 0 {
		var names []string
		for _, n := range d.DCGM {
			names = append(names, n.Name)
		}
		out = append(out, "DCGM: `"+strings.Join(names, "`, `")+"`")
	}
	return strings.Join(out, "<br>")
}
