package fleet

import (
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// purse is what each node's agent says that a team has spent there in the month.
func purse(a *agents, team string, perHour, budget float64) {
	a.edit = func(_ string, s *collector.Snapshot) {
		nan := math.NaN()
		s.Money = &collector.Money{At: s.Time, Currency: "USD", Teams: []collector.TeamMoney{
			{Team: team, Spent: perHour * s.Time.Sub(monthOf(s.Time)).Hours(), ThreeDays: nan, Expected: nan, Budget: budget, Overrun: nan}}}
	}
}

func (a *agents) spends() *detect.Finding {
	for _, in := range a.open() {
		if in.Rule == rules.IDSpend {
			return &in.Members[0]
		}
	}
	return nil
}

// A budget is of all nodes: four of them burn it together, each alone does not.
func TestTeamBurnsItsBudgetOnManyNodes(t *testing.T) {
	a := newAgents(t, 4)
	a.now = time.Date(2026, 3, 2, 21, 0, 0, 0, time.UTC)
	purse(a, "nlp", 2, 2976) // of 31 days: 4 an hour
	skip := func(to time.Time) {
		for a.now.Before(to) {
			a.now = a.now.Add(15 * time.Minute)
			a.said = append(a.said, a.role.Observe(a.now, a.snapshots())...)
		}
	}
	skip(time.Date(2026, 3, 5, 23, 0, 0, 0, time.UTC))
	if f := a.spends(); f != nil {
		t.Errorf("with two whole days known it is told: %s", f.Evidence.Seen)
	}
	skip(time.Date(2026, 3, 6, 1, 0, 0, 0, time.UTC))
	f := a.spends()
	if f == nil || f.Severity != rules.Ticket || f.Subject.String() != "team:nlp" {
		t.Fatalf("a budget that is burnt twice as fast as planned is no ticket: %s", namesOf(a.open()))
	}
	for _, want := range []string{"USD spent on all nodes of a month's 2976 USD, ", "by its end; the last three days went 2 times as fast"} {
		if !strings.Contains(f.Evidence.Seen, want) {
			t.Errorf("it does not say %q: %s", want, f.Evidence.Seen)
		}
	}
	// What a node's agent says of the same budget is a part of it.
	a.says("gpu-001", "spend", "ticket", "team:nlp", "budget_burn")
	a.run(5 * time.Minute)
	if in := a.only(); len(in.Members) != 1 {
		t.Errorf("what one node says of the team's budget is told beside: %d findings", len(in.Members))
	}
	// The month's end is the end of it.
	skip(time.Date(2026, 4, 1, 2, 0, 0, 0, time.UTC))
	a.told = map[string][]collector.Told{}
	a.run(10 * time.Minute)
	if f := a.spends(); f != nil {
		t.Errorf("in a new month the old one's budget still burns: %s", f.Evidence.Seen)
	}
}

// What was spent on nodes that are gone stays spent, and a restart forgets none of it.
func TestSpentOnNodesThatAreGone(t *testing.T) {
	var p spending
	day := func(d, h int) time.Time { return time.Date(2026, 3, d, h, 0, 0, 0, time.UTC) }
	told := func(node string, spent float64) *collector.Snapshot {
		return &collector.Snapshot{Node: collector.Node{Name: node}, Agent: &collector.Agent{}, Money: &collector.Money{Currency: "USD", Teams: []collector.TeamMoney{{Team: "nlp", Spent: spent}}}}
	}
	p.take(day(1, 0), []*collector.Snapshot{told("a", 9000)}) // its last sample of February
	p.take(day(1, 23), []*collector.Snapshot{told("a", 24), told("b", 10)})
	p.take(day(2, 12), []*collector.Snapshot{told("a", 40)})
	other := told("c", 1000)
	other.Money.Currency = "EUR"
	p.take(day(2, 23), []*collector.Snapshot{told("a", 48), other})
	f := New(Config{Log: clusterRole(t, Config{}).cfg.Load().Log})
	f.watch.spent = p
	f.watch.keep(day(2, 23), true)
	parts, _ := f.Save(day(2, 23))
	next := clusterRole(t, Config{})
	if err := next.Restore(moneyPart, parts[moneyPart]); err != nil {
		t.Fatal(err)
	}
	m := next.watch.spent.money(day(3, 1), []Budget{{"nlp", "USD", 100}, {"nlp", "EUR", 1}})
	if m == nil || m.Currency != "USD" || len(m.Teams) != 1 || m.Teams[0].Spent != 58 || m.Teams[0].Budget != 100 {
		t.Errorf("after a restart the team is told to have spent %+v, want 58 of its 100 USD", m)
	}
	for _, bad := range []string{"", "{}", `{"version":1,"teams":{"a":null}}`} {
		if next.Restore(moneyPart, []byte(bad)) == nil {
			t.Errorf("a memory of %q is taken", bad)
		}
	}
}

// A role that starts in the midst of a month knows its days from the server's past.
func TestPrimedByThePast(t *testing.T) {
	a := newAgents(t, 2)
	a.now = time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC)
	purse(a, "nlp", 2, 1488)
	nan := math.NaN()
	a.role.Prime(a.now, []TeamPast{{Team: "nlp", Currency: "USD", Ends: []float64{nan, 192, 288, 384, 480}, Gone: 0}, {Team: "nlp", Currency: "EUR", Ends: []float64{1}}})
	a.run(5 * time.Minute)
	if f := a.spends(); f == nil || !strings.Contains(f.Evidence.Seen, "2 times as fast") {
		t.Errorf("a team that burns its budget twice too fast by the server's past is told as %v", f)
	}
}

