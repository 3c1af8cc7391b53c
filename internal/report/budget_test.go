package report

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/golden"
)

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
	a.Since = november.Add(3*day + 20*time.Minute)
	for h := range a.Rows {
		if a.Rows[h].Hour.Before(a.Since.Truncate(time.Hour)) {
			a.Rows[h].Effective = 0 // was not known
		}
	}
	out.Reset()
	if b := NewBudgets(a); b.Days != 0 || b.Teams[0].Projection != nil {
		t.Errorf("of %d whole days something is projected", b.Days)
	} else if err := b.Write(&out, Table); err != nil || !bytes.Contains(out.Bytes(), []byte("before 2026-11-04 00:20 UTC is not known")) || !bytes.Contains(out.Bytes(), []byte("needs 3")) {
		t.Errorf("a month of which little is known, %v:\n%s", err, &out)
	} else if want := 24*5 + 12*6 + 0.0; b.Teams[0].Spent != want {
		t.Errorf("what is known of the month came to %v, want %v: the hour in which it begins counts", b.Teams[0].Spent, want)
	}
}
