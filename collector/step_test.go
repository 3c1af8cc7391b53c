package collector_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// machine is a node whose wall clock is set now and then.
type machine struct {
	begin time.Time
	steps []step
	falls []fall
}

type step struct{ at, by time.Duration } // after the beginning

type fall struct {
	at   time.Duration
	code int
}

// offset is by how much the wall clock was set in all.
func (m *machine) offset(at time.Duration) (sum time.Duration) {
	for _, s := range m.steps {
		if s.at <= at {
			sum += s.by
		}
	}
	return sum
}

// fall plans an error, unless it came just when an equal one is forgotten: a second
// would decide whether that is one incident or two.
func (m *machine) fall(at time.Duration, code int) {
	for _, f := range m.falls {
		if gap := (f.at - at).Abs(); f.code == code && gap > 13*time.Minute && gap < 17*time.Minute {
			return
		}
	}
	m.falls = append(m.falls, fall{at, code})
}

func (m *machine) wall(t time.Time) time.Time { return t.Round(0).Add(m.offset(t.Sub(m.begin))) }

// driver is a source that dates by the wall clock and takes its time to answer.
type driver struct {
	*machine
	slow time.Duration
	told time.Duration // up to then
	xids []collector.XidCount
}

func (d *driver) Name() string { return "nvml" }

func (d *driver) Sample(context.Context) (*collector.Part, error) {
	now := time.Now()
	at := d.wall(now)
	g := collector.GPU{UUID: "GPU-a", Model: "H200", Present: true, Owners: []collector.Owner{{Kind: "job", ID: "1"}}, Readings: collector.NewReadings(metric.GPU)}
	g.Set(metric.Utilization, 0)
	for t := range metric.Tiers {
		g.Stamp(t, at)
	}
	p := &collector.Part{Time: at}
	for _, f := range d.falls {
		if f.at <= d.told || f.at > now.Sub(d.begin) {
			continue
		}
		fell := d.wall(d.begin.Add(f.at))
		p.Events = append(p.Events, collector.Event{Time: fell, Kind: collector.XidEvent, UUID: g.UUID, Code: f.code})
		i := slices.IndexFunc(d.xids, func(x collector.XidCount) bool { return x.Code == f.code })
		if i < 0 {
			i, d.xids = len(d.xids), append(d.xids, collector.XidCount{Code: f.code})
		}
		d.xids[i].Count, d.xids[i].Last = d.xids[i].Count+1, fell
	}
	d.told = now.Sub(d.begin)
	g.Xids = slices.Clone(d.xids)
	p.GPUs = []collector.GPU{g}
	time.Sleep(d.slow)
	return p, nil
}

// told is an incident as people hear of it: when, by the clock that nobody sets.
type told struct {
	after time.Duration
	collector.Event
	detect.Incident
}

// play runs sampler and engine over the machine and returns what is told, and what
// is shown in the end, its times without the steps.
func play(t *testing.T, m *machine, slow, runs time.Duration) (all []told, view []detect.Incident) {
	tiers := [metric.Tiers]time.Duration{2 * time.Second, 16 * time.Second, 16 * time.Second, time.Minute}
	synctest.Test(t, func(t *testing.T) {
		m.begin = time.Now()
		src := &driver{machine: m, slow: slow}
		s := collector.NewSampler(collector.SamplerConfig{Node: "n1", Tiers: tiers, Log: slog.New(slog.DiscardHandler)},
			[]collector.Scheduled{{Source: src, Interval: 2 * time.Second, Deadline: 2 * time.Second, Expected: true}})
		s.SetWall(m.wall)
		e := detect.NewEngine(detect.Config{}, detect.Detectors(detect.DetectorConfig{}))
		ctx, cancel := context.WithTimeout(t.Context(), runs)
		defer cancel()
		events := 0
		err := s.Run(ctx, func(snap *collector.Snapshot) {
			events += len(snap.Events)
			for _, in := range e.Observe(snap) {
				all = append(all, told{after: time.Since(m.begin), Incident: in})
			}
		})
		if err != nil || events != len(m.falls) {
			t.Errorf("%d events fell and %d reached the engine; error %v", len(m.falls), events, err)
		}
		view = e.View().Incidents
		back := -m.offset(runs)
		for i := range view {
			in := &view[i]
			for _, at := range []*time.Time{&in.Opened, &in.Updated, &in.Resolved} {
				if !at.IsZero() {
					*at = at.Add(back)
				}
			}
		}
	})
	return all, view
}

