package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Half of the GPUs that fall silent in the same minute are one page about the node, and
// none about each of them.
func TestHalfOfTheGPUsSilentAtOnceIsOnePage(t *testing.T) {
	steps(t, func(t *testing.T, h *hardware) {
		h.habit()
		h.breakIt(lostGPUs(4, 5))
		h.run(h.step)
		h.breakIt(lostGPUs(4, 5, 6, 7))
		h.run(10 * time.Minute)
		in := h.only(rules.IDSuspectMonitor, "silent_together")
		f := &in.Members[0]
		if in.Severity != rules.Page || len(in.Members) != 1 || f.Subject.String() != "node:n1" || f.Title() != "4 of 8 GPUs stopped answering together" {
			t.Errorf("told %s, want one page about the node", describe(h.incidents()))
		}
		h.restart()
		h.run(10 * time.Minute)
		h.mend()
		h.breakIt(lostGPUs(7))
		h.run(20 * time.Minute)
		if in := h.incidents(); len(in) != 1 || in[0].State != Firing || in[0].Rule != rules.IDGPULost || in[0].Members[0].Subject.ID != "GPU-7" {
			t.Errorf("once all but one are back: %s, want the same incident, about the one", describe(in))
		}
		h.mend()
		h.run(20 * time.Minute)
		if in := h.incidents(); len(in) != 1 || in[0].State != Resolved {
			t.Errorf("once all are back: %s, want it resolved", describe(in))
		}
	})
}

// Three of eight are each lost: the page names them.
func TestLessThanHalfAreLostEach(t *testing.T) {
	h := newHardware(t, time.Second)
	h.habit()
	h.breakIt(lostGPUs(5, 6, 7))
	h.run(10 * time.Minute)
	if in := h.only(rules.IDGPULost, "gone"); len(in.Members) != 3 {
		t.Errorf("told %s, want one page with three GPUs", describe(h.incidents()))
	}
}

// A node whose driver hangs is never told by nobody: not while it is asked, and not
// once nobody can ask any more.
func TestDeadNodeIsTold(t *testing.T) {
	steps(t, func(t *testing.T, h *hardware) {
		h.habit()
		h.breakIt(func(s *collector.Snapshot) {
			for i := range s.GPUs {
				s.GPUs[i].Hung = true
			}
		})
		h.run(3 * time.Minute)
		in := h.only(rules.IDSuspectMonitor, "silent_together")
		if in.Severity != rules.Page {
			t.Errorf("a node of which all GPUs hang is a %s", in.Severity)
		}
		h.breakIt(driverGone(true, false))
		h.run(10 * time.Minute)
		h.restart()
		h.run(2 * time.Hour)
		if in := h.incidents(); len(in) != 1 || in[0].State != Firing {
			t.Errorf("while nobody can ask the driver any more: %s, want the page to go on", describe(in))
		}
	})
}

func TestSourceThatStops(t *testing.T) {
	for name, c := range map[string]struct {
		held, hung bool
		within     time.Duration // of which it must be told; 0: it is not
		severity   rules.Severity
	}{
		"under work":                       {true, false, 8 * time.Minute, rules.Ticket},
		"under work, because it hangs":     {true, true, 8 * time.Minute, rules.Page},
		"on a node that nobody uses":       {false, false, 33 * time.Minute, rules.Ticket},
		"on such a node, because it hangs": {false, true, 33 * time.Minute, rules.Ticket},
	} {
		t.Run(name, func(t *testing.T) {
			steps(t, func(t *testing.T, h *hardware) {
				h.habit()
				if !c.held {
					h.breakIt(idleLink(1, 16))
					h.run(2 * time.Minute)
				}
				gone := driverGone(c.held, false)
				h.breakIt(func(s *collector.Snapshot) {
					gone(s)
					s.Sources[0].Hung = c.hung && s.Time.Minute()%2 == 0 // it is started anew in between
				})
				h.run(c.within / 2)
				h.silent("half of the time")
				h.run(c.within/2 + 2*time.Minute)
				in := h.only(rules.IDSuspectMonitor, "source_stopped")
				if in.Severity != c.severity || in.Members[0].Subject.String() != "node:n1" {
					t.Errorf("told %s, want a %s about the node", describe(h.incidents()), c.severity)
				}
				h.restart()
				h.run(time.Hour)
				h.mend()
				h.run(20 * time.Minute)
				if in := h.incidents(); len(in) != 1 || in[0].State != Resolved {
					t.Errorf("once it answers again: %s, want it resolved", describe(in))
				}
			})
		})
	}
}

