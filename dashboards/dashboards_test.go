package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"gpuvigil/internal/golden"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// forEach runs a test on every dashboard.
func forEach(t *testing.T, test func(*testing.T, Dashboard, dashboard.Dashboard)) {
	t.Helper()
	for _, d := range All() {
		t.Run(d.Name, func(t *testing.T) {
			built, err := d.Build()
			if err != nil {
				t.Fatalf("the SDK refuses the dashboard: %v", err)
			}
			test(t, d, built)
		})
	}
}

// panels returns the panels without the headings of rows.
func panels(d dashboard.Dashboard) []*dashboard.Panel {
	var found []*dashboard.Panel
	for _, p := range d.Panels {
		if p.Panel != nil {
			found = append(found, p.Panel)
		}
	}
	return found
}

func TestJSONIsWhatIsCommitted(t *testing.T) {
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		got := encode(t, d)
		golden.Check(t, filepath.Join("testdata", d.Name+".json"), string(got), "the dashboard is not the committed one")
	})
}

func TestJSONIsTheSameEachTime(t *testing.T) {
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		first := encode(t, d)
		if !bytes.HasSuffix(first, []byte("}\n")) {
			t.Errorf("the file ends in %q, want a closing brace and a newline", first[max(0, len(first)-3):])
		}
		for range 5 {
			if !bytes.Equal(first, encode(t, d)) {
				t.Fatal("two builds of the dashboard differ: it cannot be kept under version control")
			}
		}
	})
}

func encode(t *testing.T, d Dashboard) []byte {
	t.Helper()
	out, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStrictReaderAcceptsTheJSON(t *testing.T) {
	registerKinds()
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		good := encode(t, d)
		if errs := readStrictly(t, good); len(errs) > 0 {
			t.Errorf("Grafana's schema does not know what the dashboard says: %v", errs)
		}
		for _, field := range []string{`"expr"`, `"showLegend"`, `"gridPos"`, `"fillOpacity"`, `"calcs"`} {
			if errs := readStrictly(t, bytes.ReplaceAll(good, []byte(field), []byte(`"nonsense"`))); len(errs) == 0 {
				t.Errorf("the strict reader takes a dashboard without %s, so this test proves nothing about it", field)
			}
		}
	})
}

// registerKinds teaches the SDK the panels and queries in use; its own list of
// all there are would compile every data source.
func registerKinds() {
	r := cog.NewRuntime()
	r.RegisterDataqueryVariant(prometheus.VariantConfig())
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	r.RegisterPanelcfgVariant(table.VariantConfig())
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
}

// readStrictly returns what the SDK finds wrong. It returns a list even on
// success, an empty one.
func readStrictly(t *testing.T, raw []byte) cog.BuildErrors {
	t.Helper()
	var d dashboard.Dashboard
	err := d.UnmarshalJSONStrict(raw)
	var errs cog.BuildErrors
	if err != nil && !errors.As(err, &errs) {
		t.Fatalf("not a dashboard: %v", err)
	}
	return errs
}

func TestJSONSurvivesAReadAndWrite(t *testing.T) {
	registerKinds()
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		want := encode(t, d)
		var read dashboard.Dashboard
		if err := json.Unmarshal(want, &read); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, want), tree(t, again)); diff != "" {
			t.Errorf("the SDK reads something else than was written (-written +read):\n%s", diff)
		}
	})
}

func tree(t *testing.T, raw []byte) (all any) {
	t.Helper()
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}
