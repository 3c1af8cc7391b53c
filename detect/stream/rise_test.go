package stream

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

var kelvin = RiseLaw{Slack: 2, Sigmas: 1.5, Least: 4, Limit: 45, Clip: 15, Young: 30, Memory: 1440}

// rises feeds a day and more of values around 60 with noise, raised from minute 600 on, and returns
// after how many minutes the first alarm comes, 0 if it never does.
func rises(t *testing.T, sigma, by float64, seed uint64) int {
	t.Helper()
	r, rng := new(Rise), rand.New(rand.NewPCG(seed, 7))
	for i := range 1000 {
		x := 60 + sigma*noise(rng)
		if i >= 600 {
			x += by
		}
		if s := r.Add(&kelvin, x); s >= 1 {
			if i < 600 {
				t.Errorf("seed %d: an alarm in minute %d, before anything rose", seed, i)
			}
			return i - 599
		}
	}
	return 0
}

func TestRiseIsFound(t *testing.T) {
	for _, c := range []struct{ sigma, by, within float64 }{{0.3, 5, 20}, {1, 5, 25}, {0.3, 10, 10}, {1, 10, 12}, {0, 6, 14}} {
		for seed := range uint64(50) {
			if got := rises(t, c.sigma, c.by, seed); got == 0 || got > int(c.within) {
				t.Errorf("noise %v: a rise by %v is found after %d values (0: never), want within %v", c.sigma, c.by, got, c.within)
			}
		}
	}
	for seed := range uint64(50) {
		if got := rises(t, 1, 1.5, seed); got != 0 {
			t.Errorf("a rise by less than matters is an alarm after %d values", got)
		}
	}
}

func TestRiseEndsAndIsLearned(t *testing.T) {
	r := new(Rise)
	feed := func(n int, x float64) (s float64) {
		for range n {
			s = r.Add(&kelvin, x)
		}
		return s
	}
	feed(600, 60)
	if s := feed(60, 70); s < 1 || r.Lasting() != 60 || math.Abs(r.Recent()-10) > 0.5 {
		t.Errorf("after an hour 10 above: score %v, for %d values, by %v; want an alarm, 60, about 10", s, r.Lasting(), r.Recent())
	}
	if s := feed(8, 60); s >= 1 {
		t.Errorf("eight values after it was over the score is still %v", s)
	}
	feed(600, 60)
	if s := feed(12*1440, 70); s >= 1 {
		t.Errorf("after twelve days 10 above, that is not the new usual: score %v, usual %v", s, r.Usual())
	}
}

// A constant that is added changes nothing; one that all is multiplied by changes nothing if
// the law is in the same unit. Values that are no numbers are as if they were not there.
func TestRiseProperties(t *testing.T) {
	scaled := kelvin
	scaled.Slack, scaled.Least, scaled.Limit, scaled.Clip = 8, 16, 180, 60
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var plain, shifted, wide, holes Rise
		for i := range 2000 {
			x := math.Round(64 * (3*noise(rng) + float64(i/500*4)))
			want := plain.Add(&kelvin, x)
			if got := shifted.Add(&kelvin, x+1024); math.Abs(got-want) > 1e-9 {
				t.Fatalf("seed %d, value %d: moved by a constant the score is %v, not %v", seed, i, got, want)
			}
			if got := wide.Add(&scaled, 4*x); got != want || math.Abs(wide.Surprise(&scaled)-plain.Surprise(&kelvin)) > 1e-9 {
				t.Fatalf("seed %d, value %d: in another unit the score is %v, not %v", seed, i, got, want)
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), -1e300} {
				holes.Add(&kelvin, bad)
			}
			if got := holes.Add(&kelvin, x); got != want {
				t.Fatalf("seed %d, value %d: with holes the score is %v, not %v", seed, i, got, want)
			}
			if s := plain.Surprise(&kelvin); !(s >= 0 && s <= riseMost) {
				t.Fatalf("surprise %v", s)
			}
			data, err := json.Marshal(&plain)
			if err != nil || len(data) > 200 {
				t.Fatalf("the state is %s, error %v", data, err)
			}
			var back Rise
			if err := json.Unmarshal(data, &back); err != nil || back != plain {
				t.Fatalf("the state comes back as %+v, error %v, not %+v", back, err, plain)
			}
		}
	}
}

// TestRiseSurprise holds the promise of the nats: of a reading without a rise, sums
// that are worth s nats or more come at most about exp(−s) times a week, also if
// neighbours resemble each other.
func TestRiseSurprise(t *testing.T) {
	law := RiseLaw{Slack: 0.01, Sigmas: 0.5, Least: 0.1, Limit: 500, Clip: 100, Young: 60, Memory: 4320}
	const weeks = 300
	var over [4]int
	rng := rand.New(rand.NewPCG(5, 5))
	var r Rise
	var was [4]bool
	x := 0.0
	for range weeks * riseWeek {
		x = 0.5*x + 0.866*noise(rng)
		r.Add(&law, x)
		s := r.Surprise(&law)
		for k := range over {
			now := s >= float64(k)+0.5
			if now && !was[k] {
				over[k]++
			}
			was[k] = now && r.sum.sum > 0 || was[k] && r.sum.sum > 0
		}
	}
	for k, n := range over {
		if most := weeks * math.Exp(-float64(k)-0.5); float64(n) > 2*most+3 {
			t.Errorf("%d sums of %.1f nats or more in %d weeks, want at most about %.0f", n, float64(k)+0.5, weeks, most)
		}
	}
	if over[0] == 0 {
		t.Error("no sum was worth half a nat: the test tells nothing")
	}
}

func TestRiseAllocatesNothing(t *testing.T) {
	r, x := new(Rise), 0.0
	if n := testing.AllocsPerRun(1000, func() { x++; r.Add(&kelvin, x); r.Surprise(&kelvin) }); n != 0 {
		t.Errorf("a value allocates %v times, want 0", n)
	}
}
