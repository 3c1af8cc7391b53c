package backtest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	day       = 24 * time.Hour
	clockRows = 3000
	clockTurn = 1500 // the row at which something happens to the clock
	clockOdd  = 2400 // the row from which two hours are unusual
)

// timed is a series with a row each five minutes, whose clock is off by so much.
func timed(off func(row int) time.Duration) string {
	r := rand.New(rand.NewPCG(5, 5))
	var b strings.Builder
	b.WriteString("timestamp,value\n")
	for k := range clockRows {
		x := 50 + 2*r.NormFloat64()
		if k >= clockOdd && k < clockOdd+24 {
			x += 40
		}
		fmt.Fprintf(&b, "%d,%.3f\n", 1772006400+int64(off(k)/time.Second)+int64(300*k), x)
	}
	return b.String()
}

// from is a clock that is off by so much from the turn on, for so many rows.
func from(by time.Duration, rows int) func(int) time.Duration {
	return func(k int) time.Duration {
		if k >= clockTurn && k < clockTurn+rows {
			return by
		}
		return 0
	}
}

// TestClockSteps: whatever a file's clock does, what is unusual after it is found, and
// what has no score for it is counted.
func TestClockSteps(t *testing.T) {
	for name, c := range map[string]struct {
		off              func(int) time.Duration
		back, lost, line int
	}{
		"in order":             {from(0, 0), 0, 0, 0},
		"set back by an hour":  {from(-time.Hour, clockRows), 1, 4, 1502},
		"set back by days":     {from(-10*day, clockRows), 1, 4, 1502},
		"set forward by days":  {from(10*day, clockRows), 0, 0, 0},
		"set forward by years": {from(4000*day, clockRows), 0, 0, 0},
		"one row far ahead":    {from(100*day, 1), 1, 4, 1503},
		"one row far behind":   {from(-100*day, 1), 1, 1, 1502},
		"ahead for an hour":    {from(30*day, 12), 1, 4, 1514},
		"behind for an hour":   {from(-30*day, 12), 1, 4, 1502},
		"ahead beyond years":   {from(80000*day, 1), 1, 4, 1503},
	} {
		sum, got := run(t, level, 1, map[string]string{"a.csv": timed(c.off)})
		rows := alarmsOf(t, got["a.csv"])
		if !slices.Contains(rows, clockOdd) {
			t.Errorf("%s: two unusual hours from row %d on, days after it, are not found; alarms in the rows %v", name, clockOdd, rows)
		}
		if n := len(slices.DeleteFunc(rows, func(k int) bool { return k < clockTurn || k > clockTurn+200 })); n > 0 {
			t.Errorf("%s: the clock alone raises %d alarms", name, n)
		}
		without := strings.Count(got["a.csv"], ",\n")
		if c.back == 0 {
			if len(sum.Disorder) > 0 || without > 0 {
				t.Errorf("%s: %v, %d rows without a score; want no word of a file in order, and all its scores", name, sum.Disorder, without)
			}
			continue
		}
		if len(sum.Disorder) != 1 || without != c.lost {
			t.Errorf("%s: %v, %d rows without a score; want %d, and a word of it", name, sum.Disorder, without, c.lost)
			continue
		}
		d := sum.Disorder[0]
		if d.Back != c.back || d.Lost != c.lost || !strings.HasPrefix(d.String(), fmt.Sprintf("a.csv:%d: the time goes back here", c.line)) {
			t.Errorf("%s: it is told as %q, want %d steps back, of which the first is in line %d, and %d rows without a score", name, d, c.back, c.line, c.lost)
		}
	}
}

// TestALeakGoesOn: a clock that is set during a leak does not hide it.
func TestALeakGoesOn(t *testing.T) {
	lines := strings.SplitAfter(leak(1), "\n")
	for i := 500; i < len(lines)-1; i++ {
		var at int
		var value string
		if _, err := fmt.Sscanf(lines[i], "%d,%s", &at, &value); err != nil {
			t.Fatal(err)
		}
		lines[i] = fmt.Sprintf("%d,%s\n", at-3*24*3600, value)
	}
	_, whole := run(t, "leak", 1, map[string]string{"a.csv": leak(1)})
	_, set := run(t, "leak", 1, map[string]string{"a.csv": strings.Join(lines, "")})
	want, got := alarmsOf(t, whole["a.csv"]), alarmsOf(t, set["a.csv"])
	if len(got) == 0 || got[0] > want[0]+10 {
		t.Errorf("a leak has its alarms from row %v on, after the clock was set back in row 499 %v", want, got)
	}
}

