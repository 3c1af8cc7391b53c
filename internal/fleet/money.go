package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
)

const (
	monthSettles = 15 * time.Minute // in which an agent's last sample may still be of the month before
	dayEndsAt    = 23               // the hour from which on a day's last look is its end
	maxTeams     = 1024
)

// Budget is what a team may spend in a month on all nodes.
type Budget struct {
	Team, Currency string
	PerMonth       float64
}

// TeamPast is what a team had spent of a month by the end of each of its days.
type TeamPast struct {
	Team, Currency string
	Ends           []float64 // from the first day on, up to yesterday; NaN: not known
	Gone           float64   // what was spent on nodes whose agents tell nothing any more
}

// spending is what teams have spent on all nodes in the calendar month (UTC), from what each
// agent says of its own. What a node has spent that is gone stays spent. The zero value is
// ready to use; its exported fields survive a restart.
type spending struct {
	Version  int                   `json:"version"`
	Month    time.Time             `json:"month"`
	Currency string                `json:"currency"` // of the first that told; others do not add up with it
	Teams    map[string]*teamSpent `json:"teams"`
}

type teamSpent struct {
	Nodes map[string]float64 `json:"nodes"`
	Gone  float64            `json:"gone,omitzero"`
	Ends  map[int]dayEnd     `json:"ends"` // by the day of the month

	budget float64 // that agents say; 0: none does
}

// dayEnd is what was spent in the month at the last look of a day.
type dayEnd struct {
	At    time.Time `json:"at"`
	Total float64   `json:"total"`
}

func (t *teamSpent) total() float64 {
	sum := t.Gone
	for _, name := range slices.Sorted(maps.Keys(t.Nodes)) { // in order, so that it rounds the same each time
		sum += t.Nodes[name]
	}
	return sum
}

func monthOf(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

// begin makes it that of the month.
func (p *spending) begin(now time.Time) {
	if month := monthOf(now); !p.Month.Equal(month) || p.Teams == nil {
		*p = spending{Version: 1, Month: month, Teams: map[string]*teamSpent{}}
	}
}

func (p *spending) team(name string) *teamSpent {
	t := p.Teams[name]
	if t == nil && len(p.Teams) < maxTeams {
		t = &teamSpent{Nodes: map[string]float64{}, Ends: map[int]dayEnd{}}
		p.Teams[name] = t
	}
	return t
}

// take takes up what the agents say.
func (p *spending) take(now time.Time, snapshots []*collector.Snapshot) {
	p.begin(now)
	if now.Sub(p.Month) < monthSettles {
		return
	}
	for _, t := range p.Teams {
		t.budget = 0
	}
	for _, s := range snapshots {
		if s.Agent == nil || s.Money == nil || len(s.Money.Teams) == 0 {
			continue
		}
		if p.Currency == "" {
			p.Currency = s.Money.Currency
		}
		if s.Money.Currency != p.Currency {
			continue
		}
		for i := range s.Money.Teams {
			told := &s.Money.Teams[i]
			t := p.team(told.Team)
			if t == nil {
				continue
			}
			if told.Spent > t.Nodes[s.Node.Name] {
				t.Nodes[s.Node.Name] = told.Spent
			}
			if told.Budget > t.budget {
				t.budget = told.Budget
			}
		}
	}
	for _, t := range p.Teams {
		t.Ends[now.UTC().Day()] = dayEnd{now, t.total()}
	}
}

// prime takes up what was spent before anybody looked.
func (p *spending) prime(now time.Time, past []TeamPast) {
	p.begin(now)
	for _, of := range past {
		if p.Currency == "" {
			p.Currency = of.Currency
		}
		if of.Currency != p.Currency {
			continue
		}
		known := p.Teams[of.Team] != nil
		t := p.team(of.Team)
		if t == nil {
			continue
		}
		if !known {
			t.Gone = of.Gone
		}
		for i, total := range of.Ends {
			if _, seen := t.whole(p.Month, i+1); !seen && !math.IsNaN(total) {
				t.Ends[i+1] = dayEnd{p.Month.AddDate(0, 0, i+1), total}
			}
		}
	}
}

// whole returns what was spent in the month by the end of a day of it, if anybody looked
// then.
func (t *teamSpent) whole(month time.Time, day int) (total float64, known bool) {
	if day == 0 {
		return 0, true
	}
	end, ok := t.Ends[day]
	return end.Total, ok && !end.At.Before(month.AddDate(0, 0, day-1).Add(dayEndsAt*time.Hour))
}

// money returns what teams spend on all nodes, beside their budgets: those given, else
// what the agents say. It is nil if nobody keeps account.
func (p *spending) money(now time.Time, budgets []Budget) *collector.Money {
	if len(p.Teams) == 0 || p.Currency == "" || !p.Month.Equal(monthOf(now)) || now.Sub(p.Month) < monthSettles {
		return nil
	}
	m := &collector.Money{At: now, Currency: p.Currency}
	for _, name := range slices.Sorted(maps.Keys(p.Teams)) {
		t, budget := p.Teams[name], p.Teams[name].budget
		for _, b := range budgets {
			if b.Team == name && b.Currency == p.Currency {
				budget = b.PerMonth
			}
		}
		m.Teams = append(m.Teams, t.money(name, p.Month, now, budget))
	}
	return m
}

func (t *teamSpent) money(name string, month, now time.Time, budget float64) collector.TeamMoney {
	nan := math.NaN()
	out := collector.TeamMoney{Team: name, Spent: t.total(), ThreeDays: nan, Expected: nan, Budget: nan, Overrun: nan}
	if budget > 0 {
		out.Budget = budget
	}
	var days []float64
	today := now.UTC().Day()
	for day := 1; day < today; day++ {
		before, begins := t.whole(month, day-1)
		if after, ends := t.whole(month, day); begins && ends {
			days = append(days, max(after-before, 0))
		}
	}
	if begin, known := t.whole(month, today-1-cost.MinDays); today > cost.MinDays && known {
		if end, known := t.whole(month, today-1); known {
			out.ThreeDays = max(end-begin, 0)
		}
	}
	left := month.AddDate(0, 1, 0).Sub(now).Hours() / 24
	if end, known := cost.Project(out.Spent, days, left); known {
		out.Expected = end.Expected
		if budget > 0 {
			out.Overrun = end.Overrun(budget)
		}
	}
	return out
}

// Prime takes up what teams had spent of this month before the role looked, as far as it
// does not know it.
func (f *Fleet) Prime(now time.Time, past []TeamPast) {
	w := &f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent.prime(now, past)
}

// restore takes up what was saved.
func (p *spending) restore(data []byte) error {
	var was spending
	if err := json.Unmarshal(data, &was); err != nil {
		return fmt.Errorf("what teams have spent cannot be read: %w", err)
	}
	if was.Version != 1 {
		return fmt.Errorf("what teams have spent is of version %d, not of 1", was.Version)
	}
	for name, t := range was.Teams {
		if t == nil || t.Nodes == nil || t.Ends == nil {
			return fmt.Errorf("what team %.40q has spent is not complete", name)
		}
	}
	*p = was
	return nil
}
