package cost

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

func TestPartsSumToTheTotalAndAreFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		total := r.Int64N(1 << (1 + r.IntN(62)))
		weights := make([]uint64, 1+r.IntN(9))
		sum := uint64(0)
		for i := range weights {
			if r.IntN(4) > 0 {
				weights[i] = r.Uint64N(1 << (1 + r.IntN(58)))
			}
			sum += weights[i]
		}
		parts := Split(total, weights)
		got := int64(0)
		for i, p := range parts {
			got += p
			if sum == 0 {
				continue
			}
			fair := new(big.Int).Mul(big.NewInt(total), new(big.Int).SetUint64(weights[i]))
			fair.Div(fair, new(big.Int).SetUint64(sum))
			if off := p - fair.Int64(); off < 0 || off > 1 {
				t.Fatalf("Split(%d, %v): part %d is %d, its fair share %v: off by more than rounding", total, weights, i, p, fair)
			}
		}
		if got != total {
			t.Fatalf("Split(%d, %v) = %v sums to %d: money was lost or made", total, weights, parts, got)
		}
	}
}

func TestSplitOfLittle(t *testing.T) {
	for _, c := range []struct {
		total   int64
		weights []uint64
		want    []int64
	}{
		{10, []uint64{1, 1, 1}, []int64{4, 3, 3}},
		{10, []uint64{0, 0}, []int64{5, 5}},
		{1, []uint64{1, 2}, []int64{0, 1}},
		{0, []uint64{1, 2}, []int64{0, 0}},
		{7, []uint64{0, 5, 0}, []int64{0, 7, 0}},
	} {
		if diff := cmp.Diff(c.want, Split(c.total, c.weights)); diff != "" {
			t.Errorf("Split(%d, %v):\n%s", c.total, c.weights, diff)
		}
	}
}

// TestMeterLosesNothing holds that pieces of time cost what the whole does.
func TestMeterLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		rate := r.Int64N(1 << (1 + r.IntN(46)))
		var carry, sum int64
		exact := new(big.Int)
		for range 200 {
			q := r.Int64N(1 << (1 + r.IntN(41)))
			sum += Meter(q, rate, &carry)
			exact.Add(exact, new(big.Int).Mul(big.NewInt(q), big.NewInt(rate)))
		}
		exact.Div(exact, big.NewInt(PerHour))
		if exact.Int64() != sum {
			t.Fatalf("at %d per hour the pieces cost %d, the whole %v", rate, sum, exact)
		}
		if carry < 0 || carry >= PerHour {
			t.Fatalf("what is left over is %d, want less than a unit", carry)
		}
	}
}

func TestAmountsAddAndSplitInEachColumn(t *testing.T) {
	a := Amounts{1, 2, 3, 4, 5, 6, 7, 8}
	if got, want := a.Plus(a), (Amounts{2, 4, 6, 8, 10, 12, 14, 16}); got != want {
		t.Errorf("sum of amounts: %+v, want %+v", got, want)
	}
	sum := Amounts{}
	for _, p := range SplitAmounts(a, []uint64{3, 1, 1}) {
		sum = sum.Plus(p)
	}
	if sum != a {
		t.Errorf("split amounts sum to %+v, want %+v", sum, a)
	}
}

func TestStatesAreThoseOfTheCatalogue(t *testing.T) {
	if int(States) != len(metric.GPUState.Values) {
		t.Fatalf("there are %d states here and %d in the catalogue", States, len(metric.GPUState.Values))
	}
	for s := range States {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back State
		if err := json.Unmarshal(text, &back); err != nil || back != s {
			t.Errorf("state %v is written as %s and read as %v, %v", s, text, back, err)
		}
	}
	for s, want := range map[State]string{Busy: "busy", HeldWithoutProcess: "held_without_process", Unobserved: "unobserved"} {
		if s.String() != want {
			t.Errorf("state %d is called %s, want %s", s, s, want)
		}
	}
	if err := json.Unmarshal([]byte(`"resting"`), new(State)); err == nil {
		t.Error("a state that does not exist is read")
	}
	if _, err := json.Marshal(States); err == nil {
		t.Error("a state that does not exist is written")
	}
}
