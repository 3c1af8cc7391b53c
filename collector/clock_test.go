package collector

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		walls []float64 // seconds after noon that the clock shows, one second after the other
		times []float64 // of the snapshots
		steps []float64
	}{
		"nothing happens":         {[]float64{0, 1, 2}, []float64{0, 1, 2}, []float64{0, 0, 0}},
		"two seconds back":        {[]float64{0, -1, 0, 1, 2}, []float64{0, 0, 0, 1, 2}, []float64{0, 0, 0, 0, 0}},
		"five seconds back":       {[]float64{0, -4, -3}, []float64{0, 0, 0}, []float64{0, 0, 0}},
		"six seconds back":        {[]float64{0, -5, -4}, []float64{0, -5, -4}, []float64{0, -6, 0}},
		"four seconds back twice": {[]float64{0, -3, -6, -5}, []float64{0, 0, -6, -5}, []float64{0, 0, -7, 0}},
		"six hours back":          {[]float64{0, -21599, -21598}, []float64{0, -21599, -21598}, []float64{0, -21600, 0}},
		"two seconds ahead":       {[]float64{0, 3, 4}, []float64{0, 3, 4}, []float64{0, 0, 0}},
		"six hours ahead":         {[]float64{0, 21601, 21602}, []float64{0, 21601, 21602}, []float64{0, 21600, 0}},
		"there and back":          {[]float64{0, 21601, 2}, []float64{0, 21601, 2}, []float64{0, 21600, -21600}},
	} {
		clk := clock{log: slog.New(slog.DiscardHandler)}
		var times, steps []float64
		for _, w := range c.walls {
			at, step := clk.tick(noon.Add(time.Duration(w*float64(time.Second))), time.Second)
			times, steps = append(times, at.Sub(noon).Seconds()), append(steps, step.Seconds())
		}
		if diff := cmp.Diff([][]float64{c.times, c.steps}, [][]float64{times, steps}); diff != "" {
			t.Errorf("%s: times and steps of the snapshots (-want +got):\n%s", name, diff)
		}
	}
}

func TestStepIsSaidOnce(t *testing.T) {
	for by, says := range map[time.Duration]string{-2 * time.Second: "the clock went back a little", -time.Hour: "the clock was set"} {
		var log strings.Builder
		c := newComposer(SamplerConfig{Tiers: testTiers, Log: slog.New(slog.NewTextHandler(&log, nil))})
		c.snapshot(noon, nil)
		for i := range 9 {
			c.snapshotAfter(time.Second, noon.Add(by+time.Duration(i+1)*time.Second), nil)
		}
		if n := strings.Count(log.String(), says); n != 1 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("a step of %v was logged as %q", by, log.String())
		}
	}
}

// A recording has no other clock than its own times.
func TestReplayedStep(t *testing.T) {
	r := NewReplay(SamplerConfig{Tiers: testTiers, Log: slog.New(slog.DiscardHandler)}, "recording")
	for _, c := range []struct{ at, time, step time.Duration }{
		{0, 0, 0}, {time.Second, time.Second, 0}, {6 * time.Hour, 6 * time.Hour, 0}, {time.Hour, time.Hour, -5 * time.Hour},
		{time.Hour - 2*time.Second, time.Hour, 0}, {time.Hour + time.Second, time.Hour + time.Second, 0},
	} {
		s := r.Snapshot(&Part{Time: noon.Add(c.at)})
		if s.Time.Sub(noon) != c.time || s.Step != c.step {
			t.Errorf("a part of %v after noon became a snapshot of %v with a step of %v, want %v and %v", c.at, s.Time.Sub(noon), s.Step, c.time, c.step)
		}
	}
}

// What was dated before the clock was set gets the date that it would have now.
func TestStepMovesWhatSourcesHaveDated(t *testing.T) {
	for _, step := range []time.Duration{-6 * time.Hour, -10 * time.Minute, -2 * time.Second, 10 * time.Minute, 6 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			c := testComposer(t)
			fell := noon.Add(-time.Minute)
			count := XidCount{Code: 48, Count: 1, Last: fell}
			g := testGPU(0, "GPU-a", noon)
			g.Xids = []XidCount{count}
			before := &Part{Time: noon, GPUs: []GPU{g}, Processes: []Process{{PID: 1, UUID: "GPU-a", Readings: NewReadings(metric.Process)}}}
			before.Processes[0].Stamp(metric.Processes, noon)
			c.snapshotAfter(0, noon, []view{held(before)})

			wall := noon.Add(step + time.Second)
			s := c.snapshotAfter(time.Second, wall, []view{old(before, time.Second), {state: SourceState{Interval: time.Second}}})
			present := s.Time.Add(-time.Second)
			if step.Abs() <= smallStep {
				present = noon
			}
			want := []time.Time{present, present, present, present.Add(-time.Minute)}
			got := []time.Time{s.GPUs[0].SampledAt(metric.Fast), s.GPUs[0].SampledAt(metric.Inventory), s.Processes[0].SampledAt(metric.Processes), s.GPUs[0].Xids[0].Last}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("times of a second ago by the new clock (-want +got):\n%s", diff)
			}
			if a := s.GPUs[0]; a.Value(metric.GPUSampleAge) != 1 || a.Value(metric.PowerDraw) != 700 || len(s.Processes) != 1 {
				t.Errorf("readings of a second ago: age %v, power %v, %d processes", a.Value(metric.GPUSampleAge), a.Value(metric.PowerDraw), len(s.Processes))
			}

			// A source that was slow dated its event before the step; its count never changes.
			g = testGPU(0, "GPU-a", wall.Add(time.Second))
			g.Xids = []XidCount{count, {Code: 79, Count: 1, Last: noon.Add(time.Second / 2)}}
			after := &Part{Time: wall.Add(time.Second), GPUs: []GPU{g}, Events: []Event{{Time: noon.Add(time.Second / 2), Kind: XidEvent, Code: 79}}}
			s = c.snapshotAfter(time.Second, wall.Add(time.Second), []view{held(after), {}})
			lag := s.Time.Sub(s.Events[0].Time)
			if lag.Abs() > smallStep || len(s.Events) != 1 {
				t.Errorf("an event of a second and a half ago is dated %v before the snapshot: %+v", lag, s.Events)
			}
			xids := s.GPUs[0].Xids
			if len(xids) != 2 || !xids[0].Last.Equal(want[3]) || !xids[1].Last.Equal(s.Events[0].Time) || xids[0].Count != 1 {
				t.Errorf("Xids after the step are %+v, want the first as it was by the new clock, at %v, and the second with its event", xids, want[3])
			}
			if !s.GPUs[0].SampledAt(metric.Fast).Equal(after.Time) {
				t.Error("what was sampled after the step was moved, too")
			}

			// Nobody lists the GPU any more: what is remembered of it moves as well.
			gone := &Part{Time: wall.Add(2 * time.Second), GPUs: []GPU{testGPU(1, "GPU-b", wall.Add(2*time.Second))}}
			s = c.snapshotAfter(time.Second, gone.Time, []view{held(gone), {}})
			s2 := c.snapshotAfter(time.Second, gone.Time.Add(time.Second+2*time.Hour), []view{old(gone, time.Second), {}})
			if by := s2.GPUs[0].Xids[0].Last.Sub(s.GPUs[0].Xids[0].Last); by != 2*time.Hour {
				t.Errorf("two hours ahead, the Xid of a lost GPU moved by %v", by)
			}
			if age := s2.GPUs[0].Value(metric.GPUSampleAge); age > 10 {
				t.Errorf("two hours ahead, the age of a lost GPU's sample is %v s", age)
			}
		})
	}
}