// What began before everybody went blind does not follow from it, and what begins with it
// is told by it.
func TestSuspicionHidesWhatFollowsFromItOnly(t *testing.T) {
	h := newHardware(t, time.Second)
	h.habit()
	h.breakIt(of(metric.RemapFailed, 0, 1, 2))
	h.run(10 * time.Minute)
	h.breakIt(lostGPUs(4, 5, 6, 7))
	h.run(10 * time.Minute)
	ins := h.incidents()
	if len(ins) != 2 || ins[0].Rule != rules.IDGPUMemory || ins[0].State != Firing || ins[1].Rule != rules.IDSuspectMonitor || len(ins[1].Members) != 1 {
		t.Errorf("told %s, want the memory, still, and the suspicion alone", describe(ins))
	}
	for _, f := range h.e.View().Findings {
		if f.Rule == rules.IDGPULost {
			t.Errorf("beside the suspicion a lost GPU is shown as %s", f.State)
		}
	}
}

// Readings that come and never change are of nobody.
func TestReadingsThatStandStill(t *testing.T) {
	steps(t, func(t *testing.T, h *hardware) {
		h.habit()
		frozen := h.energy
		h.breakIt(func(s *collector.Snapshot) {
			for i := range s.GPUs {
				s.GPUs[i].Set(metric.Energy, frozen)
				s.GPUs[i].Set(metric.Utilization, 1)
			}
		})
		h.run(13 * time.Minute)
		in := h.only(rules.IDSuspectMonitor, "stands_still")
		if in.Severity != rules.Page || !strings.Contains(in.Members[0].Evidence.Seen, "8 of 8 GPUs have not changed at all") {
			t.Errorf("told %s, want one page: a GPU that stands still at 100 %% looks hung", describe(h.incidents()))
		}
	})
	h := newHardware(t, time.Second)
	h.habit()
	h.breakIt(func(s *collector.Snapshot) {
		s.GPUs[0].Set(metric.Energy, 1e6)
	})
	h.run(30 * time.Minute)
	h.silent("the readings of one GPU that stand still")
}

// What comes with a boot is over minutes later; a fact is not.
func TestNodeThatBoots(t *testing.T) {
	h := newHardware(t, time.Second)
	h.habit()
	boot := h.now.Add(time.Minute)
	booted := func(s *collector.Snapshot) { s.Boot, s.BootID = boot, "boot-2" }
	h.breakIt(booted)
	h.breakIt(during(h, 9*time.Minute, func(s *collector.Snapshot) {
		of(metric.FabricState, 0, 1, all8...)(s)
		of(metric.FabricHealth, 0, 3, all8...)(s)
		of(metric.NVLinksUp, 0, 0, 1)(s)
		of(metric.PCIeWidth, 0, 4, 2)(s)
		portDown("Polling", 1)(s)
	}))
	h.run(40 * time.Minute)
	h.silent("what a node needs to come up")
	h.mend()
	boot = h.now
	h.breakIt(booted)
	h.breakIt(of(metric.RemapFailed, 0, 1, 3))
	h.run(2 * time.Minute)
	h.only(rules.IDGPUMemory, "remap_failed")
}

