package bands

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

var start = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

func TestBandsAreThoseOfTheCatalogue(t *testing.T) {
	if n := len(metric.Bands.Values); n != Count {
		t.Fatalf("the catalogue has %d bands, want %d", n, Count)
	}
	for share, want := range map[float64]string{
		0: "idle", 0.049: "idle", 0.05: "low", 0.25: "medium", 0.5: "high", 0.899: "high", 0.9: "full", 1: "full", 1.2: "full", -1: "idle",
	} {
		if got := metric.Bands.Values[Of(share)]; got != want {
			t.Errorf("a share of %v is in band %s, want %s", share, got, want)
		}
	}
}

func TestStallOfThreeSecondsShows(t *testing.T) {
	var tr Tracker
	for i := range 120 {
		share := 0.97
		if i >= 100 && i < 103 {
			share = 0
		}
		tr.Add(start.Add(time.Duration(i)*time.Second), share, share)
	}
	got, ok := tr.Seconds()
	if diff := cmp.Diff([Count]float64{0: 3, 4: 116}, got); diff != "" || !ok {
		t.Errorf("seconds in each band (-want +got):\n%s", diff)
	}
	low, high, ok := tr.Extremes(start.Add(119 * time.Second))
	if low != 0 || high != 0.97 || !ok {
		t.Errorf("extremes are %v and %v (%v), want 0 and 0.97", low, high, ok)
	}
	// A minute after the stall it is gone.
	for i := 120; i < 170; i++ {
		tr.Add(start.Add(time.Duration(i)*time.Second), 0.97, 0.97)
	}
	if low, _, _ := tr.Extremes(start.Add(169 * time.Second)); low != 0.97 {
		t.Errorf("67 s after the stall the lowest value is %v", low)
	}
	if _, _, ok := tr.Extremes(start.Add(time.Hour)); ok {
		t.Error("an hour after the last sample there are extremes")
	}
}

func TestNobodyKnowsWhatWasInAGap(t *testing.T) {
	var tr Tracker
	tr.Add(start, 1, 1)
	tr.Add(start.Add(time.Second), 1, 1)
	tr.Add(start.Add(time.Minute), 1, 1)
	tr.Add(start.Add(time.Minute), 0, 0)             // the same sample again
	tr.Add(start.Add(30*time.Second), 0, 0)          // an older one
	tr.Add(start.Add(61*time.Second), math.NaN(), 0) // none
	if got, _ := tr.Seconds(); got != [Count]float64{4: 1} {
		t.Errorf("seconds are %v, want 1 in the highest band", got)
	}
}

// TestEverySecondIsCountedOnce lets samples come at random times with random
// values: the bands sum to the time that has passed, and the extremes hold all
// values of the last minute, whatever a naive walk says.
func TestEverySecondIsCountedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var tr Tracker
		type point struct {
			at time.Time
			v  float64
		}
		var all []point
		at := start
		for range 300 {
			at = at.Add(time.Duration(1+r.IntN(2500)) * time.Millisecond)
			v := r.Float64()
			all = append(all, point{at, v})
			tr.Add(at, v, v)
		}
		sum := 0.0
		got, _ := tr.Seconds()
		for _, s := range got {
			sum += s
		}
		if want := at.Sub(all[0].at).Seconds(); math.Abs(sum-want) > 1e-6 {
			t.Fatalf("the bands sum to %v s in %v s", sum, want)
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range all {
			if p.at.Unix() > at.Unix()-window {
				low, high = min(low, p.v), max(high, p.v)
			}
		}
		if gotLow, gotHigh, _ := tr.Extremes(at); gotLow != low || gotHigh != high {
			t.Fatalf("extremes are %v and %v, want %v and %v", gotLow, gotHigh, low, high)
		}
	}
}

func TestGPUFillsItsRows(t *testing.T) {
	var g GPU
	r := collector.NewReadings(metric.GPU)
	g.Fill(r, start)
	for i, v := range r.Vector() {
		if !math.IsNaN(v) {
			t.Fatalf("a GPU that has told nothing has %v in column %d", v, i)
		}
	}
	r.Set(metric.Utilization, 0.3)
	r.Set(metric.PowerDraw, 350)
	for i := range 3 {
		g.ObserveAll(r, start.Add(time.Duration(i)*time.Second))
	}
	g.Fill(r, start.Add(2*time.Second))
	if got := r.ValueAt(metric.UtilizationBands, 2); got != 2 {
		t.Errorf("%v s of medium utilization, want 2", got)
	}
	if got := r.Value(metric.PowerPeak); got != 350 {
		t.Errorf("the peak of power is %v W, want 350", got)
	}
	if r.Has(metric.PowerBands) || r.Has(metric.SMActivityBands) {
		t.Error("there are bands of power without a limit, or of an activity that was not told")
	}
	r.Set(metric.PowerLimit, 700)
	for i := range 2 {
		g.ObserveAll(r, start.Add(time.Duration(3+i)*time.Second))
	}
	g.Fill(r, start.Add(4*time.Second))
	if got := r.ValueAt(metric.PowerBands, 3); got != 2 {
		t.Errorf("%v s of power at half of the limit, want 2", got)
	}
}

func BenchmarkSecondOfAGPU(b *testing.B) {
	var g GPU
	r := collector.NewReadings(metric.GPU)
	r.Set(metric.Utilization, 0.3)
	r.Set(metric.PowerDraw, 350)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := start.Add(time.Duration(i) * time.Second)
		g.ObserveAll(r, at)
		g.Fill(r, at)
	}
}