func TestXidAfterTheClockWasSet(t *testing.T) {
	for _, by := range []time.Duration{-6 * time.Hour, -10 * time.Minute, -2 * time.Second, 6 * time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			m := &machine{steps: []step{{5*time.Minute + 300*time.Millisecond, by}}, falls: []fall{{7 * time.Minute, 79}}}
			all, view := play(t, m, 100*time.Millisecond, 40*time.Minute)
			if len(all) != 3 || all[0].Severity != rules.Page || all[0].State != detect.Firing || all[0].Cause != "xid_79" {
				t.Fatalf("two minutes after a step of %v an Xid 79 told %d times, want a page, its end and an idle GPU: %+v", by, len(all), all)
			}
			if late := all[0].after - 7*time.Minute; late > 5*time.Second {
				t.Errorf("the page came %v after the error", late)
			}
			if lasted := all[1].after - all[0].after; all[1].State != detect.Resolved || lasted < 15*time.Minute-3*time.Second || lasted > 15*time.Minute+3*time.Second {
				t.Errorf("it was told as %s %v later, want resolved after 15 min", all[1].State, lasted)
			}
			if n := len(view); n != 2 || view[1].Members[0].Count != 1 {
				t.Errorf("%d incidents are shown, the error %d times; want it once and the idle GPU", n, view[1].Members[0].Count)
			}
		})
	}
}

// The hold time of a finding is what really passes.
func TestHoldAcrossAStep(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, -4 * time.Second, 20 * time.Minute, 24 * time.Hour} {
		m := &machine{falls: []fall{{2 * time.Minute, 79}}, steps: []step{{10 * time.Minute, by}}}
		all, _ := play(t, m, 0, 19*time.Minute)
		if len(all) != 2 || all[1].State != detect.Resolved || (all[1].after-17*time.Minute).Abs() > 6*time.Second {
			t.Errorf("with a step of %v in it the finding of minute 2 was told %+v, want it resolved 15 min after", by, all)
		}
	}
}

// TestRandomSteps plays the same faults with and without steps of the clock.
func TestRandomSteps(t *testing.T) {
	const runs = 100 * time.Minute
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			within := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
			stepped := &machine{}
			for range 12 {
				stepped.fall(within(runs-25*time.Minute), []int{31, 48, 63, 79, 119}[rng.IntN(5)])
			}
			tolerance := 4 * time.Second
			for at := time.Minute + within(4*time.Minute); at < runs-10*time.Second; at += 70*time.Second + within(20*time.Minute) {
				by := []time.Duration{within(10 * time.Second), within(20 * time.Minute), within(48 * time.Hour)}[rng.IntN(3)]
				if rng.IntN(2) == 0 {
					by = -by
				}
				if by.Abs() <= 5*time.Second {
					tolerance += by.Abs()
				}
				stepped.steps = append(stepped.steps, step{at, by})
				// Some fall just before a step and are told after it.
				stepped.fall(at-within(2*time.Second), 94)
			}
			slow := within(1500 * time.Millisecond)
			want, wantView := play(t, &machine{falls: stepped.falls}, slow, runs)
			got, gotView := play(t, stepped, slow, runs)
			same(t, stepped.steps, want, got, tolerance)
			if len(want) < 6 || len(wantView) != len(gotView) {
				t.Fatalf("told %d times; %d incidents are shown with steps and %d without", len(want), len(gotView), len(wantView))
			}
			byCause := func(a, b detect.Incident) int {
				return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Cause, b.Cause), a.Opened.Compare(b.Opened))
			}
			slices.SortFunc(wantView, byCause)
			slices.SortFunc(gotView, byCause)
			for i, w := range wantView {
				g := gotView[i]
				if w.Cause != g.Cause || w.State != g.State || w.Members[0].Count != g.Members[0].Count && w.Rule == rules.IDXid ||
					!near(w.Opened, g.Opened, limit(w, tolerance)) || !near(w.Resolved, g.Resolved, limit(w, tolerance)) {
					t.Errorf("steps %v: shown %s %s, %d times, opened %s, resolved %s\nwant %s %s, %d times, opened %s, resolved %s", stepped.steps,
						g.Cause, g.State, g.Members[0].Count, g.Opened, g.Resolved, w.Cause, w.State, w.Members[0].Count, w.Opened, w.Resolved)
				}
			}
		})
	}
}

// limit is how exact an incident's times can be: windows slide in steps.
func limit(in detect.Incident, tolerance time.Duration) time.Duration {
	if in.Rule == rules.IDXid {
		return tolerance
	}
	return tolerance + 2*time.Minute
}

func near(a, b time.Time, limit time.Duration) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= limit
}

func same(t *testing.T, steps []step, want, got []told, tolerance time.Duration) {
	t.Helper()
	byCause := func(a, b told) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.after, b.after))
	}
	slices.SortStableFunc(want, byCause)
	slices.SortStableFunc(got, byCause)
	if len(got) != len(want) {
		t.Errorf("steps %v: told %d times, want %d times as without them", steps, len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		if w.Cause != g.Cause || w.State != g.State || w.Severity != g.Severity || (w.after-g.after).Abs() > limit(w.Incident, tolerance) {
			t.Errorf("steps %v: told %s %s %s after %v, want %s %s %s after %v", steps,
				g.Severity, g.Cause, g.State, g.after, w.Severity, w.Cause, w.State, w.after)
		}
	}
}
