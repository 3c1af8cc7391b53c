package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/golden"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func answer() *cost.Answer {
	job := collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	evil := collector.Owner{Kind: "pod", ID: "a/\x1b[31mred\nline", Team: "vision"}
	alone := collector.Owner{Kind: "user", ID: "1000"}
	row := func(h, gpu int, model string, o collector.Owner, s cost.State, seconds int64, nano int64) cost.Row {
		r := cost.Row{Hour: noon.Add(time.Duration(h) * time.Hour), GPU: gpu, UUID: fmt.Sprint("GPU-", gpu), Model: model, Owner: o, State: s, Currency: "USD",
			Amounts: cost.Amounts{Time: seconds * 1e9, List: 2 * nano, Effective: nano, Energy: seconds * 3e8, Carbon: seconds * 3e7}}
		if nano == 0 {
			r.Unpriced = r.Time
		}
		return r
	}
	const h100 = "NVIDIA H100 80GB HBM3"
	return &cost.Answer{Node: "gpu-117", Simulated: true, Since: noon, Until: noon.Add(100 * time.Minute), Busy: "SM activity of 5 % or more",
		Prices: []cost.Price{
			{GPU: 0, Model: h100, Kind: "list", Nano: 3_850_000_000, Currency: "USD", Provider: "Nebius", Region: "any", Source: "HGX H100", AsOf: "2026-09-25"},
			{GPU: 1, Model: h100, Kind: "list", Nano: 3_850_000_000, Currency: "USD", Provider: "Nebius", Region: "any", Source: "HGX H100", AsOf: "2026-09-25"},
			{GPU: 2, Model: "NVIDIA X1"},
		},
		Rows: []cost.Row{
			row(0, 0, h100, job, cost.Busy, 1801, 1_926_069_444), row(0, 0, h100, job, cost.IdleHeld, 1799, 1_923_930_556),
			row(0, 1, h100, evil, cost.HeldWithoutProcess, 3600, 3_850_000_000), row(1, 0, h100, collector.Owner{}, cost.Free, 1200, 1_283_333_333),
			row(1, 1, h100, collector.Owner{}, cost.Unavailable, 1200, 1_283_333_333), row(1, 2, "NVIDIA X1", alone, cost.Busy, 1200, 0),
			row(1, 0, h100, collector.Owner{}, cost.Unobserved, 1200, 1_283_333_334),
		},
		Work: []cost.WorkRow{
			{Hour: noon, Owner: job, Currency: "USD", Work: cost.Work{Units: [cost.Units]int64{cost.Steps: 2000, cost.Tokens: 4_000_000}, Kept: 1801e9}},
			{Hour: noon.Add(time.Hour), Owner: job, Currency: "USD", Work: cost.Work{Units: [cost.Units]int64{cost.Steps: 500}, Lost: 1440e9, LostCost: 1_540_000_000, Interruptions: 2}},
			{Hour: noon, Owner: alone, Currency: "USD", Work: cost.Work{Units: [cost.Units]int64{cost.Requests: 10}}},
		}}
}

func written(t *testing.T, r *Report, f Format) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReports(t *testing.T) {
	for _, by := range Groups() {
		r, err := New(answer(), noon, By(by))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Formats() {
			if f == string(FOCUS) && by != string(ByTeam) {
				continue // it is the same for all
			}
			text := written(t, r, Format(f))
			golden.Check(t, filepath.Join("testdata", by+"."+f), text, "the report is another")
			if strings.Contains(text, "\x1b") {
				t.Errorf("%s by %s: a name reaches the terminal as it is", f, by)
			}
		}
	}
}

// TestLinesSumToTheTotal holds it for whatever was booked, and as it is printed.
func TestLinesSumToTheTotal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a := answer()
		a.Rows, a.Work = nil, nil
		var want cost.Amounts
		for range 1 + r.IntN(60) {
			row := cost.Row{Hour: noon, GPU: r.IntN(3), UUID: "GPU", Owner: collector.Owner{Kind: "pod", ID: fmt.Sprint(r.IntN(9)), Team: fmt.Sprint(r.IntN(5))},
				State: cost.State(r.IntN(int(cost.States))), Currency: "EUR"}
			row.Time, row.Effective, row.Energy, row.Carbon = r.Int64N(1e13), r.Int64N(1e10), r.Int64N(1e13), r.Int64N(1e12)
			want = want.Plus(row.Amounts)
			a.Rows = append(a.Rows, row)
		}
		report, err := New(a, noon, By(Groups()[r.IntN(4)]))
		if err != nil {
			t.Fatal(err)
		}
		sum := cost.Amounts{}
		for _, l := range report.Lines {
			states := cost.Amounts{}
			for _, s := range l.States {
				states = states.Plus(s)
			}
			if states != l.Total {
				t.Fatalf("line %s: states sum to %+v, the line to %+v", l.Key, states, l.Total)
			}
			sum = sum.Plus(l.Total)
		}
		if sum != want || len(report.Totals) != 1 || report.Totals[0].Total != want {
			t.Fatalf("lines sum to %+v, the total is %+v, booked was %+v", sum, report.Totals, want)
		}
		printedSums(t, written(t, report, Table))
		viewsAgree(t, a)
	}
}

