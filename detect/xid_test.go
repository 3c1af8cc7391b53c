package detect

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// xidStage is a stage on which errors fall on GPU 0 in the next snapshot.
type xidStage struct {
	*stage
	fall []collector.Event
	gone bool // GPU 0 does not answer
	also func(s *collector.Snapshot)
}

func newXidStage(t *testing.T) *xidStage {
	x := &xidStage{stage: newStage(t, DetectorConfig{}, time.Second)}
	x.set = func(s *collector.Snapshot) {
		for i := range x.fall {
			x.fall[i].Time = s.Time
		}
		s.Events, x.fall = x.fall, nil
		if x.gone {
			s.GPUs[0].Present = false
			s.GPUs[0].Readings = collector.NewReadings(metric.GPU)
		}
		s.GPUs[0].Owners = []collector.Owner{job}
		if x.also != nil {
			x.also(s)
		}
	}
	return x
}

func xid(code int, text string) collector.Event {
	return collector.Event{Kind: collector.XidEvent, UUID: "GPU-0", Code: code, Text: text}
}

func (x *xidStage) falls(code int, text string) []Incident {
	x.fall = append(x.fall, xid(code, text))
	return x.run(time.Second)
}

// A GPU that is not even listed any more is one of those that there were, also after a
// restart of the agent.
func TestLostGPUThatIsNotListedCounts(t *testing.T) {
	x := newXidStage(t)
	x.run(time.Minute)
	x.set = func(s *collector.Snapshot) {
		s.GPUs = s.GPUs[1:]
		s.Events, x.fall = x.fall, nil
	}
	x.falls(79, "")
	for range 2 {
		x.run(time.Minute)
		if f := x.fires(rules.IDXid); !strings.HasSuffix(f.Evidence.Seen, "; 1 of 2 GPUs answer") {
			t.Errorf("seen %q, want that one of two GPUs answers", f.Evidence.Seen)
		}
		x.restart()
	}
}

func TestLostGPULastsUntilItAnswers(t *testing.T) {
	x := newXidStage(t)
	x.run(time.Minute)
	told := x.falls(79, "GPU has fallen off the bus.")
	if len(told) != 1 || told[0].Severity != rules.Page || told[0].Cause != "xid_79" {
		t.Fatalf("told %+v at once, want a page for xid_79", told)
	}
	x.gone = true
	x.run(time.Hour)
	f := x.fires(rules.IDXid)
	x.says(f, "Xid 79 at 00:01:01 UTC: the GPU has fallen off the bus; 1 of 2 GPUs answer", "no such error")
	if f.Evidence.Confidence != Certain || f.Owner != job || !strings.Contains(f.Action(), "power-cycle") || f.Evidence.Observed != 1 {
		t.Errorf("finding %+v, want certain, the job as owner, power-cycle as the first step, one error", f)
	}
	x.restart() // that it is lost survives
	x.run(time.Hour)
	x.fires(rules.IDXid)
	x.gone = false
	x.run(14 * time.Minute)
	x.fires(rules.IDXid)
	x.run(2 * time.Minute)
	if f := x.finding(rules.IDXid, "gpu:GPU-0"); f.State != Resolved {
		t.Errorf("a quarter of an hour after the GPU answers again the finding is %s", f.State)
	}
	if len(x.told) != 2 {
		t.Errorf("told %d times, want once when it was lost and once when it was back", len(x.told))
	}
}

func TestXidThatTheGPUSurvives(t *testing.T) {
	x := newXidStage(t)
	x.falls(79, "") // the GPU answers all the time
	x.run(14 * time.Minute)
	x.fires(rules.IDXid)
	x.run(2 * time.Minute)
	if x.firing(rules.IDXid, "gpu:GPU-0") {
		t.Error("fifteen minutes after the last error it still fires although the GPU answers")
	}
}

func TestXidRepeats(t *testing.T) {
	x := newXidStage(t)
	for range 3 {
		x.falls(31, "")
		x.run(10*time.Minute - time.Second)
	}
	f := x.fires(rules.IDXid)
	x.says(f, "Xid 31 at 00:20:01 UTC: GPU memory page fault: the application used an illegal address, 3 times since 00:00:01 UTC", "no such error")
	if f.Evidence.Observed != 3 || f.Count != 3 || f.Severity != rules.Info || len(x.told) != 1 {
		t.Errorf("observed %v, count %d, severity %s, told %d times; want 3, 3, info, once", f.Evidence.Observed, f.Count, f.Severity, len(x.told))
	}
	// R36: it ends by itself, and an equal error afterwards is told again.
	x.run(7 * time.Minute)
	if x.firing(rules.IDXid, "gpu:GPU-0") {
		t.Error("seventeen minutes after the last error it still fires")
	}
	x.run(20 * time.Minute)
	if told := x.falls(31, ""); len(told) != 1 {
		t.Errorf("a second equal error told %+v, want it told again", told)
	}
}

