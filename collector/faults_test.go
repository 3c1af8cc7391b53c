package collector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// watch composes a snapshot a second from a driver with two GPUs and a kernel log.
type watch struct {
	t      *testing.T
	c      *composer
	at     time.Time
	driver []Event
	counts []XidCount // of GPU-a, as the driver counts them
	kernel []Event
	pos    LogPosition
	blind  bool // the kernel log cannot be read
	empty  bool // the driver lists no GPU
	events []Event
	last   *Snapshot
}

func newWatch(t *testing.T) *watch { return &watch{t: t, c: testComposer(t), at: noon} }

func (w *watch) run(seconds int) {
	w.t.Helper()
	for range seconds {
		w.at = w.at.Add(time.Second)
		driver := &Part{Time: w.at, Events: w.driver}
		if !w.empty {
			a, b := testGPU(0, "GPU-a", w.at), testGPU(1, "GPU-b", w.at)
			a.PCIBusID, b.PCIBusID = "00000000:3B:00.0", "00000000:CA:00.0"
			a.Xids = w.counts
			driver.GPUs = []GPU{a, b}
		}
		w.pos.Kernel++
		pos := w.pos
		log := &Part{Time: w.at, Events: w.kernel, Log: &pos}
		views := []view{held(driver), held(log)}
		views[0].state.Name, views[1].state.Name = "nvml", "kernellog"
		if w.blind {
			views = views[:1]
		}
		w.driver, w.kernel = nil, nil
		w.last = w.c.snapshot(w.at, views)
		w.events = append(w.events, w.last.Events...)
	}
}

func (w *watch) told(code int, d time.Duration) {
	w.driver = append(w.driver, Event{Time: w.at.Add(d), Kind: XidEvent, UUID: "GPU-a", Code: code})
}

func (w *watch) logged(pci string, code int, d time.Duration, text string) {
	w.kernel = append(w.kernel, Event{Time: w.at.Add(d), Kind: XidEvent, PCI: pci, Code: code, Text: text, Source: "kernel"})
}

func (w *watch) wants(why string, want ...Event) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.events); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", why, diff)
	}
}

func (w *watch) counted(why string, want ...XidCount) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.last.GPUs[0].Xids); diff != "" {
		w.t.Errorf("%s, counts of the GPU (-want +got):\n%s", why, diff)
	}
}

func TestOneErrorFromTwoSourcesIsOne(t *testing.T) {
	for name, act := range map[string]func(w *watch){
		"together":         func(w *watch) { w.told(145, 300*time.Millisecond); w.logged("0000:3b:00.0", 145, 0, "Nonfatal") },
		"the log first":    func(w *watch) { w.logged("0000:3b:00.0", 145, 0, "Nonfatal"); w.run(2); w.told(145, -time.Second) },
		"the driver first": func(w *watch) { w.told(145, 0); w.run(2); w.logged("0000:3b:00.0", 145, -time.Second, "Nonfatal") },
		"with a late count": func(w *watch) {
			w.logged("0000:3b:00.0", 145, 0, "Nonfatal")
			w.told(145, 0)
			w.run(1)
			w.counts = []XidCount{{Code: 145, Count: 1, Last: noon}}
		},
		"with an early count": func(w *watch) {
			w.counts = []XidCount{{Code: 145, Count: 1, Last: noon}}
			w.run(1)
			w.told(145, -time.Second)
			w.logged("0000:3b:00.0", 145, -time.Second, "Nonfatal")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch(t)
			w.run(1)
			act(w)
			w.run(20)
			if len(w.events) != 1 {
				t.Fatalf("told %d times, want once: %+v", len(w.events), w.events)
			}
			ev := w.events[0]
			ev.Time = time.Time{}
			want := Event{Kind: XidEvent, UUID: "GPU-a", PCI: "0000:3b:00.0", Code: 145, Text: "Nonfatal", Source: "kernel+nvml"}
			if diff := cmp.Diff(want, ev); diff != "" {
				t.Errorf("the error as both told it (-want +got):\n%s", diff)
			}
			w.counted(name, XidCount{Code: 145, Count: 1, Last: w.events[0].Time})
		})
	}
}

