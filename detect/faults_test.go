package detect

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// hardwareFaults are the smallest faults of each cause that must be found.
var hardwareFaults = map[string]struct {
	breaks   func(h *hardware) func(s *collector.Snapshot)
	within   time.Duration
	rule     rules.ID
	cause    string
	subject  string
	severity rules.Severity
	seen     string // at the shortest step
}{
	"a row that cannot be replaced": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.RemapFailed, 0, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "remap_failed", "gpu:GPU-3", rules.Ticket, "a memory row failed and could not be replaced by a spare one",
	},
	"on-chip memory at the vendor's limit": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.SRAMThreshold, 0, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "sram_threshold", "gpu:GPU-3", rules.Ticket, "on-chip memory (SRAM) has had as many uncorrected errors as the vendor replaces the board for",
	},
	"one uncorrected error": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.ECCErrors, 1, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "uncorrected", "gpu:GPU-3", rules.Ticket, "1 uncorrected memory error since 03:02:01 UTC",
	},
	"one uncorrected error on the chip": {
		func(*hardware) func(*collector.Snapshot) {
			return func(s *collector.Snapshot) {
				of(metric.ECCErrors, 1, 1, 3)(s)
				of(metric.ECCUncorrected, 1, 1, 3)(s)
			}
		}, time.Minute,
		rules.IDGPUMemory, "uncorrected", "gpu:GPU-3", rules.Ticket, "1 uncorrected memory error since 03:02:01 UTC, 1 of them in on-chip memory",
	},
	"a row that waits for a reset": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.RemapPending, 0, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "reset_needed", "gpu:GPU-3", rules.Ticket, "a memory row failed and is replaced by the next reset, seen since 03:02:01 UTC",
	},
	"a bank that waits for a reset": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.BankRemapPending, 0, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "reset_needed", "gpu:GPU-3", rules.Ticket, "a memory bank failed and is replaced by the next reset, seen since 03:02:01 UTC",
	},
	"a bank without spare rows": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.RemapHistogram, 4, 1, 3) }, time.Minute,
		rules.IDGPUMemory, "no_spares", "gpu:GPU-3", rules.Ticket, "1 memory bank has no spare row left, 0 few",
	},
	"a bank with few spare rows": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.RemapHistogram, 3, 2, 3) }, time.Minute,
		rules.IDGPUMemory, "no_spares", "gpu:GPU-3", rules.Info, "2 memory banks are left with few spare rows",
	},
	"five corrected errors a minute": {
		func(h *hardware) func(*collector.Snapshot) { return h.growing(metric.ECCErrors, 0, 5, 3) }, 8 * time.Minute,
		rules.IDGPUMemory, "corrected_often", "gpu:GPU-3", rules.Ticket, "",
	},
	"half of the lanes": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.PCIeWidth, 0, 8, 3) }, 12 * time.Minute,
		rules.IDPCIeLink, "narrow", "gpu:GPU-3", rules.Ticket, "PCIe link of 8 lanes under load since 03:02:02 UTC",
	},
	"one generation less": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.PCIeGeneration, 0, 4, 3) }, 12 * time.Minute,
		rules.IDPCIeLink, "slow", "gpu:GPU-3", rules.Ticket, "PCIe link of generation 4 under load since 03:02:02 UTC",
	},
	"half of the lanes on a board that tells no maximum": {
		func(*hardware) func(*collector.Snapshot) {
			return func(s *collector.Snapshot) {
				of(metric.PCIeMaxWidth, 0, 0, all8...)(s) // implausible, so absent
				of(metric.PCIeWidth, 0, 8, 3)(s)
			}
		}, 12 * time.Minute,
		rules.IDPCIeLink, "narrow", "gpu:GPU-3", rules.Ticket, "PCIe link of 8 lanes under load since 03:02:02 UTC",
	},
	"five replays a minute": {
		func(h *hardware) func(*collector.Snapshot) { return h.growing(metric.PCIeReplays, 0, 5, 3) }, 8 * time.Minute,
		rules.IDPCIeLink, "replays", "gpu:GPU-3", rules.Ticket, "",
	},
	"one link down": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.NVLinksUp, 0, 17, 3) }, 4 * time.Minute,
		rules.IDNVLink, "links_down", "gpu:GPU-3", rules.Ticket, "17 of 18 NVLinks are up since 03:02:01 UTC",
	},
	"a fabric that is unhealthy": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.FabricHealth, 0, 2, 3) }, 4 * time.Minute,
		rules.IDNVLink, "fabric_health", "gpu:GPU-3", rules.Ticket, "the driver calls the GPU's access to the NVLink fabric unhealthy",
	},
	"one recovery that failed": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.NVLink5Errors, 3, 1, 3) }, 4 * time.Minute,
		rules.IDNVLink, "recovery_failed", "gpu:GPU-3", rules.Ticket, "1 NVLink went to recovery and did not come back, the last at 03:02:01 UTC",
	},
	"five link replays a minute": {
		func(h *hardware) func(*collector.Snapshot) { return h.growing(metric.NVLinkErrors, 2, 5, 3) }, 10 * time.Minute,
		rules.IDNVLink, "link_errors", "gpu:GPU-3", rules.Ticket, "",
	},
	"a port that goes down": {
		func(*hardware) func(*collector.Snapshot) {
			return func(s *collector.Snapshot) {
				n := &s.Interfaces[2]
				n.State, n.PhysicalState = "DOWN", "Polling"
				n.Set(metric.InterfaceUp, 0)
			}
		}, 4 * time.Minute,
		rules.IDNetworkPort, "down", "interface:mlx5_2/1", rules.Ticket,
		"port mlx5_2/1 (InfiniBand) has been DOWN, Polling, since 03:02:01 UTC; 3 of 4 ports of the node are up",
	},
	"a port that loses its link three times": {
		func(h *hardware) func(*collector.Snapshot) {
			began := h.now
			return func(s *collector.Snapshot) {
				s.Interfaces[2].Set(metric.InterfaceLinkDowned, min(3, 1+float64(int(s.Time.Sub(began)/(5*time.Minute)))))
			}
		}, 15 * time.Minute,
		rules.IDNetworkPort, "flaps", "interface:mlx5_2/1", rules.Ticket, "",
	},
	"a port with five errors a minute": {
		func(h *hardware) func(*collector.Snapshot) {
			began := h.now
			return func(s *collector.Snapshot) {
				s.Interfaces[2].Set(metric.InterfaceErrors, float64(int(5*s.Time.Sub(began).Minutes())))
			}
		}, 10 * time.Minute,
		rules.IDNetworkPort, "errors", "interface:mlx5_2/1", rules.Ticket, "",
	},
	"a driver that is slow for one GPU": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.GPUSlowdown, 0, 4, 3) }, 12 * time.Minute,
		rules.IDUnresponsive, "slow_calls", "gpu:GPU-3", rules.Ticket,
		"calls into the driver take so long that the GPU is sampled 4 times less often than configured, since 03:02:01 UTC",
	},
	"a fabric manager that does not run": {
		func(*hardware) func(*collector.Snapshot) { return of(metric.FabricState, 0, 1, all8...) }, 12 * time.Minute,
		rules.IDUnresponsive, "fabric", "node:n1", rules.Ticket, "8 of 8 GPUs wait to join the NVLink fabric since 03:02:01 UTC",
	},
	"three restarts of what asks the driver": {
		func(h *hardware) func(*collector.Snapshot) {
			began := h.now
			return func(s *collector.Snapshot) {
				if m := s.Time.Sub(began).Truncate(h.step); m > 0 && m <= 30*time.Minute && m%(10*time.Minute) == 0 {
					s.Events = append(s.Events, collector.Event{Time: s.Time, Kind: collector.ChildRestart, Text: "init_hung: the driver's initialisation hangs"})
				}
			}
		}, 31 * time.Minute,
		rules.IDUnresponsive, "restarts", "node:n1", rules.Ticket,
		"the process that asks the driver was restarted 3 times since 03:12:00 UTC; the last time at 03:32:00 UTC because the driver's initialisation hung",
	},
}

