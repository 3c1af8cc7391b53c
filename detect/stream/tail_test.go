package stream

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestElementaryFunctions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := math.Exp(float64(1200*r.Float64()) - 600)
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
			t.Fatalf("ln(%g) is %.15g, want %.15g", x, got, want)
		}
		y := float64(1300*r.Float64()) - 650
		if got, want := exp(y), math.Exp(y); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("exp(%g) is %.15g, want %.15g", y, got, want)
		}
	}
}

// Where there are enough samples above, the evidence is the share of them.
func TestTailCounts(t *testing.T) {
	law := tailLaw{least: 5, fit: 10, index: 0.3, weight: 4, reach: 6, stretch: 2}
	for name, draw := range map[string]func(*rand.Rand) float64{
		"exponential": func(r *rand.Rand) float64 { return r.ExpFloat64() },
		"heavy":       func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -0.5) },
		"mostly zero": func(r *rand.Rand) float64 { return max(0, r.NormFloat64()-1) },
	} {
		r := rand.New(rand.NewPCG(3, 4))
		var tail Tail
		var all []float64
		for range 20_000 {
			x := draw(r)
			tail.add(x, tailUnit)
			all = append(all, x)
		}
		tail.settle()
		slices.Sort(all)
		for _, p := range []float64{0.15, 0.05, 0.01, 0.001} {
			x := all[int((1-p)*float64(len(all)))]
			if x <= 0 {
				continue
			}
			if got, want := tail.surprise(x, tailUnit, &law), -math.Log(p); math.Abs(got-want) > 0.2 {
				t.Errorf("%s: a value that %g of the samples exceed has %.2f nats, want %.2f", name, p, got, want)
			}
		}
		if got := tail.surprise(all[len(all)/2], tailUnit, &law); got != 0 && name != "mostly zero" {
			t.Errorf("%s: the median has %.2f nats", name, got)
		}
	}
}

func TestTailExtrapolatesNoFurtherThanItMay(t *testing.T) {
	law := tailLaw{least: 5, fit: 10, index: 0.3, weight: 4, reach: 6, stretch: 2}
	r := rand.New(rand.NewPCG(5, 6))
	var tail Tail
	for range 10_000 {
		tail.add(r.ExpFloat64(), tailUnit)
	}
	last := 0.0
	for x := 1.0; x < 1e300; x *= 1.3 {
		e := tail.surprise(x, tailUnit, &law)
		if e < last-1e-9 {
			t.Fatalf("%g is less unusual than a smaller value: %g nats, not %g", x, e, last)
		}
		last = e
	}
	if want := math.Log(10_001/5.5) + 6; math.Abs(last-want) > 1e-6 {
		t.Errorf("the most unusual value has %g nats, want %g", last, want)
	}
}

func TestTailForgets(t *testing.T) {
	law := tailLaw{least: 5, fit: 10, index: 0.3, weight: 4, reach: 6, stretch: 2}
	var tail Tail
	for range 5000 {
		tail.add(100, tailUnit)
	}
	for range 20 {
		for range 5000 {
			tail.add(1, tailUnit)
		}
		tail.forget()
	}
	tail.settle()
	if e := tail.surprise(90, tailUnit, &law); e < 5 {
		t.Errorf("what was usual twenty half-lives ago still is: %g nats", e)
	}
	if n := float64(tail.total<<tail.shift) / tailUnit; n < 4999 || n > 11_000 {
		t.Errorf("it stands for %g samples, want what two half-lives hold", n)
	}
}

// A value that is had all the time must not overflow its bin.
func TestTailOfAConstant(t *testing.T) {
	law := tailLaw{least: 5, fit: 10, index: 0.3, weight: 4, reach: 6, stretch: 2}
	var tail Tail
	for range 50_000 {
		tail.add(7, tailUnit)
	}
	tail.settle()
	if n := float64(tail.total) * float64(uint32(1)<<tail.shift) / tailUnit; math.Abs(n-50_000) > 500 {
		t.Errorf("it stands for %g samples, want 50000", n)
	}
	if e := tail.surprise(7, tailUnit, &law); e > 0.01 {
		t.Errorf("the constant itself has %g nats", e)
	}
	if e := tail.surprise(70, tailUnit, &law); e < 10 {
		t.Errorf("ten times the constant has %g nats", e)
	}
}