func TestErrorsThatAreNotTheSame(t *testing.T) {
	w := newWatch(t)
	w.run(1)
	w.told(31, 0)
	w.told(31, 0)
	w.logged("0000:3b:00.0", 31, 0, "")
	w.logged("0000:3b:00.0", 31, 0, "")
	w.logged("0000:3b:00.0", 31, 0, "")          // the driver tells only of some
	w.logged("0000:ca:00.0", 31, 0, "")          // on another GPU
	w.logged("0000:3b:00.0", 13, 0, "")          // another code
	w.logged("0000:3b:00.0", 31, -time.Hour, "") // long ago
	w.run(20)
	w.counted("errors of one GPU", XidCount{Code: 13, Count: 1, Last: w.at.Add(-20 * time.Second)}, XidCount{Code: 31, Count: 4, Last: w.at.Add(-20 * time.Second)})
	if n := w.last.GPUs[1].Xids; len(n) != 1 || n[0].Count != 1 {
		t.Errorf("the other GPU has %+v, want one Xid 31", n)
	}
}

func TestErrorsOfOneSource(t *testing.T) {
	w := newWatch(t)
	w.run(1)
	at := w.at
	w.logged("0000:3b:00.0", 31, 0, "")
	w.run(2)
	w.wants("the driver may tell, too")
	w.run(2)
	w.wants("only the log tells", Event{Time: at, Kind: XidEvent, UUID: "GPU-a", PCI: "0000:3b:00.0", Code: 31, Source: "kernel"})
	w.events, at = nil, w.at
	w.told(48, 0)
	w.run(4)
	w.wants("only the driver tells", Event{Time: at, Kind: XidEvent, UUID: "GPU-a", Code: 48, Source: "nvml"})
	w.blind, w.events, at = true, nil, w.at
	w.run(1)
	w.told(79, time.Second)
	w.run(1)
	w.wants("nobody reads the log, so that nothing waits for it", Event{Time: at.Add(2 * time.Second), Kind: XidEvent, UUID: "GPU-a", Code: 79, Source: "nvml"})
}

// The driver's count knows of errors whose events got lost on the way.
func TestCountsWithoutEventsAreShownInTheEnd(t *testing.T) {
	w := newWatch(t)
	w.run(1)
	w.counts = []XidCount{{Code: 31, Count: 3, Last: noon}}
	w.logged("0000:3b:00.0", 31, 0, "")
	w.run(5)
	if n := w.last.GPUs[0].Xids[0].Count; n != 1 {
		t.Errorf("while events may still come %d errors are counted, want the one that was told", n)
	}
	w.run(10)
	w.counted("three by the driver's count", XidCount{Code: 31, Count: 3, Last: noon.Add(time.Second)})
	w.told(31, 0) // and one of them does come
	w.run(20)
	if n := w.last.GPUs[0].Xids[0].Count; n != 3 {
		t.Errorf("%d errors are counted, want 3", n)
	}
}

// A GPU that was lost before the agent started is listed by nobody.
func TestErrorsOfStrangers(t *testing.T) {
	w := newWatch(t)
	w.empty = true
	w.run(1)
	w.logged("0000:3b:00.0", 79, 0, "")
	w.logged("0000:99:00.0", 79, 0, "")
	w.run(30)
	w.wants("the driver has listed no GPU yet")
	if w.last.Log.Kernel != 1 {
		t.Errorf("the log counts as read up to %d while errors wait, want 1: a restart would lose them", w.last.Log.Kernel)
	}
	w.empty = false
	w.run(1)
	if len(w.events) != 2 || w.events[0].UUID != "GPU-a" || w.events[1].UUID != "" || w.events[1].PCI != "0000:99:00.0" {
		t.Errorf("once the driver lists GPUs the errors are %+v, want one of GPU-a and one of an address", w.events)
	}
	if w.last.Log != w.pos {
		t.Errorf("the log counts as read up to %+v, want %+v", w.last.Log, w.pos)
	}

	w = newWatch(t)
	w.empty = true
	w.run(1)
	w.logged("0000:3b:00.0", 79, 0, "")
	w.run(61)
	if len(w.events) != 1 || w.events[0].PCI != "0000:3b:00.0" {
		t.Errorf("without a driver the errors are %+v after a minute, want the one", w.events)
	}

	w = newWatch(t) // a handle that the driver no longer knows, and the log that does
	w.run(1)
	w.driver = []Event{{Time: w.at, Kind: XidEvent, Code: 79}}
	w.logged("0000:3b:00.0", 79, 0, "")
	w.run(5)
	if len(w.events) != 1 || w.events[0].UUID != "GPU-a" || w.events[0].Source != "kernel+nvml" {
		t.Errorf("the same error of a GPU that the driver cannot name is %+v", w.events)
	}
}

