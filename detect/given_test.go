package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// heldBy makes somebody hold GPU 0 as long as it answers.
func (l *lostStage) heldBy(owner collector.Owner) {
	also := l.also
	l.also = func(s *collector.Snapshot) {
		s.GPUs[0].Owners = nil
		if owner != (collector.Owner{}) {
			s.GPUs[0].Owners = []collector.Owner{owner}
		}
		also(s)
	}
}

// away takes GPUs from the driver and says what the PCI bus shows of them then.
func (l *lostStage) away(bound string, gpus ...int) {
	also := l.also
	l.listed = 2 - len(gpus)
	for _, i := range gpus {
		l.gone[i] = true
	}
	l.also = func(s *collector.Snapshot) {
		also(s)
		for _, i := range gpus {
			s.GPUs[i].Bound = bound
		}
	}
}

func TestGPUThatWasTakenOnPurposeWakesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		bound    string
		owner    collector.Owner
		xid      bool
		cause    string
		severity rules.Severity
		seen     string
	}{
		"passed on to a virtual machine": {"vfio-pci", job, false, "given_away", rules.Info, "the kernel driver vfio-pci has had it"},
		"drained off the bus":            {collector.NoDevice, collector.Owner{}, false, "removed", rules.Ticket, "nobody used it"},
		"off the bus under a job":        {collector.NoDevice, job, false, "gone", rules.Page, "has not answered"},
		"still with its driver":          {"nvidia", collector.Owner{}, false, "gone", rules.Page, "has not answered"},
		"without a driver":               {collector.NoDriver, collector.Owner{}, false, "gone", rules.Page, "has not answered"},
		"nobody looked at the bus":       {"", collector.Owner{}, false, "gone", rules.Page, "has not answered"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLostStage(t)
			l.heldBy(c.owner)
			l.run(time.Minute)
			l.away(c.bound, 0)
			l.run(4 * time.Minute)
			f := l.fires(rules.IDGPULost)
			if f.Cause != c.cause || f.Severity != c.severity || !strings.Contains(f.Evidence.Seen, c.seen) {
				t.Errorf("told as %s of cause %s: %s; want %s of %s: …%s…", f.Severity, f.Cause, f.Evidence.Seen, c.severity, c.cause, c.seen)
			}
			for _, in := range l.told {
				if in.Severity > c.severity {
					t.Errorf("somebody was told with %s, want at most %s", in.Severity, c.severity)
				}
			}
		})
	}
}

func TestAllGPUsGivenAwayAreNoBrokenDriver(t *testing.T) {
	l := newLostStage(t)
	l.run(time.Minute)
	l.away("vfio-pci", 0, 1)
	l.run(5 * time.Minute)
	for _, in := range l.told {
		if in.Severity == rules.Page {
			t.Errorf("a page of %s: %s", in.Cause, in.Members[0].Evidence.Seen)
		}
	}
	l.one(rules.IDGPULost, "given_away", 2)
}

// The GPU falls off the bus first and is taken away after.
func TestGPUThatIsRemovedAfterAnErrorStaysLost(t *testing.T) {
	l := newLostStage(t)
	l.heldBy(collector.Owner{})
	l.run(time.Minute)
	fell := l.now
	l.away(collector.NoDevice, 0)
	also := l.also
	l.also = func(s *collector.Snapshot) {
		also(s)
		s.GPUs[0].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: fell}}
	}
	l.run(10 * time.Minute)
	paged := false
	for _, in := range l.told {
		paged = paged || in.Severity == rules.Page
		if in.Cause == "removed" {
			t.Error("a GPU that fell off the bus counts as removed on purpose")
		}
	}
	if !paged {
		t.Error("nobody is woken for a GPU that fell off the bus and is not there any more")
	}
}