func TestFollowOnErrors(t *testing.T) {
	const reset = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
	t.Run("after their cause", func(t *testing.T) {
		x := newXidStage(t)
		x.falls(119, "")
		x.run(10 * time.Second)
		x.falls(45, "caused by previous Xid 119")
		x.falls(45, "")
		x.falls(154, reset)
		x.run(10 * time.Minute)
		x.says(x.fires(rules.IDXid), "Xid 119 at 00:00:01 UTC: the GPU's system processor does not answer: driver calls may hang; "+
			"followed by Xid 45, Xid 154 (GPU Reset Required)", "no such error")
		if n := len(x.told); n != 1 {
			t.Errorf("told %d times, want only the cause", n)
		}
	})
	t.Run("before their cause", func(t *testing.T) {
		x := newXidStage(t)
		x.falls(45, "")
		x.run(30 * time.Second)
		x.silent("a follow-on error whose cause may still come")
		x.falls(48, "")
		x.run(5 * time.Minute)
		if f := x.fires(rules.IDXid); f.Cause != "xid_48" || !strings.HasSuffix(f.Evidence.Seen, "; followed by Xid 45") || len(x.told) != 1 {
			t.Errorf("told %d times: %s, want Xid 48 followed by Xid 45, once", len(x.told), f.Evidence.Seen)
		}
	})
	t.Run("alone", func(t *testing.T) {
		x := newXidStage(t)
		x.falls(154, "Node Reboot Required")
		x.run(59 * time.Second)
		x.silent("within a minute")
		x.run(2 * time.Minute)
		f := x.fires(rules.IDXid)
		if f.Severity != rules.Page || len(x.told) != 1 || f.Evidence.Seen != "Xid 154 at 00:00:01 UTC: the driver's recommended recovery changed (Node Reboot Required)" {
			t.Errorf("told %d times, %s: %s; want one page with the recommendation", len(x.told), f.Severity, f.Evidence.Seen)
		}
	})
	t.Run("too late for a cause", func(t *testing.T) {
		x := newXidStage(t)
		x.falls(31, "")
		x.run(5 * time.Minute)
		x.falls(45, "")
		x.run(2 * time.Minute)
		if len(x.told) != 2 {
			t.Errorf("told %d times, want the two errors apart: %+v", len(x.told), x.told)
		}
	})
}

// The severity of every real message: an application's fault never pages.
func TestXidSeverityOfRealMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/xid-messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	f, err := os.Open("testdata/expected-xid.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]rules.Severity{"app": rules.Info, "lost": rules.Page, "follow-on": rules.Info, "gsp": rules.Page}
	recoveries := map[string]rules.Severity{"23": rules.Ticket, "24": rules.Page, "25": rules.Page} // by line: drain and reset, reset, reboot
	for _, row := range rows[1:] {
		line, _ := strconv.Atoi(row[0])
		code, _ := strconv.Atoi(row[1])
		severity, ok := want[row[6]]
		switch row[5] {
		case "Fatal":
			severity, ok = rules.Page, true
		case "Nonfatal":
			severity, ok = rules.Info, true
		}
		if row[6] == "recovery-action" {
			severity, ok = recoveries[row[0]]
		}
		if !ok {
			continue
		}
		x := newXidStage(t)
		x.falls(code, lines[line-1])
		x.run(2 * time.Minute)
		got := x.finding(rules.IDXid, "gpu:GPU-0")
		if got == nil || got.Severity != severity {
			t.Errorf("line %d (%s): %+v, want severity %s", line, lines[line-1], got, severity)
			continue
		}
		if process := row[4]; process != "" && strings.Contains(got.Evidence.Seen, process) {
			t.Errorf("line %d: the evidence names the process: %s", line, got.Evidence.Seen)
		}
	}
}