func TestSwitchErrorsAreCountedOnce(t *testing.T) {
	w := newWatch(t)
	w.run(1)
	at := w.at
	w.kernel = []Event{
		{Time: at, Kind: SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Fatal: true, Source: "kernel"},
		{Time: at.Add(time.Second), Kind: SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Fatal: true, Source: "fabric_manager"},
		{Time: at, Kind: SXidEvent, PCI: "0000:a8:00.0", Code: 20034, Fatal: true, Source: "kernel"},
	}
	w.run(3)
	w.kernel = []Event{
		{Time: at.Add(3 * time.Second), Kind: SXidEvent, PCI: "0000:a8:00.0", Code: 20034, Fatal: true, Source: "fabric_manager"}, // a snapshot later
		{Time: at.Add(3 * time.Second), Kind: SXidEvent, PCI: "0000:a8:00.0", Code: 12028, Source: "kernel"},
	}
	w.run(10)
	want := []SXidCount{
		{Switch: "0000:a8:00.0", Code: 12028, Count: 1, Last: at.Add(3 * time.Second)},
		{Switch: "0000:a8:00.0", Code: 20034, Fatal: true, Count: 1, Last: at},
		{Switch: "0000:a9:00.0", Code: 20034, Fatal: true, Count: 1, Last: at},
	}
	if diff := cmp.Diff(want, w.last.SXids); diff != "" || len(w.events) != 3 {
		t.Errorf("%d errors of switches are told (-want +got):\n%s", len(w.events), diff)
	}
}

func TestStormsAreBounded(t *testing.T) {
	w := newWatch(t)
	w.run(1)
	for i := range 3 * maxFaults {
		w.logged("0000:3b:00.0", i%1000, 0, "")
	}
	w.run(1)
	if n := len(w.events); n < 2*maxFaults || len(w.c.faults.list) > maxFaults {
		t.Errorf("of a storm %d errors are told at once and %d are remembered, at most %d may be", n, len(w.c.faults.list), maxFaults)
	}
	w.run(30)
	if n := len(w.events); n != 3*maxFaults || len(w.c.faults.list) != 0 {
		t.Errorf("%d errors are told in the end and %d still remembered, want all and none", n, len(w.c.faults.list))
	}
	if n := len(w.last.GPUs[0].Xids); n != maxCodes {
		t.Errorf("%d codes are counted, the bound is %d", n, maxCodes)
	}
}

func TestPCIAddress(t *testing.T) {
	for written, want := range map[string]string{
		"0000:3b:00": "0000:3b:00.0", "00000000:3B:00.0": "0000:3b:00.0", "0000:3b:00.0": "0000:3b:00.0",
		"10000:3b:00.0": "10000:3b:00.0", "0018:01:00.3": "0018:01:00.3", "": "", "3b:00.0": "", "0000:3b:00.9": "", "000000000:3b:00.0": "",
	} {
		if got := PCIAddress(written); got != want {
			t.Errorf("%q is the address %q, want %q", written, got, want)
		}
	}
}

func FuzzPCIAddress(f *testing.F) {
	for _, s := range []string{"0000:3b:00", "00000000:3B:00.0", "0000:3b:00.0", "ffffffff:ff:ff.7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, written string) {
		if got := PCIAddress(written); got != "" && PCIAddress(got) != got {
			t.Errorf("%q is the address %q, which is none", written, got)
		}
	})
}

