package stream

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestPoissonRiseAgreesWithGonum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		mean := math.Exp(r.Float64()*12 - 4)
		n := math.Floor(mean + (r.Float64()*12-6)*math.Sqrt(mean) + r.Float64()*3)
		if n < 0 {
			continue
		}
		p := distuv.Poisson{Lambda: mean}.Survival(n - 1)
		if n == 0 {
			p = 1
		}
		if p < 1e-12 {
			continue // gonum takes it from 1
		}
		if got := PoissonRise(n, mean); !near(got, -math.Log(p), 1e-3) {
			t.Errorf("%v events where %v are expected: %v nats, gonum says %v", n, mean, got, -math.Log(p))
		}
	}
}

func TestBinomialRiseAgreesWithGonum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		n, p := math.Floor(math.Exp(r.Float64()*10)), r.Float64()
		k := math.Floor(n*p + (r.Float64()*12-6)*math.Sqrt(n*p*(1-p)))
		if k <= 0 || k > n {
			continue
		}
		want := distuv.Binomial{N: n, P: p}.Survival(k - 1)
		if want < 1e-12 {
			continue
		}
		if got := BinomialRise(k, n, p); !near(got, -math.Log(want), 1e-3) {
			t.Errorf("%v of %v at %v: %v nats, gonum says %v", k, n, p, got, -math.Log(want))
		}
	}
}

// Deep in the tail no floating-point oracle helps: sums of fractions do.
func TestTailsDeepDownAreExact(t *testing.T) {
	// P(X >= 20) of 20 trials at 1/25 is 25^-20.
	if got, want := RateRise(20, 1, 0, 24), 20*math.Log(25); !near(got, want, 1e-12) {
		t.Errorf("20 events in an hour after none in 24: %v nats, want %v", got, want)
	}
	if got, want := BinomialRise(1000, 1000, 0.5), 1000*math.Ln2; !near(got, want, 1e-12) {
		t.Errorf("1000 heads: %v nats, want %v", got, want)
	}
	// P(X >= 30) of a Poisson variable of mean 1/2 by its series.
	sum, term := 0.0, math.Exp(-0.5)
	for k := 1.0; k < 60; k++ {
		if term *= 0.5 / k; k >= 30 {
			sum += term
		}
	}
	if got := PoissonRise(30, 0.5); !near(got, -math.Log(sum), 1e-12) {
		t.Errorf("30 events where half of one is expected: %v nats, want %v", got, -math.Log(sum))
	}
}

// Fisher's own example: a lady tells from eight cups all four right, by chance once in 70.
func TestShareRiseOfTheLadyTastingTea(t *testing.T) {
	if got, want := ShareRise(4, 4, 0, 4), math.Log(70); !near(got, want, 1e-12) {
		t.Errorf("%v nats, want ln 70 = %v", got, want)
	}
	if got, want := ShareRise(3, 4, 1, 4), -math.Log(17.0/70); !near(got, want, 1e-12) {
		t.Errorf("three right: %v nats, want %v", got, want)
	}
}

func TestShareRiseIsExact(t *testing.T) {
	choose := func(n, k int64) *big.Int { return new(big.Int).Binomial(n, k) }
	for of := int64(1); of < 9; of++ {
		for before := int64(1); before < 13; before++ {
			for hits := int64(0); hits <= of; hits++ {
				for was := int64(0); was <= before; was++ {
					ways := new(big.Int)
					for k := hits; k <= min(of, hits+was); k++ {
						ways.Add(ways, new(big.Int).Mul(choose(hits+was, k), choose(of+before-hits-was, of-k)))
					}
					p, _ := new(big.Rat).SetFrac(ways, choose(of+before, of)).Float64()
					if got := ShareRise(float64(hits), float64(of), float64(was), float64(before)); math.Abs(got+math.Log(p)) > 1e-9 {
						t.Fatalf("%d of %d after %d of %d: %v nats, want %v", hits, of, was, before, got, -math.Log(p))
					}
				}
			}
		}
	}
}

// More events are never less surprising, more time before with as many events never is,
// and the unit of time does not matter.
func TestRateRiseProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		n, in, was, before := math.Floor(r.Float64()*60), 1+r.Float64()*9, math.Floor(r.Float64()*200), 1+r.Float64()*200
		at := RateRise(n, in, was, before)
		if more := RateRise(n+1, in, was, before); more < at-1e-9 {
			t.Errorf("%v events in %v after %v in %v are %v nats, one more %v", n, in, was, before, at, more)
		}
		if longer := RateRise(n, in, was, before*2); longer < at-1e-9 {
			t.Errorf("twice the quiet time before makes %v nats of %v", longer, at)
		}
		if scaled := RateRise(n, in*3600, was, before*3600); !near(scaled, at, 1e-9) && math.Abs(scaled-at) > 1e-9 {
			t.Errorf("in seconds it is %v nats, in hours %v", scaled, at)
		}
	}
}

// How often a test of a healthy subject says p or less is what p promises, or rarer.
func TestRateRiseKeepsItsPromise(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const trials = 20000
	rare := 0
	for range trials {
		now, before := distuv.Poisson{Lambda: 3, Src: r}.Rand(), distuv.Poisson{Lambda: 72, Src: r}.Rand()
		if RateRise(now, 1, before, 24) >= math.Log(100) {
			rare++
		}
	}
	if rare > trials/100*13/10 || rare == 0 {
		t.Errorf("%d of %d healthy hours surprise by one in a hundred, want some and at most about %d", rare, trials, trials/100)
	}
}

func TestRatesOfNonsense(t *testing.T) {
	for name, got := range map[string]float64{
		"NaN events": RateRise(math.NaN(), 1, 1, 1), "no time": RateRise(1, 0, 1, 1), "negative mean": PoissonRise(1, -1), "Inf": PoissonRise(math.Inf(1), 1),
		"p above 1": BinomialRise(1, 2, 1.5), "more hits than trials": ShareRise(3, 2, 0, 5), "negative": BinomialRise(-1, 2, 0.5),
	} {
		if !math.IsNaN(got) {
			t.Errorf("%s: %v, want NaN", name, got)
		}
	}
	for name, got := range map[string]float64{"no events": PoissonRise(0, 5), "nothing before": RateRise(7, 1, 0, 0), "no trials before": ShareRise(2, 2, 0, 0)} {
		if got != 0 {
			t.Errorf("%s: %v nats, want 0", name, got)
		}
	}
	if !math.IsInf(PoissonRise(1, 0), 1) || !math.IsInf(BinomialRise(1, 5, 0), 1) {
		t.Error("what cannot be is not infinitely surprising")
	}
}

func FuzzRates(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0)
	f.Add(1e9, 1e-9, 1e9, 1e9)
	f.Fuzz(func(t *testing.T, a, b, c, d float64) {
		if max(a, b, c, d) > 1e9 {
			return
		}
		for _, v := range []float64{PoissonRise(a, b), BinomialRise(a, b, c), RateRise(a, b, c, d), ShareRise(a, b, c, d)} {
			if v < 0 {
				t.Errorf("%v nats of %v %v %v %v", v, a, b, c, d)
			}
		}
	})
}
