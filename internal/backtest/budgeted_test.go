package backtest

import (
	"math"
	"testing"
)

func TestUpperBoundIsThatOfThree(t *testing.T) {
	if got := UpperBound(0, 13); math.Abs(got-2.996/13) > 0.001 {
		t.Errorf("0 in 13 proves less than %g, want 3/13", got)
	}
	if got := UpperBound(5, 1); math.Abs(got-10.513) > 0.01 {
		t.Errorf("5 in 1 proves less than %g, want 10.51 (Garwood 1936)", got)
	}
	if got := UpperBound(941, 1050); got < 941.0/1050 || got > 0.95 {
		t.Errorf("941 in 1050 proves less than %g, want a little more than 0.896", got)
	}
}

// The same false findings are a nuisance on a node and a flood in a fleet: the budget
// lets fewer through the larger it is.
func TestBudgetedLetsFewerThroughInALargerFleet(t *testing.T) {
	var surprises []float64
	for i := range 1000 { // as rare as they say
		surprises = append(surprises, -math.Log((float64(i)+0.5)/1000))
	}
	for _, gpus := range []int{8, 80, 800} {
		r := Budgeted(surprises, 1000, gpus, 10, 10)
		if want := math.Log(float64(gpus)); math.Abs(r.Nats-want) > 1e-9 {
			t.Errorf("%d GPUs ask for %g nats, want %g", gpus, r.Nats, want)
		}
		if math.Abs(r.PerWeek-1) > 0.6 || r.AtMost <= r.PerWeek {
			t.Errorf("%d GPUs get %s, want the rule's share of about 1 a week", gpus, r)
		}
	}
}
