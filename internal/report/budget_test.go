package report

import (
	"bytes"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/golden"
)

// TestTheIntervalHoldsWhatItSays plays 20,000 months: the end lies within the interval
// in nine of ten, and an overrun of which the odds are said happens about so often.
func TestTheIntervalHoldsWhatItSays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const months = 20000
	within, odds, over := 0, 0.0, 0
	for range months {
		n := minDays + r.IntN(20)
		left := 1 + r.IntN(25)
		mean, dev := 1000+1000*r.Float64(), 10+90*r.Float64()
		draw := func() float64 { return mean + dev*r.NormFloat64() }
		var days []float64
		spent := 0.0
		for range n {
			days = append(days, draw())
			spent += days[len(days)-1]
		}
		p, known := Project(spent, days, float64(left))
		if !known || !(p.Low <= p.Expected && p.Expected <= p.High) || p.Low < spent {
			t.Fatalf("projection of %d days: %+v", n, p)
		}
		end := spent
		for range left {
			end += draw()
		}
		if p.Low <= end && end <= p.High {
			within++
		}
		limit := float64(n+left) * mean
		odds += p.Overrun(limit)
		if end > limit {
			over++
		}
	}
	if share := float64(within) / months; math.Abs(share-confidence) > 0.01 {
		t.Errorf("the end lies within the interval in %.1f %% of the months, want %.0f", 100*share, 100*confidence)
	}
	if said, was := odds/months, float64(over)/months; math.Abs(said-was) > 0.02 {
		t.Errorf("overruns happen in %.1f %% of the months, the odds said %.1f", 100*was, 100*said)
	}
}

func TestWhatProjectsNothing(t *testing.T) {
	if _, known := Project(5, []float64{1, 2}, 20); known {
		t.Error("two days are enough for an interval")
	}
	p, _ := Project(30, []float64{10, 10, 10}, 2)
	if p.Expected != 50 || p.Low != 50 || p.High != 50 || p.Overrun(49) != 1 || p.Overrun(50) != 0 {
		t.Errorf("days that are all the same: %+v", p)
	}
	if p, _ := Project(30, []float64{0, 30, 0}, 0); p.Expected != 30 || p.Low != 30 || p.High != 30 {
		t.Errorf("a month that is over: %+v", p)
	}
}

// spendings is a month of which four and a half days have passed.
func spendings() *cost.Answer {
	a := &cost.Answer{Node: "gpu-117", Simulated: true, Since: november.AddDate(0, 0, -1), Until: november.Add(4*day + 12*time.Hour),
		Budgets: []cost.Budget{{Team: "nlp", Currency: "USD", PerMonth: 3000}, {Team: "idle", Currency: "USD", PerMonth: 10}}}
	for h := range 24*5 + 12 {
		at := a.Since.Add(time.Duration(h) * time.Hour)
		for i, team := range []string{"nlp", "vision"} {
			a.Rows = append(a.Rows, cost.Row{Hour: at, UUID: team, Owner: collector.Owner{Kind: "job", ID: "1", Team: team}, Currency: "USD",
				Amounts: cost.Amounts{Time: 36e11, Effective: int64(at.Day()%3+2*i+2) * 1e9}})
		}
	}
	return a
}

func TestBudgets(t *testing.T) {
	b := NewBudgets(spendings())
	var out bytes.Buffer
	if err := b.Write(&out, Table); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "budget.table"), out.String(), "the budgets are others")
	if err := b.Write(&out, JSON); err != nil {
		t.Fatal(err)
	}
	byTeam := map[string]Spending{}
	for _, s := range b.Teams {
		byTeam[s.Team] = s
	}
	if got := byTeam["nlp"]; got.Spent != 24*(3+4+2+3)+12*4 || *got.Budget != 3000 || got.Projection == nil || *got.Overrun <= 0 || *got.Overrun >= 1 {
		t.Errorf("a team with a budget: %+v, want what it spent in this month only", got)
	}
	if got := byTeam["vision"]; got.Budget != nil || got.Overrun != nil {
		t.Errorf("a team without a budget: %+v", got)
	}
	if got := byTeam["idle"]; got.Spent != 0 || *got.Overrun != 0 {
		t.Errorf("a team that spends nothing: %+v", got)
	}
	a := spendings()
	a.Since = november.Add(3*day + time.Hour)
	out.Reset()
	if b := NewBudgets(a); b.Days != 0 || b.Teams[0].Projection != nil {
		t.Errorf("of %d whole days something is projected", b.Days)
	} else if err := b.Write(&out, Table); err != nil || !bytes.Contains(out.Bytes(), []byte("before 2026-11-04 01:00 UTC is not known")) || !bytes.Contains(out.Bytes(), []byte("needs 3")) {
		t.Errorf("a month of which little is known, %v:\n%s", err, &out)
	}
}