// A GPU that does not come back from a boot is missed, unless another driver has it.
func TestGPUThatDoesNotComeBackFromABoot(t *testing.T) {
	for name, passedOn := range map[string]bool{"gone": false, "passed on to a virtual machine": true} {
		t.Run(name, func(t *testing.T) {
			h := newHardware(t, time.Second)
			boot := h.now
			h.breakIt(func(s *collector.Snapshot) {
				s.Boot, s.GPUsBefore, s.GPUs = boot, 8, s.GPUs[:7]
				s.Node.Set(metric.GPUsSeen, 7)
				s.Node.SetAt(metric.PCIGPUs, 0, 7)
				if passedOn {
					s.Node.SetAt(metric.PCIGPUs, 1, 1)
				}
			})
			h.run(9 * time.Minute)
			h.silent("the minutes in which GPUs come up")
			h.run(10 * time.Minute)
			if passedOn {
				h.silent("a GPU that another driver has")
				return
			}
			in := h.only(rules.IDGPULost, "not_back")
			if f := in.Members[0]; in.Severity != rules.Ticket || f.Evidence.Seen != "the node had 8 GPUs before it booted, and has 7 now" {
				t.Errorf("told %s", describe(h.incidents()))
			}
		})
	}
}

// Faults that last are the same after the clock was set, by hours or days, forth or back.
func TestFaultsMoveWithTheClock(t *testing.T) {
	for _, by := range []time.Duration{-5 * time.Hour, 26 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			h := newHardware(t, time.Second)
			h.habit()
			h.breakIt(func(s *collector.Snapshot) {
				of(metric.PCIeWidth, 0, 8, 3)(s)
				of(metric.GPUSlowdown, 0, 8, 2)(s)
				of(metric.NVLinksUp, 0, 17, 1)(s)
				portDown("Polling", 1)(s)
			})
			h.run(7 * time.Minute)
			before := len(h.told)
			set := h.now.Add(by)
			h.now = set
			first := true
			h.breakIt(func(s *collector.Snapshot) {
				s.Boot = s.Boot.Add(by)
				if first {
					s.Step, first = by, false
				}
			})
			h.run(2 * time.Minute)
			if len(h.told) != before {
				t.Errorf("two minutes after the clock was set: %s", describe(h.told[before:]))
			}
			h.run(3 * time.Minute)
			if len(h.told) != before+2 {
				t.Fatalf("ten minutes and more after the faults began: %s, want the link and the driver", describe(h.told[before:]))
			}
			for _, in := range h.told[before:] {
				if age := h.now.Sub(in.Members[0].Since); age < 11*time.Minute || age > 13*time.Minute {
					t.Errorf("%s has lasted %s, want 12 minutes", in.Rule, age)
				}
			}
		})
	}
}

func BenchmarkHardwareDetectors(b *testing.B) {
	observe := steadyHardware()
	b.ReportAllocs()
	for b.Loop() {
		observe()
	}
}

// steadyHardware looks at a healthy node with all detectors of hardware again and again.
func steadyHardware() (observe func()) {
	detectors := []Detector{NewSuspect(), NewLost(), NewGPUMemory(), NewPCIe(), NewNVLink(), NewPort(), NewUnresponsive()}
	s := healthy(day)
	report := func(Observation) {}
	return func() {
		s.Time = s.Time.Add(time.Second)
		s.Sources[0].Last = s.Time
		for i := range s.GPUs {
			for t := range metric.Tiers {
				s.GPUs[i].Stamp(t, s.Time)
			}
			s.GPUs[i].Set(metric.Energy, s.GPUs[i].Value(metric.Energy)+350)
		}
		for i := range s.Interfaces {
			s.Interfaces[i].Stamp(metric.Slow, s.Time)
		}
		for _, d := range detectors {
			d.Observe(s, report)
		}
	}
}

func TestHardwareDetectorsAllocateNothing(t *testing.T) {
	observe := steadyHardware()
	for range 100 {
		observe()
	}
	if n := testing.AllocsPerRun(200, observe); n > 0 {
		t.Errorf("a snapshot of a healthy node costs %.1f allocations", n)
	}
}