func TestXidCountsWithoutEvents(t *testing.T) {
	x := newXidStage(t)
	fell := day.Add(90 * time.Second)
	x.also = func(s *collector.Snapshot) {
		if s.Time.After(fell) {
			s.GPUs[0].Xids = []collector.XidCount{{Code: 48, Count: 1, Last: fell}}
		}
	}
	x.run(10 * time.Minute)
	if f := x.fires(rules.IDXid); f.Cause != "xid_48" || f.Evidence.Observed != 1 {
		t.Errorf("finding %+v, want one xid_48 for an event that got lost on the way", f)
	}
	x.restart()
	x.run(20 * time.Minute)
	if n := len(x.told); n != 2 {
		t.Errorf("told %d times, want once open and once resolved: the count stays, the error does not repeat", n)
	}
}

// The count that comes with an event, or a little after it, is not another error.
func TestXidEventAndItsCountAreOneError(t *testing.T) {
	x := newXidStage(t)
	fell := day.Add(time.Second)
	x.also = func(s *collector.Snapshot) {
		if s.Time.After(fell.Add(5 * time.Second)) {
			s.GPUs[0].Xids = []collector.XidCount{{Code: 31, Count: 1, Last: fell.Add(time.Second)}}
		}
	}
	x.falls(31, "")
	x.run(time.Minute)
	if f := x.fires(rules.IDXid); f.Evidence.Observed != 1 || f.Count != 1 {
		t.Errorf("%v errors and %d observations, want one", f.Evidence.Observed, f.Count)
	}
}

func TestOldXidsAreHistory(t *testing.T) {
	x := newXidStage(t)
	x.also = func(s *collector.Snapshot) {
		if s.Time.Equal(day.Add(time.Second)) {
			s.Events = []collector.Event{{Time: day.Add(-48 * time.Hour), Kind: collector.XidEvent, UUID: "GPU-0", Code: 79}}
		}
		s.GPUs[0].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: day.Add(-48 * time.Hour)}}
	}
	x.run(5 * time.Minute)
	x.silent("an error of the day before yesterday")
}

func TestXidOfUnknownGPUOrNode(t *testing.T) {
	x := newXidStage(t)
	x.fall = []collector.Event{
		{Kind: collector.XidEvent, UUID: "GPU-gone", Code: 79}, {Kind: collector.XidEvent, Code: 74}, {Kind: collector.XidEvent, UUID: "GPU-0", Code: 99999},
	}
	x.run(time.Minute)
	for subject, want := range map[string]string{"gpu:GPU-gone": "xid_79", "node:n1": "xid_74", "gpu:GPU-0": "xid_99999"} {
		f := x.finding(rules.IDXid, subject)
		if f == nil || f.Cause != want {
			t.Errorf("finding on %s is %+v, want %s", subject, f, want)
			continue
		}
		if index := f.GPUIndex; (subject == "gpu:GPU-0") != (index == 0) {
			t.Errorf("finding on %s has GPU index %d", subject, index)
		}
	}
}

func TestEightLostGPUsAreOneIncident(t *testing.T) {
	e := NewEngine(Config{}, Detectors(DetectorConfig{}))
	e.Observe(node(day, 8))
	s := node(day.Add(time.Second), 8)
	for i := range s.GPUs {
		s.GPUs[i].Present = false
		s.Events = append(s.Events, collector.Event{Time: s.Time, Kind: collector.XidEvent, UUID: fmt.Sprintf("GPU-%d", i), Code: 79})
	}
	told := e.Observe(s)
	if len(told) != 1 || len(told[0].Members) != 8 || told[0].Severity != rules.Page {
		t.Errorf("told %+v, want one page with eight members", told)
	}
}

// A lost GPU explains why it is idle.
func TestLostGPUHidesItsIdleFinding(t *testing.T) {
	x := newXidStage(t)
	x.also = func(s *collector.Snapshot) {
		if !x.gone {
			hold(s, job, "python3", 0, 118)
		}
	}
	x.run(25 * time.Minute)
	x.fires(rules.IDIdleGPU)
	x.falls(79, "")
	x.gone = true
	x.run(time.Minute)
	if f := x.finding(rules.IDIdleGPU, "gpu:GPU-0"); f.State != Resolved || f.Ended != "hidden" {
		t.Errorf("the idle finding is %s %s, want resolved because it is hidden", f.State, f.Ended)
	}
}

