package docs_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

var (
	link    = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	flagged = regexp.MustCompile("(?:^|[\\s`(\\[])(--[a-z][a-z.-]*[a-z])")
	metrics = regexp.MustCompile(`\bvigil_[a-z0-9_]+`)
)

// anchor is what GitHub makes of a heading.
func anchor(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(text)) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, m := range heading.FindAllStringSubmatch(read(t, path), -1) {
		all = append(all, anchor(m[1]))
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
				continue
			}
			if u.IsAbs() {
				continue
			}
			target := page
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(page), u.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere: %v", page, m[1], err)
				continue
			}
			if u.Fragment != "" && !slices.Contains(anchors(t, target), u.Fragment) {
				t.Errorf("%s: %s has no heading #%s", page, target, u.Fragment)
			}
		}
	}
}

// TestRunbooksExist: alerts and messages point to these headings.
func TestRunbooksExist(t *testing.T) {
	known := anchors(t, "rules.md")
	for _, r := range rules.All() {
		if !slices.Contains(known, r.Runbook) {
			t.Errorf("docs/rules.md has no heading for %s, where its alerts point to", r.Runbook)
		}
	}
	source, err := rules.Prometheus(rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`docs/rules\.md#([a-z_]+)`).FindAllStringSubmatch(string(source), -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("docs/rules.md has no heading %s, where an alert points to", m[1])
		}
	}
}

// TestRulesAreDescribedAlike holds every rule's section to the same headings. A rule that
// judges by statistics or needs facts that may be absent also has what it does not see.
func TestRulesAreDescribedAlike(t *testing.T) {
	page := read(t, "rules.md")
	want := []string{"What it means", "Why it fires", "What to do", "How to tune it", "Source"}
	wantAlso := slices.Insert(slices.Clone(want), 2, "What it does not see")
	for _, r := range rules.All() {
		_, section, ok := strings.Cut(page, "\n## "+r.Runbook+"\n")
		if !ok {
			t.Errorf("rule %s has no section", r.ID)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want) && !slices.Equal(got, wantAlso) {
			t.Errorf("rule %s has the headings %q, want %q", r.ID, got, want)
		}
	}
}

// othersFlags are flags in the text that are not gpuvigil's.
var othersFlags = []string{"--now", "--min-time", "--data", "--kind", "--out"} // systemctl, promtool, detscore

func TestFlagsExist(t *testing.T) {
	known := help(t)
	for _, c := range commands(t) {
		if c[0] != "help" {
			known += help(t, strings.Fields(c[0])...)
		}
	}
	for _, page := range pages(t) {
		for _, m := range flagged.FindAllStringSubmatch(read(t, page), -1) {
			name := strings.TrimPrefix(m[1], "--")
			if !slices.Contains(othersFlags, m[1]) && !regexp.MustCompile(`--(\[no-\])?`+regexp.QuoteMeta(name)+`\b`).MatchString(known) {
				t.Errorf("%s: gpuvigil has no flag %s", page, m[1])
			}
		}
	}
}

func TestMetricsExist(t *testing.T) {
	source, err := rules.Prometheus(rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages(t) {
		content := read(t, page)
		for _, at := range metrics.FindAllStringIndex(content, -1) {
			name := content[at[0]:at[1]]
			if prefix := strings.TrimSuffix(name, "_"); prefix != name || strings.HasPrefix(content[at[1]:], "*") {
				if !slices.ContainsFunc(metric.All(), func(d *metric.Def) bool { return strings.HasPrefix(d.Name, name) }) {
					t.Errorf("%s: no metric begins with %s", page, name)
				}
				continue
			}
			if _, err := metric.ByName(name); err != nil && !strings.Contains(string(source), name) {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestTextsAreAboutTheProduct: a reader has another machine than the one that the
// text was written on.
func TestTextsAreAboutTheProduct(t *testing.T) {
	for _, page := range pages(t) {
		content := read(t, page)
		for _, foreign := range []string{"/root/", "/home/", "/tmp/gpuvigil"} {
			if strings.Contains(content, foreign) {
				t.Errorf("%s names the path %s of somebody's machine", page, foreign)
			}
		}
	}
}

// TestVerdictsAreDescribed holds the page of verdicts to the closed set.
func TestVerdictsAreDescribed(t *testing.T) {
	page := read(t, "verdicts.md")
	for _, v := range detect.VerdictNames {
		if strings.Count(page, "| `"+string(v)+"` |") != 1 {
			t.Errorf("docs/verdicts.md does not have exactly one row for the verdict %s", v)
		}
	}
}
