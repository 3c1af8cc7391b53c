package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// goodput says of each job that tells of its progress what became of its GPU-hours.
func goodput(lines []Line) []string {
	cells := [][]string{{"job", "kept GPU-hours", "lost", "goodput %", "interruptions", "lost each time", "lost " + lines[0].Currency}}
	for _, l := range lines {
		w := l.Work
		if w.Kept+w.Lost == 0 {
			continue
		}
		each, spent := "-", "-"
		if w.Interruptions > 0 {
			each = hours(w.Lost / w.Interruptions)
		}
		if w.LostCost > 0 || w.Lost == 0 && l.Total.Priced() {
			spent = decimal((w.LostCost+cent/2)/cent, 2, 2)
		}
		cells = append(cells, []string{l.Key, hours(w.Kept), hours(w.Lost), strconv.FormatFloat(100*w.Goodput(), 'f', 1, 64),
			strconv.FormatInt(w.Interruptions, 10), each, spent})
	}
	if len(cells) == 1 {
		return nil
	}
	return aligned(cells)
}

func hours(ns int64) string { return decimal((ns+centiHour/2)/centiHour, 2, 2) }

// units says what one of each job's work has cost: all that was paid, over the work. It
// says nothing of a price where part of the time has none.
func units(lines []Line) []string {
	cells := [][]string{{"job", "unit", "number", "cost each " + lines[0].Currency, "J each"}}
	for _, l := range lines {
		for i, n := range l.Work.Units {
			if n == 0 {
				continue
			}
			number := float64(n)
			if i == cost.Tokens {
				number /= 1e6
			}
			spent, energy := "-", "-"
			if l.Total.Unpriced == 0 && l.Total.Time > 0 {
				spent = significant(float64(l.Total.Effective) / 1e9 / number)
			}
			if l.Total.Energy > 0 {
				energy = significant(float64(l.Total.Energy) / 1e6 / number)
			}
			cells = append(cells, []string{l.Key, metric.FigureUnit[i], strconv.FormatFloat(number, 'f', -1, 64), spent, energy})
		}
	}
	if len(cells) == 1 {
		return nil
	}
	return aligned(cells)
}

// significant writes a number that is not negative with four digits that mean something,
// and all of those before the point.
func significant(v float64) string {
	if v == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', min(12, max(0, 3-int(math.Floor(math.Log10(v))))), 64)
}

// work adds what owners did, and what became of the GPU time that they held.
func work(q *query, a *cost.Answer) error {
	by := []string{"instance", "owner_kind", "owner", "team"}
	for _, row := range []struct {
		def  *metric.Def
		unit float64
		more []string
		into func(w *cost.Work, g grown, v int64)
	}{
		{metric.OwnerWork, 1, []string{"unit"}, func(w *cost.Work, g grown, v int64) {
			if i := metric.WorkUnit.Index(string(g.labels["unit"])); i >= 0 {
				w.Units[i] = v
			}
		}},
		{metric.OwnerGoodput, 1e9, []string{"outcome"}, func(w *cost.Work, g grown, v int64) {
			if g.labels["outcome"] == "kept" {
				w.Kept = v
			} else {
				w.Lost = v
			}
		}},
		{metric.OwnerInterruptions, 1, nil, func(w *cost.Work, _ grown, v int64) { w.Interruptions = v }},
		{metric.OwnerLostCost, 1e9, []string{"currency"}, func(w *cost.Work, _ grown, v int64) { w.LostCost = v }},
	} {
		found, err := q.api.growth(q.ctx, row.def, row.unit, slices.Concat(by, row.more), q.steps)
		if err != nil {
			return err
		}
		for _, g := range found {
			o := owner(g.labels)
			for i, v := range g.by {
				if v == 0 {
					continue
				}
				r := cost.WorkRow{Hour: q.steps[i].from, Owner: o, Currency: cmp.Or(string(g.labels["currency"]), q.owners[o], q.any)}
				row.into(&r.Work, g, v)
				a.Work = append(a.Work, r)
			}
		}
	}
	return nil
}
