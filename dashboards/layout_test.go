package dashboards

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

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
