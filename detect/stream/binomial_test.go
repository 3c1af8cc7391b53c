package stream

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestBinomialSurpriseIsThatOfGonum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	compared := 0
	for range 20_000 {
		n := 1 + r.IntN(3000)
		p := math.Exp(-12 * r.Float64())
		if p >= 1 {
			continue
		}
		k := 1 + r.IntN(n)
		if r.IntN(2) == 0 {
			k = min(n, 1+int(p*float64(n)*3*r.Float64()))
		}
		want := 1 - (distuv.Binomial{N: float64(n), P: p}).CDF(float64(k-1))
		if want < 1e-9 {
			continue // it is the difference of two numbers near 1
		}
		compared++
		if got := BinomialSurprise(k, n, p); math.Abs(got+math.Log(want)) > 1e-6*(1+math.Abs(got))+1e-6 {
			t.Fatalf("%d or more of %d at %g surprise by %g nats, gonum says %g", k, n, p, got, -math.Log(want))
		}
	}
	if compared < 5000 {
		t.Fatalf("only %d cases could be compared", compared)
	}
}

// All of n is p to the power of n, however small that is.
func TestBinomialSurpriseOfAllMembers(t *testing.T) {
	for _, n := range []int{1, 8, 2000} {
		for _, p := range []float64{1e-9, 0.01, 0.5, 0.99} {
			if got, want := BinomialSurprise(n, n, p), -float64(n)*math.Log(p); math.Abs(got-want) > 1e-6*(1+want) {
				t.Errorf("all %d at %g surprise by %g nats, want %g", n, p, got, want)
			}
		}
	}
}

func TestBinomialSurpriseGrowsWithCountAndFallsWithRate(t *testing.T) {
	for _, n := range []int{4, 8, 72, 2000} {
		for k := 1; k <= min(n, 300); k++ {
			if a, b := BinomialSurprise(k-1, n, 0.013), BinomialSurprise(k, n, 0.013); b < a-1e-9 {
				t.Fatalf("%d of %d surprise by %g nats, %d by %g", k-1, n, a, k, b)
			}
			if a, b := BinomialSurprise(k, n, 0.02), BinomialSurprise(k, n, 0.01); b < a-1e-9 {
				t.Fatalf("%d of %d surprise less at the lower rate", k, n)
			}
		}
	}
}

func TestBinomialSurpriseOfWhatCannotBe(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		k, n int
		p    float64
		want float64
	}{
		{0, 8, 0.1, 0}, {-1, 8, 0.1, 0}, {3, 8, 1, 0}, {3, 8, math.NaN(), 0}, {3, 8, -1, 0}, {3, 8, 2, 0},
		{9, 8, 0.1, inf}, {1, 8, 0, inf}, {1, 0, 0.1, inf},
	} {
		if got := BinomialSurprise(c.k, c.n, c.p); got != c.want {
			t.Errorf("%d of %d at %g: %g, want %g", c.k, c.n, c.p, got, c.want)
		}
	}
}
