package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// TeamDays is what a team had spent of the current month, on all nodes, by the end of
// each of its whole days.
type TeamDays struct {
	Team, Currency string
	Ends           []float64 // from the month's first day on
	Gone           float64   // the part of agents that tell nothing any more
}

// dayRead is how much of each day is read: in its first hours the last sample of the
// month before may still stand.
const dayRead = 20 * time.Hour

// TeamDays returns what teams have spent this month (UTC). What an agent had spent that
// has gone since counts on.
func (e *Engine) TeamDays(ctx context.Context, now time.Time) ([]TeamDays, error) {
	now = now.UTC()
	month := monthOf(now)
	whole := int(now.Sub(month) / day)
	if whole == 0 {
		return nil, nil
	}
	by := "max by (instance, team, currency) (%s(" + e.api.of(metric.TeamSpent) + "[%s]))"
	days, err := e.api.span(ctx, fmt.Sprintf(by, "max_over_time", promDuration(dayRead)), month.Add(day), month.Add(time.Duration(whole)*day), day)
	if err != nil {
		return nil, err
	}
	latest, err := e.api.span(ctx, fmt.Sprintf(by, "last_over_time", "1h"), now, now, time.Hour)
	if err != nil {
		return nil, err
	}
	speaks := map[string]bool{}
	for _, s := range latest {
		speaks[s.Metric.String()] = true
	}
	type key struct{ team, currency string }
	sums := map[key]*TeamDays{}
	for _, s := range days {
		k := key{string(s.Metric["team"]), string(s.Metric["currency"])}
		of := sums[k]
		if of == nil {
			of = &TeamDays{Team: k.team, Currency: k.currency, Ends: make([]float64, whole)}
			sums[k] = of
		}
		spent := 0.0
		for d, values := 0, s.Values; d < whole; d++ {
			if end := month.Add(time.Duration(d+1) * day); len(values) > 0 && !values[0].Timestamp.Time().After(end) {
				spent = math.Max(spent, float64(values[0].Value))
				values = values[1:]
			}
			of.Ends[d] += spent
		}
		if !speaks[s.Metric.String()] {
			of.Gone += spent
		}
	}
	return slices.SortedFunc(func(yield func(TeamDays) bool) {
		for t := range maps.Values(sums) {
			if !yield(*t) {
				return
			}
		}
	}, func(a, b TeamDays) int {
		return cmp.Or(cmp.Compare(a.Team, b.Team), cmp.Compare(a.Currency, b.Currency))
	}), nil
}

func promDuration(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }
