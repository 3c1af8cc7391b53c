package stream

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMeanIsWeightedByTime(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second} {
		m := NewMean(10*time.Minute, 60, time.Minute)
		for at := time.Duration(0); at <= 10*time.Minute; at += step {
			x := 0.0
			if at > 8*time.Minute {
				x = 1
			}
			m.Add(start.Add(at), x)
		}
		end := start.Add(10 * time.Minute)
		for d, want := range map[time.Duration]float64{10 * time.Minute: 0.2, 4 * time.Minute: 0.5, time.Minute: 1} {
			got, covered := m.Over(end, d)
			if math.Abs(got-want) > 0.04 || covered < d-15*time.Second {
				t.Errorf("sampled every %s: over %s the mean is %.3f, %s covered; want %.2f", step, d, got, covered, want)
			}
		}
	}
}

func TestMeanForgetsWhatIsOlderThanTheWindow(t *testing.T) {
	m := NewMean(time.Minute, 10, time.Minute)
	for i := range 300 {
		x := 0.0
		if i < 200 {
			x = 1
		}
		m.Add(start.Add(time.Duration(i)*time.Second), x)
	}
	if got, covered := m.Over(start.Add(299*time.Second), time.Minute); got != 0 || covered != time.Minute {
		t.Errorf("mean %.3f over %s, want 0 over the whole minute", got, covered)
	}
}

func TestMeanCountsNoGaps(t *testing.T) {
	m := NewMean(10*time.Minute, 60, 30*time.Second)
	for i := range 61 {
		m.Add(start.Add(time.Duration(i)*time.Second), 1)
	}
	m.Add(start.Add(6*time.Minute), 0) // five minutes without a sample
	m.Add(start.Add(6*time.Minute+time.Second), math.NaN())
	m.Add(start.Add(6*time.Minute+2*time.Second), math.Inf(1))
	if got, covered := m.Over(start.Add(6*time.Minute+2*time.Second), 10*time.Minute); got != 1 || covered != time.Minute {
		t.Errorf("mean %.3f over %s, want 1 over the minute that was sampled", got, covered)
	}
	m.Add(start.Add(time.Minute), 0)
	if got, covered := m.Over(start.Add(time.Minute), 10*time.Minute); !math.IsNaN(got) || covered != 0 {
		t.Errorf("after a step back in time the mean is %.3f over %s, want none", got, covered)
	}
}

func TestMeanSurvivesARestart(t *testing.T) {
	m := NewMean(10*time.Minute, 60, time.Minute)
	rng := rand.New(rand.NewPCG(1, 2))
	now := start
	for range 700 {
		now = now.Add(time.Second)
		m.Add(now, rng.Float64())
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back := NewMean(10*time.Minute, 60, time.Minute)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	want, wantCovered := m.Over(now, 7*time.Minute)
	if got, covered := back.Over(now, 7*time.Minute); got != want || covered != wantCovered {
		t.Errorf("restored mean is %v over %s, want %v over %s", got, covered, want, wantCovered)
	}
	other := NewMean(5*time.Minute, 60, time.Minute)
	if err := json.Unmarshal(data, other); err != nil {
		t.Fatal(err)
	}
	if _, covered := other.Over(now, 5*time.Minute); covered != 0 {
		t.Errorf("a window of another width took up %s of the old one's samples", covered)
	}
}

// gonum is the oracle: a quantile is right to the width of a bin.
func TestHistogramQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h := NewHistogram(1000 * time.Hour)
	var xs []float64
	for i := range 20000 {
		x := math.Exp(rng.NormFloat64() - 1)
		xs = append(xs, x)
		h.Add(start.Add(time.Duration(i)*time.Second), x, 1)
	}
	slices.Sort(xs)
	for _, p := range []float64{0.05, 0.5, 0.95, 0.99} {
		want := stat.Quantile(p, stat.Empirical, xs, nil)
		if got := h.Quantile(p); got < want || got > want*1.2 {
			t.Errorf("quantile %.2f is %.4f, want %.4f to a fifth more", p, got, want)
		}
		if above := h.Above(want); above < 1-p || above > 1-p+0.1 {
			t.Errorf("share above %.4f is %.4f, want about %.2f", want, above, 1-p)
		}
	}
	if got := h.Weight(); got != 20000 {
		t.Errorf("weight is %v s, want 20000", got)
	}
}

func TestHistogramForgets(t *testing.T) {
	h := NewHistogram(time.Hour)
	h.Add(start, 1, 100)
	h.Add(start.Add(time.Hour), 8, 50)
	if got := h.Weight(); got != 100 {
		t.Errorf("after one half-life the weight is %v, want 50 of the old and 50 of the new", got)
	}
	if got := h.Quantile(0.4); got < 1 || got > 1.2 {
		t.Errorf("quantile 0.4 is %v, want 1 to a fifth more", got)
	}
	h.Add(start.Add(100*time.Hour), 2, 1)
	if got := h.Weight(); got != 1 {
		t.Errorf("after a hundred half-lives the weight is %v, want only the new second", got)
	}
}

func TestHistogramTakesEveryNumber(t *testing.T) {
	h := NewHistogram(time.Hour)
	if !math.IsNaN(h.Quantile(0.5)) || h.Above(1) != 1 {
		t.Error("an empty histogram claims to know something")
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		h.Add(start, x, 1)
	}
	h.Add(start, 1, -1)
	h.Add(start, 1, math.NaN())
	if h.Weight() != 0 {
		t.Errorf("what is no number weighs %v", h.Weight())
	}
	for _, x := range []float64{0, -3, 1e-300, 1e300} {
		h.Add(start, x, 1)
	}
	if got := h.Quantile(0.7); got > 1e-6 {
		t.Errorf("zero, negative and tiny values give %v, want the lowest bin", got)
	}
	if got := h.Quantile(1); got < 1e6 || math.IsInf(got, 0) {
		t.Errorf("a huge value gives %v, want the highest bin", got)
	}
}

func TestHistogramSurvivesARestart(t *testing.T) {
	h := NewHistogram(time.Hour)
	for i := range 500 {
		h.Add(start.Add(time.Duration(i)*time.Minute), float64(i%17)/3, 60)
	}
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	back := NewHistogram(time.Hour)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	if *back != *h {
		t.Errorf("restored histogram differs: weight %v, want %v", back.Weight(), h.Weight())
	}
}

func FuzzMean(f *testing.F) {
	f.Add(int64(0), 1.0, int64(time.Second), math.NaN())
	f.Add(int64(1)<<62, 1e300, -int64(time.Hour), 0.5)
	f.Fuzz(func(t *testing.T, a int64, x float64, d int64, y float64) {
		m := NewMean(time.Minute, 6, time.Minute)
		at := time.Unix(0, a)
		m.Add(at, x)
		m.Add(at.Add(time.Duration(d)), y)
		if mean, covered := m.Over(at.Add(time.Duration(d)), time.Minute); covered < 0 || covered > time.Minute || (covered > 0 && math.Abs(mean-y) > 1e-9*math.Abs(y)) {
			t.Errorf("two samples give %v over %s", mean, covered)
		}
	})
}

// The clock may be set: what a window holds stays as old as it was.
func TestShift(t *testing.T) {
	for _, by := range []time.Duration{-30 * 24 * time.Hour, -61 * time.Second, 7 * time.Second, 90 * time.Minute, 365 * 24 * time.Hour} {
		moved, still := NewMean(10*time.Minute, 60, time.Minute), NewMean(10*time.Minute, 60, time.Minute)
		moved.Shift(by) // of an empty one
		now := time.Unix(1772000000, 0)
		for i := range 1500 {
			now = now.Add(time.Second)
			x := float64(i / 600)
			still.Add(now, x)
			if i < 800 {
				moved.Add(now, x)
				continue
			}
			if i == 800 {
				moved.Shift(by)
			}
			moved.Add(now.Add(by), x)
			want, wantCovered := still.Over(now, 7*time.Minute)
			got, covered := moved.Over(now.Add(by), 7*time.Minute)
			if math.Abs(got-want) > 0.06 || (covered-wantCovered).Abs() > 11*time.Second {
				t.Fatalf("moved by %v, second %d: mean %.3f over %v, want %.3f over %v", by, i, got, covered, want, wantCovered)
			}
		}
		// A sample that is a little older than the last costs nothing.
		before, _ := moved.Over(now.Add(by), 7*time.Minute)
		moved.Add(now.Add(by-3*time.Second), 1e6)
		if after, covered := moved.Over(now.Add(by), 7*time.Minute); after != before || covered < 6*time.Minute {
			t.Errorf("a sample three seconds older than the last left %.3f over %v, want %.3f as before", after, covered, before)
		}
	}
	h := NewHistogram(time.Hour)
	h.Add(time.Unix(1772000000, 0), 1, 100)
	h.Shift(400 * 24 * time.Hour)
	h.Add(time.Unix(1772000000, 0).Add(400*24*time.Hour+time.Minute), 1, 100)
	if h.Weight() != 200 {
		t.Errorf("a clock that was set made the histogram forget: %v s, want 200", h.Weight())
	}
}
