package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

var update = flag.Bool("update", false, "write the dashboards as they are now to testdata")

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
		path := filepath.Join("testdata", d.Name+".json")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("no committed dashboard to compare with: %v (run go test ./dashboards -update)", err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("the dashboard is not the committed one; if that is meant, run go test ./dashboards -update (-committed +now):\n%s", diff)
		}
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

func TestPanelsHaveWhatAReaderNeeds(t *testing.T) {
	ids := map[uint32]string{}
	forEach(t, func(t *testing.T, _ Dashboard, built dashboard.Dashboard) {
		for _, p := range built.Panels {
			if p.RowPanel != nil {
				unique(t, ids, p.RowPanel.Id, *p.RowPanel.Title)
			}
		}
		for _, p := range panels(built) {
			if p.Title == nil || *p.Title == "" || p.Id == nil {
				t.Fatalf("a panel has no title or no id: %+v", p)
			}
			unique(t, ids, *p.Id, *p.Title)
			if p.Description == nil || len(*p.Description) < 20 {
				t.Errorf("panel %q does not explain itself", *p.Title)
			}
			if p.FieldConfig.Defaults.NoValue == nil {
				t.Errorf("panel %q does not say what it means that nothing is there", *p.Title)
			}
			if p.Datasource == nil || *p.Datasource.Uid != "${datasource}" {
				t.Errorf("panel %q does not ask the chosen data source", *p.Title)
			}
			looks(t, p)
		}
	})
}

func unique(t *testing.T, ids map[uint32]string, id uint32, title string) {
	t.Helper()
	if other, taken := ids[id]; taken || id == 0 {
		t.Errorf("%q and %q have the same id %d: links would lead to the wrong one", title, other, id)
	}
	ids[id] = title
}

// looks checks what the SDK leaves out unless it is told.
func looks(t *testing.T, p *dashboard.Panel) {
	t.Helper()
	switch o := p.Options.(type) {
	case *timeseries.Options:
		if !o.Legend.ShowLegend || o.Tooltip.Mode != "multi" {
			t.Errorf("panel %q hides its legend or shows one series in its tooltip", *p.Title)
		}
	case *statetimeline.Options:
		if !o.Legend.ShowLegend || len(p.FieldConfig.Defaults.Mappings) == 0 {
			t.Errorf("panel %q shows states without their names", *p.Title)
		}
	case *stat.Options:
		// Anything else would add up or average over the time range.
		if diff := cmp.Diff([]string{"lastNotNull"}, o.ReduceOptions.Calcs); diff != "" {
			t.Errorf("panel %q does not show the present value: %s", *p.Title, diff)
		}
		nowOnly(t, p)
	case *table.Options:
		nowOnly(t, p)
	default:
		t.Errorf("panel %q has options of type %T, which no test knows", *p.Title, o)
	}
}

func nowOnly(t *testing.T, p *dashboard.Panel) {
	t.Helper()
	for _, target := range p.Targets {
		if q := target.(prometheus.Dataquery); q.Instant == nil || !*q.Instant || *q.Range {
			t.Errorf("panel %q asks over the time range for a value of now: %s", *p.Title, q.Expr)
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	forEach(t, func(t *testing.T, _ Dashboard, built dashboard.Dashboard) {
		taken := map[[2]uint32]string{}
		place := func(title string, g *dashboard.GridPos) {
			if g.W == 0 || g.H == 0 || g.X+g.W > 24 {
				t.Errorf("%q is %d wide at column %d: the grid has 24 columns", title, g.W, g.X)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other, ok := taken[[2]uint32{x, y}]; ok {
						t.Fatalf("%q covers %q", title, other)
					}
					taken[[2]uint32{x, y}] = title
				}
			}
		}
		for _, p := range built.Panels {
			if p.RowPanel != nil {
				place(*p.RowPanel.Title, p.RowPanel.GridPos)
			} else {
				place(*p.Panel.Title, p.Panel.GridPos)
			}
		}
		if holes := unused(taken); len(holes) > 0 {
			t.Errorf("the lines %v of the grid are not filled to the right edge", holes)
		}
	})
}

// unused returns the lines of the grid in which columns are free.
func unused(taken map[[2]uint32]string) []uint32 {
	var last uint32
	used := map[uint32]int{}
	for at := range taken {
		used[at[1]]++
		last = max(last, at[1])
	}
	var holes []uint32
	for y := uint32(0); y <= last; y++ {
		if used[y] != 24 {
			holes = append(holes, y)
		}
	}
	return holes
}

func TestFirstRowSaysWhatIsWrong(t *testing.T) {
	built, err := overview()
	if err != nil {
		t.Fatal(err)
	}
	var rows, wrong []string
	for _, p := range built.Panels {
		if p.RowPanel != nil {
			rows = append(rows, *p.RowPanel.Title)
		} else if len(rows) == 1 {
			wrong = append(wrong, *p.Panel.Title)
		}
	}
	if diff := cmp.Diff([]string{"What is wrong now", "GPUs", "Demand", "Host", "Versions and faults", "gpuvigil itself"}, rows); diff != "" {
		t.Errorf("the rows are not in the order in which people ask:\n%s", diff)
	}
	if text := strings.Join(wrong, "|"); text != "Findings|Numbers|Agents|GPUs|Findings that fire" {
		t.Errorf("the first row shows %s", text)
	}
}
