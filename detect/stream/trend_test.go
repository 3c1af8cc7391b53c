package stream

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
)

func steps(n int) []int {
	ts := make([]int, n)
	for i := range ts {
		ts[i] = i
	}
	return ts
}

func near(a, b, tolerance float64) bool {
	return a == b || math.Abs(a-b) <= tolerance*max(1, math.Abs(a), math.Abs(b))
}

// The example of Sen 1968, sec. 6: slope 4, and 26/7 to 35/8 with 93 % confidence.
func TestSenExample(t *testing.T) {
	ts := []int{1, 2, 3, 4, 10, 12, 18}
	ys := []float64{9, 15, 19, 20, 45, 55, 78}
	var m trendScratch
	got := newTrend(ts, ys, &m)
	if !near(got.Slope, 4, 1e-12) {
		t.Errorf("slope %v, want 4", got.Slope)
	}
	s, variance := mannKendall(ys, m.values[:7])
	low, high := senInterval(m.slopes[:21], 1.8119*math.Sqrt(variance))
	if s != 21 || !near(low, 26.0/7, 1e-12) || !near(high, 35.0/8, 1e-12) {
		t.Errorf("sum %d, interval %v to %v; want 21, 26/7 to 35/8", s, low, high)
	}
	if got.Low > low || got.High < high {
		t.Errorf("95 %% interval %v to %v is inside that of 93 %%, %v to %v", got.Low, got.High, low, high)
	}
	if want := got.Level - 4*17; !near(got.Rise(), 68, 1e-12) || !near(want, got.Level-got.Rise(), 1e-12) {
		t.Errorf("rise %v, want 4 for each of 17 steps", got.Rise())
	}
}

// Figures that the package pymannkendall (its tests, at 25412183) states: 360 values in
// order have the variance 5205500, and S = −1959 with variance 4889800.33 has this z.
func TestMannKendallKnownValues(t *testing.T) {
	ys := make([]float64, 360)
	for i := range ys {
		ys[i] = float64(i)
	}
	if s, v := mannKendall(ys, make([]float64, 360)); s != 64620 || v != 5205500 {
		t.Errorf("360 rising values: sum %d, variance %v; want 64620 and 5205500", s, v)
	}
	if z := kendallZ(-1959, 4889800.333333333); !near(z, -0.8854562842589916, 1e-14) {
		t.Errorf("z %v, want -0.8854562842589916", z)
	}
	// Kendall 1975, sec. 4.4: n = 10 without ties.
	if _, v := mannKendall([]float64{3, 1, 4, 15, 9, 2, 6, 5, 35, 8}, make([]float64, 10)); v != 125 {
		t.Errorf("variance for 10 values %v, want 125", v)
	}
}

// TestMannKendallVariance compares with all orders of five values, some of them tied:
// the mean of S squared over the permutations is the variance.
func TestMannKendallVariance(t *testing.T) {
	for _, values := range [][]float64{{1, 2, 3, 4, 5}, {1, 1, 2, 3, 3}, {1, 1, 1, 2, 2}, {7, 7, 7, 7, 7}} {
		squares, n := 0.0, 0
		permute(slices.Clone(values), 0, func(p []float64) {
			s, _ := mannKendall(p, make([]float64, 5))
			squares += float64(s * s)
			n++
		})
		if _, v := mannKendall(values, make([]float64, 5)); !near(v, squares/float64(n), 1e-12) {
			t.Errorf("%v: variance %v, over all orders it is %v", values, v, squares/float64(n))
		}
	}
}

func permute(a []float64, from int, f func([]float64)) {
	if from == len(a) {
		f(a)
		return
	}
	for i := from; i < len(a); i++ {
		a[from], a[i] = a[i], a[from]
		permute(a, from+1, f)
		a[from], a[i] = a[i], a[from]
	}
}

func TestTrendAgreesWithGonum(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var m trendScratch
	for range 300 {
		n := 4 + rng.IntN(maxTrend-3)
		xs, ys := make([]float64, n), make([]float64, n)
		ts := steps(n)
		for i := range ys {
			xs[i], ys[i] = float64(i), 0.3*float64(i)*rng.Float64()+rng.NormFloat64()
		}
		s, _ := mannKendall(ys, m.values[:n])
		if tau := float64(s) / float64(n*(n-1)/2); !near(tau, stat.Kendall(xs, ys, nil), 1e-12) {
			t.Fatalf("tau %v of %v, gonum says %v", tau, ys, stat.Kendall(xs, ys, nil))
		}
		var slopes []float64
		for i := range n {
			for j := i + 1; j < n; j++ {
				slopes = append(slopes, (ys[j]-ys[i])/float64(j-i))
			}
		}
		slices.Sort(slopes)
		below := stat.Quantile(0.5, stat.Empirical, slopes, nil)
		got := newTrend(ts, ys, &m)
		if k, _ := slices.BinarySearch(slopes, got.Slope); got.Slope < below || k > len(slopes)/2 {
			t.Fatalf("slope %v, want the median of the slopes, %v or just above", got.Slope, below)
		}
	}
}

