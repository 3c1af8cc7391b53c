package stream

import "math"

// BinomialSurprise returns how unlikely it is that k or more of n independent members
// show what each shows with probability p: -ln P(Bin(n, p) >= k), in nats. It is 0 for
// k <= 0, and +Inf for what cannot be: k > n, or p of 0. A p outside 0 to 1, or NaN, tells
// nothing and gives 0.
func BinomialSurprise(k, n int, p float64) float64 {
	switch {
	case k <= 0 || !(p >= 0 && p < 1):
		return 0
	case k > n || p == 0:
		return math.Inf(1)
	case k <= int(p*float64(n)):
		// The larger half is summed from its other side, where terms fall.
		below := exp(-binomialTail(n-k+1, n, 1-p))
		return max(0, -ln(max(1-below, math.SmallestNonzeroFloat64)))
	}
	return max(0, binomialTail(k, n, p))
}

// binomialTail sums the terms from k on as a multiple of the first of them, whose
// logarithm is exact where the term itself is too small for a number. k is beyond
// the mean, so that each term is smaller than the one before.
func binomialTail(k, n int, p float64) float64 {
	first := float64(float64(k)*ln(p)) + float64(float64(n-k)*ln(1-p))
	for i := 1; i <= k; i++ {
		first += ln(float64(n-k+i) / float64(i))
	}
	odds := p / (1 - p)
	sum, term := 1.0, 1.0
	for j := k; j < n && term > 1e-12*sum; j++ {
		term *= float64(float64(n-j)/float64(j+1)) * odds
		sum += term
	}
	return -(first + ln(sum))
}