// Where no agent says what a GPU costs the configuration's prices count, for whoever
// judges the node and for messages.
func TestPricesOfNodesWithoutAgents(t *testing.T) {
	f := newSynthetic(2)
	role := clusterRole(t, Config{Price: func(node, model string) (float64, string) {
		if node == "n0001" {
			return math.NaN(), ""
		}
		return 2.5, "EUR"
	}})
	for range 3 {
		role.Observe(f.next())
	}
	s := role.View().Snapshot("n0000")
	if s.Money == nil || s.Money.Currency != "EUR" || s.Money.PriceOf(s.GPUs[0].UUID) != 2.5 {
		t.Errorf("a node without an agent has the money %+v", s.Money)
	}
	if m := role.View().Snapshot("n0001").Money; m != nil {
		t.Errorf("a GPU without a price has the money %+v", m)
	}
}

func TestVersionsThatChangedAreCounted(t *testing.T) {
	a := newAgents(t, 5)
	a.now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	a.run(time.Minute)
	a.driver["gpu-000"], a.driver["gpu-001"], a.driver["gpu-002"] = "590.1", "590.1", "570.2"
	a.run(time.Minute)
	moves := a.role.Moves(a.now.Add(-24*time.Hour), a.now)
	if len(moves) != 2 || moves[0] != (VersionMove{moves[0].Day, "driver", "580.82.07", "590.1", 2}) || moves[1].Nodes != 1 {
		t.Errorf("two nodes with a new driver and one with an old one are told as %+v", moves)
	}
	a.role.watch.keep(a.now.Add(time.Hour), true)
	parts, _ := a.role.Save(a.now)
	next := clusterRole(t, Config{})
	if err := next.Restore(movesPart, parts[movesPart]); err != nil || len(next.Moves(a.now.Add(-24*time.Hour), a.now)) != 2 {
		t.Errorf("after a restart: %v, %+v", err, next.Moves(a.now.Add(-24*time.Hour), a.now))
	}
	if old := a.role.Moves(a.now.Add(48*time.Hour), a.now.Add(72*time.Hour)); len(old) != 0 {
		t.Errorf("later days have %+v", old)
	}
}
