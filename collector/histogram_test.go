package collector

import (
	"fmt"
	"math"
	"testing"
)

// histogram_quantile's own interpolation, by hand.
func TestQuantile(t *testing.T) {
	h := Histogram{Bounds: []float64{1, 2, 4}, Counts: []uint64{10, 20, 40, 40}}
	for q, want := range map[float64]float64{0.125: 0.5, 0.25: 1, 0.5: 2, 0.75: 3, 1: 4} {
		if got := h.Quantile(q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	overflow := Histogram{Bounds: []float64{1}, Counts: []uint64{0, 5}}
	if got := overflow.Quantile(0.95); got != 1 {
		t.Errorf("all beyond the last bound: %v, want that bound", got)
	}
	if got := (Histogram{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("nothing observed: %v, want NaN", got)
	}
}

func TestHistogramSince(t *testing.T) {
	old := Histogram{Bounds: []float64{1}, Counts: []uint64{2, 5}, Sum: 7}
	d, ok := Histogram{Bounds: []float64{1}, Counts: []uint64{3, 9}, Sum: 10}.Since(old)
	if !ok || fmt.Sprint(d.Counts, d.Sum) != "[1 4] 3" {
		t.Errorf("since then: %v, %v", d, ok)
	}
	for name, h := range map[string]Histogram{
		"it began anew": {Bounds: []float64{1}, Counts: []uint64{0, 9}}, "other bounds": {Bounds: []float64{2}, Counts: []uint64{3, 9}},
		"fewer bounds": {Counts: []uint64{9}}, "none": {},
	} {
		if _, ok := h.Since(old); ok {
			t.Errorf("%s: it is taken for the same histogram", name)
		}
	}
}

// Which bounds are left depends on the bounds alone, and no observation is lost.
func TestThin(t *testing.T) {
	many := Histogram{Sum: 3}
	for i := range 40 {
		many.Bounds = append(many.Bounds, 0.001*math.Pow(1.3, float64(i)))
		many.Counts = append(many.Counts, uint64(i))
	}
	many.Counts = append(many.Counts, 100)
	thin := many.Thin(14)
	if n := len(thin.Bounds); n > 14 || n < 7 || len(thin.Counts) != n+1 || thin.Count() != 100 || thin.Sum != 3 {
		t.Errorf("40 bounds become %v with counts %v", thin.Bounds, thin.Counts)
	}
	for i, b := range thin.Bounds {
		at := int(thin.Counts[i])
		if many.Bounds[at] != b {
			t.Errorf("bound %v has the count of bound %v", b, many.Bounds[at])
		}
	}
	few := Histogram{Bounds: []float64{0, 0.1, 0.2}, Counts: []uint64{1, 2, 3, 4}}
	if got := few.Thin(14); len(got.Bounds) != 3 {
		t.Errorf("a histogram that is small enough has lost bounds: %v", got.Bounds)
	}
	below := Histogram{Bounds: []float64{-5, -4, -3, -2, -1}, Counts: make([]uint64, 6)}
	if got := below.Thin(3); len(got.Bounds) != 3 {
		t.Errorf("bounds below zero: %v", got.Bounds)
	}
}
