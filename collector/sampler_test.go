package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

// fakeSource answers with what its function says.
type fakeSource struct {
	name   string
	sample func(context.Context) (*Part, error)
}

func (f fakeSource) Name() string                              { return f.name }
func (f fakeSource) Sample(ctx context.Context) (*Part, error) { return f.sample(ctx) }

// each schedules a source every second with a deadline of 800 ms.
func each(name string, sample func(context.Context) (*Part, error)) Scheduled {
	return Scheduled{Source: fakeSource{name, sample}, Interval: time.Second, Deadline: 800 * time.Millisecond, Expected: true}
}

func busy(ratio float64) *Part {
	p := &Part{Time: time.Now(), Node: Node{Readings: NewReadings(metric.Node)}}
	p.Node.Set(metric.CPUBusy, ratio)
	p.Node.Stamp(metric.Fast, p.Time)
	return p
}

// running starts a sampler inside a synctest bubble. stop ends it and returns what
// it published and Run's error.
func running(t *testing.T, sources ...Scheduled) (s *Sampler, stop func() ([]*Snapshot, error)) {
	t.Helper()
	s = NewSampler(SamplerConfig{Node: "gpu-01", Tiers: testTiers, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, sources)
	ctx, cancel := context.WithCancel(t.Context())
	var snaps []*Snapshot
	done := make(chan error)
	go func() { done <- s.Run(ctx, func(snap *Snapshot) { snaps = append(snaps, snap) }) }()
	return s, func() ([]*Snapshot, error) {
		cancel()
		err := <-done
		return snaps, err
	}
}

func source(t *testing.T, s *Snapshot, name string) SourceState {
	t.Helper()
	for _, st := range s.Sources {
		if st.Name == name {
			return st
		}
	}
	t.Fatalf("the snapshot has no source %s", name)
	return SourceState{}
}

func TestSnapshotEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0.0
		s, stop := running(t, each("host", func(context.Context) (*Part, error) { n++; return busy(n / 100), nil }))
		if s.Latest() != nil {
			t.Error("there is a snapshot before the first")
		}
		time.Sleep(10 * time.Second)
		snaps, err := stop()
		if err != nil || len(snaps) != 10 {
			t.Fatalf("in 10 s there were %d snapshots and error %v, want 10 and none", len(snaps), err)
		}
		for i, snap := range snaps {
			if got, want := snap.Node.Value(metric.CPUBusy), float64(i+1)/100; got != want {
				t.Errorf("snapshot %d shows sample %v, want that of its own tick %v", i, got, want)
			}
			if st := source(t, snap, "host"); !st.Fresh(snap.Time) || st.Samples != uint64(i+1) || st.Errors != 0 {
				t.Errorf("snapshot %d: the source is %+v", i, st)
			}
		}
		if s.Latest() != snaps[9] {
			t.Error("Latest is not what was published last")
		}
	})
}

func TestHungSourceCostsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, samples := make(chan struct{}), 0
		nvml := each("nvml", func(context.Context) (*Part, error) {
			if samples++; samples == 3 {
				<-hang
			}
			return &Part{Time: time.Now(), GPUs: []GPU{testGPU(0, "GPU-a", time.Now())}}, nil
		})
		s, stop := running(t, nvml, each("host", func(context.Context) (*Part, error) { return busy(0.5), nil }))
		time.Sleep(20 * time.Second)
		snap := s.Latest()
		if !snap.Node.Has(metric.CPUBusy) || !source(t, snap, "host").Fresh(snap.Time) {
			t.Error("a hung source took another one's readings with it")
		}
		if st := source(t, snap, "nvml"); st.Samples != 3 || st.Errors != 1 || !strings.Contains(st.Err, "has not answered for") {
			t.Errorf("the hung source is %+v, want 3 samples (never two at once) and one error", st)
		}
		if snap.GPUs[0].Has(metric.PowerDraw) || !snap.GPUs[0].Has(metric.PowerLimit) {
			t.Error("of a source hung for 18 s the fast readings must be gone and the inventory still be there")
		}
		close(hang)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		time.Sleep(time.Second)
		if snap = s.Latest(); !snap.GPUs[0].Has(metric.PowerDraw) {
			t.Error("the result of the hung call was not used when it came")
		}
		time.Sleep(2 * time.Second)
		snap = s.Latest()
		if st := source(t, snap, "nvml"); st.Err != "" || st.Errors != 1 {
			t.Errorf("after it came back the source is %+v, want no error now and 1 in all", st)
		}
		if _, err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestLateSampleIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := running(t, each("slow", func(context.Context) (*Part, error) {
			time.Sleep(1200 * time.Millisecond)
			return busy(0.5), nil
		}))
		time.Sleep(1400 * time.Millisecond)
		if st := s.Latest(); source(t, st, "slow").Errors != 0 {
			t.Error("a sample in flight within its limit is an error")
		}
		time.Sleep(200 * time.Millisecond)
		snap := s.Latest()
		if st := source(t, snap, "slow"); st.Errors != 1 || !strings.Contains(st.Err, "answered after 1.2s, its limit is 800ms") {
			t.Errorf("a late source is %+v", st)
		}
		if !snap.Node.Has(metric.CPUBusy) {
			t.Error("a late sample was thrown away")
		}
		stop()
	})
}

func TestSourceErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(part *Part, err error) func(context.Context) (*Part, error) {
			return func(context.Context) (*Part, error) { return part, err }
		}
		s, stop := running(t,
			each("panics", func(context.Context) (*Part, error) { panic("index out of range") }),
			each("fails", fails(nil, errors.New("permission denied"))),
			each("nothing", fails(nil, nil)),
			each("undated", fails(&Part{}, nil)),
			each("absent", fails(nil, fmt.Errorf("no driver: %w", ErrAbsent))),
			each("told", fails(nil, fmt.Errorf("released: %w", ErrPaused))),
			each("waits", fails(nil, fmt.Errorf("no frame: %w", ErrHung))),
			each("partial", func(context.Context) (*Part, error) { return busy(0.5), errors.New("half of it") }),
		)
		time.Sleep(3 * time.Second)
		snap := s.Latest()
		for name, says := range map[string]string{"panics": "panicked: index out of range", "fails": "permission denied",
			"nothing": "neither a part nor an error", "undated": "without a time", "absent": "no driver", "told": "released", "waits": "no frame", "partial": "half of it"} {
			st := source(t, snap, name)
			errors := uint64(3)
			if name == "absent" {
				errors = 0 // what is not on the machine is no fault
			}
			if !strings.Contains(st.Err, says) || st.Errors != errors || st.Fresh(snap.Time) {
				t.Errorf("source %s is %+v, want %d errors and %q", name, st, errors, says)
			}
			if st.Paused != (name == "told") || st.Hung != (name == "waits") {
				t.Errorf("source %s was told not to look: %v; it waits for an answer: %v", name, st.Paused, st.Hung)
			}
			if want := name != "absent"; st.Expected != want {
				t.Errorf("readiness waits for source %s: %v, want %v", name, st.Expected, want)
			}
		}
		if !snap.Node.Has(metric.CPUBusy) {
			t.Error("what came beside an error was thrown away")
		}
		stop()
	})
}

func TestSamePartAgainIsOldNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := busy(0.5)
		part.Events = []Event{{Time: part.Time, Text: "once"}}
		_, stop := running(t, each("host", func(context.Context) (*Part, error) { return part, nil }))
		time.Sleep(10 * time.Second)
		snaps, _ := stop()
		events := 0
		for _, snap := range snaps {
			events += len(snap.Events)
		}
		if events != 1 {
			t.Errorf("an event of a part that was returned ten times is in %d snapshots", events)
		}
		if snaps[9].Node.Has(metric.CPUBusy) {
			t.Error("a reading that was never renewed is still shown after 10 s")
		}
	})
}

// TestEventsAreInExactlyOneSnapshot lets sources of any pace and reliability make
// events and looks for each of them.
func TestEventsAreInExactlyOneSnapshot(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			var sources []Scheduled
			made := make(chan string, 1e5)
			quiet := time.Now().Add(30 * time.Second)
			for i := range 4 {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				name, n := fmt.Sprint("source", i), 0
				sources = append(sources, Scheduled{
					Interval: time.Duration(200+rng.IntN(3000)) * time.Millisecond,
					Deadline: time.Duration(100+rng.IntN(1000)) * time.Millisecond,
					Source: fakeSource{name, func(context.Context) (*Part, error) {
						if time.Now().Before(quiet) {
							time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
						}
						p := &Part{Time: time.Now()}
						for range rng.IntN(3) {
							if n++; time.Now().Before(quiet) {
								id := fmt.Sprint(name, "/", n)
								p.Events = append(p.Events, Event{Time: p.Time.Add(-time.Duration(rng.IntN(1e9))), Text: id})
								made <- id
							}
						}
						return p, []error{nil, nil, errors.New("half of it")}[rng.IntN(3)]
					}},
				})
			}
			_, stop := running(t, sources...)
			time.Sleep(40 * time.Second)
			snaps, err := stop()
			if err != nil {
				t.Error(err)
			}
			close(made)
			want, got := map[string]int{}, map[string]int{}
			for id := range made {
				want[id] = 1
			}
			for _, s := range snaps {
				for i, e := range s.Events {
					got[e.Text]++
					if i > 0 && e.Time.Before(s.Events[i-1].Time) {
						t.Errorf("seed %d: the events of a snapshot are not in order", seed)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("seed %d: %d events, lost (-) or doubled (+):\n%s", seed, len(want), diff)
			}
		})
	}
}

func TestStopNamesTheSourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		_, stop := running(t, each("nvml", func(context.Context) (*Part, error) { <-hang; return nil, errors.New("late") }),
			each("host", func(context.Context) (*Part, error) { return busy(0.5), nil }))
		time.Sleep(time.Second)
		_, err := stop()
		if err == nil || !strings.Contains(err.Error(), "nvml") || strings.Contains(err.Error(), "host") {
			t.Errorf("Run ended with %v, want an error that names nvml alone", err)
		}
		close(hang)
	})
}

func TestImpossibleIntervals(t *testing.T) {
	ok := each("host", nil)
	for name, tc := range map[string]struct {
		tiers  [metric.Tiers]time.Duration
		source Scheduled
	}{
		"tier slow":   {[metric.Tiers]time.Duration{1, 0, 1, 1}, ok},
		"source host": {testTiers, Scheduled{Source: ok.Source, Interval: time.Second}},
	} {
		err := NewSampler(SamplerConfig{Tiers: tc.tiers, Log: slog.Default()}, []Scheduled{tc.source}).Run(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with a duration of zero: %v, want an error that names it", name, err)
		}
	}
}