// viewsAgree holds that a number is the same in whichever view it is printed.
func viewsAgree(t *testing.T, a *cost.Answer) {
	t.Helper()
	a.Rows = append(a.Rows, cost.Row{Hour: noon, UUID: "GPU", State: cost.Free, Currency: "EUR", Amounts: cost.Amounts{Time: 1e12 + 1e10, Effective: 1_115_000_001, Energy: 1e12, Carbon: 1e11}})
	said := map[string]string{}
	for _, by := range Groups() {
		r, err := New(a, noon, By(by))
		if err != nil {
			t.Fatal(err)
		}
		text := written(t, r, Table)
		table, more, _ := strings.Cut(text[strings.Index(text, "\n\n")+2:], "\n\n")
		hours := map[string]string{}
		for line := range strings.Lines(table) {
			name, numbers, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
			hours[name], _, _ = strings.Cut(numbers, " ")
			if name != "TOTAL" && name != "unattributed" {
				continue
			}
			if before := said[name]; before != "" && before != numbers {
				t.Fatalf("%s is %q, and %q by %s", name, before, numbers, by)
			}
			said[name] = numbers
		}
		for line := range strings.Lines(more) {
			if f := strings.Fields(line); by == string(ByJob) && len(f) == 9 && f[0] != "job" && hours[f[0]] != f[5] {
				t.Fatalf("%s has %s GPU-hours, and %s in another table of the report", f[0], hours[f[0]], f[5])
			}
		}
	}
	if said["TOTAL"] == "" || said["unattributed"] == "" {
		t.Fatalf("views have no lines to compare: %v", said)
	}
}

// printedSums adds up the columns of a printed table.
func printedSums(t *testing.T, text string) {
	t.Helper()
	_, table, _ := strings.Cut(text, "\n\n")
	var sums []int64
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 12 || strings.Contains(line, "GPU-hours") {
			continue
		}
		total := fields[0] == "TOTAL"
		var cells []int64
		for i, f := range fields[len(fields)-11:] {
			v, err := strconv.ParseInt(strings.ReplaceAll(f, ".", ""), 10, 64)
			if err != nil {
				t.Fatalf("%q is no number: %v", f, err)
			}
			if len(sums) <= i {
				sums = append(sums, 0)
			}
			if total && sums[i] != v {
				t.Fatalf("column %d sums to %d in the last digit, the total line says %d:\n%s", i, sums[i], v, text)
			}
			sums[i] += v
			cells = append(cells, v)
		}
		off := sum(cells[1:7]) - cells[0]
		if off < -5 || off > 5 || slices.Max(cells[1:7]) > cells[0]+1 || off != 0 && !strings.Contains(text, acrossRounded) || cells[8] > cells[7] {
			t.Fatalf("states sum to %d more than %d GPU-hours, %d cents are not busy of %d:\n%s", off, cells[0], cells[8], cells[7], line)
		}
		if total {
			break
		}
	}
	if len(sums) != 11 {
		t.Fatalf("no table of 11 columns:\n%s", text)
	}
}

func TestASpanThatWasNotBookedIsRefused(t *testing.T) {
	if _, err := New(answer(), noon.Add(-time.Hour), ByTeam); err == nil || !strings.Contains(err.Error(), "2026-11-30T12:00:00Z") || !strings.Contains(err.Error(), "--since=all") {
		t.Errorf("a span from before the first hour: %v", err)
	}
	if _, err := New(&cost.Answer{Node: "n1"}, time.Time{}, ByTeam); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Errorf("an empty ledger: %v", err)
	}
	if _, err := New(answer(), time.Time{}, ByTeam); err != nil {
		t.Errorf("whatever there is: %v", err)
	}
}

// TestTheAdviceWorks follows what a refusal advises: it is not refused again.
func TestTheAdviceWorks(t *testing.T) {
	for m := range 4 * 60 {
		a := answer()
		a.Since, a.Until = noon.Add(56*time.Minute), noon.Add(time.Hour+time.Duration(m)*time.Minute)
		_, err := New(a, noon, ByTeam)
		if err == nil {
			t.Fatalf("a report from %v, of what is known from %v on, is not refused", noon, a.Since)
		}
		_, told, _ := strings.Cut(err.Error(), "--since=")
		told, _, _ = strings.Cut(told, ",")
		d, err := time.ParseDuration(told)
		if err != nil {
			t.Errorf("at %v it advises %q: %v", a.Until, told, err)
		} else if _, err := New(a, a.Until.Add(-d), ByTeam); err != nil {
			t.Errorf("at %v it advises --since=%s, which is refused: %v", a.Until, told, err)
		}
	}
}

