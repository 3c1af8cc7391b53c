package detect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
)

const (
	daysKept    = 14 // of spending by the hour of the day
	daysKnown   = 5  // of one hour of the day, before its median is known
	runawayFor  = 2  // hours
	hourSlack   = 2 * time.Minute
	hoursOfADay = 24
)

// teamSpend is what is kept of one team. Its exported fields survive a restart.
type teamSpend struct {
	Seen  time.Time                      `json:"seen"`
	Hour  int64                          `json:"hour"`  // of the clock, since the epoch; 0: none
	Begin float64                        `json:"begin"` // spent in the month when the hour began
	Whole bool                           `json:"whole"` // the hour was watched from its beginning
	Usual [hoursOfADay][daysKept]float64 `json:"usual"` // spent in an hour of the day, newest at Days modulo daysKept
	Days  [hoursOfADay]int               `json:"days"`
	Over  int                            `json:"over"`  // hours in a row in which it ran away
	Rate  float64                        `json:"rate"`  // spent in the last whole hour
	Times float64                        `json:"times"` // of what is usual, the least of the hours in a row
	First float64                        `json:"first"` // the month's expected end when it began to run away; 0: not known

	burn, ran Observation
}

// add takes up what a team has spent this month, and closes the hour when it is over.
func (st *teamSpend) add(at time.Time, t *collector.TeamMoney) {
	st.Seen = at
	h := hour(at)
	switch {
	case st.Hour == h:
		return
	case st.Whole && h == st.Hour+1 && intoHour(at) <= hourSlack && t.Spent >= st.Begin:
		st.close(t.Spent-st.Begin, t)
	default:
		st.Over = 0 // nobody knows what was in between
	}
	st.Hour, st.Begin, st.Whole = h, t.Spent, intoHour(at) <= hourSlack
}

func intoHour(t time.Time) time.Duration { return t.Sub(t.Truncate(time.Hour)) }

// close takes up what was spent in a whole hour.
func (st *teamSpend) close(spent float64, t *collector.TeamMoney) {
	slot := int(st.Hour % hoursOfADay)
	st.Rate = spent
	median, known := st.median(slot)
	times := math.Inf(1)
	if median > 0 {
		times = spent / median
	}
	if known && spent > 0 && times > runawayOver {
		if st.Over++; st.Over == 1 {
			st.First, st.Times = 0, times
			if !math.IsNaN(t.Expected) {
				st.First = t.Expected
			}
		}
		st.Times = min(st.Times, times, 1000)
	} else {
		st.Over = 0
	}
	if st.Over < runawayFor { // what runs away does not become usual
		st.Usual[slot][st.Days[slot]%daysKept] = spent
		st.Days[slot]++
	}
}

func (st *teamSpend) median(slot int) (float64, bool) {
	n := min(st.Days[slot], daysKept)
	if n < daysKnown {
		return 0, false
	}
	var values [daysKept]float64
	copy(values[:], st.Usual[slot][:n])
	slices.Sort(values[:n])
	return (values[(n-1)/2] + values[n/2]) / 2, true
}

// judgeRunaway tells of spending that ran away and would not leave enough of the budget:
// a big job that the budget holds is none.
func (st *teamSpend) judgeRunaway(m *collector.Money, t *collector.TeamMoney, end time.Time) {
	atThisRate := t.Spent + st.Rate*end.Sub(m.At).Hours()
	worse := math.IsNaN(t.Expected) || st.First == 0 || t.Expected > st.First
	if st.Over == 0 || !worse {
		return
	}
	o := &st.ran
	o.Score = min(float64(st.Over)/runawayFor, atThisRate/t.Budget)
	if o.Score < 1 {
		return
	}
	usual := st.Rate / st.Times
	left := time.Duration(max(0, t.Budget-t.Spent) / st.Rate * float64(time.Hour))
	o.At = m.At.Truncate(time.Hour).Add(-time.Duration(st.Over) * time.Hour)
	// A healthy hour is rarely so much above the median of its time of day; two in a row
	// are one event.
	o.Surprise = surpriseOf(hoursPerWeek * beyond(st.Times, 1, 0.5))
	o.Evidence = Evidence{
		Title: "Spending runs away",
		Seen: fmt.Sprintf("%s an hour for %s, more than %s times what is usual at this time of day; at this rate the budget is used up in %s",
			amount(st.Rate, m.Currency), span(time.Duration(st.Over)*time.Hour), significant(math.Floor(10*st.Times)/10, 3), span(left)),
		Expected: fmt.Sprintf("%s an hour, and %s by the month's end at the most", amount(usual, m.Currency), amount(t.Budget, m.Currency)),
		Observed: st.Rate, Want: &usual, Confidence: confidenceOf(o.Surprise),
		Why: fmt.Sprintf("against the median of %s", count(min(slices.Max(st.Days[:]), daysKept), "day", "days")),
	}
}
