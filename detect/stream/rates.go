package stream

import "math"

// The tests of this file are exact and one-sided: they ask whether there are more
// events than the time before, or the peers, explain. All return minus the natural
// logarithm of the chance that it is so by accident: nats, never negative, +Inf for
// what cannot be. They are as sure at 1e-300 as at 0.1, cost the square root of the
// counts at most, and give the same bits on every architecture.
//
// Counts and times that are negative or not numbers give NaN.

// PoissonRise is how surprising n events or more are where mean are to be expected.
func PoissonRise(n, mean float64) float64 {
	n = math.Ceil(n)
	switch {
	case !(n >= 0) || !(mean >= 0) || math.IsInf(n, 0) || math.IsInf(mean, 0):
		return math.NaN()
	case n == 0:
		return 0
	case mean == 0:
		return math.Inf(1)
	}
	up := func(k float64) float64 { return mean / (k + 1) }
	down := func(k float64) float64 { return k / mean }
	return tailNats(n, math.Inf(1), mean, func(k float64) float64 { return lnPoisson(k, mean) }, up, down)
}

// BinomialRise is how surprising it is that k or more of n trials succeed whose chance
// is p each.
func BinomialRise(k, n, p float64) float64 {
	k, n = math.Ceil(k), math.Floor(n)
	switch {
	case !(k >= 0) || !(n >= 0) || !(p >= 0) || p > 1 || math.IsInf(k, 0) || math.IsInf(n, 0):
		return math.NaN()
	case k == 0 || p == 1 && k <= n:
		return 0
	case k > n || p == 0:
		return math.Inf(1)
	}
	odds := p / (1 - p)
	up := func(j float64) float64 { return (n - j) / (j + 1) * odds }
	down := func(j float64) float64 { return j / (n - j + 1) / odds }
	return tailNats(k, n, float64(n*p), func(j float64) float64 { return lnBinomial(j, n, p, 1-p) }, up, down)
}

// RateRise is how surprising it is that there were so many events in the time now, if
// they come at the rate at which there were so many in the time before: the conditional
// test of two Poisson counts. Given the sum of both, the count of now is binomial with
// the share of the time (Przyborowski and Wilenski, Biometrika 31, 1940). Times are in
// any one unit.
func RateRise(events, in, eventsBefore, inBefore float64) float64 {
	if !(in > 0) || !(inBefore >= 0) {
		return math.NaN()
	}
	return BinomialRise(events, events+math.Ceil(eventsBefore), in/(in+inBefore))
}

// ShareRise is how surprising it is that so many of the trials now succeeded, if they
// succeed as often as so many of those before: Fisher's exact test (Fisher, Statistical
// Methods for Research Workers, 1934, section 21.02).
func ShareRise(hits, of, hitsBefore, ofBefore float64) float64 {
	hits, of, hitsBefore, ofBefore = math.Floor(hits), math.Floor(of), math.Floor(hitsBefore), math.Floor(ofBefore)
	all, good := of+ofBefore, hits+hitsBefore
	switch {
	case !(hits >= 0) || !(hitsBefore >= 0) || !(hits <= of) || !(hitsBefore <= ofBefore) || math.IsInf(all, 0):
		return math.NaN()
	case hits == 0 || ofBefore == 0:
		return 0
	}
	p := of / all
	pdf := func(k float64) float64 {
		return lnBinomial(k, good, p, 1-p) + lnBinomial(of-k, all-good, p, 1-p) - lnBinomial(of, all, p, 1-p)
	}
	up := func(k float64) float64 { return (good - k) / (k + 1) * (of - k) / (all - good - of + k + 1) }
	down := func(k float64) float64 { return k / (good - k + 1) * (all - good - of + k) / (of - k + 1) }
	return tailNats(hits, min(good, of), float64(good*p), pdf, up, down)
}

// tailNats sums a distribution from k to last, from the end that is the smaller sum:
// up(k) is the chance of k+1 by that of k, down(k) that of k-1 by that of k.
func tailNats(k, last, mean float64, lnPdf, up, down func(float64) float64) float64 {
	const enough = 1e-13
	sum, term := 1.0, 1.0
	if k > mean {
		for j := k; j < last && term > enough*sum; j++ {
			term = float64(term * up(j))
			sum += term
		}
		return max(0, -(lnPdf(k) + fineLn(sum)))
	}
	if k--; k < 0 {
		return 0
	}
	for j := k; j > 0 && term > enough*sum; j-- {
		term = float64(term * down(j))
		sum += term
	}
	below := exp(lnPdf(k) + fineLn(sum))
	return max(0, -fineLn(max(1-below, math.SmallestNonzeroFloat64)))
}

// lnPoisson and lnBinomial are logarithms of single chances by the saddle point (Loader,
// Fast and Accurate Computation of Binomial Probabilities, 2000), which loses nothing
// where factorials are as large as their differences.
func lnPoisson(k, mean float64) float64 {
	if k == 0 {
		return -mean
	}
	return -stirlingError(k) - deviance(k, mean) - float64(fineLn(2*math.Pi*k)/2)
}

func lnBinomial(k, n, p, q float64) float64 {
	switch {
	case k < 0 || k > n:
		return math.Inf(-1)
	case k == 0 && n == 0:
		return 0
	case k == 0:
		return float64(n * fineLn(q))
	case k == n:
		return float64(n * fineLn(p))
	}
	return stirlingError(n) - stirlingError(k) - stirlingError(n-k) - deviance(k, float64(n*p)) - deviance(n-k, float64(n*q)) +
		float64(fineLn(n/(2*math.Pi*k*(n-k)))/2)
}

// stirlingError is ln n! less Stirling's formula for it.
func stirlingError(n float64) float64 {
	if n < 16 {
		ln := 0.0
		for i := 2.0; i <= n; i++ {
			ln += fineLn(i)
		}
		return ln - float64((n+0.5)*fineLn(n)) + n - float64(fineLn(2*math.Pi)/2)
	}
	s := 1 / float64(n*n)
	e := 1.0/1260 - float64(s/1680)
	e = 1.0/360 - float64(s*e)
	e = 1.0/12 - float64(s*e)
	return e / n
}

// deviance is x ln(x/mean) + mean - x, also where the three cancel.
func deviance(x, mean float64) float64 {
	if math.Abs(x-mean) >= 0.1*(x+mean) {
		return float64(x*fineLn(x/mean)) + mean - x
	}
	v := (x - mean) / (x + mean)
	sum, power := float64((x-mean)*v), float64(2*x*v)
	for j := 1.0; ; j++ {
		power = float64(power * float64(v*v))
		next := sum + power/(2*j+1)
		if next == sum {
			return sum
		}
		sum = next
	}
}

// fineLn is ln to the last few bits: where logarithms of large counts cancel, ln is too
// coarse.
func fineLn(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log(x)
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	q := float64(s * s)
	p := 0.0
	for k := 23.0; k >= 1; k -= 2 {
		p = 1/k + float64(q*p)
	}
	return float64(float64(e)*math.Ln2) + float64(2*s*p)
}
