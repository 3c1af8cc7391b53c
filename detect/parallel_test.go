package detect

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// storm is a quarter of an hour in which everything happens at once.
func storm(i int) *collector.Snapshot {
	now := day.Add(time.Duration(i) * time.Second)
	s := node(now, 8)
	for g := range s.GPUs {
		s.GPUs[g].Set(metric.Utilization, float64((i/97+g)%3)/2)
		s.GPUs[g].Owners = []collector.Owner{{Kind: "pod", ID: "p"}}
		if i%211 == g {
			s.Events = append(s.Events, collector.Event{Time: now, Kind: collector.XidEvent, UUID: s.GPUs[g].UUID, Code: 31 + g})
		}
	}
	s.Node.Versions[1].Value = []string{"570.86", "550.54"}[i/400%2]
	saturatedLoad.apply(s)
	return s
}

// Two runs over the same input tell the same.
func TestRunsAreRepeatable(t *testing.T) {
	run := func() (told []Incident, view *View, state string) {
		e := NewEngine(Config{Node: "n1"}, Detectors(withSLO))
		for i := range 900 {
			told = append(told, e.Observe(storm(i))...)
		}
		data, err := e.Save()
		if err != nil {
			t.Fatal(err)
		}
		return told, e.View(), string(data)
	}
	told, view, state := run()
	if len(told) < 10 {
		t.Fatalf("the storm told only %d incidents", len(told))
	}
	for range 3 {
		again, viewAgain, stateAgain := run()
		if diff := cmp.Diff(told, again); diff != "" {
			t.Fatalf("another run told something else:\n%s", diff)
		}
		if diff := cmp.Diff(view, viewAgain); diff != "" {
			t.Fatalf("another run shows something else:\n%s", diff)
		}
		if state != stateAgain {
			t.Fatal("another run saved something else")
		}
	}
}

// Readers may look at any time, and what they hold never changes.
func TestReadersBesideTheEngine(t *testing.T) {
	e := NewEngine(Config{Node: "n1"}, Detectors(withSLO))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				v := e.View()
				for _, in := range v.Incidents {
					if len(in.Members) == 0 {
						t.Error("an incident without members")
					}
				}
				for _, f := range v.Findings {
					_ = f.Evidence.Seen + f.Key()
				}
				e.History(gpuSubject("GPU-0"))
				if _, err := e.Save(); err != nil {
					t.Errorf("save beside the engine: %v", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 300 {
		e.Observe(storm(i))
	}
	close(done)
	readers.Wait()
}
