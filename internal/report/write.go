package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// decimal writes a whole number of which the last digits are after the point, with
// at least so many places.
func decimal(v int64, digits, places int) string {
	if v < 0 {
		return "-" + decimal(-v, digits, places)
	}
	s := strconv.FormatInt(v, 10)
	for len(s) <= digits {
		s = "0" + s
	}
	whole, rest := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	for len(rest) < places {
		rest += "0"
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

func (r *Report) json(w io.Writer) error {
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(out, '\n'))
	return err
}

// csv writes a line for each key, currency and state, exact to the last digit, after
// the header as comments.
func (r *Report) csv(w io.Writer) error {
	for _, h := range r.header() {
		if _, err := fmt.Fprintln(w, "# "+h); err != nil {
			return err
		}
	}
	c := csv.NewWriter(w)
	head := []string{string(r.By), "state", "gpu_seconds", "gpu_seconds_without_price", "currency", "cost", "list_cost", "contracted_cost",
		"energy_joules", "energy_cost", "carbon_grams"}
	if err := c.Write(head); err != nil {
		return err
	}
	for _, l := range slices.Concat(r.Lines, r.Totals) {
		rest := l.Total
		for s := range cost.States {
			a, booked := l.States[s]
			if !booked {
				continue
			}
			rest = rest.Minus(a)
			if err := c.Write(append([]string{l.Key}, numbers(s.String(), l.Currency, a)...)); err != nil {
				return err
			}
		}
		if rest != (cost.Amounts{}) {
			if err := c.Write(append([]string{l.Key}, numbers(anyState, l.Currency, rest)...)); err != nil {
				return err
			}
		}
	}
	for _, g := range r.Gaps {
		if err := c.Write(append([]string{"node " + text.Clean(g.Node, maxKey)}, gapCells(g)...)); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// anyState stands for what is not known by state.
const anyState = "any"

// known writes an amount that is not known while it is zero.
func known(v int64, digits, places int) string {
	if v == 0 {
		return ""
	}
	return decimal(v, digits, places)
}

// numbers writes the cells of one state. What is not known is an empty one.
func numbers(state, currency string, a cost.Amounts) []string {
	time, unpriced, effective := decimal(a.Time, 9, 0), decimal(a.Unpriced, 9, 0), decimal(a.Effective, 9, 2)
	if state == anyState {
		time, unpriced, effective = known(a.Time, 9, 0), known(a.Unpriced, 9, 0), known(a.Effective, 9, 2)
	} else if !a.Priced() {
		effective = known(a.Effective, 9, 2) // a correction may have a cost and no time
	}
	return []string{state, time, unpriced, currency, effective, known(a.List, 9, 2), known(a.Contracted, 9, 2),
		known(a.Energy, 6, 0), known(a.Electric, 9, 2), known(a.Carbon, 9, 0)}
}

// MarshalJSON leaves out what is not known.
func (l Line) MarshalJSON() ([]byte, error) {
	type amounts struct {
		cost.Amounts
		Effective *int64 `json:"effective_nano,omitempty"`
	}
	of := func(a cost.Amounts) amounts {
		if a.Priced() {
			return amounts{a, &a.Effective}
		}
		return amounts{Amounts: a}
	}
	type line Line
	out := struct {
		line
		Total  amounts                `json:"total"`
		States map[cost.State]amounts `json:"states"`
	}{line: line(l), Total: of(l.Total), States: map[cost.State]amounts{}}
	for s, a := range l.States {
		out.States[s] = of(a)
	}
	return json.Marshal(out)
}

// column is one of the table's numbers.
type column struct {
	head   string
	digits int // after the point
	of     func(*rounded) int64
	known  func(*Line) bool
}

const (
	centiHour = cost.PerHour / 100
	cent      = 1e7
	deciKWh   = cost.PerHour / 10
	deciKilo  = 1e11
)

func columns(currency string) []column {
	always := func(*Line) bool { return true }
	priced := func(l *Line) bool { return l.Total.Priced() }
	hours := func(s cost.State) column {
		return column{strings.ReplaceAll(s.String(), "_", " "), 2, func(r *rounded) int64 { return r.parts[gpuTime][s] }, always}
	}
	return []column{
		{"GPU-hours", 2, func(r *rounded) int64 { return r.whole[gpuTime] }, always},
		hours(cost.Busy), hours(cost.IdleHeld), hours(cost.HeldWithoutProcess), hours(cost.Free), hours(cost.Unavailable), hours(cost.Unobserved),
		{strings.TrimSpace("cost " + currency), 2, func(r *rounded) int64 { return r.whole[spent] }, priced},
		{"not busy", 2, func(r *rounded) int64 { return r.parts[spent][1] }, priced},
		{"kWh", 1, func(r *rounded) int64 { return r.whole[energy] }, func(l *Line) bool { return l.Total.Energy > 0 }},
		{"kg CO2", 1, func(r *rounded) int64 { return r.whole[carbon] }, func(l *Line) bool { return l.Total.Carbon > 0 }},
	}
}

// grids writes for people. What is rounded sums to the rounded total.
func (r *Report) grids(w io.Writer) error {
	out := r.header()
	for i := range r.Totals {
		total := &r.Totals[i]
		lines := slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Currency != total.Currency })
		printed := r.round(total)
		whole := append(lines, *total)
		out = append(out, "")
		out = append(out, grid(string(r.By), whole, printed)...)
		if slices.ContainsFunc(printed, func(r *rounded) bool { return sum(r.parts[gpuTime]) != r.whole[gpuTime] }) {
			out = append(out, acrossRounded)
		}
		out = append(out, notes(total)...)
		if r.By == ByJob {
			for _, table := range [][]string{runs(whole, printed), goodput(whole), units(lines)} {
				if table != nil {
					out = append(append(out, ""), table...)
				}
			}
		}
	}
	_, err := io.WriteString(w, strings.Join(out, "\n")+"\n")
	return err
}

// acrossRounded is said where the numbers of a line cannot sum to what they round, as
// 0.33 three times to 1.00.
const acrossRounded = "Columns sum to the total; the rounded states of a line may sum to a few hundredths more or less than its GPU-hours."

func grid(by string, lines []Line, printed []*rounded) []string {
	cells := [][]string{{by}}
	for _, l := range lines {
		cells = append(cells, []string{l.Key})
	}
	for _, c := range columns(lines[0].Currency) {
		cells[0] = append(cells[0], c.head)
		for i := range lines {
			cell := "-"
			if c.known(&lines[i]) {
				cell = decimal(c.of(printed[i]), c.digits, c.digits)
			}
			cells[i+1] = append(cells[i+1], cell)
		}
	}
	return aligned(cells)
}

// runs says of each job from when to when it had GPUs, and what its work cost.
func runs(lines []Line, printed []*rounded) []string {
	cells := [][]string{{"job", "first", "last", "GPU-hours", "busy %", "cost " + lines[0].Currency, "per busy GPU-hour"}}
	for i, l := range lines {
		share, paid, each := "-", "-", "-"
		if l.Total.Time > 0 {
			share = strconv.FormatFloat(100*l.BusyShare(), 'f', 1, 64)
		}
		if l.Total.Priced() {
			paid = decimal(printed[i].whole[spent], 2, 2)
			if l.States[cost.Busy].Time > 0 {
				each = strconv.FormatFloat(l.PerBusyHour()/1e9, 'f', 2, 64)
			}
		}
		cells = append(cells, []string{l.Key, short(l.First), short(l.Last), decimal(printed[i].whole[gpuTime], 2, 2), share, paid, each})
	}
	return aligned(cells)
}

func short(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// aligned pads the cells: names to the left, numbers to the right.
func aligned(cells [][]string) []string {
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var out []string
	for _, row := range cells {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				b.WriteString(c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// notes says what of the total is not known.
func notes(total *Line) []string {
	var out []string
	if ns := total.Total.Unpriced; ns > 0 {
		out = append(out, fmt.Sprintf("%s GPU-hours have no price and cost nothing here.", decimal((ns+centiHour/2)/centiHour, 2, 2)))
	}
	if ns := total.States[cost.Unobserved].Time; ns > 0 {
		out = append(out, fmt.Sprintf("%.1f %% of the time is unobserved: nobody knows what the GPUs did then, and it is paid all the same.", 100*float64(ns)/float64(total.Total.Time)))
	}
	return out
}
