package stream

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func at2(u, v float64) *[PlaneInputs]float64 { return &[PlaneInputs]float64{u, v} }

// Without forgetting it is ordinary least squares, as gonum has them.
func TestPlaneIsLeastSquares(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var p Plane
		const n = 60
		x, y := mat.NewDense(n, 3, nil), mat.NewVecDense(n, nil)
		for i := range n {
			u, v := r.Float64(), r.Float64()
			z := 25 + 40*u - 7*v + 0.5*noise(r)
			p.Add(at2(u, v), z, 1, math.Inf(1))
			x.SetRow(i, []float64{1, u, v})
			y.SetVec(i, z)
		}
		var want mat.VecDense
		if err := want.SolveVec(x, y); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if math.Abs(p.theta[i]-want.AtVec(i)) > 0.02 {
				t.Errorf("seed %d: coefficient %d is %v, of least squares %v", seed, i, p.theta[i], want.AtVec(i))
			}
		}
	}
}

func TestPlaneKnowsWhatItKnows(t *testing.T) {
	var p Plane
	if y, leverage := p.Predict(at2(0.5, 0.5)); !math.IsNaN(y) || leverage < 1e3 {
		t.Errorf("before any value it predicts %v with leverage %v", y, leverage)
	}
	r := rand.New(rand.NewPCG(1, 3))
	for range 100 {
		p.Add(at2(0.5+0.02*noise(r), 0.5+0.02*noise(r)), 45+0.3*noise(r), 1, 4320)
	}
	if y, leverage := p.Predict(at2(0.5, 0.5)); math.Abs(y-45) > 0.2 || math.Abs(leverage-0.01) > 0.004 {
		t.Errorf("where 100 values were it predicts %v with leverage %v, want 45 and about 0.01", y, leverage)
	}
	if _, leverage := p.Predict(at2(0.9, 0.5)); leverage < 0.5 {
		t.Errorf("far from all that was the leverage is %v: it thinks that it knows", leverage)
	}
	for range 100 {
		p.Add(at2(0.9, 0.5), 61, 1, 4320)
	}
	if y, leverage := p.Predict(at2(0.7, 0.5)); math.Abs(y-53) > 0.5 || leverage > 0.02 {
		t.Errorf("between two loads that were it predicts %v with leverage %v, want 53 and it knows", y, leverage)
	}
	if b := p.Slope(0); math.Abs(b-40) > 1 {
		t.Errorf("the slope is %v, want 40", b)
	}
}

func TestPlaneStaysFinite(t *testing.T) {
	var p Plane
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 300_000 {
		u := 0.5
		if i > 200_000 {
			u = r.Float64() * 1e5
		}
		p.Add(at2(u, math.Inf(1)), 45, 1, 4320)
		p.Add(at2(u, 0.5), math.NaN(), 1, 4320)
		p.Add(at2(u, 0.5), 45+noise(r), []float64{1, 0.25}[i%2], 4320)
	}
	data, err := json.Marshal(&p)
	var back Plane
	if err != nil || json.Unmarshal(data, &back) != nil || back != p {
		t.Errorf("its state %s comes back as %+v, error %v", data, back, err)
	}
	data[20] ^= 1
	if err := json.Unmarshal(data, &back); err == nil || back != p {
		t.Error("a state that is damaged is taken up")
	}
	for i := range p.cov {
		if !(p.cov[i][i] >= 0 && p.cov[i][i] <= planePrior(i)) || math.IsNaN(p.theta[i]) {
			t.Errorf("after long it has the coefficients %v with the covariance %v", p.theta, p.cov)
		}
	}
}