func TestHardwareFaultsAreFound(t *testing.T) {
	for name, c := range hardwareFaults {
		t.Run(name, func(t *testing.T) {
			steps(t, func(t *testing.T, h *hardware) {
				h.habit()
				h.breakIt(c.breaks(h))
				h.run(c.within)
				in := h.only(c.rule, c.cause)
				f := &in.Members[0]
				if len(in.Members) != 1 || f.Subject.String() != c.subject || in.Severity != c.severity {
					t.Errorf("told %s, want one %s about %s", describe(h.incidents()), c.severity, c.subject)
				}
				if f.Evidence.Seen == "" || f.Evidence.Expected == "" || f.Evidence.Title == "" || f.Evidence.Action == "" || f.Evidence.Why == "" {
					t.Errorf("a part of the evidence is missing: %+v", f.Evidence)
				}
				if c.seen != "" && h.step == time.Second && f.Evidence.Seen != c.seen {
					t.Errorf("seen:\n got %s\nwant %s", f.Evidence.Seen, c.seen)
				}
				h.restart()
				h.run(2 * time.Minute)
				h.only(c.rule, c.cause)
			})
		})
	}
}

// What looks like a fault and is none.
func TestLookAlikesOfHardwareFaultsAreSilent(t *testing.T) {
	for name, breaks := range map[string]func(h *hardware) func(s *collector.Snapshot){
		"rows that were replaced": func(*hardware) func(*collector.Snapshot) {
			return func(s *collector.Snapshot) {
				of(metric.RemappedRows, 0, 2, 3)(s)
				of(metric.RemappedRows, 1, 1, 3)(s)
				of(metric.RemapHistogram, 1, 3, 3)(s)
			}
		},
		"one corrected error":          func(*hardware) func(*collector.Snapshot) { return of(metric.ECCErrors, 0, 1, 3) },
		"a burst of corrected errors":  func(*hardware) func(*collector.Snapshot) { return of(metric.ECCErrors, 0, 400, 3) },
		"a burst of replays":           func(*hardware) func(*collector.Snapshot) { return of(metric.PCIeReplays, 0, 60, 3) },
		"replays on all GPUs at once":  func(h *hardware) func(*collector.Snapshot) { return h.growing(metric.PCIeReplays, 0, 5, all8...) },
		"an idle link that steps down": func(*hardware) func(*collector.Snapshot) { return idleLink(1, 16) },
		"symbols that are mended":      func(h *hardware) func(*collector.Snapshot) { return h.growing(metric.NVLink5Errors, 1, 5000, 3) },
		"MIG is switched on":           func(*hardware) func(*collector.Snapshot) { return migOn },
		"a port that is disabled":      func(*hardware) func(*collector.Snapshot) { return portDown("Disabled", 2) },
		"a slow start of one call": func(h *hardware) func(*collector.Snapshot) {
			return during(h, 5*time.Minute, of(metric.GPUSlowdown, 0, 8, 3))
		},
		"a fabric that is set up anew": func(h *hardware) func(*collector.Snapshot) {
			return during(h, 3*time.Minute, of(metric.FabricState, 0, 2, all8...))
		},
		"GPUs that are reset":             func(h *hardware) func(*collector.Snapshot) { return during(h, 90*time.Second, lostGPUs(2, 3, 4, 5)) },
		"a driver without these counters": func(*hardware) func(*collector.Snapshot) { return tellsLittle },
		"a node that is drained": func(*hardware) func(*collector.Snapshot) {
			return func(s *collector.Snapshot) {
				idleLink(1, 16)(s)
				for i := range s.GPUs {
					s.GPUs[i].Owners = nil
				}
			}
		},
		"the driver is replaced on a drained node":   func(h *hardware) func(*collector.Snapshot) { return upgraded(h) },
		"the driver is released":                     func(h *hardware) func(*collector.Snapshot) { return during(h, 90*time.Minute, driverGone(true, true)) },
		"the exporter or child restarts":             func(h *hardware) func(*collector.Snapshot) { return during(h, 4*time.Minute, driverGone(true, false)) },
		"counters begin anew with the driver":        func(h *hardware) func(*collector.Snapshot) { return during(h, time.Minute, driverGone(false, false)) },
		"links that were switched off with a reload": func(h *hardware) func(*collector.Snapshot) { return reloadedWithoutLinks(h) },
	} {
		t.Run(name, func(t *testing.T) {
			steps(t, func(t *testing.T, h *hardware) {
				h.habit()
				h.breakIt(breaks(h))
				for range 2 { // every second for half an hour, every minute for two
					h.run(min(15*h.step*60, time.Hour))
					h.restart()
				}
				h.silent(name)
			})
		})
	}
}

