package ledger

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
)

const day = 24 * time.Hour

// daily is what each team spent on each day (UTC), in billionths of a currency. It is
// read from the hours when the agent starts.
type daily map[teamDay]int64

type teamDay struct {
	team string
	day  time.Time

	currency string
}

// spend adds what time of an owner's, or of nobody's, cost his team: teams sum to what
// was paid.
func (l *Ledger) spend(at time.Time, owner collector.Owner, currency string, nano int64) {
	if hour := at.UTC().Truncate(time.Hour); l.began.IsZero() || hour.Before(l.began) {
		l.began = hour
	}
	if nano > 0 {
		l.daily[teamDay{cost.Team(owner), at.UTC().Truncate(day), currency}] += nano
	}
}

// pruneDays forgets the months that are over.
func (l *Ledger) pruneDays() {
	month := monthOf(l.now)
	for k := range l.daily {
		if k.day.Before(month) {
			delete(l.daily, k)
		}
	}
}

func monthOf(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

// months returns what each team has spent this month, and will have.
func (l *Ledger) months() []cost.TeamMonth {
	month := monthOf(l.now)
	first := month // whole day that is known
	if l.began.After(month) {
		first = l.began.Add(day - 1).Truncate(day)
	}
	whole := max(0, int(l.now.Sub(first)/day))
	if l.began.IsZero() {
		whole = 0 // nothing was booked yet
	}
	remaining := month.AddDate(0, 1, 0).Sub(l.now).Hours() / 24
	days, spent := map[string][]float64{}, map[string]int64{}
	for _, b := range l.cfg.Budgets {
		if b.Currency == l.currency {
			spent[b.Team], days[b.Team] = 0, make([]float64, whole)
		}
	}
	for k, nano := range l.daily {
		if k.day.Before(month) || k.currency != l.currency {
			continue
		}
		if days[k.team] == nil {
			days[k.team] = make([]float64, whole)
		}
		spent[k.team] += nano
		if i := int(k.day.Sub(first) / day); !k.day.Before(first) && i < whole {
			days[k.team][i] += float64(nano) / 1e9
		}
	}
	var out []cost.TeamMonth
	for team, nano := range spent {
		m := cost.TeamMonth{Team: team, Currency: l.currency, Spent: float64(nano) / 1e9}
		if p, known := cost.Project(m.Spent, days[team], remaining); known {
			m.End = &p
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b cost.TeamMonth) int { return strings.Compare(a.Team, b.Team) })
	return out
}
