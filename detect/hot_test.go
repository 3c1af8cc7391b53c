package detect

import (
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// oven is a node of GPUs whose heat follows from what they draw, in the air of the room.
type oven struct {
	gpus  int
	start time.Time
	watts func(i int, h float64) float64        // power of GPU i, h hours after the start
	extra func(i int, h float64) (core float64) // kelvin, of GPU i alone
	air   func(h float64) float64               // degrees Celsius
	temps map[int]float64                       // as they are: heat takes minutes
	last  time.Time
}

func newOven(gpus int) *oven {
	return &oven{gpus: gpus, start: day, temps: map[int]float64{}, last: day,
		watts: func(int, float64) float64 { return 600 }, extra: func(int, float64) float64 { return 0 }, air: func(float64) float64 { return 25 }}
}

// set makes the next snapshot. Each GPU has a place in the air of its own.
func (o *oven) set(s *collector.Snapshot) {
	full := node(s.Time, o.gpus)
	s.GPUs = full.GPUs
	h := hoursSince(o.start, s.Time)
	lag := 1 - math.Exp(-s.Time.Sub(o.last).Minutes()/1.5)
	o.last = s.Time
	for i := range s.GPUs {
		g := &s.GPUs[i]
		watts := o.watts(i, h) * (1 + 0.02*unsteady(s.Time, 10+i))
		goal := o.air(h) + watts*0.06 + float64(i%4)*1.5 + o.extra(i, h)
		if _, ok := o.temps[i]; !ok {
			o.temps[i] = goal
		}
		o.temps[i] += lag * (goal - o.temps[i])
		g.Set(metric.PowerDraw, watts)
		g.Set(metric.Temperature, math.Round(o.temps[i]+0.5*unsteady(s.Time, 20+i)))
		g.Set(metric.MemoryTemperature, math.Round(o.temps[i]+10+0.5*unsteady(s.Time, 30+i)))
		g.SetAt(metric.TemperatureLimit, slowdownLimit, 95)
		g.Owners = []collector.Owner{chat}
		g.Set(metric.Utilization, 0.9)
	}
}

// after is 0 until so many hours, and then what it is.
func after(hours, x float64) func(int, float64) float64 {
	return func(i int, h float64) float64 {
		if i == 0 && h >= hours {
			return x
		}
		return 0
	}
}

func TestHotGPUIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		gpus   int
		extra  func(int, float64) float64
		within time.Duration
		cause  string
		seen   string
	}{
		"eight kelvin above seven peers":       {8, after(6, 8), 45 * time.Minute, hotterThanPeers, "hotter than its load explains, for "},
		"twelve kelvin above":                  {8, after(6, 12), 25 * time.Minute, hotterThanPeers, "of its power limit, "},
		"ten above its past, with one peer":    {2, after(6, 14), 45 * time.Minute, hotterThanUsual, "it has 1 peer to compare with"},
		"close to its slowdown from the start": {1, after(0, 32), 30 * time.Minute, nearSlowdown, "below the slowdown at 95 °C"},
		"slowly heating up":                    {2, func(i int, h float64) float64 { return float64(1-i) * (14 + 2*max(h-6, 0)) }, 5 * time.Hour, heatingUp, "at its slowdown of 95 °C in "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{15 * time.Second, time.Minute} {
				o := newOven(c.gpus)
				o.extra = c.extra
				st := newStage(t, DetectorConfig{}, step)
				st.set = o.set
				if c.cause != nearSlowdown {
					st.run(6 * time.Hour)
					st.silent("before anything was wrong")
				}
				st.run(c.within)
				var f *Finding
				for _, g := range st.e.View().Findings {
					if g.Rule == rules.IDHotGPU && g.Cause == c.cause && g.State == Firing {
						f = &g
					}
				}
				if f == nil {
					t.Fatalf("sampled every %s: not found as %s within %s; it is %+v", step, c.cause, c.within, st.finding(rules.IDHotGPU, "gpu:GPU-0"))
				}
				if f.Subject.ID != "GPU-0" || f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Seen, c.seen) {
					t.Errorf("a %s of %s: %s; want a ticket of GPU-0 with %q", f.Severity, f.Subject, f.Evidence.Seen, c.seen)
				}
				for i := 1; i < c.gpus; i++ {
					if st.firing(rules.IDHotGPU, "gpu:GPU-"+string(rune('0'+i))) {
						t.Errorf("GPU %d, which is as it was, has a finding, too", i)
					}
				}
			}
		})
	}
}

