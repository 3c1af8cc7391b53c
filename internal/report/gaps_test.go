package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/internal/cost"
)

// gone is a node of which the last eleven days of November are in no sample.
var gone = cost.Gap{Node: "gpu-118", GPUs: 8, From: november.AddDate(0, 0, 19), To: november.AddDate(0, 1, 0), Time: 8 * int64(11*day)}

func TestWhatIsMissingIsSaid(t *testing.T) {
	a := answer()
	a.Gaps = []cost.Gap{gone}
	r, err := New(a, noon, ByTeam)
	if err != nil {
		t.Fatal(err)
	}
	const says = "MISSING: gpu-118: 2112.00 GPU-hours of 8 GPUs between 2026-11-20 00:00 UTC and 2026-12-01 00:00 UTC are in no sample"
	for f, want := range map[Format]string{Table: says, CSV: "\nnode gpu-118,missing,7603200,,,,,,,,\n"} {
		if text := written(t, r, f); !strings.Contains(text, want) {
			t.Errorf("as %s the report does not say %q:\n%s", f, want, text)
		}
	}
	var back Report
	if err := json.Unmarshal([]byte(written(t, r, JSON)), &back); err != nil || len(back.Gaps) != 1 || back.Gaps[0] != gone {
		t.Errorf("JSON has gaps %+v, %v", back.Gaps, err)
	}
	b := NewBudgets(a)
	var out strings.Builder
	if err := b.Write(&out, Table); err != nil || !strings.Contains(out.String(), says) {
		t.Errorf("budgets do not say that time is missing, %v:\n%s", err, &out)
	}
}

// TestAMonthWithAGapIsClosedOnPurpose refuses it, closes it with the node named, and
// refuses it again once more is missing: an amount that the database has lost since is
// no correction.
func TestAMonthWithAGapIsClosedOnPurpose(t *testing.T) {
	dir := t.TempDir()
	a := closed()
	a.Gaps = []cost.Gap{gone}
	freeze := func(want string, accept ...string) {
		t.Helper()
		said, err := Freeze(dir, a, november, november.AddDate(0, 1, 1), accept...)
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) {
			t.Errorf("with %q accepted it says %q, want %q", accept, said, want)
		}
	}
	freeze("--accept-gap=gpu-118")
	freeze("--accept-gap=gpu-118", "gpu-117")
	freeze("froze 2026-11", "gpu-118")
	freeze("nothing has changed")
	if content, err := os.ReadFile(filepath.Join(dir, "2026-11.csv")); err != nil || !strings.Contains(string(content), "\nnode,gpu-118,,,missing,7603200,") {
		t.Errorf("the frozen CSV does not have what is missing, %v:\n%s", err, content)
	}
	a.Gaps[0].Time += int64(time.Hour)
	freeze("--accept-gap=gpu-118")
	a.Gaps = append(closed().Gaps, cost.Gap{Node: "gpu-119", GPUs: 1, From: november, To: noon, Time: int64(time.Hour)})
	freeze("--accept-gap=gpu-119")
	a.Gaps = nil
	freeze("nothing has changed")
}

// TestAGapIsTold from what the counters of a GPU grew by: holes that they make up for are
// none.
func TestAGapIsTold(t *testing.T) {
	steps := spans(noon, noon.Add(5*time.Hour), time.Hour)
	seen := func(i int, first, last time.Duration) map[string][2]time.Time {
		return map[string][2]time.Time{"GPU-1": {steps[i].from.Add(first), steps[i].from.Add(last)}}
	}
	times := sampleTimes{0: seen(0, time.Minute, 50*time.Minute), 2: seen(2, 20*time.Minute, time.Hour), 4: seen(4, time.Minute, 59*time.Minute)}
	known := []bool{true, false, true, true, true}
	for name, c := range map[string]struct {
		booked time.Duration
		last   int
		want   []cost.Gap
	}{
		"made up for":     {299 * time.Minute, 4, nil},
		"not made up for": {209 * time.Minute, 4, []cost.Gap{{From: noon.Add(50 * time.Minute), To: noon.Add(140 * time.Minute), Time: int64(90 * time.Minute)}}},
		"it ends":         {50 * time.Minute, 0, []cost.Gap{{From: noon.Add(50 * time.Minute), To: noon.Add(5 * time.Hour), Time: int64(250 * time.Minute)}}},
	} {
		g := &gpuSeen{uuid: "GPU-1", last: c.last, before: true, sampled: known, booked: int64(c.booked)}
		begin, end, err := times.of(&query{steps: steps}, g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.missing(&query{steps: steps}, times, begin, end)
		if err != nil || len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%s: missing is %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}
