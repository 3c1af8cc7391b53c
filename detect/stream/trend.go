package stream

import (
	"math"
	"slices"
)

// maxTrend is the longest window of values that a trend is looked for in.
const maxTrend = 24

const maxPairs = maxTrend * (maxTrend - 1) / 2

// Trend is what the values of a window do over time. Its figures are per step of
// the window's clock.
type Trend struct {
	Z              float64 // of the Mann–Kendall test: above 0 for a rise
	Slope          float64 // Theil–Sen
	Low, High      float64 // of the slope, with 95 % confidence
	Level          float64 // of the line at the window's last value
	Spread         float64 // of the values around the line: the median absolute residual
	First, Last, N int     // steps of the first and the last value, how many there are
}

// Rise returns how far the line rises from the first to the last value.
func (t Trend) Rise() float64 { return float64(t.Slope * float64(t.Last-t.First)) }

// slopeError is the standard error of the slope if the values scatter around the line by
// chance, by their median absolute residual. The interval of the slope takes the bend of
// a curve for scatter, too.
func (t Trend) slopeError() float64 {
	const madSigma = 1.4826 // standard deviations of the normal distribution
	n := float64(t.N)
	return float64(madSigma*t.Spread) * math.Sqrt(12/float64(n*float64(float64(n*n)-1)))
}

// trendScratch is memory for newTrend, so that it allocates nothing.
type trendScratch struct {
	slopes [maxPairs]float64
	values [maxTrend]float64
	ranks  [maxTrend]float64
}

// newTrend tests and measures the trend of the values ys at the steps ts, which rise.
// With fewer than four values there is none: all is 0, with the slope anywhere.
func newTrend(ts []int, ys []float64, m *trendScratch) Trend {
	n := len(ys)
	if n < 4 {
		return Trend{Low: math.Inf(-1), High: math.Inf(1), N: n}
	}
	s, variance := mannKendall(ys, m.values[:n])
	slopes := m.slopes[:0]
	for j := range ys {
		for i := range j {
			slopes = append(slopes, (ys[j]-ys[i])/float64(ts[j]-ts[i]))
		}
	}
	slices.Sort(slopes)
	t := Trend{Slope: middle(slopes), First: ts[0], Last: ts[n-1], N: n}

	residuals := m.values[:n]
	for i, y := range ys {
		residuals[i] = y - float64(t.Slope*float64(ts[i]-ts[0]))
	}
	variance *= hamedRao(residuals, m.ranks[:n])
	t.Z = kendallZ(s, variance)
	t.Low, t.High = senInterval(slopes, float64(normal95*math.Sqrt(variance)))

	slices.Sort(residuals)
	at := middle(residuals)
	t.Level = at + t.Rise()
	for i, r := range residuals {
		residuals[i] = math.Abs(r - at)
	}
	slices.Sort(residuals)
	t.Spread = middle(residuals)
	return t
}

// mannKendall returns how many more pairs of values rise than fall, and the variance
// of that number if there is no trend, with the correction for ties (Mann 1945,
// Econometrica 13, eq. for T; Kendall 1975, Rank Correlation Methods, eq. 4.9).
func mannKendall(ys, scratch []float64) (s int, variance float64) {
	n := len(ys)
	for j := range ys {
		for i := range j {
			switch {
			case ys[j] > ys[i]:
				s++
			case ys[j] < ys[i]:
				s--
			}
		}
	}
	sorted := scratch[:n]
	copy(sorted, ys)
	slices.Sort(sorted)
	v := n * (n - 1) * (2*n + 5)
	for i := 0; i < n; {
		j := i + 1
		for j < n && sorted[j] == sorted[i] {
			j++
		}
		t := j - i
		v -= t * (t - 1) * (2*t + 5)
		i = j
	}
	return s, float64(v) / 18
}

// kendallZ is the standard normal deviate of s, corrected for continuity (Kendall
// 1975, sec. 4.6). Where nothing varies there is no trend.
func kendallZ(s int, variance float64) float64 {
	switch {
	case variance <= 0 || s == 0:
		return 0
	case s > 0:
		return float64(s-1) / math.Sqrt(variance)
	}
	return float64(s+1) / math.Sqrt(variance)
}

// hamedRao returns by what the variance of Mann–Kendall's sum grows because
// neighbours resemble each other, from the rank autocorrelation of what is left
// without the trend (Hamed & Rao 1998, J. Hydrology 204, eqs. 10–11). Only lags that are
// significant at 5 % count, and only those before the first that is not, as far ones
// rest on a few pairs. It is at least 1: alternating values are no better evidence.
func hamedRao(residuals, ranks []float64) float64 {
	n := len(residuals)
	rankInto(ranks, residuals)
	mean := float64(float64(n+1) / 2)
	var power float64
	for _, r := range ranks {
		power += float64((r - mean) * (r - mean))
	}
	if power == 0 {
		return 1
	}
	limit, sum := 1.96/math.Sqrt(float64(n)), 0.0
	for lag := 1; lag < n-2; lag++ {
		var c float64
		for i := lag; i < n; i++ {
			c += float64((ranks[i] - mean) * (ranks[i-lag] - mean))
		}
		if c /= power; math.Abs(c) < limit {
			break
		}
		sum += float64(float64((n-lag)*(n-lag-1)*(n-lag-2)) * c)
	}
	return max(1, 1+float64(2*sum/float64(n*(n-1)*(n-2))))
}

// rankInto writes the ranks of the values, from 1; equal values share the mean of
// theirs.
func rankInto(ranks, values []float64) {
	for i, v := range values {
		below, same := 0, 0
		for _, o := range values {
			switch {
			case o < v:
				below++
			case o == v:
				same++
			}
		}
		ranks[i] = float64(below) + float64(float64(same+1)/2)
	}
}

// normal95 is the quantile 0.975 of the normal distribution.
const normal95 = 1.959963984540054

// senInterval returns the two sorted slopes between which the true one lies with the
// confidence with which Mann–Kendall's sum is below c if there is no trend (Sen 1968,
// JASA 63, sec. 5; Gilbert 1987, Statistical Methods for Environmental Pollution
// Monitoring, sec. 16.5).
func senInterval(slopes []float64, c float64) (low, high float64) {
	n := float64(len(slopes))
	lower := int(math.Floor((n - c) / 2))
	upper := int(math.Ceil((n+c)/2)) + 1
	low, high = math.Inf(-1), math.Inf(1)
	if lower >= 1 {
		low = slopes[lower-1]
	}
	if upper <= len(slopes) {
		high = slopes[upper-1]
	}
	return low, high
}

// middle returns the median of sorted values.
func middle(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return sorted[n/2-1] + float64((sorted[n/2]-sorted[n/2-1])/2)
}
