package stream

import (
	"encoding/json"
	"math"
)

// PlaneInputs is how many inputs a Plane has, beside the constant.
const PlaneInputs = 8

const (
	planeSize    = PlaneInputs + 1
	planeName    = "gvPL"
	planeVersion = 1
	planeFurther = 1e2
	planeKnown   = 1e4 // variances of one value: as little is known of a coefficient at first
)

// Plane learns how a reading depends on others: y = a + b₁x₁ + b₂x₂ + …, by recursive least
// squares with forgetting (Plackett 1950, Biometrika 37; Ljung 1999, System Identification,
// sec. 11.2). It knows how well it knows: what has not been near the inputs before, or long
// ago, has a high leverage there. An input that is not used is 0.
//
// The zero Plane has seen nothing. Memory and time for a value are constant.
type Plane struct {
	n     uint32
	theta [planeSize]float64
	cov   [planeSize][planeSize]float64 // of theta, in variances of one value
}

// planePrior is the variance of a coefficient before anything was seen, in variances of
// one value: the constant and the first input matter most.
func planePrior(i int) float64 {
	if i < 2 {
		return planeKnown
	}
	return planeFurther
}

// Predict returns what y is at the inputs, and the leverage: the variance of that, in
// variances of one value. It is 1/n where n values have been.
func (p *Plane) Predict(x *[PlaneInputs]float64) (y, leverage float64) {
	if p.n == 0 {
		return math.NaN(), math.Inf(1)
	}
	for i := range p.theta {
		y += float64(p.theta[i] * input(x, i))
	}
	gain := p.gain(x)
	for i := range gain {
		leverage += float64(gain[i] * input(x, i))
	}
	return y, leverage
}

// Slope returns how much y rises with an input.
func (p *Plane) Slope(i int) float64 { return p.theta[i+1] }

// input is 1 for the constant.
func input(x *[PlaneInputs]float64, i int) float64 {
	if i == 0 {
		return 1
	}
	return x[i-1]
}

func (p *Plane) gain(x *[PlaneInputs]float64) (gain [planeSize]float64) {
	for i := range gain {
		for j := range gain {
			gain[i] += float64(p.cov[i][j] * input(x, j))
		}
	}
	return gain
}

// Add takes a value with its inputs, and a weight up to 1, for a memory of so many values.
// What is not a finite number, or beyond 1e6, changes nothing.
func (p *Plane) Add(x *[PlaneInputs]float64, y, weight, memory float64) {
	ok := math.Abs(y) <= 1e6 && weight > 0
	for _, v := range x {
		ok = ok && math.Abs(v) <= 1e6
	}
	if !ok {
		return
	}
	if p.n == 0 {
		p.theta[0] = y
		for i := range p.cov {
			p.cov[i][i] = planePrior(i)
		}
	}
	p.n = min(p.n+1, math.MaxUint32-1)
	predicted, leverage := p.Predict(x)
	gain := p.gain(x)
	scale := 1 / (1/weight + max(leverage, 0))
	for i := range p.theta {
		step := float64(gain[i] * scale)
		p.theta[i] += float64(step * (y - predicted))
		for j := range i {
			p.cov[i][j] -= float64(step * gain[j])
			p.cov[j][i] = p.cov[i][j]
		}
		p.cov[i][i] = max(0, p.cov[i][i]-float64(step*gain[i]))
	}
	p.forget(1 + 1/memory)
}

// forget makes less of what has been, but not of what is hardly known any more: else
// the variance of a direction that no value comes from would grow without end.
func (p *Plane) forget(by float64) {
	for i := range p.cov {
		if float64(p.cov[i][i]*by) > planePrior(i) {
			return
		}
	}
	for i := range p.cov {
		for j := range p.cov[i] {
			p.cov[i][j] *= by
		}
	}
}

// MarshalJSON packs what was learned into 443 bytes, in base64.
func (p *Plane) MarshalJSON() ([]byte, error) {
	w := newRecord(planeName, planeVersion, 450)
	w.u32(p.n)
	for i := range p.theta {
		w.f64(p.theta[i])
		for j := range i + 1 {
			w.f64(p.cov[i][j])
		}
	}
	return json.Marshal(w.finish())
}

// UnmarshalJSON takes up what MarshalJSON packed. What is damaged or of another version is
// an error and leaves the plane as it was.
func (p *Plane) UnmarshalJSON(data []byte) error {
	var packed []byte
	if err := json.Unmarshal(data, &packed); err != nil {
		return err
	}
	r, err := openRecord(packed, planeName, planeVersion, planeVersion)
	if err != nil {
		return err
	}
	n := Plane{n: r.u32()}
	for i := range n.theta {
		n.theta[i] = r.f64()
		for j := range i + 1 {
			n.cov[i][j] = r.f64()
			n.cov[j][i] = n.cov[i][j]
		}
	}
	if err := r.finish(); err != nil {
		return err
	}
	*p = n
	return nil
}
