package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// measured makes pairs of blocks of steps around a millisecond. With the agent every step is longer by the part all,
// and one in fifty by the part tail more.
func measured(seed uint64, pairs, steps int, all, tail float64) []pair {
	random := rand.New(rand.NewPCG(seed, 3))
	made := make([]pair, pairs)
	for i := range made {
		block := 1e-3 * (1 + 0.002*random.NormFloat64()) // no two blocks are quite alike
		for j := range steps {
			step := func() float64 { return block * math.Exp(0.02*random.NormFloat64()) }
			on := step() * (1 + all)
			if j%50 == 0 {
				on *= 1 + tail
			}
			made[i].on, made[i].off = append(made[i].on, on), append(made[i].off, step())
		}
	}
	return made
}

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.99, 7}, {[]float64{1, 2, 3}, 0.5, 2}, {[]float64{1, 2}, 0.5, 1.5}, {[]float64{1, 2, 3}, 0, 1},
		{[]float64{1, 2, 3}, 1, 3}, {[]float64{0, 10}, 0.99, 9.9},
	} {
		if got := quantile(test.values, test.q); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("the %v quantile of %v is %v, want %v", test.q, test.values, got, test.want)
		}
	}
}

func TestWhatWasInjectedIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		all, tail float64
		q         float64
		near      float64 // of the median or tail, how far beside the truth the mean may be
		truth     float64
		goal      float64
		want      string
	}{
		"no cost, median":       {0, 0, 0.5, 0.0005, 0, medianGoal, met},
		"no cost, tail":         {0, 0, 0.99, 0.002, 0, tailGoal, met},
		"1 %, median":           {0.01, 0, 0.5, 0.0005, 0.01, medianGoal, notMet},
		"1 % of all, tail":      {0.01, 0, 0.99, 0.002, 0.01, 0.005, notMet},
		"0.1 %, median":         {0.001, 0, 0.5, 0.0005, 0.001, medianGoal, undecided},
		"some longer, median":   {0, 0.5, 0.5, 0.001, 0.0005, 0.002, met},
		"some longer, tail":     {0, 0.5, 0.99, 0.05, 0.43, tailGoal, notMet},
		"an agent that is good": {-0.01, 0, 0.5, 0.0005, -0.01, medianGoal, met},
	} {
		c := compare(measured(1, 12, 4000, test.all, test.tail), test.q)
		if math.Abs(c.mean-test.truth) > test.near || !(c.lower <= c.mean && c.mean <= c.higher) {
			t.Errorf("%s: %+v, want %v ± %v within the interval", name, c, test.truth, test.near)
		}
		if got := c.judge(test.goal); got != test.want {
			t.Errorf("%s: %+v is judged %q, want %q", name, c, got, test.want)
		}
		if test.all == 0 && math.Abs(c.off-1e-3) > 1e-4 {
			t.Errorf("%s: without the agent a step takes %v s, want about 1 ms", name, c.off)
		}
	}
}

// The interval holds what is true about as often as it says.
func TestIntervalHoldsTheTruth(t *testing.T) {
	const all, sets = 0.01, 300
	held := 0
	for seed := range uint64(sets) {
		if c := compare(measured(seed, 12, minSteps, all, 0), 0.5); c.lower <= all && all <= c.higher {
			held++
		}
	}
	// Of twelve pairs a bootstrap's interval is a little too narrow.
	if part := float64(held) / sets; part < 0.87 || part > 0.99 {
		t.Errorf("the interval of 95 %% holds the truth in %.0f %% of %d measurements", 100*part, sets)
	}
}

// A GPU that becomes slower all the time, measured on, off, off, on, is not slower with the agent.
func TestDriftIsNoCost(t *testing.T) {
	pairs := measured(1, 12, 2000, 0, 0)
	for i := range pairs {
		first, second := pairs[i].on, pairs[i].off
		if i%2 == 1 {
			first, second = second, first
		}
		for j := range first {
			first[j] *= 1 + 0.004*float64(2*i)
			second[j] *= 1 + 0.004*float64(2*i+1)
		}
	}
	if c := compare(pairs, 0.5); !(c.lower < 0 && c.higher > 0 && math.Abs(c.mean) < 0.001) {
		t.Errorf("a drift of 10 %% over the measurement is taken for a cost: %+v", c)
	}
}

// text is a measurement as the script writes it.
func text(pairs []pair) string {
	var b strings.Builder
	b.WriteString("pair,agent,seconds\n")
	for i, p := range pairs {
		for _, s := range p.on {
			fmt.Fprintf(&b, "%d,on,%.9f\n", i, s)
		}
		for _, s := range p.off {
			fmt.Fprintf(&b, "%d,off,%.9f\n", i, s)
		}
	}
	return b.String()
}

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		all    float64
		missed bool
	}{"cheap": {0, false}, "dear": {0.05, true}} {
		path := filepath.Join(t.TempDir(), "steps.csv")
		if err := os.WriteFile(path, []byte(text(measured(1, 6, 2000, test.all, 0))), 0o600); err != nil {
			t.Fatal(err)
		}
		if missed, err := run(path); err != nil || missed != test.missed {
			t.Errorf("%s: a goal is missed: %v, %v, want %v", name, missed, err, test.missed)
		}
	}
	if _, err := run(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestParseRefuses(t *testing.T) {
	good := text(measured(1, 4, minSteps, 0, 0))
	if _, err := parse(strings.NewReader(good)); err != nil {
		t.Fatalf("a measurement is refused: %v", err)
	}
	for name, bad := range map[string]string{
		"empty":             "",
		"three pairs":       text(measured(1, 3, minSteps, 0, 0)),
		"a short block":     text(measured(1, 4, minSteps-1, 0, 0)),
		"cut off":           good[:len(good)/2],
		"a step of nothing": good + "3,on,0\n",
		"no number":         good + "3,on,NaN\n",
		"another state":     good + "3,perhaps,0.001\n",
		"a pair left out":   good + "9,on,0.001\n",
		"a column more":     good + "3,on,0.001,1\n",
		"no pair":           good + "x,on,0.001\n",
	} {
		if pairs, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: read as %d pairs", name, len(pairs))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text(measured(1, 4, 3, 0, 0)))
	f.Add("pair,agent,seconds\n0,on,1e308\n0,off,1e-308\n")
	f.Fuzz(func(t *testing.T, in string) {
		pairs, err := parse(strings.NewReader(in))
		if err != nil {
			return
		}
		if c := compare(pairs, 0.99); math.IsNaN(c.mean) || c.lower > c.higher {
			t.Errorf("%d pairs give %+v", len(pairs), c)
		}
	})
}
