package detect

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// drawing is a node of eight GPUs of one job: work, clock and power of each.
func drawing(change func(i int, h float64, g *collector.GPU)) func(*collector.Snapshot) {
	o := newOven(8)
	return func(s *collector.Snapshot) {
		o.set(s)
		h := hoursSince(day, s.Time)
		for i := range s.GPUs {
			g := &s.GPUs[i]
			g.Owners = []collector.Owner{slurmJob}
			g.Set(metric.Utilization, 0.99)
			g.Set(metric.SMActivity, 0.9+0.01*unsteady(s.Time, 40+i))
			g.Set(metric.TensorActivity, 0.5)
			g.SetAt(metric.Clock, smClock, 1.755e9)
			g.Set(metric.MemoryUsed, 60*oneGiB)
			change(i, h, g)
		}
	}
}

// times makes a GPU draw so much of what it would.
func times(g *collector.GPU, factor float64) {
	g.Set(metric.PowerDraw, factor*g.Value(metric.PowerDraw))
}

func drawFindings(e *Engine) (all []Finding) {
	for _, f := range e.View().Findings {
		if f.Cause == powerAbovePeers || f.Cause == powerBelowPeers {
			all = append(all, f)
		}
	}
	return all
}

func TestPowerThatLeavesThePeers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(i int, h float64, g *collector.GPU)
		cause  string
		seen   string
	}{
		"ever more": {func(i int, h float64, g *collector.GPU) {
			if i == 3 {
				times(g, 0.85*(1+0.02*min(max(h-6, 0), 7)))
			}
		}, powerAbovePeers, "7 peers of its model and holder draw "},
		"a sixth less": {func(i int, h float64, g *collector.GPU) {
			if i == 3 && h > 6 {
				times(g, 0.84)
			}
		}, powerBelowPeers, "at the same activity ("},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{15 * time.Second, time.Minute} {
				st := newStage(t, DetectorConfig{}, step)
				st.set = drawing(c.change)
				st.run(6 * time.Hour)
				st.silent("before anything was wrong")
				st.run(time.Hour)
				st.restart()
				st.run(7 * time.Hour)
				all := drawFindings(st.e)
				if len(all) == 0 {
					t.Fatalf("sampled every %s: no finding", step)
				}
				for _, f := range all {
					if f.Cause != c.cause || f.Subject.ID != "GPU-3" || f.Severity != rules.Info || f.State != Firing || !strings.Contains(f.Evidence.Seen, c.seen) {
						t.Errorf("a %s %s of %s, %s: %s; want information, %s of GPU-3", f.State, f.Severity, f.Subject, f.Cause, f.Evidence.Seen, c.cause)
					}
				}
			}
		})
	}
}

func TestPowerLookAlikes(t *testing.T) {
	for name, change := range map[string]func(i int, h float64, g *collector.GPU){
		"one that has always drawn more": func(i int, _ float64, g *collector.GPU) {
			if i == 3 {
				times(g, 1.15)
			}
		},
		"one whose clock is held down": func(i int, h float64, g *collector.GPU) {
			if i == 3 && h > 6 {
				times(g, 0.8)
				g.SetAt(metric.Clock, smClock, 1.5e9)
			}
		},
		"one that computes for longer than the others": func(i int, h float64, g *collector.GPU) {
			if i == 3 && h > 6 {
				times(g, 1.08)
				g.Set(metric.SMActivity, 0.98)
			}
		},
		"another work": func(i int, h float64, g *collector.GPU) {
			if i == 3 && h > 6 {
				times(g, 0.75)
				g.Set(metric.TensorActivity, 0.2)
			}
		},
		"a limit of its own": func(i int, h float64, g *collector.GPU) {
			if i == 3 && h > 6 {
				times(g, 0.8)
				g.Set(metric.PowerLimit, 0.8*g.Value(metric.PowerLimit))
			}
		},
		"a job of other roles in its place": func(i int, h float64, g *collector.GPU) {
			g.Owners = []collector.Owner{{Kind: "job", ID: fmt.Sprintf("slurm/%d", int(h/4)), Team: "nlp"}}
			times(g, 1-0.03*math.Mod(float64(i)+math.Floor(h/4), 6))
		},
		"all of them": func(_ int, h float64, g *collector.GPU) {
			if h > 6 {
				times(g, 0.8)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, time.Minute)
			st.set = drawing(change)
			st.run(16 * time.Hour)
			for _, f := range drawFindings(st.e) {
				t.Errorf("%s: %s of %s: %s", name, f.Cause, f.Subject, f.Evidence.Seen)
			}
		})
	}
}
