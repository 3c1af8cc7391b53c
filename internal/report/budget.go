package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// Spending is what a team has spent in a month that is not over.
type Spending struct {
	Team       string           `json:"team"`
	Currency   string           `json:"currency"`
	Spent      float64          `json:"spent"`
	Budget     *float64         `json:"budget,omitempty"`     // of the month
	Projection *cost.Projection `json:"projection,omitempty"` // absent with fewer than three whole days
	Overrun    *float64         `json:"overrun,omitempty"`    // how likely it is, from 0 to 1
}

// Budgets is what all teams have spent in a month that is not over.
type Budgets struct {
	Node      string     `json:"node"`
	Simulated bool       `json:"simulated"`
	Month     string     `json:"month"`
	Since     time.Time  `json:"since"` // what the month cost before is not known
	Until     time.Time  `json:"until"`
	Days      int        `json:"days"` // whole ones that are known
	Teams     []Spending `json:"teams"`
	Gaps      []cost.Gap `json:"gaps,omitempty"` // what is missing from it
}

// NewBudgets adds up what each team has spent in the month that the answer ends in.
func NewBudgets(a *cost.Answer) *Budgets {
	month := monthOf(a.Until)
	b := &Budgets{Node: a.Node, Simulated: a.Simulated, Month: month.Format("2006-01"), Since: later(a.Since, month), Until: a.Until, Gaps: a.Gaps}
	first := b.Since.UTC().Truncate(day)
	if first.Before(b.Since) {
		first = first.Add(day)
	}
	b.Days = max(0, int(a.Until.Sub(first)/day))
	remaining := month.AddDate(0, 1, 0).Sub(a.Until).Hours() / 24

	type who struct{ team, currency string }
	spent, daily := map[who]int64{}, map[who][]float64{}
	limits := map[who]float64{}
	for _, r := range a.Rows {
		w := who{key(r, ByTeam), r.Currency}
		if r.Hour.Before(month) {
			continue
		}
		spent[w] += r.Effective
		if i := int(r.Hour.Sub(first) / day); !r.Hour.Before(first) && i < b.Days {
			if daily[w] == nil {
				daily[w] = make([]float64, b.Days)
			}
			daily[w][i] += float64(r.Effective) / 1e9
		}
	}
	for _, l := range a.Budgets {
		w := who{text.Clean(l.Team, maxKey), l.Currency}
		limits[w] = l.PerMonth
		if _, has := spent[w]; !has {
			spent[w] = 0
		}
	}
	for w, nano := range spent {
		s := Spending{Team: w.team, Currency: w.currency, Spent: float64(nano) / 1e9}
		if daily[w] == nil {
			daily[w] = make([]float64, b.Days)
		}
		p, known := cost.Project(s.Spent, daily[w], remaining)
		if known {
			s.Projection = &p
		}
		if limit, has := limits[w]; has {
			s.Budget = &limit
			if known {
				over := p.Overrun(limit)
				s.Overrun = &over
			}
		}
		b.Teams = append(b.Teams, s)
	}
	slices.SortFunc(b.Teams, func(x, y Spending) int {
		return cmp.Or(cmp.Compare(x.Currency, y.Currency), cmp.Compare(y.Spent, x.Spent), cmp.Compare(x.Team, y.Team))
	})
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Write writes the budgets as a table or as JSON.
func (b *Budgets) Write(w io.Writer, f Format) error {
	if f == JSON {
		out, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(append(out, '\n'))
		return err
	}
	simulated := ""
	if b.Simulated {
		simulated = " (SIMULATED)"
	}
	out := []string{fmt.Sprintf("Spent on the GPUs of %s%s in %s, until %s", text.Clean(b.Node, maxKey), simulated, b.Month, b.Until.UTC().Format(minute))}
	if b.Since.UTC().After(monthOf(b.Until).Add(slack)) {
		out = append(out, fmt.Sprintf("What was spent before %s is not known and not in it.", b.Since.UTC().Format(minute)))
	}
	out = append(out, saysGaps(b.Gaps)...)
	if b.Days < cost.MinDays {
		out = append(out, fmt.Sprintf("%d whole days are known; a projection needs %d.", b.Days, cost.MinDays))
	}
	cells := [][]string{{"team", "currency", "spent", "budget", "at month's end", fmt.Sprintf("%.0f %% low", 100*cost.Confidence), "high", "overrun %"}}
	for _, s := range b.Teams {
		line := []string{s.Team, s.Currency, money(&s.Spent), money(s.Budget), "-", "-", "-", "-"}
		if p := s.Projection; p != nil {
			line[4], line[5], line[6] = money(&p.Expected), money(&p.Low), money(&p.High)
		}
		if s.Overrun != nil {
			line[7] = strconv.FormatFloat(100**s.Overrun, 'f', 0, 64)
		}
		cells = append(cells, line)
	}
	out = append(append(out, ""), aligned(cells)...)
	_, err := io.WriteString(w, strings.Join(out, "\n")+"\n")
	return err
}

func money(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}
