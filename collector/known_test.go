package collector

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

// partOf is what a source sees at one time: GPUs that answer, and a driver.
func partOf(at, boot time.Time, driver string, uuids ...string) *Part {
	p := &Part{Time: at, Boot: boot, Node: Node{Readings: NewReadings(metric.Node)}}
	p.Node.Stamp(metric.Inventory, at)
	if driver != "" {
		p.Node.Versions = []Version{{Component: "driver", Value: driver}}
	}
	for i, u := range uuids {
		g := GPU{Index: i, UUID: u, Present: true, Readings: NewReadings(metric.GPU)}
		g.Stamp(metric.Fast, at)
		p.GPUs = append(p.GPUs, g)
	}
	return p
}

func newTestReplay(k *Known) *Replay {
	r := NewReplay(SamplerConfig{Node: "n", Tiers: testTiers, Log: slog.New(slog.DiscardHandler)}, "nvml")
	if k != nil {
		r.compose.known, r.compose.versions = k, k.Versions
	}
	return r
}

// A GPU falls off the bus while the agent is down: the next agent misses it.
func TestGPULostWhileNoAgentRan(t *testing.T) {
	boot, at := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	before := newTestReplay(nil).Snapshot(partOf(at, boot, "570", "GPU-a", "GPU-b")).Known()

	s := newTestReplay(&before).Snapshot(partOf(at.Add(time.Hour), boot.Add(time.Second), "570", "GPU-b"))
	lost := s.GPUByUUID("GPU-a")
	if lost == nil || lost.Present || lost.Value(metric.GPUPresent) != 0 || lost.Index != 0 {
		t.Fatalf("the lost GPU is %+v, want index 0, not present", lost)
	}
	if kept := s.GPUByUUID("GPU-b"); kept == nil || kept.Index != 1 {
		t.Errorf("GPU-b is %+v, want its index 1 from before the restart", kept)
	}
	if len(s.Events) != 1 || s.Events[0].Kind != GPUGone || s.Events[0].UUID != "GPU-a" {
		t.Errorf("events = %v, want that GPU-a is gone", s.Events)
	}

	again := s.Known()
	s = newTestReplay(&again).Snapshot(partOf(at.Add(2*time.Hour), boot, "570", "GPU-b"))
	if len(s.Events) != 0 {
		t.Errorf("a second restart tells the same loss again: %v", s.Events)
	}
}

func TestRebootForgetsGPUs(t *testing.T) {
	boot, at := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	before := newTestReplay(nil).Snapshot(partOf(at, boot, "570", "GPU-a", "GPU-b")).Known()
	s := newTestReplay(&before).Snapshot(partOf(at.Add(time.Hour), at.Add(30*time.Minute), "570", "GPU-b"))
	if len(s.GPUs) != 1 || s.GPUs[0].UUID != "GPU-b" {
		t.Errorf("after a reboot the node has %d GPUs, want the one that is there", len(s.GPUs))
	}
}

// The clock may be set long after the boot, and a node may boot within minutes: the
// kernel's id of the boot knows better.
func TestBootIsToldByItsID(t *testing.T) {
	boot, at := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	for name, c := range map[string]struct {
		before, now string        // ids of the boot
		moved       time.Duration // of the boot time
		same        bool
	}{
		"the clock was set":                     {"a", "a", 9 * time.Hour, true},
		"a boot within two minutes":             {"a", "b", 2 * time.Minute, false},
		"an agent that wrote no id":             {"", "b", time.Second, true},
		"an agent that wrote no id, and a boot": {"", "b", time.Hour, false},
		"a kernel without an id":                {"a", "", time.Second, true},
		"a kernel without an id, and a boot":    {"a", "", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := partOf(at, boot, "570", "GPU-a", "GPU-b")
			p.BootID = c.before
			written, err := json.Marshal(newTestReplay(nil).Snapshot(p).Known())
			if err != nil {
				t.Fatal(err)
			}
			var read Known
			if err := json.Unmarshal(written, &read); err != nil {
				t.Fatal(err)
			}
			p = partOf(at.Add(time.Minute), boot.Add(c.moved), "570", "GPU-b")
			p.BootID = c.now
			s := newTestReplay(&read).Snapshot(p)
			want, before := 1, 2
			if c.same {
				want, before = 2, 0
			}
			if len(s.GPUs) != want || s.GPUsBefore != before {
				t.Errorf("the next agent knows %d GPUs, and of %d before the boot, want %d and %d", len(s.GPUs), s.GPUsBefore, want, before)
			}
		})
	}
}

// What was written before agents knew of boot ids is still read.
func TestStateWithoutABootID(t *testing.T) {
	const old = `{"boot":"2026-01-01T00:00:00Z","gpus":[{"index":0,"uuid":"GPU-a","model":"m","pci_bus_id":"","serial":"","vbios":"","architecture":"",` +
		`"present":true,"xids":[{"code":31,"count":7,"last":"2026-01-01T01:00:00Z"}]}],"versions":null,"log":{"boot":"of another boot"}}`
	var known Known
	if err := json.Unmarshal([]byte(old), &known); err != nil {
		t.Fatal(err)
	}
	p := partOf(known.Boot.Add(2*time.Hour), known.Boot.Add(time.Minute), "", "GPU-a")
	p.BootID = "a"
	s := newTestReplay(&known).Snapshot(p)
	if len(s.GPUs) != 1 || len(s.GPUs[0].Xids) != 1 || s.GPUs[0].Xids[0].Count != 7 {
		t.Fatalf("of the state of an older agent is left: %+v", s.GPUs)
	}
	if k := s.Known(); k.BootID != "a" {
		t.Errorf("the id of the boot is then written as %q, want a", k.BootID)
	}
}

// How many GPUs there were outlasts boots in which there is no driver.
func TestGPUsOfEarlierBootsAreRemembered(t *testing.T) {
	at := time.Unix(2_000_000, 0)
	known := Known{Boot: at.Add(-time.Hour), BootID: "a", GPUs: []KnownGPU{{UUID: "GPU-a"}, {UUID: "GPU-b"}}}
	for _, id := range []string{"b", "c"} {
		p := partOf(at, at.Add(-time.Minute), "")
		p.BootID = id
		s := newTestReplay(&known).Snapshot(p)
		if s.GPUsBefore != 2 {
			t.Errorf("in boot %s, %d GPUs of earlier boots are known, want 2", id, s.GPUsBefore)
		}
		known = s.Known()
	}
}

func TestVersionChangeIsAnEvent(t *testing.T) {
	boot, at := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	r := newTestReplay(nil)
	if s := r.Snapshot(partOf(at, boot, "570")); len(s.Events) != 0 {
		t.Errorf("the first version is an event: %v", s.Events)
	}
	before := r.Snapshot(partOf(at.Add(time.Second), boot, "570")).Known()
	r = newTestReplay(&before) // a new agent, as after a driver upgrade with its reboot
	s := r.Snapshot(partOf(at.Add(time.Hour), at.Add(59*time.Minute), "580"))
	if len(s.Events) != 1 || s.Events[0].Component != "driver" || s.Events[0].From != "570" || s.Events[0].To != "580" {
		t.Errorf("events = %v, want the driver from 570 to 580", s.Events)
	}
	if s := r.Snapshot(partOf(at.Add(time.Hour+time.Second), at.Add(59*time.Minute), "580")); len(s.Events) != 0 {
		t.Errorf("the same change is told twice: %v", s.Events)
	}
	told := partOf(at.Add(2*time.Hour), at.Add(59*time.Minute), "590")
	told.Events = []Event{{Time: told.Time, Kind: VersionEvent, Component: "driver", From: "580", To: "590"}}
	if s := r.Snapshot(told); len(s.Events) != 1 {
		t.Errorf("%d events for one change that the source had told itself", len(s.Events))
	}
}

// What an agent that cannot read the log knew of its position is not forgotten.
func TestLogPositionIsKept(t *testing.T) {
	at := LogPosition{Boot: "b", Kernel: 4711, FabricFile: 7, FabricOffset: 9}
	s := NewSampler(SamplerConfig{Node: "n", Tiers: testTiers, Log: slog.New(slog.DiscardHandler)}, nil)
	s.Know(Known{Log: at})
	snap := s.compose.snapshot(noon, []view{held(&Part{Time: noon})})
	if got := snap.Known().Log; got != at {
		t.Errorf("the next agent would go on at %+v, want %+v", got, at)
	}
	later := LogPosition{Boot: "b", Kernel: 5000}
	snap = s.compose.snapshot(noon.Add(time.Second), []view{held(&Part{Time: noon.Add(time.Second), Log: &later})})
	if got := snap.Known().Log; got != later {
		t.Errorf("the next agent would go on at %+v, want %+v", got, later)
	}
}

// A counter that begins anew with each agent would tell of errors that were told
// before.
func TestErrorCountsSurviveARestart(t *testing.T) {
	boot := noon.Add(-time.Hour)
	step := func(s *Sampler, at time.Time, code int) *Snapshot {
		p := partOf(at, boot, "", "GPU-a")
		p.Events = []Event{{Time: at, Kind: XidEvent, UUID: "GPU-a", Code: code}, {Time: at, Kind: SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Fatal: true}}
		return s.compose.snapshot(at, []view{held(p)})
	}
	newSampler := func() *Sampler {
		return NewSampler(SamplerConfig{Node: "n", Tiers: testTiers, Log: slog.New(slog.DiscardHandler)}, nil)
	}
	first := newSampler()
	step(first, noon, 31)
	known := step(first, noon.Add(time.Second), 31).Known()
	written, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	var read Known
	if err := json.Unmarshal(written, &read); err != nil {
		t.Fatal(err)
	}
	second := newSampler()
	second.Know(read)
	at := noon.Add(time.Minute)
	s := step(second, at, 31)
	if diff := cmp.Diff([]XidCount{{Code: 31, Count: 3, Last: at}}, s.GPUs[0].Xids); diff != "" {
		t.Errorf("Xids after a restart of the agent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]SXidCount{{Switch: "0000:a9:00.0", Code: 20034, Fatal: true, Count: 3, Last: at}}, s.SXids); diff != "" {
		t.Errorf("errors of switches after a restart of the agent (-want +got):\n%s", diff)
	}
	boot = noon.Add(time.Hour)
	third := newSampler()
	third.Know(read)
	if s := step(third, noon.Add(2*time.Hour), 31); s.GPUs[0].Xids[0].Count != 1 || s.SXids[0].Count != 1 {
		t.Errorf("after a boot the counts are %+v and %+v, want 1", s.GPUs[0].Xids, s.SXids)
	}
}