func TestPartsKeepTheirEvents(t *testing.T) {
	c := testComposer(t)
	part := &Part{Time: noon, GPUs: []GPU{testGPU(0, "GPU-a", noon)}, Events: []Event{{Kind: XidEvent, UUID: "GPU-a", Code: 31}}}
	v := held(part)
	v.state.Name = "sim"
	s := c.snapshot(noon, []view{v})
	if diff := cmp.Diff([]Event{{Time: noon, Kind: XidEvent, UUID: "GPU-a", Code: 31, Source: "sim"}}, s.Events); diff != "" {
		t.Errorf("an error that the only source tells (-want +got):\n%s", diff)
	}
	if part.Events[0].Source != "" || !part.Events[0].Time.IsZero() {
		t.Errorf("composing changed the source's part: %+v", part.Events[0])
	}
	if s.GPUs[0].Xids[0].Count != 1 {
		t.Errorf("counts are %+v, want one", s.GPUs[0].Xids)
	}
}

// An error that waits while the clock is set is neither lost nor told twice.
func TestErrorsMoveWithTheClock(t *testing.T) {
	for _, by := range []time.Duration{-6 * time.Hour, 6 * time.Hour} {
		w := newWatch(t)
		w.run(1)
		fell := w.at
		w.logged("0000:3b:00.0", 31, 0, "")
		w.kernel = append(w.kernel, Event{Time: w.at, Kind: SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Source: "kernel"})
		w.run(1)
		before := w.last.SXids
		w.at = w.at.Add(by)
		w.c.clock.last = w.c.clock.last.Add(by) // as after a step, of which the sampler knows
		w.c.gpus.shift(by)
		w.c.faults.shift(by)
		w.told(31, 0)
		w.run(20)
		if len(w.events) != 2 || !w.events[1].Time.Equal(fell.Add(by)) || w.events[1].Source != "kernel+nvml" {
			t.Errorf("a clock that was set by %v: told %+v, want the one error of both sources, by the new clock", by, w.events)
		}
		if x := w.last.SXids[0].Last; !x.Equal(fell.Add(by)) || !before[0].Last.Equal(fell) {
			t.Errorf("a clock that was set by %v: the switch's error was last at %s, and in the snapshot before at %s", by, x, before[0].Last)
		}
	}
}

// An exporter's page tells of an error when it is read, long after it fell.
func TestAnErrorOnAPageIsThatOfTheKernelLog(t *testing.T) {
	f := func(why string, after, within time.Duration, want int) {
		t.Helper()
		c := testComposer(t)
		var events []Event
		pos := LogPosition{}
		for second := range 150 {
			at := noon.Add(time.Duration(second) * time.Second)
			exporter := &Part{Time: at, GPUs: []GPU{testGPU(0, "GPU-a", at)}, Pages: []Page{{Source: "gpu_exporter", GPUs: true}}}
			exporter.GPUs[0].PCIBusID = "00000000:3B:00.0"
			pos.Kernel++
			read := pos
			log := &Part{Time: at, Log: &read}
			switch time.Duration(second) * time.Second {
			case 10 * time.Second:
				log.Events = []Event{{Time: at, Kind: XidEvent, PCI: "0000:3b:00.0", Code: 79, Text: "fallen off the bus", Source: "kernel"}}
			case 10*time.Second + after:
				exporter.Events = []Event{{Time: at, Kind: XidEvent, UUID: "GPU-a", Code: 79, Within: within}}
			}
			views := []view{held(exporter), held(log)}
			views[0].state.Name, views[1].state.Name = "gpu_exporter", "kernellog"
			events = append(events, c.snapshot(at, views).Events...)
		}
		if len(events) != want {
			t.Errorf("%s: there are %d errors, want %d: %+v", why, len(events), want, events)
		}
	}
	f("told again on the page 40 s later, which may be a minute late", 40*time.Second, time.Minute, 1)
	f("told again on the page at once", 0, time.Minute, 1)
	f("told again on the page 90 s later, which may be a minute late", 90*time.Second, time.Minute, 2)
	f("told again 40 s later by one who knows the time", 40*time.Second, 0, 2)
}
