package detect

import (
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// falls makes errors fall in the next snapshot.
func (h *hardware) falls(events ...collector.Event) { h.fall = append(h.fall, events...) }

func xidOn(uuid string, code int, text string) collector.Event {
	return collector.Event{Kind: collector.XidEvent, UUID: uuid, Code: code, Text: text}
}

// A fault that shows in many places is one incident with one page, headed by what tells
// most of it.
func TestOneFaultIsOneIncident(t *testing.T) {
	for name, c := range map[string]struct {
		play     func(h *hardware)
		rule     rules.ID
		cause    string
		severity rules.Severity
		members  []string // rule and cause of each, in their order
	}{
		"a GPU that is lost, and its error that comes late": {
			func(h *hardware) {
				h.breakIt(lostGPUs(3))
				h.run(4 * time.Minute)
				h.falls(xidOn("GPU-3", 79, ""), xidOn("GPU-3", 154, "Node Reboot Required"), xidOn("GPU-5", 154, "Node Reboot Required"))
				h.run(10 * time.Minute)
			}, rules.IDXid, "xid_79", rules.Page, []string{"xid xid_79", "gpu_lost gone"},
		},
		"a link that loses packets until the GPU is lost": {
			func(h *hardware) {
				h.breakIt(h.growing(metric.PCIeReplays, 0, 40, 3))
				h.run(6 * time.Minute)
				h.falls(xidOn("GPU-3", 79, ""))
				h.breakIt(lostGPUs(3))
				h.run(10 * time.Minute)
			}, rules.IDXid, "xid_79", rules.Page, []string{"xid xid_79", "pcie_link replays"},
		},
		"memory that fails": {
			func(h *hardware) {
				h.falls(xidOn("GPU-3", 63, ""), xidOn("GPU-3", 94, ""), xidOn("GPU-3", 48, ""))
				h.breakIt(of(metric.ECCErrors, 1, 1, 3))
				h.breakIt(of(metric.RemapPending, 0, 1, 3))
				h.run(10 * time.Minute)
			}, rules.IDXid, "xid_48", rules.Page,
			[]string{"xid xid_48", "gpu_memory_errors uncorrected", "gpu_memory_errors reset_needed", "xid xid_63", "xid xid_94"},
		},
		"memory whose reset is seen before its error": {
			func(h *hardware) {
				h.breakIt(of(metric.RemapPending, 0, 1, 3))
				h.run(3 * time.Minute)
				h.falls(xidOn("GPU-3", 95, ""))
				h.run(10 * time.Minute)
			}, rules.IDXid, "xid_95", rules.Page, []string{"xid xid_95", "gpu_memory_errors reset_needed"},
		},
		"a switch that fails under the links of two GPUs": {
			func(h *hardware) {
				h.falls(xidOn("GPU-3", 74, ""), xidOn("GPU-4", 74, ""),
					collector.Event{Kind: collector.SXidEvent, Code: 20034, PCI: "0000:47:00.0", Fatal: true, Text: "link 21"})
				h.breakIt(of(metric.NVLinksUp, 0, 16, 3, 4))
				h.run(10 * time.Minute)
			}, rules.IDSXid, "fatal", rules.Page,
			[]string{"sxid fatal", "xid xid_74", "xid xid_74", "nvlink links_down", "nvlink links_down"},
		},
		"a firmware that hangs until the GPU does": {
			func(h *hardware) {
				h.breakIt(of(metric.GPUSlowdown, 0, 8, 3))
				h.run(11 * time.Minute)
				h.falls(xidOn("GPU-3", 119, ""))
				h.run(time.Minute)
				h.breakIt(func(s *collector.Snapshot) { s.GPUs[3].Hung = true })
				h.run(5 * time.Minute)
			}, rules.IDXid, "xid_119", rules.Page, nil,
		},
		"a node whose GPUs all fall silent, and whose errors come late": {
			func(h *hardware) {
				h.breakIt(lostGPUs(all8...))
				h.run(4 * time.Minute)
				for _, i := range all8 {
					h.falls(xidOn("GPU-"+string(rune('0'+i)), 79, ""))
				}
				h.run(10 * time.Minute)
			}, rules.IDXid, "xid_79", rules.Page, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps(t, func(t *testing.T, h *hardware) {
				h.habit()
				c.play(h)
				in := h.only(c.rule, c.cause)
				if in.Severity != c.severity || in.State != Firing {
					t.Errorf("it is %s and %s, want %s and firing", in.Severity, in.State, c.severity)
				}
				var got []string
				for _, m := range in.Members {
					got = append(got, string(m.Rule)+" "+m.Cause)
				}
				if c.members != nil && !slices.Equal(got, c.members) {
					t.Errorf("its members are %q, want %q", got, c.members)
				}
				opened := h.incidents()[0].ID
				h.restart()
				h.run(2 * time.Minute)
				if now := h.incidents(); len(now) != 1 || now[0].ID != opened {
					t.Errorf("after a restart of the agent: %s, want the one incident", describe(now))
				}
			})
		})
	}
}