// When a GPU is lost, the driver recommends a recovery for every GPU: one incident.
func TestRecoveryOfAllGPUsFollowsTheLostOne(t *testing.T) {
	x := newXidStage(t)
	x.falls(79, "")
	for _, uuid := range []string{"GPU-0", "GPU-1"} {
		x.fall = append(x.fall, collector.Event{Kind: collector.XidEvent, UUID: uuid, Code: 154, Text: "Node Reboot Required"})
	}
	x.run(10 * time.Minute)
	if len(x.told) != 1 {
		t.Fatalf("told %d times, want the lost GPU once: %+v", len(x.told), x.told)
	}
	if f := x.fires(rules.IDXid); !strings.HasSuffix(f.Evidence.Seen, "; followed by Xid 154 (Node Reboot Required)") {
		t.Errorf("the evidence leaves out what the driver recommends: %s", f.Evidence.Seen)
	}
	x = newXidStage(t)
	x.falls(31, "") // an application's error does not make others need a reset
	x.fall = []collector.Event{{Kind: collector.XidEvent, UUID: "GPU-1", Code: 154, Text: "GPU Reset Required"}}
	x.run(2 * time.Minute)
	if f := x.finding(rules.IDXid, "gpu:GPU-1"); f == nil || f.Severity != rules.Page {
		t.Errorf("a reset that is required on another GPU is %+v, want a page", f)
	}
}

// The driver's recommendation makes its cause as urgent as it is.
func TestRecoveryRaisesItsCause(t *testing.T) {
	x := newXidStage(t)
	x.falls(63, "")
	if f := x.fires(rules.IDXid); f.Severity != rules.Info {
		t.Fatalf("a row that was remapped is %s, want information", f.Severity)
	}
	x.falls(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)")
	f := x.fires(rules.IDXid)
	if f.Cause != "xid_63" || f.Severity != rules.Ticket || !strings.Contains(f.Action(), "no new job") {
		t.Errorf("with the recommendation to drain it is %s %s, do: %s", f.Cause, f.Severity, f.Action())
	}
}

func TestXidOfAGPUThatIsNotListed(t *testing.T) {
	x := newXidStage(t)
	x.fall = []collector.Event{{Kind: collector.XidEvent, PCI: "0000:3b:00.0", Code: 79, Source: "kernel"}}
	x.run(time.Minute)
	f := x.finding(rules.IDXid, "node:n1")
	if f == nil || f.Evidence.Seen != "Xid 79 at 00:00:01 UTC: the GPU has fallen off the bus, on a GPU at 0000:3b:00.0 that the driver does not list" ||
		f.Severity != rules.Page || f.Evidence.Why != "reported by the driver in the kernel log" {
		t.Errorf("finding %+v", f)
	}
	x.run(15 * time.Minute)
	if x.firing(rules.IDXid, "node:n1") {
		t.Error("a GPU that nobody can ask keeps its finding for ever")
	}
}

func TestNVLinkErrorSaysWhichLink(t *testing.T) {
	x := newXidStage(t)
	x.fall = []collector.Event{{Kind: collector.XidEvent, UUID: "GPU-0", Code: 145, Text: "RLW_REMAP Nonfatal, link 0", Source: "kernel+nvml"}}
	x.run(time.Second)
	f := x.fires(rules.IDXid)
	x.says(f, "Xid 145 at 00:00:01 UTC: NVLink 5 error, not fatal (RLW_REMAP Nonfatal, link 0)", "no such error")
	if f.Severity != rules.Info || f.Evidence.Why != "reported by the driver in the kernel log and through NVML" {
		t.Errorf("%s, %s", f.Severity, f.Evidence.Why)
	}
}

// A GPU whose driver calls do not return has not come back.
func TestHungGPUDoesNotAnswer(t *testing.T) {
	x := newXidStage(t)
	x.also = func(s *collector.Snapshot) { hold(s, job, "python3", 0, 118) }
	x.run(25 * time.Minute)
	x.fires(rules.IDIdleGPU)
	frozen := x.now
	x.also = func(s *collector.Snapshot) {
		g := hold(s, job, "python3", 0, 118)
		g.Hung = true
		for tier := range metric.Tiers {
			g.Stamp(tier, frozen)
		}
	}
	x.falls(79, "")
	x.run(2 * time.Hour)
	if f := x.fires(rules.IDXid); !strings.HasSuffix(f.Evidence.Seen, "; 1 of 2 GPUs answer") {
		t.Errorf("seen %q, want that one of two GPUs answers", f.Evidence.Seen)
	}
	for _, f := range x.e.View().Findings {
		if f.Rule == rules.IDIdleGPU && f.State == Pending {
			t.Errorf("what a hung GPU said last is judged for %s", f.LastSeen.Sub(frozen))
		}
	}
	x.also = nil
	x.run(16 * time.Minute)
	if f := x.finding(rules.IDXid, "gpu:GPU-0"); f.State != Resolved {
		t.Errorf("a quarter of an hour after its calls return the finding is %s", f.State)
	}
}
