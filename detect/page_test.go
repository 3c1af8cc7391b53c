package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// fromPage makes the snapshot one whose GPUs come from the page of dcgm-exporter, which
// tells of no processes.
func fromPage(s *collector.Snapshot) {
	s.Pages = []collector.Page{{Source: "gpu_exporter", Exporter: "dcgm-exporter", GPUs: true}}
	for i := range s.GPUs {
		s.GPUs[i].Stamp(metric.Processes, time.Time{})
	}
}

// A GPU of which nobody knows who has it is nobody's business, however idle it is.
func TestIdleOnAPageWithoutHolders(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) {
		fromPage(s)
		s.GPUs[0].Set(metric.Utilization, 0)
		s.GPUs[0].Set(metric.PowerDraw, 70)
	}
	st.run(6 * time.Hour)
	st.silent("no process list does not mean that anybody holds the GPU")
}

// One that was given to somebody is a finding that does not claim to know of processes.
func TestIdleOnAPageWithHolders(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) {
		fromPage(s)
		s.GPUs[0].Owners = []collector.Owner{pod}
		s.GPUs[0].Set(metric.Utilization, 0)
		s.GPUs[0].Set(metric.PowerDraw, 70)
	}
	st.run(31 * time.Minute)
	f := st.fires(rules.IDIdleGPU)
	if f.Cause != "allocated_idle" || f.Owner != pod || !strings.Contains(f.Evidence.Seen, "whether a process has it open is not known") || f.Evidence.Why != "measured by dcgm-exporter all that time" {
		t.Errorf("cause %s of %s: %s (%s)", f.Cause, f.Owner, f.Evidence.Seen, f.Evidence.Why)
	}
	for _, g := range st.e.View().Findings {
		if g.Cause != "allocated_idle" {
			t.Errorf("there is another finding: %s %s", g.Rule, g.Cause)
		}
	}
}

// A page that cannot be had is about the page: no GPU is lost, nobody is idle.
func TestPageThatIsGone(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = fromPage
	st.run(5 * time.Minute)
	st.set = func(s *collector.Snapshot) { // its readings have grown old, and are left out
		for i := range s.GPUs {
			s.GPUs[i].Readings = collector.NewReadings(metric.GPU)
		}
	}
	st.run(3 * time.Hour)
	st.set = fromPage
	st.run(5 * time.Minute)
	st.silent("the page could not be had for three hours")
}

// So is it after a restart of the agent, which knows of the GPUs and has not seen them.
func TestPageThatIsGoneFromTheStart(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = func(s *collector.Snapshot) {
		for i := range s.GPUs {
			s.GPUs[i].Present, s.GPUs[i].Readings = false, collector.NewReadings(metric.GPU)
		}
	}
	st.run(time.Hour)
	st.silent("the page could not be had since the agent started")
}

func TestGPUThatAPageNoLongerLists(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = fromPage
	st.run(5 * time.Minute)
	st.set = func(s *collector.Snapshot) {
		fromPage(s)
		s.GPUs[0].Present, s.GPUs[0].Readings = false, collector.NewReadings(metric.GPU)
	}
	st.run(5 * time.Minute)
	f := st.fires(rules.IDGPULost)
	if f.Severity != rules.Ticket || f.Cause != "not_listed" || f.Evidence.Confidence != Likely || !strings.Contains(f.Evidence.Seen, "the page of dcgm-exporter has not listed it since") ||
		!strings.Contains(f.Evidence.Seen, "1 of 2 GPUs") {
		t.Errorf("severity %s, cause %s, %s: %s", f.Severity, f.Cause, f.Evidence.Confidence, f.Evidence.Seen)
	}
	st.set = fromPage
	st.run(10 * time.Minute)
	if st.firing(rules.IDGPULost, "gpu:GPU-0") {
		t.Error("the finding stays although the page lists the GPU again")
	}
}

// An error on the page is one of the driver's, and says where it was told.
func TestXidOnAPage(t *testing.T) {
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = fromPage
	st.run(time.Minute)
	st.set = func(s *collector.Snapshot) {
		fromPage(s)
		s.Events = []collector.Event{{Time: s.Time, Kind: collector.XidEvent, UUID: "GPU-0", Code: 79, Source: "gpu_exporter"}}
	}
	st.run(15 * time.Second)
	if f := st.fires(rules.IDXid); f.Severity != rules.Page || !strings.Contains(f.Evidence.Why, "on the page of the GPU exporter") {
		t.Errorf("severity %s, why %s", f.Severity, f.Evidence.Why)
	}
}
