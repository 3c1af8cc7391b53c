package report

import (
	"cmp"
	"math"
	"slices"

	"gpuvigil/internal/cost"
)

// shares rounds whole amounts to units that sum to the total, which is no less than what
// is left of them when all are rounded down: one more goes where the remainder is largest.
func shares(total int64, amounts []int64, unit int64) []int64 {
	return apportion([][]int64{amounts}, []int64{total}, slices.Repeat([]int64{math.MaxInt64 / 2}, len(amounts)), unit, true)[0]
}

// apportion rounds a table of amounts to units whose columns sum to the given totals, and
// whose rows do as far as that leaves nothing of what is nothing; strictly, in any case: the
// totals of rows and of columns sum to the same then. No total may be less than its
// amounts rounded down.
func apportion(table [][]int64, rows, columns []int64, unit int64, strictly bool) [][]int64 {
	type cell struct {
		row, column, choice int
		rest                int64
	}
	var cells []cell
	out := make([][]int64, len(table))
	rows, columns = slices.Clone(rows), slices.Clone(columns)
	for i, line := range table {
		out[i] = make([]int64, len(line))
		choice := 0
		for j, v := range line {
			out[i][j] = v / unit
			rows[i] -= v / unit
			columns[j] -= v / unit
			if v > 0 {
				choice++
			}
		}
		for j, v := range line {
			cells = append(cells, cell{i, j, choice, v % unit})
		}
	}
	slices.SortStableFunc(cells, func(a, b cell) int {
		return cmp.Or(cmp.Compare(min(a.choice, 2), min(b.choice, 2)), cmp.Compare(b.rest, a.rest))
	})
	give := func(c cell, n int64) {
		out[c.row][c.column] += n
		rows[c.row] -= n
		columns[c.column] -= n
	}
	some := func(c cell) bool { return table[c.row][c.column] > 0 }
	for _, c := range cells {
		if c.rest > 0 {
			give(c, min(1, rows[c.row], columns[c.column]))
		}
	}
	for _, c := range cells {
		if some(c) {
			give(c, min(rows[c.row], columns[c.column]))
		}
	}
	if strictly {
		for _, c := range cells {
			give(c, min(rows[c.row], columns[c.column]))
		}
		return out
	}
	slices.SortStableFunc(cells, func(a, b cell) int { // a row with one amount has no other to differ by
		return cmp.Or(cmp.Compare(min(b.choice, 2), min(a.choice, 2)), cmp.Compare(b.rest, a.rest))
	})
	for n := 0; n < len(table) && slices.Max(columns) > 0; n++ {
		for _, c := range cells {
			if some(c) && columns[c.column] > 0 {
				give(c, 1)
			}
		}
	}
	return out
}

// measure is an amount that the table has, in parts that are printed, too.
type measure struct {
	unit  int64 // of the amount, for one in the last digit that is shown
	parts func(*Line) []int64

	strictly bool // parts sum to each line's
}

// What is rounded.
const (
	gpuTime = iota // by state
	spent          // while busy, and while not
	energy
	carbon
	measures
)

func measured() [measures]measure {
	return [measures]measure{
		gpuTime: {centiHour, func(l *Line) (out []int64) {
			for s := range cost.States {
				out = append(out, l.States[s].Time)
			}
			return out
		}, false},
		spent: {cent, func(l *Line) []int64 {
			busy := l.States[cost.Busy].Effective
			return []int64{busy, l.Total.Effective - busy}
		}, true},
		energy: {deciKWh, func(l *Line) []int64 { return []int64{l.Total.Energy} }, true},
		carbon: {deciKilo, func(l *Line) []int64 { return []int64{l.Total.Carbon} }, true},
	}
}

// rounded is what is printed of a line, in units of each measure.
type rounded struct {
	whole [measures]int64
	parts [measures][]int64
}

func (r *rounded) add(m int, whole int64, parts []int64) {
	if r.parts[m] == nil {
		r.parts[m] = make([]int64, len(parts))
	}
	r.whole[m] += whole
	add(r.parts[m], parts)
}

// round rounds the exact total of a currency once, and shares that out: to its parts, to
// teams, and what a team has to its jobs. So a team, a job and the total have the same
// numbers in whatever report by either, and lines sum to the total. It returns what is
// printed of the currency's lines, and of the total.
func (r *Report) round(total *Line) (out []*rounded) {
	var teams []string
	leaves := map[string][]*Line{}
	for i := range r.leaves {
		if l := &r.leaves[i]; l.Currency == total.Currency {
			if leaves[l.team] == nil {
				teams = append(teams, l.team)
			}
			leaves[l.team] = append(leaves[l.team], l)
		}
	}
	by, all := map[string]*rounded{}, &rounded{}
	for m, q := range measured() {
		exact := q.parts(total)
		whole := round(sum(exact), q.unit)
		parts := shares(whole, exact, q.unit)
		if !q.strictly {
			for i, v := range exact {
				parts[i] = round(v, q.unit)
			}
		}
		all.add(m, whole, parts)
		byTeam := make([][]int64, len(teams))
		for i, team := range teams {
			byTeam[i] = make([]int64, len(exact))
			for _, l := range leaves[team] {
				add(byTeam[i], q.parts(l))
			}
		}
		teamWhole := shares(whole, sums(byTeam), q.unit)
		for i, ofTeam := range apportion(byTeam, teamWhole, parts, q.unit, q.strictly) {
			var byJob [][]int64
			for _, l := range leaves[teams[i]] {
				byJob = append(byJob, q.parts(l))
			}
			jobWhole := shares(teamWhole[i], sums(byJob), q.unit)
			for j, ofJob := range apportion(byJob, jobWhole, ofTeam, q.unit, q.strictly) {
				key := leaves[teams[i]][j].Key
				if r.By == ByTeam {
					key = teams[i]
				}
				if by[key] == nil {
					by[key] = &rounded{}
				}
				by[key].add(m, jobWhole[j], ofJob)
			}
		}
	}
	for i := range r.Lines {
		if r.Lines[i].Currency == total.Currency {
			out = append(out, by[r.Lines[i].Key])
		}
	}
	return append(out, all)
}

func add(to, amounts []int64) {
	for i, v := range amounts {
		to[i] += v
	}
}

func sum(amounts []int64) (total int64) {
	for _, v := range amounts {
		total += v
	}
	return total
}

func sums(table [][]int64) (out []int64) {
	for _, line := range table {
		out = append(out, sum(line))
	}
	return out
}