// during breaks for so long only.
func during(h *hardware, d time.Duration, b func(s *collector.Snapshot)) func(s *collector.Snapshot) {
	end := h.now.Add(d)
	return func(s *collector.Snapshot) {
		if s.Time.Before(end) {
			b(s)
		}
	}
}

func idleLink(generation, width float64) func(s *collector.Snapshot) {
	return func(s *collector.Snapshot) {
		of(metric.Utilization, 0, 0, all8...)(s)
		of(metric.PCIeGeneration, 0, generation, all8...)(s)
		of(metric.PCIeWidth, 0, width, all8...)(s)
		for i := range s.GPUs {
			s.GPUs[i].Owners = nil
		}
	}
}

func migOn(s *collector.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.MIG = true
		g.Set(metric.NVLinksUp, 0)
		for _, d := range []*metric.Def{metric.Utilization, metric.RemapPending, metric.RemapFailed} {
			g.Set(d, math.NaN())
		}
	}
}

func portDown(state string, port int) func(s *collector.Snapshot) {
	return func(s *collector.Snapshot) {
		n := &s.Interfaces[port]
		n.State, n.PhysicalState = "DOWN", state
		n.Set(metric.InterfaceUp, 0)
	}
}

func tellsLittle(s *collector.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		energy, power := g.Value(metric.Energy), g.Value(metric.PowerDraw)
		g.Readings = collector.NewReadings(metric.GPU)
		for t := range metric.Tiers {
			g.Stamp(t, s.Time)
		}
		g.Set(metric.Energy, energy)
		g.Set(metric.PowerDraw, power)
	}
	s.Interfaces = nil
}