// TestHamedRao: neighbours that resemble each other make a trend less certain, by the
// formula computed here with gonum's correlation of ranks; independent ones do not.
func TestHamedRao(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	grown := 0
	for range 200 {
		ys, x := make([]float64, 24), 0.0
		for i := range ys {
			x = 0.8*x + rng.NormFloat64()
			ys[i] = x
		}
		ranks := make([]float64, 24)
		got := hamedRao(ys, ranks)
		want := directHamedRao(ranks)
		if !near(got, want, 1e-12) {
			t.Fatalf("factor %v, want %v", got, want)
		}
		if got > 1.5 {
			grown++
		}
	}
	if grown < 120 {
		t.Errorf("only %d of 200 autocorrelated series made the variance grow", grown)
	}
	alternating := []float64{1, 9, 2, 8, 3, 7, 2, 9, 1, 8, 2, 9}
	if got := hamedRao(alternating, make([]float64, 12)); got != 1 {
		t.Errorf("alternating values give the factor %v, want 1", got)
	}
}

func directHamedRao(ranks []float64) float64 {
	n := float64(len(ranks))
	mean, sum := stat.Mean(ranks, nil), 0.0
	variance := stat.Moment(2, ranks, nil)
	for lag := 1; lag < len(ranks)-2; lag++ {
		c := 0.0
		for i := lag; i < len(ranks); i++ {
			c += (ranks[i] - mean) * (ranks[i-lag] - mean)
		}
		c /= variance * n
		if math.Abs(c) < 1.96/math.Sqrt(n) {
			break
		}
		k := float64(lag)
		sum += (n - k) * (n - k - 1) * (n - k - 2) * c
	}
	return max(1, 1+2/(n*(n-1)*(n-2))*sum)
}

// TestTrendProperties: a shift changes nothing but the level, a scale scales, a
// reversal in time turns the sign, and a value that is missing leaves a line a line.
func TestTrendProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var m trendScratch
	for range 200 {
		n := 8 + rng.IntN(maxTrend-7)
		ys := make([]float64, n)
		for i := range ys {
			ys[i] = math.Round(rng.NormFloat64()*64) + float64(4*i)
		}
		plain := newTrend(steps(n), ys, &m)
		// Rounding may part residuals that were equal: z depends on their ranks a little.
		f := func(name string, change func(float64) float64, scale float64) {
			other := make([]float64, n)
			for i, y := range ys {
				other[i] = change(y)
			}
			got := newTrend(steps(n), other, &m)
			if !near(got.Z, plain.Z, 0.02) || !near(got.Slope, plain.Slope*scale, 1e-12) || !near(got.Spread, plain.Spread*scale, 1e-12) || !near(got.Low, plain.Low*scale, 1e-12) {
				t.Fatalf("%s: %+v, want z as in %+v and the rest times %v", name, got, plain, scale)
			}
		}
		f("shifted by 1024", func(y float64) float64 { return y + 1024 }, 1)
		f("doubled", func(y float64) float64 { return 2 * y }, 2)
		reversed := slices.Clone(ys)
		slices.Reverse(reversed)
		if got := newTrend(steps(n), reversed, &m); !near(got.Slope, -plain.Slope, 1e-12) {
			t.Fatalf("reversed slope %v, want %v", got.Slope, -plain.Slope)
		}
	}
	for gap := 1; gap < 9; gap++ {
		ts, ys := []int{}, []float64{}
		for i := range 10 {
			if i != gap {
				ts, ys = append(ts, i), append(ys, 5+3*float64(i))
			}
		}
		if got := newTrend(ts, ys, &m); got.Slope != 3 || got.Level != 32 || got.Spread != 0 {
			t.Errorf("a line without its value %d: %+v, want slope 3 and level 32", gap, got)
		}
	}
}

func TestTrendOfTooFewValues(t *testing.T) {
	var m trendScratch
	if got := newTrend(steps(3), []float64{1, 2, 3}, &m); got.Z != 0 || got.Rise() != 0 || !math.IsInf(got.Low, -1) {
		t.Errorf("three values claim a trend: %+v", got)
	}
	if got := newTrend(steps(6), []float64{2, 2, 2, 2, 2, 2}, &m); got.Z != 0 || got.Slope != 0 || got.Level != 2 {
		t.Errorf("six equal values claim a trend: %+v", got)
	}
}
