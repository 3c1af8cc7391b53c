package stream

import "math"

// ln and exp are the natural logarithm and the exponential to about 1e-9, relative.
// Those of package math may be compiled with fused operations on one architecture
// and not on another; a replay has to give the same bits on all.

const lnSteps = 128

// lnTable has 1/c and ln(c) of the middles c of so many equal parts of [1, 2).
var lnTable = func() (table [lnSteps]struct{ inverse, ln float64 }) {
	for i := range table {
		c := 1 + (float64(i)+0.5)/lnSteps
		table[i].inverse, table[i].ln = 1/c, lnSeries(c)
	}
	return table
}()

// lnSeries returns the natural logarithm of x in [1, 2) by the series of 2 artanh(s),
// which is ln of (1+s)/(1-s).
func lnSeries(x float64) float64 {
	s := (x - 1) / (x + 1) // at most 1/3
	q, p := float64(s*s), 0.0
	for k := 33.0; k >= 1; k -= 2 {
		p = float64(q*p) + 1/k
	}
	return float64(2 * s * p)
}

// ln returns the natural logarithm of x > 0.
func ln(x float64) float64 {
	const mantissa, one = 1<<52 - 1, 1023
	b := math.Float64bits(x)
	e := int(b>>52) - one
	if e == -one { // too small for its bits to be read like this
		return ln(float64(x*(1<<52))) - 52*math.Ln2
	}
	c := &lnTable[b>>(52-7)%lnSteps]
	m := math.Float64frombits(b&mantissa | one<<52)
	r := float64(m*c.inverse) - 1 // |r| < 1/256
	p := float64(r*(1.0/5)) - 1.0/4
	p = float64(r*p) + 1.0/3
	p = float64(r*p) - 1.0/2
	p = float64(r*p) + 1
	return float64(float64(e)*math.Ln2) + c.ln + float64(r*p)
}

// exp returns e to the power of x, 0 below -700 and +Inf above 700.
func exp(x float64) float64 {
	switch {
	case x < -700:
		return 0
	case x > 700:
		return math.Inf(1)
	}
	n := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(n*math.Ln2) // |r| < 0.347
	p := 1.0
	for k := 9.0; k >= 1; k-- {
		p = 1 + float64(float64(r*p)/k)
	}
	return math.Ldexp(p, int(n))
}