// What is on another GPU, or an hour away, is another fault.
func TestDifferentFaultsStayApart(t *testing.T) {
	for name, play := range map[string]func(h *hardware){
		"on another GPU": func(h *hardware) {
			h.falls(xidOn("GPU-3", 48, ""))
			h.breakIt(of(metric.RemapPending, 0, 1, 4))
		},
		"another kind of fault": func(h *hardware) {
			h.falls(xidOn("GPU-3", 48, ""))
			h.breakIt(of(metric.NVLinksUp, 0, 17, 3))
		},
		"an hour later": func(h *hardware) {
			h.breakIt(of(metric.RemapPending, 0, 1, 3))
			h.run(time.Hour)
			h.falls(xidOn("GPU-3", 48, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHardware(t, time.Second)
			h.habit()
			play(h)
			h.run(5 * time.Minute)
			if ins := h.incidents(); len(ins) != 2 {
				t.Errorf("told %s, want two incidents", describe(ins))
			}
		})
	}
}

// When what heads an incident is over, it is about what still is wrong.
func TestIncidentIsAboutWhatStillIsWrong(t *testing.T) {
	h := newHardware(t, time.Second)
	h.habit()
	h.falls(xidOn("GPU-3", 48, ""))
	h.breakIt(of(metric.RemapPending, 0, 1, 3))
	h.run(10 * time.Minute)
	h.only(rules.IDXid, "xid_48")
	h.run(10 * time.Minute)
	in := h.only(rules.IDGPUMemory, "reset_needed")
	if in.State != Firing || in.Members[0].State != Firing || in.Members[1].State != Resolved {
		t.Errorf("20 minutes after the error: %s, want the reset that is still needed first", describe([]Incident{in}))
	}
	h.mend()
	h.run(20 * time.Minute)
	if in := h.incidents()[0]; in.State != Resolved {
		t.Errorf("after the reset it is %s", in.State)
	}
}

func TestChainsOfTheBookNameWhatExists(t *testing.T) {
	causes := map[rules.ID][]string{
		rules.IDSXid:         {"fatal", "non_fatal"},
		rules.IDUnresponsive: {causeSlowCalls, causeRestarts, causeFabric},
	}
	for _, r := range slowdownReasons {
		causes[rules.IDThrottledGPU] = append(causes[rules.IDThrottledGPU], r.cause)
	}
	for code := 1; code < 180; code++ {
		causes[rules.IDXid] = append(causes[rules.IDXid], rules.XidCause(code))
	}
	for _, c := range rules.Chains() {
		for _, equals := range c.Links {
			for _, l := range equals {
				for _, cause := range l.Causes {
					if !slices.Contains(causes[l.Rule], cause) {
						t.Errorf("the chain of %s names cause %q of rule %s, which no detector gives", c.Name, cause, l.Rule)
					}
				}
			}
		}
	}
}
