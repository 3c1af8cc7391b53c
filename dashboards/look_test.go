package dashboards

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"gpuvigil/internal/metric"
)

// A legend that names a label which the expression drops shows nothing there, and
// series that differ in a label that no legend names cannot be told apart.
func TestLegendsTellSeriesApart(t *testing.T) {
	forEach(t, func(t *testing.T, _ Dashboard, built dashboard.Dashboard) {
		for _, p := range panels(built) {
			for _, target := range p.Targets {
				q := target.(prometheus.Dataquery)
				if *q.Instant {
					continue
				}
				var named []string
				for _, m := range legendOf.FindAllStringSubmatch(*q.LegendFormat, -1) {
					named = append(named, m[1])
				}
				kept := keptLabels(t, q.Expr)
				for _, l := range named {
					if !slices.Contains(kept, l) {
						t.Errorf("panel %q: the legend %q names %s, which %s does not keep", *p.Title, *q.LegendFormat, l, q.Expr)
					}
				}
				for _, l := range kept {
					if !slices.Contains(named, l) && l != "uuid" && l != "engine" {
						t.Errorf("panel %q: the legend %q does not name %s, so two series may look the same: %s", *p.Title, *q.LegendFormat, l, q.Expr)
					}
				}
			}
		}
	})
}

// keptLabels returns the labels of an expression's result: those that it groups
// by, none for a total, or all of its first row.
func keptLabels(t *testing.T, expr string) []string {
	t.Helper()
	if strings.HasPrefix(expr, "sum(") {
		return nil
	}
	if inner, ok := strings.CutPrefix(expr, "histogram_quantile("); ok {
		_, inner, _ = strings.Cut(inner, ", ")
		return slices.DeleteFunc(keptLabels(t, inner), func(l string) bool { return l == "le" })
	}
	if m := keptOf.FindStringSubmatch(expr); m != nil {
		return strings.Split(m[1], ", ")
	}
	row, err := rowOf(nameOf.FindString(expr))
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"instance"}, row.LabelNames()...)
}

func TestTablesHaveTheColumnsTheyName(t *testing.T) {
	forEach(t, func(t *testing.T, _ Dashboard, built dashboard.Dashboard) {
		for _, p := range panels(built) {
			if p.Type != "table" {
				continue
			}
			fields := map[string]bool{"Time": true}
			for _, target := range p.Targets {
				q := target.(prometheus.Dataquery)
				for _, l := range keptLabels(t, q.Expr) {
					fields[l] = true
				}
				if fields["Value #"+*q.RefId] = true; len(p.Targets) == 1 {
					fields["Value"] = true
				}
			}
			options := p.Transformations[len(p.Transformations)-1].Options.(map[string]any)
			order, titles := options["indexByName"].(map[string]int), options["renameByName"].(map[string]string)
			for field := range order {
				if !fields[field] || titles[field] == "" {
					t.Errorf("table %q places the column %q, which its queries do not give or which has no title", *p.Title, field)
				}
			}
		}
	})
}

func TestUnitsComeFromTheNames(t *testing.T) {
	base := regexp.MustCompile(`_(bytes|watts|celsius|hertz|ratio|seconds|joules)(_total)?$`)
	for _, row := range metric.All() {
		u := unitOf(row)
		if base.MatchString(row.Name) && u.value == unitCount {
			t.Errorf("%s has a base unit in its name and would be drawn as a plain number", row)
		}
		if row.Kind == metric.Counter && u.perSecond == "" {
			t.Errorf("%s is a counter whose growth in a second has no unit", row)
		}
	}
	for row, want := range map[*metric.Def]unit{
		metric.PCIeThroughput: {"_bytes_per_second", "Bps", ""},
		metric.XidLast:        {"_timestamp_seconds", "dateTimeFromNow", ""},
		metric.Energy:         {"_joules_total", "joule", "watt"},
		metric.GPUPresent:     {"", "short", ""},
	} {
		if got := unitOf(row); got != want {
			t.Errorf("unit of %s is %+v, want %+v", row, got, want)
		}
	}
}
