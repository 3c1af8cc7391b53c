package detect

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// set runs a snapshot before which the clock was set, a second after the last.
func (b *bench) set(by time.Duration) []Incident {
	b.now = b.now.Add(by + time.Second)
	told := b.e.Observe(&collector.Snapshot{Time: b.now, Step: by, Events: b.events})
	b.told = append(b.told, told...)
	return told
}

func TestStepChangesNoDuration(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
		b := newBench(t, testRule("r"), Config{})
		b.score["GPU-0"] = 2
		b.run(30 * time.Second)
		b.set(by)
		b.run(28 * time.Second)
		b.want(Pending, fmt.Sprintf("a step of %v in, 59 s after it began,", by))
		b.run(2 * time.Second)
		b.want(Firing, fmt.Sprintf("a step of %v in, a minute after it began,", by))

		b.score["GPU-0"] = 0
		b.run(time.Minute)
		b.set(-2 * by)
		b.run(58 * time.Second)
		b.want(Firing, fmt.Sprintf("a step of %v in, before two minutes of hold,", -2*by))
		b.run(2 * time.Second)
		b.want(Resolved, fmt.Sprintf("a step of %v in, after two minutes of hold,", -2*by))
		in := b.e.View().Incidents[0]
		if f := b.state(); f.Resolved.Sub(f.Fired) != 2*time.Minute || in.Resolved.Sub(in.Opened) != 2*time.Minute || !in.Resolved.After(b.now.Add(-5*time.Second)) {
			t.Errorf("a step of %v in: it fired %s and resolved %s, its incident opened %s; want two minutes between, and the end now",
				by, f.Fired, f.Resolved, in.Opened)
		}
		// It is kept for a day, whatever the clock says.
		b.set(3 * by)
		if len(b.e.View().Incidents) != 1 {
			t.Errorf("a step of %v made an incident that has just ended vanish", 3*by)
		}
	}
}

func TestSnapshotsOfTheSameTimeCount(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	b.run(time.Second)
	still := func() []Incident { return b.e.Observe(&collector.Snapshot{Time: b.now, Events: b.events}) }
	b.score["GPU-0"] = 2
	first := still()
	b.want(Firing, "of a condition that was seen while the time stood still")
	b.score["GPU-1"] = 2
	second := still()
	if len(first) != 1 || len(second) != 1 || len(second[0].Members) != 2 || second[0].Updated.Equal(first[0].Updated) {
		t.Fatalf("told %+v and then %+v, want two states of one incident that differ in Updated", first, second)
	}
	b.score["GPU-0"], b.score["GPU-1"] = 2, 0
	still()
	if f := b.e.watchers[0].found[key{gpuSubject("GPU-1"), "c"}]; f.holds {
		t.Error("that a condition is gone was not taken up while the time stood still")
	}
	b.events = []collector.Event{{Time: b.now.Add(-time.Second), Text: "while it stood still"}}
	still()
	b.score["GPU-2"] = 2
	b.events = nil
	b.run(time.Second)
	if before := b.e.View().Findings[2].Before; len(before) != 1 {
		t.Errorf("what changed before is %+v, want the event that came while the time stood still", before)
	}
}

// An update may bear the very time of one before the clock was set.
func TestUpdatesDifferAfterAStep(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	b.run(time.Minute)
	b.score["GPU-0"] = 2
	first := b.run(time.Second)[0]
	at := b.now
	b.run(9 * time.Second)
	b.set(-5 * time.Minute)
	b.run(at.Sub(b.now) - time.Second)
	b.score["GPU-1"] = 2
	second := b.run(time.Second)[0]
	if !b.now.Equal(at) || first.ID != second.ID || second.Updated.Equal(first.Updated) {
		t.Errorf("the updates are of %s and %s, want them to differ: alerting tells them apart by it", first.Updated, second.Updated)
	}
}

func TestStateOfAClockThatWasAhead(t *testing.T) {
	b := newBench(t, testRule("r"), Config{})
	b.score["GPU-0"] = 2
	b.run(2 * time.Minute)
	after := restart(t, b)
	after.now = day.Add(-30 * 24 * time.Hour)
	after.score = map[string]float64{"GPU-0": 0}
	after.run(time.Minute)
	after.want(Firing, "a minute after it was gone")
	after.run(2 * time.Minute)
	after.want(Resolved, "two minutes after it was gone, with a clock that was set back during the restart,")
}

func TestHistoryAndEventsMoveWithTheClock(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, -90 * time.Second, 77 * time.Minute, 24 * time.Hour} {
		b := newBench(t, immediate(), Config{})
		feed := func(d, step time.Duration) {
			for end := b.now.Add(d); b.now.Before(end); step = 0 {
				b.now = b.now.Add(time.Second)
				s := node(b.now, 1)
				s.Step = step
				s.GPUs[0].Set(metric.Utilization, 0.5)
				b.e.Observe(s)
			}
		}
		feed(10*time.Minute, 0)
		b.e.Observe(&collector.Snapshot{Time: b.now, Events: []collector.Event{{Time: b.now, Text: "before the step"}}})
		b.now = b.now.Add(by)
		feed(time.Second, by)
		b.score["GPU-0"] = 2
		feed(5*time.Minute, 0)
		var points []Point
		for _, h := range b.e.History(gpuSubject("GPU-0")) {
			if h.Reading == metric.Utilization {
				points = h.Points
			}
		}
		if n := len(points); n < 15 || n > 17 || points[n-1].Time.Sub(points[0].Time) != time.Duration(n-1)*time.Minute {
			t.Errorf("a step of %v: %d minutes of history from %v, want some 16 in one piece", by, n, points)
		}
		if f := b.state(); len(f.Before) != 1 || f.Since.Sub(f.Before[0].Time) != 2*time.Second {
			t.Errorf("a step of %v: before it began there was %+v, want the event of two seconds before", by, f.Before)
		}
		before := b.e.View().Findings[0].Before[0].Time
		held := b.e.View()
		b.e.Observe(&collector.Snapshot{Time: b.now.Add(by), Step: by})
		if !before.Equal(held.Findings[0].Before[0].Time) {
			t.Errorf("a step of %v changed a view that was handed out", by)
		}
		if !before.Add(by).Equal(b.e.View().Findings[0].Before[0].Time) {
			t.Errorf("a step of %v did not move what happened before a finding", by)
		}
	}
}

// moved is a snapshot as it would be by a clock that was set.
func moved(s *collector.Snapshot, by time.Duration) *collector.Snapshot {
	s.Time = s.Time.Add(by)
	for i := range s.Events {
		s.Events[i].Time = s.Events[i].Time.Add(by)
	}
	for t := range metric.Tiers {
		readings := []*collector.Readings{&s.Node.Readings}
		for i := range s.GPUs {
			readings = append(readings, &s.GPUs[i].Readings)
		}
		for i := range s.Endpoints {
			readings = append(readings, &s.Endpoints[i].Readings)
		}
		for _, r := range readings {
			if at := r.SampledAt(t); !at.IsZero() {
				r.Stamp(t, at.Add(by))
			}
		}
	}
	return s
}

// Every detector sees the same in the same readings, however often the clock is set.
// Whole days keep the times that the evidence names.
func TestDetectorsMoveWithTheClock(t *testing.T) {
	run := func(rng *rand.Rand) (told [][]Incident) {
		e := NewEngine(Config{Node: "n1"}, Detectors(withSLO))
		offset := time.Duration(0)
		for i := range 1200 {
			at := day.Add(time.Duration(i) * 10 * time.Second)
			s := node(at, 8)
			for g := range s.GPUs {
				s.GPUs[g].Set(metric.Utilization, float64((i/500+g)%3)/2)
				s.GPUs[g].Set(metric.PowerDraw, 118)
				s.GPUs[g].Owners = []collector.Owner{{Kind: "pod", ID: "p"}}
				if i%211 == g {
					s.Events = append(s.Events, collector.Event{Time: at, Kind: collector.XidEvent, UUID: s.GPUs[g].UUID, Code: 31 + g})
				}
			}
			s.Node.Versions[1].Value = []string{"570.86", "550.54"}[i/200%2]
			saturatedLoad.apply(s)
			var by time.Duration
			if rng != nil && i > 0 && rng.IntN(50) == 0 {
				by = time.Duration(rng.IntN(11)-5) * 24 * time.Hour
			}
			offset += by
			s = moved(s, offset)
			s.Step = by
			told = append(told, e.Observe(s))
			for k := range told[i] {
				in := &told[i][k]
				shift(-offset, &in.Opened, &in.Updated, &in.Resolved)
				for m := range in.Members {
					in.Members[m].shift(-offset)
				}
			}
		}
		return told
	}
	want := run(nil)
	n := 0
	rulesTold := map[string]bool{}
	for _, told := range want {
		n += len(told)
		for _, in := range told {
			rulesTold[string(in.Rule)] = true
		}
	}
	if n < 20 || len(rulesTold) != 4 {
		t.Fatalf("told %d times of %v, want all four rules", n, rulesTold)
	}
	for seed := range uint64(4) {
		got := run(rand.New(rand.NewPCG(seed, 3)))
		for i := range want {
			if diff := cmp.Diff(want[i], got[i], cmpopts.IgnoreFields(Incident{}, "ID")); diff != "" {
				t.Fatalf("seed %d, snapshot %d: with steps of the clock something else is told (-want +got):\n%s", seed, i, diff)
			}
		}
	}
}