func TestWhatIsNotKnownIsNotZero(t *testing.T) {
	a := answer()
	for i := range a.Rows {
		a.Rows[i].Amounts = cost.Amounts{Time: a.Rows[i].Time, Unpriced: a.Rows[i].Time}
	}
	r, err := New(a, noon, ByTeam)
	if err != nil {
		t.Fatal(err)
	}
	if text := written(t, r, Table); strings.Count(text, " -") != 4*5 || strings.Contains(text, "0.0\n") {
		t.Errorf("without price and energy a table shows cost or kWh:\n%s", text)
	}
}

// TestWhatIsNotKnownIsLeftOutForMachines sums no column of zeros that nobody measured: a
// program cannot tell it from what cost nothing.
func TestWhatIsNotKnownIsLeftOutForMachines(t *testing.T) {
	a := answer()
	a.Rows = []cost.Row{a.Rows[0], a.Rows[5]}
	a.Rows[0].Amounts = cost.Amounts{Time: 1e9, Effective: 0} // at a price of zero
	a.Rows[1].Amounts = cost.Amounts{Time: 2e9, Unpriced: 2e9}
	a.Shared = []cost.Shared{{Hour: noon, Owner: a.Rows[0].Owner, Model: a.Rows[0].Model, Currency: "USD", Amounts: cost.Amounts{Energy: 3e6}}}
	r, err := New(a, noon, ByTeam)
	if err != nil {
		t.Fatal(err)
	}
	text := written(t, r, CSV)
	for _, want := range []string{"\nnlp,busy,1,0,USD,0.00,,,,,\n", "\nnlp,any,,,USD,,,,3,,\n", "\nno team,busy,2,2,USD,,,,,,\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the CSV has no line %q: want only what is known:\n%s", want, text)
		}
	}
	var back struct {
		Lines []struct{ Total map[string]any }
	}
	if err := json.Unmarshal([]byte(written(t, r, JSON)), &back); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"unpriced_time_ns time_ns", "time_ns unpriced_time_ns energy_microjoule effective_nano"} {
		got := back.Lines[i].Total
		for _, name := range strings.Fields(want) {
			if _, has := got[name]; !has {
				t.Errorf("JSON: %s is missing from %v", name, got)
			}
		}
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("JSON: %v, want %s only", got, want)
		}
	}
	if text := written(t, r, FOCUS); strings.Contains(text, ",0.00,0\n") {
		t.Errorf("FOCUS has energy's cost and carbon of zero:\n%s", text)
	}
}

// TestAJobThatWasPreempted holds what a run cost from its first to its last hour, also
// with a night in between in which others had its GPU.
func TestAJobThatWasPreempted(t *testing.T) {
	a := answer()
	a.Rows, a.Work = a.Rows[:2], a.Work[:2]
	again := a.Rows[0]
	again.Hour = noon.Add(20 * time.Hour)
	a.Rows = append(a.Rows, again)
	a.Until = noon.Add(20*time.Hour + 30*time.Minute)
	r, err := New(a, noon, ByJob)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Lines[0]
	if !l.First.Equal(noon) || !l.Last.Equal(a.Until) || len(r.Lines) != 1 {
		t.Errorf("it ran from %v to %v, want from its first hour to now", l.First, l.Last)
	}
	if got := l.BusyShare(); math.Abs(got-3602.0/5401) > 1e-9 {
		t.Errorf("it was busy for %v of the time", got)
	}
	if got, want := l.PerBusyHour()/1e9, 5.776069444/(3602.0/3600); math.Abs(got-want) > 1e-6 {
		t.Errorf("an hour of its work cost %v, want %v", got, want)
	}
}

func TestTwoCurrenciesAreNotAddedUp(t *testing.T) {
	a := answer()
	a.Rows[0].Currency = "EUR"
	r, err := New(a, noon, ByTeam)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Totals) != 2 || r.Totals[0].Currency != "EUR" || r.Totals[0].Total.Effective != 1_926_069_444 {
		t.Errorf("totals of two currencies: %+v", r.Totals)
	}
	if text := written(t, r, Table); strings.Count(text, "TOTAL") != 2 || !strings.Contains(text, "cost EUR") {
		t.Errorf("a table of two currencies:\n%s", text)
	}
}

func TestMachinesCanReadIt(t *testing.T) {
	r, err := New(answer(), noon, ByJob)
	if err != nil {
		t.Fatal(err)
	}
	c := csv.NewReader(strings.NewReader(written(t, r, CSV)))
	c.Comment = '#'
	all, err := c.ReadAll()
	if err != nil || len(all) < 8 {
		t.Fatalf("CSV of %d lines: %v", len(all), err)
	}
	var back Report
	if err := json.Unmarshal([]byte(written(t, r, JSON)), &back); err != nil || back.Totals[0].Total != r.Totals[0].Total {
		t.Errorf("JSON is read back as %+v, %v", back.Totals, err)
	}
}

func TestDecimals(t *testing.T) {
	for want, got := range map[string]string{"0.00": decimal(0, 9, 2), "1.5": decimal(1_500_000_000, 9, 0), "0.000000001": decimal(1, 9, 2), "12": decimal(12e6, 6, 0), "3.85": decimal(3_850_000_000, 9, 2)} {
		if got != want {
			t.Errorf("written %s, want %s", got, want)
		}
	}
}
