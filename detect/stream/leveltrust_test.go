package stream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// load returns n samples, a minute apart, of one kind of series.
func load(kind string, n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 77))
	x := make([]float64, n)
	for i := range x {
		switch kind {
		case "noise":
			x[i] = 50 + float64(2*r.NormFloat64())
		case "mostly nothing":
			if r.Float64() < 0.1 {
				x[i] = r.ExpFloat64()
			}
		}
	}
	return x
}

// One value that was read wrongly, or one request that hung, must not hide what is wrong
// in the days after it.
func TestLevelIsNotBlindAfterAWildValue(t *testing.T) {
	const minutesOf4Days, fault = 4 * 1440, 120
	for _, kind := range []string{"noise", "mostly nothing", "constant"} {
		for _, wild := range []struct {
			name  string
			value float64
			at    []int // samples
		}{
			{"no wild value", 0, nil},
			{"one of 3600", 3600, []int{minutesOf4Days}},
			{"one of 1e4", 1e4, []int{minutesOf4Days}},
			{"one of -1e9", -1e9, []int{minutesOf4Days}},
			{"one of 1e20", 1e20, []int{minutesOf4Days}},
			{"two of 1e20 in a row", 1e20, []int{minutesOf4Days, minutesOf4Days + 1}},
			{"three of 1e20 within a day", 1e20, []int{minutesOf4Days - 960, minutesOf4Days - 480, minutesOf4Days}},
			{"1e20 as the first sample", 1e20, []int{0}},
			{"1e20 soon after the start", 1e20, []int{30}},
		} {
			t.Run(fmt.Sprintf("%s, %s", kind, wild.name), func(t *testing.T) {
				for _, hours := range []int{3, 12, 48, 120} {
					found := 0
					const series = 6
					for seed := range uint64(series) {
						from := minutesOf4Days + 97*int(seed) + 60*hours
						x := load(kind, from+fault, seed)
						for _, at := range wild.at {
							x[at] = wild.value
						}
						for i := from; i < len(x); i++ {
							x[i] += 20
						}
						var l Level
						if n, _ := raised(scores(&l, 0, x)[from:]); n > 0 {
							found++
						}
					}
					if found < series-1 {
						t.Errorf("a rise by 20 for two hours, %d h later, is found in %d of %d series", hours, found, series)
					}
				}
			})
		}
	}
}

// What stays is no wild value: the series has become another one, and is judged as such.
func TestLevelFollowsALevelThatStays(t *testing.T) {
	for _, level := range []float64{1e3, 1e6, -1e9} {
		x := load("noise", 12*1440, 5)
		for i := 4 * 1440; i < len(x); i++ {
			x[i] += level
		}
		var l Level
		s := scores(&l, 0, x)
		if n, _ := raised(s[4*1440 : 4*1440+30]); n == 0 {
			t.Errorf("a level of %g beside 50 is not found", level)
		}
		if got, want := l.Usual(), 50+level; math.Abs(got-want) > math.Abs(want)/100 {
			t.Errorf("after eight days at %g the usual level is %g", want, got)
		}
	}
}

// A second is one of sixty chances in a minute to look unlikely, but no independent one.
func TestLevelNeedsMoreOfFasterSeries(t *testing.T) {
	for _, c := range []struct{ step, nats float64 }{{300, 0}, {57, -0.0857}, {57.0 / 60, -0.0857 - 0.7*4.0943}} {
		var p levelPace
		p.grade(c.step)
		if d := p.coarse - c.nats; d > 1e-3 || d < -1e-3 {
			t.Errorf("%g s between samples add %.4f nats, want %.4f", c.step, p.coarse, c.nats)
		}
	}
}