// driverGone makes nobody answer who could tell of the GPUs.
func driverGone(held, paused bool) func(s *collector.Snapshot) {
	var last time.Time
	return func(s *collector.Snapshot) {
		if last.IsZero() {
			last = s.Time
		}
		s.Node.Set(metric.GPUsSeen, math.NaN())
		for i := range s.GPUs {
			g := &s.GPUs[i]
			g.Present, g.Readings = false, collector.NewReadings(metric.GPU)
			if !held {
				g.Owners = nil
			}
		}
		s.Sources[0] = collector.SourceState{Name: "nvml", Interval: time.Second, Last: last, Err: "it does not answer", Expected: true, Paused: paused}
	}
}

// upgraded is a node that is drained, gets another driver, and is used again.
func upgraded(h *hardware) func(s *collector.Snapshot) {
	drained, gone := h.now.Add(10*time.Minute), driverGone(false, false)
	return func(s *collector.Snapshot) {
		idleLink(1, 16)(s)
		if after := s.Time.Sub(drained); after > 0 && after < 25*time.Minute {
			gone(s)
		}
	}
}

func reloadedWithoutLinks(h *hardware) func(s *collector.Snapshot) {
	gone, end := driverGone(false, true), h.now.Add(2*time.Minute)
	return func(s *collector.Snapshot) {
		if s.Time.Before(end) {
			gone(s)
			return
		}
		of(metric.NVLinksUp, 0, 0, all8...)(s)
	}
}