func TestAFileInNoOrder(t *testing.T) {
	lines := strings.SplitAfter(strings.TrimSuffix(timed(from(0, 0)), "\n"), "\n")
	head, rows := lines[0], lines[1:]
	rows[len(rows)-1] += "\n"
	shuffled, reversed := slices.Clone(rows), slices.Clone(rows)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(rows), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	slices.Reverse(reversed)
	var two []string // series in one file, row by row
	for k := range 500 {
		two = append(two, rows[500+k], rows[k])
	}
	for name, c := range map[string]struct {
		rows []string
		says string
	}{
		"shuffled":    {shuffled, "rows are earlier than the row before, this is the first"},
		"reversed":    {reversed, "a.csv:3: 2999 of 3000 rows are earlier"},
		"interleaved": {two, "a.csv:3: 500 of 1000 rows are earlier"},
		"one time":    {slices.Repeat(rows[:1], 10), "a.csv:3: all 10 rows have one time"},
	} {
		for _, detector := range Detectors() {
			out := write(t, map[string]string{"a.csv": "scores of an earlier run"})
			_, err := Run(t.Context(), Options{Series: write(t, map[string]string{"a.csv": head + strings.Join(c.rows, "")}), Scores: out, Detector: detector})
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a.csv:") {
				t.Errorf("%s, %s: error %v, want one with the file and the line that says %q", name, detector, err, c.says)
			}
			if got := contents(t, out); len(got) > 0 {
				t.Errorf("%s, %s: there are scores of a file that is in no order", name, detector)
			}
		}
	}
}

// TestRepeatedTimes: rows of one time have scores, and it is said that only one was judged.
func TestRepeatedTimes(t *testing.T) {
	in := "timestamp,value\n0,1\n60,1\n60,500\n120,1\n180,1\n"
	sum, got := run(t, level, 1, map[string]string{"a.csv": in})
	if want := "a.csv:4: this row has the time of the row before, like 1 row of the file"; len(sum.Disorder) != 1 || !strings.HasPrefix(sum.Disorder[0].String(), want) {
		t.Errorf("two rows of one time are told as %v, want %q", sum.Disorder, want)
	}
	if strings.Contains(got["a.csv"], ",\n") {
		t.Errorf("rows of one time: %q, want a score for each", got["a.csv"])
	}
}

// TestPeersMeetAgain: what happens to the clock of one member, or of all, does not keep
// the job from being compared.
func TestPeersMeetAgain(t *testing.T) {
	const turn, slow = 40, 100
	// A member's time in seconds at a step.
	all := func(k, member int) int { return 10*k - 300*min(1, k/turn) }
	for name, at := range map[string]func(k, member int) int{
		"the job starts its count anew": all,
		"one is far ahead for one step": func(k, member int) int {
			if member == 3 && k == turn {
				return 1e6
			}
			return 10 * k
		},
		"one is set back by steps": func(k, member int) int {
			if member == 1 {
				return all(k, member)
			}
			return 10 * k
		},
	} {
		files := map[string]string{}
		for member := range 8 {
			from := 1000
			if member == 3 {
				from = slow
			}
			lines := strings.SplitAfter(worker(uint64(member), from), "\n")
			for k := range len(lines) - 2 {
				_, value, _ := strings.Cut(lines[k+1], ",")
				lines[k+1] = fmt.Sprintf("%d,%s", at(k, member), value)
			}
			files[fmt.Sprintf("job/rank%d.csv", member)] = strings.Join(lines, "")
		}
		sum, got := run(t, straggler, 1, files)
		if len(sum.Disorder) == 0 {
			t.Errorf("%s: nothing is said of it", name)
		}
		for file, scores := range got {
			rows := alarmsOf(t, scores)
			if odd := file == "job/rank3.csv"; odd != (len(rows) > 0) || odd && (rows[0] < slow || rows[0] > slow+6) {
				t.Errorf("%s: %s has its alarms in the rows %v, want some from %d on in job/rank3.csv alone", name, file, rows, slow)
			}
		}
	}
}

func TestNoScoreIsBelowZero(t *testing.T) {
	out := filepath.Join(t.TempDir(), "scores")
	w, err := create(out, "a.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, score := range []float64{-0.51, 0, 0.5} {
		if err := w.write(row{stamp: "0", text: "1"}, score, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, out)["a.csv"]; got != "timestamp,value,anomaly_score\n0,1,0\n0,1,0\n0,1,0.5\n" {
		t.Errorf("wrote %q, want 0 for evidence that all is as usual", got)
	}
}
