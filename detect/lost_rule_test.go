package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// lostStage is a stage whose driver answers, lists GPUs, and loses some of them.
type lostStage struct {
	*xidStage
	listed int // by the driver; negative while it does not answer
	gone   map[int]bool
	hung   map[int]bool
}

func newLostStage(t *testing.T) *lostStage {
	l := &lostStage{xidStage: newXidStage(t), listed: 2, gone: map[int]bool{}, hung: map[int]bool{}}
	l.also = func(s *collector.Snapshot) {
		if l.listed >= 0 {
			s.Node.Set(metric.GPUsSeen, float64(l.listed))
		}
		for i := range s.GPUs {
			s.GPUs[i].Hung = l.hung[i]
			if l.gone[i] {
				s.GPUs[i].Present, s.GPUs[i].Owners = false, nil
				s.GPUs[i].Readings = collector.NewReadings(metric.GPU)
			}
		}
	}
	return l
}

func (l *lostStage) open() (open []Incident) {
	for _, in := range l.e.View().Incidents {
		if in.State == Firing {
			open = append(open, in)
		}
	}
	return open
}

// one fails the test unless exactly one incident is open, and returns its root.
func (l *lostStage) one(rule rules.ID, cause string, members int) *Finding {
	l.t.Helper()
	open := l.open()
	if len(open) != 1 || open[0].Rule != rule || open[0].Cause != cause || len(open[0].Members) != members {
		l.t.Fatalf("open are %+v, want one incident %s %s of %d", open, rule, cause, members)
	}
	return &open[0].Members[0]
}

func TestGPUThatIsLostWithoutAnErrorPages(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.gone[0], l.listed = true, 1
	l.run(2 * time.Minute)
	l.silent("a GPU that is away for two minutes, as for a reset,")
	told := l.run(2 * time.Second)
	if len(told) != 1 || told[0].Severity != rules.Page || !rules.Get(rules.IDGPULost).Pages {
		t.Fatalf("told %+v, want one page", told)
	}
	f := l.one(rules.IDGPULost, "gone", 1)
	l.says(f, "the driver has not answered for it since 00:01:01 UTC; it lists 1 GPU, and 1 of 2 answer", "an answer, as before")
	if f.Owner != job || f.GPUIndex != 0 || f.Evidence.Confidence != Certain || !strings.Contains(f.Action(), "power-cycle") {
		t.Errorf("finding %+v, want certain, the job that held the GPU, its index, power-cycle as the first step", f)
	}
	l.restart()
	l.run(time.Hour)
	l.says(l.one(rules.IDGPULost, "gone", 1), "the driver has not answered for it since 00:01:01 UTC; it lists 1 GPU, and 1 of 2 answer", "an answer, as before")
	l.gone[0], l.listed = false, 2
	l.run(4 * time.Minute)
	l.fires(rules.IDGPULost)
	l.run(2 * time.Minute)
	if l.firing(rules.IDGPULost, "gpu:GPU-0") || len(l.told) != 2 {
		t.Errorf("six minutes after the GPU is back it fires or was told %d times, want its beginning and its end", len(l.told))
	}
}

func TestLostGPUWithItsErrorIsOneIncident(t *testing.T) {
	for name, later := range map[string]time.Duration{"before": -time.Second, "within the wait": time.Minute} {
		t.Run(name, func(t *testing.T) {
			l := newLostStage(t)
			if later < 0 {
				l.falls(79, "")
			}
			l.gone[0] = true
			if later > 0 {
				l.run(later)
				l.falls(79, "")
			}
			l.run(time.Hour)
			l.one(rules.IDXid, "xid_79", 1)
			if len(l.told) != 1 {
				t.Errorf("told %d times, want one page", len(l.told))
			}
			if f := l.finding(rules.IDGPULost, "gpu:GPU-0"); f != nil {
				t.Errorf("beside the error that tells of the loss, the loss is shown as %s", f.State)
			}
		})
	}
}

// TestLesserErrorHidesNoLoss: an error that is a ticket must not keep a page back.
func TestLesserErrorHidesNoLoss(t *testing.T) {
	l := newLostStage(t)
	l.falls(92, "")
	if s := rules.XidInfo(92).Severity; s != rules.Ticket {
		t.Fatalf("Xid 92 is a %s, the test wants a ticket", s)
	}
	l.gone[0] = true
	l.run(3 * time.Minute)
	if f := l.fires(rules.IDGPULost); f.Severity != rules.Page {
		t.Errorf("it is a %s, want a page", f.Severity)
	}
}

func TestAllGPUsLostAtOnceAreOneFindingOfTheNode(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.gone[0] = true
	l.run(20 * time.Second) // the driver's answers for one GPU take longer than for the other
	l.gone[1], l.listed = true, 0
	l.run(time.Hour)
	f := l.one(rules.IDSuspectMonitor, "silent_together", 1)
	l.says(f, "the driver has answered for none of 2 GPUs since 00:01:01 UTC; it lists 0 GPUs", "answers, as before")
	if len(l.told) != 1 || f.Subject.String() != "node:n1" || f.Severity != rules.Page || f.Title() != "No GPU of the node answers" {
		t.Errorf("told %d times, %s %s: %s; want one page about the node", len(l.told), f.Severity, f.Subject, f.Title())
	}
	l.restart()
	l.gone[1], l.listed = false, 1 // the driver is back, one GPU is not
	l.run(10 * time.Minute)
	if f := l.one(rules.IDGPULost, "gone", 2); f.Subject.String() != "gpu:GPU-0" {
		t.Errorf("once one GPU is back the incident is about %s, want the one that is not", f.Subject)
	}
}

func TestGPUsLostOneAfterTheOtherAreFindingsOfEach(t *testing.T) {
	l := newLostStage(t)
	l.gone[0] = true
	l.run(5 * time.Minute)
	l.gone[1] = true
	l.run(5 * time.Minute)
	l.one(rules.IDGPULost, "gone", 2)
}

func TestAllGPUsLostWithTheirErrorsAreNoSecondIncident(t *testing.T) {
	l := newLostStage(t)
	other := xid(79, "")
	other.UUID = "GPU-1"
	l.fall = append(l.fall, xid(79, ""), other)
	also := l.also
	at := l.now.Add(time.Second)
	l.also = func(s *collector.Snapshot) {
		also(s)
		for i := range s.GPUs {
			s.GPUs[i].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: at}}
		}
	}
	l.run(time.Second)
	l.gone[0], l.gone[1] = true, true
	l.run(time.Hour)
	l.one(rules.IDXid, "xid_79", 2)
}

func TestGPUThatNeverAnsweredIsATicket(t *testing.T) {
	l := newLostStage(t)
	l.listed = 3
	l.run(2 * time.Minute)
	l.silent("two minutes after the start, in which GPUs come up,")
	l.run(2 * time.Second)
	f := l.one(rules.IDGPULost, "never_answered", 1)
	l.says(f, "the driver lists 3 GPUs, and has never answered for 1 of them", "an answer for each that it lists")
	if f.Severity != rules.Ticket || f.Subject.String() != "node:n1" {
		t.Errorf("it is a %s about %s, want a ticket about the node", f.Severity, f.Subject)
	}
}

// TestDriverThatDoesNotAnswerLosesNoGPU: it is being replaced, was let go of, or its
// child process is being restarted.
func TestDriverThatDoesNotAnswerLosesNoGPU(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.listed = -1
	l.gone[0], l.gone[1] = true, true
	l.run(time.Hour)
	l.listed = 2
	l.run(time.Minute) // it is back, and finds one GPU after the other
	l.gone[0], l.gone[1] = false, false
	l.run(time.Hour)
	l.silent("a driver that was away")
}

func TestGPUThatHangsPages(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.hung[0] = true
	l.run(2 * time.Minute)
	l.silent("a GPU that hangs for two minutes")
	l.run(2 * time.Second)
	f := l.one(rules.IDGPULost, "hung", 1)
	l.says(f, "a driver call on it has not returned since 00:01:01 UTC; it lists 2 GPUs, and 1 of 2 answer", "an answer, as before")
	if f.Severity != rules.Page || f.Title() != "GPU hangs in the driver" {
		t.Errorf("%s: %s, want a page of a GPU that hangs", f.Severity, f.Title())
	}
	l.gone[0], l.hung[0] = true, false // a new child does not find it
	l.run(10 * time.Minute)
	l.one(rules.IDGPULost, "hung", 1)
	l.gone[0] = false
	l.run(6 * time.Minute)
	if len(l.open()) != 0 || len(l.told) != 2 {
		t.Errorf("six minutes after it answers %d incidents are open, and it was told %d times; want its beginning and its end", len(l.open()), len(l.told))
	}
}

func TestAllGPUsThatHangAreOneFindingOfTheNode(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.hung[0], l.hung[1] = true, true
	l.run(10 * time.Minute)
	l.one(rules.IDSuspectMonitor, "silent_together", 1)
}
