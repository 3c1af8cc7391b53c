package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// counted adds what the driver counts of a reason on GPU 0: so much of each second.
func counted(name string, share float64) func(*collector.Snapshot) {
	return func(s *collector.Snapshot) {
		for i := range s.GPUs {
			for r := range metric.HeldReason.Values {
				s.GPUs[i].SetAt(metric.ClockHeld, r, 0)
			}
		}
		s.GPUs[0].SetAt(metric.ClockHeld, metric.HeldReason.Index(name), share*s.Time.Sub(day).Seconds())
	}
}

func TestThrottledGPU(t *testing.T) {
	slow := func(s *collector.Snapshot) { s.GPUs[0].SetAt(metric.Clock, 1, 1500e6*0.9) }
	for name, c := range map[string]struct {
		also     func(*collector.Snapshot)
		cause    string
		severity rules.Severity
		seen     string
	}{
		"hardware slowdown":                    {reason("hw_slowdown", 0.1), "hw_slowdown", rules.Ticket, "a hardware slowdown held the clocks for"},
		"its own thermal protection":           {reason("hw_thermal", 0.1), "hw_thermal", rules.Ticket, "its thermal protection"},
		"power brake":                          {reason("hw_power_brake", 0.1), "hw_power_brake", rules.Ticket, "the power brake"},
		"power brake that only its time shows": {counted("hw_power_brake", 0.02), "hw_power_brake", rules.Ticket, "2 % of the last ten minutes"},
		"heat, by the driver":                  {counted("sw_thermal", 0.08), "sw_thermal", rules.Ticket, "the driver's thermal policy"},
		"slower than its peers":                {slow, "slow_clock", rules.Ticket, "clock 1350 MHz at the load of 7 peers with 1500 MHz (median), 10 % slower"},
		"limit that somebody lowered": {func(s *collector.Snapshot) { s.GPUs[0].Set(metric.PowerLimit, 600) }, "low_limit", rules.Info,
			"the enforced power limit is 600 W, the board's own is 700 W"},
	} {
		for _, step := range paces {
			t.Run(name+" at "+step.String(), func(t *testing.T) {
				st := newStage(t, DetectorConfig{}, step)
				work := atWork()
				work.watts = 560
				work.also = c.also
				st.play(&work, 25*time.Minute)
				f := st.fires(rules.IDThrottledGPU)
				if f.Cause != c.cause || f.Severity != c.severity || !strings.Contains(f.Evidence.Seen, c.seen) {
					t.Errorf("told as %s of %s: %s; want %s of %s: …%s…", f.Severity, f.Cause, f.Evidence.Seen, c.severity, c.cause, c.seen)
				}
				for _, g := range st.e.View().Findings {
					if g.Rule == rules.IDThrottledGPU && g.Subject == f.Subject && g.Cause != c.cause {
						t.Errorf("there is another finding of the same GPU: %s", g.Cause)
					}
				}
				work.also = nil
				st.play(&work, 25*time.Minute)
				if f := st.finding(rules.IDThrottledGPU, "gpu:GPU-0"); f.State != Resolved {
					t.Errorf("25 minutes after it was over it is %s", f.State)
				}
			})
		}
	}
}

func TestThrottledLookAlikes(t *testing.T) {
	for name, f := range map[string]func(c *scene){
		"software power cap at full power":   func(c *scene) { c.watts, c.also = 699, reason("sw_power_cap", 1) },
		"software power cap that is counted": func(c *scene) { c.watts, c.also = 699, counted("sw_power_cap", 1) },
		"a little heat":                      func(c *scene) { c.also = counted("sw_thermal", 0.03) },
		"an instant of the brake":            func(c *scene) { c.also = counted("hw_power_brake", 0.005) },
		"one reading of a slowdown": func(c *scene) {
			c.also = func(s *collector.Snapshot) {
				if s.Time.Equal(day.Add(10 * time.Minute)) {
					reason("hw_slowdown", 1)(s)
				}
			}
		},
		"reasons of a GPU that does nothing": func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.also = 0, 0, 0, 71, reason("hw_slowdown", 1) },
		"slower at more power": func(c *scene) {
			c.watts = 560
			c.also = func(s *collector.Snapshot) {
				s.GPUs[0].SetAt(metric.Clock, 1, 1350e6)
				s.GPUs[0].Set(metric.PowerDraw, 650)
			}
		},
		"slower at another load": func(c *scene) {
			c.also = func(s *collector.Snapshot) {
				s.GPUs[0].SetAt(metric.Clock, 1, 1350e6)
				s.GPUs[0].Set(metric.SMActivity, 0.5)
			}
		},
		"slower for another owner": func(c *scene) {
			c.also = func(s *collector.Snapshot) {
				s.GPUs[0].SetAt(metric.Clock, 1, 1350e6)
				s.GPUs[0].Owners = []collector.Owner{pod}
			}
		},
		"another model": func(c *scene) {
			c.also = func(s *collector.Snapshot) {
				s.GPUs[0].SetAt(metric.Clock, 1, 1350e6)
				s.GPUs[0].Model = "A100"
			}
		},
		"seven per cent slower":       func(c *scene) { c.also = func(s *collector.Snapshot) { s.GPUs[0].SetAt(metric.Clock, 1, 1500e6*0.93) } },
		"limit that is not told":      func(c *scene) { c.board = nan },
		"limit above the board's own": func(c *scene) { c.board = 650 },
	} {
		for _, step := range paces {
			t.Run(name+" at "+step.String(), func(t *testing.T) {
				st := newStage(t, DetectorConfig{}, step)
				work := atWork()
				if step == time.Second {
					work.gpus = 4
				}
				f(&work)
				st.play(&work, 25*time.Minute)
				for _, in := range st.told {
					if in.Rule == rules.IDThrottledGPU {
						t.Errorf("told %s: %s", in.Cause, in.Members[0].Evidence.Seen)
					}
				}
			})
		}
	}
}

func TestLimitsThatAreDeclared(t *testing.T) {
	for watts, want := range map[float64]State{500: "", 500.4: "", 600: Firing, 700: ""} {
		st := newStage(t, DetectorConfig{Throttled: ThrottledConfig{PowerLimits: []float64{350, 500}}}, 15*time.Second)
		st.set = func(s *collector.Snapshot) {
			s.GPUs[0].Set(metric.PowerLimit, watts)
			s.GPUs[0].Set(metric.PowerDefaultLimit, 700)
		}
		st.run(10 * time.Minute)
		got := State("")
		for _, f := range st.e.View().Findings {
			if f.Cause == causeLowLimit && f.State == Firing {
				if got = f.State; f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Expected, "declares") {
					t.Errorf("a limit that nobody declared is a %s that expects %s", f.Severity, f.Evidence.Expected)
				}
			}
		}
		if got != want {
			t.Errorf("a limit of %v W where 350 and 500 are declared: state %q, want %q", watts, got, want)
		}
	}
}