// Of a heat that all share there is one finding, of the node.
func TestHotNodeIsOneFinding(t *testing.T) {
	for _, gpus := range []int{2, 8} {
		o := newOven(gpus)
		o.air = func(h float64) float64 {
			if h >= 6 {
				return 38
			}
			return 25
		}
		st := newStage(t, DetectorConfig{}, 15*time.Second)
		st.set = o.set
		st.run(7 * time.Hour)
		f := st.finding(rules.IDHotGPU, "node:n1")
		if f == nil || f.State != Firing || f.Cause != nodeHot {
			t.Fatalf("%d GPUs, an hour after the air has become 13 K warmer: %+v", gpus, f)
		}
		for _, in := range st.told {
			if in.Rule == rules.IDHotGPU && (len(in.Members) != 1 || in.Members[0].Subject.Kind != "node") {
				t.Errorf("%d GPUs: told %s of %s, too: %s", gpus, in.Cause, in.Members[0].Subject, in.Members[0].Evidence.Seen)
			}
		}
	}
}

func TestHotGPULookAlikes(t *testing.T) {
	busy := func(on func(i int, h float64) bool) func(int, float64) float64 {
		return func(i int, h float64) float64 {
			if on(i, h) {
				return 650
			}
			return 110
		}
	}
	for name, change := range map[string]func(o *oven){
		"one that has always been hotter": func(o *oven) { o.extra = after(0, 9) },
		"one GPU at work beside seven idle ones": func(o *oven) {
			o.watts = busy(func(i int, h float64) bool { return i == 0 && h > 3 })
		},
		"a job that begins on all, and warms them up": func(o *oven) { o.watts = busy(func(_ int, h float64) bool { return h > 4 }) },
		"a nightly batch on half of them":             func(o *oven) { o.watts = busy(func(i int, h float64) bool { return i < 4 && math.Mod(h, 12) < 3 }) },
		"checkpoints every hour":                      func(o *oven) { o.watts = busy(func(_ int, h float64) bool { return math.Mod(h, 1) > 0.1 }) },
		"the course of the day in the room":           func(o *oven) { o.air = func(h float64) float64 { return 25 + 3*math.Sin(h*math.Pi/12) } },
		"each its own load":                           func(o *oven) { o.watts = func(i int, _ float64) float64 { return 150 + 70*float64(i) } },
		"load that comes and goes every few minutes": func(o *oven) {
			o.watts = func(i int, h float64) float64 { return 350 + 250*math.Sin(h*40+float64(i)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOven(8)
			change(o)
			st := newStage(t, DetectorConfig{}, time.Minute)
			st.set = o.set
			st.run(26 * time.Hour)
			st.silent(name)
		})
	}
}

func TestHotGPUThroughRestartGapAndClock(t *testing.T) {
	o := newOven(8)
	o.extra = after(6.5, 10)
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = o.set
	st.run(5 * time.Hour)
	st.restart()
	st.now = st.now.Add(time.Hour) // nobody looks
	st.run(20 * time.Minute)
	by := -3 * time.Hour
	st.set = func(s *collector.Snapshot) { s.Step, by = by, 0; o.set(s) }
	o.start = o.start.Add(by)
	st.now = st.now.Add(by)
	o.last = o.last.Add(by)
	st.run(10 * time.Minute)
	st.silent("before anything was wrong")
	st.run(35 * time.Minute)
	if !st.firing(rules.IDHotGPU, "gpu:GPU-0") {
		t.Errorf("after a restart, a gap and a step of the clock GPU 0 is %+v", st.finding(rules.IDHotGPU, "gpu:GPU-0"))
	}
	o.extra = after(0, 0)
	st.restart()
	st.run(90 * time.Minute)
	if f := st.finding(rules.IDHotGPU, "gpu:GPU-0"); f == nil || f.State != Resolved {
		t.Errorf("90 min after it has cooled down it is %+v", f)
	}
}
