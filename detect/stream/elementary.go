package stream

import "math"

// ln and exp are the natural logarithm and the exponential to about 1e-9, relative.
// Those of package math may be compiled with fused operations on one architecture
// and not on another; a replay has to give the same bits on all.

// ln returns the natural logarithm of x > 0.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1) // |s| < 0.172
	q := float64(s * s)
	// The series of 2 artanh(s), which is ln of (1+s)/(1-s).
	p := 1.0/9 + float64(q/11)
	p = 1.0/7 + float64(q*p)
	p = 1.0/5 + float64(q*p)
	p = 1.0/3 + float64(q*p)
	p = 1 + float64(q*p)
	return float64(float64(e)*math.Ln2) + float64(2*s*p)
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
