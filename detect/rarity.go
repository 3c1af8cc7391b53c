package detect

import "math"

const (
	hoursPerWeek = 7 * 24

	// tailPower is how a share of rare readings falls with their size: to be r times as
	// large is r^-5 as frequent. detect/stream/law.go has its inverse, 0.197, as the prior
	// of all tails; it was found on public series of machines (docs/backtest.md).
	tailPower = 5

	// leastSurprise stands for a statistical observation that is no surprise: 0 would say
	// that it is a fact. mostSurprise is all that is believed of an extrapolation.
	leastSurprise = 1e-3
	mostSurprise  = 25
)

// surpriseOf turns how many findings as strong a healthy subject gives in a week into
// nats.
func surpriseOf(aWeek float64) float64 {
	if math.IsNaN(aWeek) {
		return leastSurprise
	}
	return max(leastSurprise, min(-math.Log(max(aWeek, 0)), mostSurprise))
}

// chance says in words how often a healthy subject looks like this.
func chance(surprise float64) string {
	switch weeks := math.Exp(surprise); {
	case weeks < 2:
		return "by chance about once a week"
	case weeks < 1e6:
		return "by chance once in " + significant(weeks, 2) + " weeks"
	default:
		return "by chance less than once in a million weeks"
	}
}

// beyond returns the share of readings at x or above, where the given share is above q.
func beyond(x, q, share float64) float64 {
	if !(x > q) || !(q > 0) {
		return share
	}
	return share * math.Pow(q/x, tailPower)
}

// crossings bounds how often in a week a sum that begins anew at 0, S = max(0, S + x - k),
// reaches the limit, where an x is drawn each hour. One in twenty is above k, by an
// exponential amount of the given mean; the rest lies between 0 and k with the given
// mean, which is below k. The bound is Kingman's for a random walk of negative drift,
// P(S >= h) <= exp(-θh) with θ > 0 the root of E exp(θ(x-k)) = 1 (Kingman 1964, A
// martingale inequality in the theory of queues), for each hour of the week. Of all
// that can lie below k, values at its two ends give the largest expectation.
func crossings(limit, k, mean, excess float64) float64 {
	const above = 0.05
	if !(limit > 0) || !(mean < k) || above*excess >= (1-above)*(k-mean) {
		return hoursPerWeek
	}
	if !(excess > 0) {
		return 0
	}
	// From 0 on, this falls below 0 and then rises without end at 1/excess.
	over := func(theta float64) float64 {
		below := (1-mean/k)*math.Exp(-theta*k) + mean/k
		return (1-above)*below + above/(1-theta*excess) - 1
	}
	low, high := 0.0, 1/excess
	for range 60 {
		if mid := (low + high) / 2; over(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return hoursPerWeek * math.Exp(-low*limit)
}
