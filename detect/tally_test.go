package detect

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// tallied plays a counter for so many days, one reading a minute, and returns how often
// its score went over the threshold.
func tallied(y *tally, days int, value *float64, grow func(minute int) float64) (alarms int) {
	at := y.At
	if at.IsZero() {
		at = day
	}
	over := false
	for m := range days * 24 * 60 {
		at = at.Add(time.Minute)
		*value += grow(m)
		y.add(at, *value)
		events, _, _ := y.hour()
		is := events >= minReplays && tallyScore(y.surprise()) >= 1
		if is && !over {
			alarms++
		}
		over = is
	}
	return alarms
}

// What a healthy link or memory does in a year: errors at any rate, alone or in bursts
// in one minute, as a cell that is hit again and again gives.
func TestTallyOfHealthyCountersIsSilent(t *testing.T) {
	for name, grow := range map[string]func(r *rand.Rand) func(int) float64{
		"none":          func(*rand.Rand) func(int) float64 { return func(int) float64 { return 0 } },
		"ten a day":     func(r *rand.Rand) func(int) float64 { return distuvPoisson(r, 10.0/1440) },
		"thirty a hour": func(r *rand.Rand) func(int) float64 { return distuvPoisson(r, 0.5) },
		"ten a minute":  func(r *rand.Rand) func(int) float64 { return distuvPoisson(r, 10) },
		"a burst of hundreds each day": func(r *rand.Rand) func(int) float64 {
			return func(int) float64 {
				if r.Float64() < 1.0/1440 {
					return 50 + math.Floor(r.Float64()*500)
				}
				return 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			alarms := 0
			for seed := range uint64(10) {
				r := rand.New(rand.NewPCG(seed, 9))
				var y tally
				value := 0.0
				alarms += tallied(&y, 36, &value, grow(r))
			}
			if alarms > 0 {
				t.Errorf("%d alarms in a year of a healthy counter, want none", alarms)
			}
		})
	}
}

func distuvPoisson(r *rand.Rand, mean float64) func(int) float64 {
	p := distuv.Poisson{Lambda: mean, Src: r}
	return func(int) float64 { return p.Rand() }
}

// Ten times the usual rate is found within the hour, wherever the habit is.
func TestTallyFindsTenTimesTheUsual(t *testing.T) {
	for name, usual := range map[string]float64{"ten a day": 10.0 / 1440, "six an hour": 0.1, "thirty an hour": 0.5, "ten a minute": 10} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 10))
				var y tally
				value := 0.0
				tallied(&y, 3, &value, distuvPoisson(r, usual))
				more := distuvPoisson(r, max(usual*10, 1))
				found := false
				for m := 0; m < 60 && !found; m++ {
					value += more(m)
					y.add(y.At.Add(time.Minute), value)
					events, _, _ := y.hour()
					found = events >= minReplays && tallyScore(y.surprise()) >= 1
				}
				if !found {
					e, a, m := y.hour()
					t.Errorf("seed %d: after an hour at ten times %g a minute (%g errors in %g of %g minutes) it is not found: %g nats", seed, usual, e, a, m, y.surprise())
				}
			}
		})
	}
}

// A fault that lasts is not usual three days later.
func TestTallyOfAFaultThatLasts(t *testing.T) {
	for name, usual := range map[string]float64{"never before": 0, "six an hour": 0.1} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 12))
			var y tally
			value := 0.0
			if usual > 0 {
				tallied(&y, 3, &value, distuvPoisson(r, usual))
			} else {
				tallied(&y, 3, &value, func(int) float64 { return 0 })
			}
			tallied(&y, 3, &value, distuvPoisson(r, 5))
			if s := tallyScore(y.surprise()); s < 1 {
				t.Errorf("after three days of 5 errors a minute the score is %g: the fault has become what is usual", s)
			}
		})
	}
}

// A counter that begins anew, a gap and a young counter tell nothing of a rise.
func TestTallyOfGapsAndResets(t *testing.T) {
	quiet := func(int) float64 { return 0 }
	var y tally
	value := 1000.0
	tallied(&y, 2, &value, quiet)
	if grew := y.add(y.At.Add(time.Minute), 3); grew != 0 {
		t.Errorf("a counter that began anew at 3 grew by %g", grew)
	}
	if grew := y.add(y.At.Add(time.Hour), 500); grew != 0 {
		t.Errorf("what fell in an hour in which nobody looked counts as %g", grew)
	}
	if e, _, m := y.hour(); e != 0 || m != 1 {
		t.Errorf("after an hour in which nobody looked the window has %g errors in %g minutes, want none in one", e, m)
	}
	if grew := y.add(y.At.Add(time.Minute), math.NaN()); grew != 0 {
		t.Errorf("a reading that is absent counts as %g", grew)
	}
	var young tally
	v := 0.0
	if n := tallied(&young, 1, &v, func(m int) float64 { return 5 }); n != 0 {
		t.Errorf("a counter that was first seen today raised %d alarms: its habit is not known", n)
	}
}

// The memory of a tally is all of it.
func TestTallyIsTheSameAfterARestart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var y tally
	value := 0.0
	tallied(&y, 3, &value, distuvPoisson(r, 0.3))
	data, err := json.Marshal(&y)
	if err != nil {
		t.Fatal(err)
	}
	var back tally
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	for m := range 90 {
		at := y.At.Add(time.Minute)
		value += float64(m % 7)
		y.add(at, value)
		back.add(at, value)
		if a, b := y.surprise(), back.surprise(); a != b {
			t.Fatalf("%d minutes after the restart it is %g nats, without a restart %g", m, b, a)
		}
	}
}

// On the first day the peers stand for what is usual.
func TestYoungCounterIsHeldAgainstItsPeers(t *testing.T) {
	h := newHardware(t, time.Second)
	h.run(5 * time.Minute)
	h.breakIt(h.growing(metric.PCIeReplays, 0, 40, 3))
	h.run(6 * time.Minute)
	in := h.only(rules.IDPCIeLink, "replays")
	if e := in.Members[0].Evidence; e.Confidence != Young || e.Expected != "as few as its peers on the node have" {
		t.Errorf("a counter that is minutes old is %s, expected %q", e.Confidence, e.Expected)
	}
	h = newHardware(t, time.Second)
	h.breakIt(func(s *collector.Snapshot) {
		s.GPUs = s.GPUs[:3]
		s.Node.Set(metric.GPUsSeen, 3)
	})
	h.breakIt(h.growing(metric.PCIeReplays, 0, 40, 2))
	h.run(30 * time.Minute)
	h.silent("a counter of which nobody knows what is usual")
}

// Healthy counters of a node do not stand out from each other on their first day.
func TestYoungHealthyCountersAreSilent(t *testing.T) {
	for name, grow := range map[string]func(r *rand.Rand) func(int) float64{
		"thirty an hour": func(r *rand.Rand) func(int) float64 { return distuvPoisson(r, 0.5) },
		"bursts": func(r *rand.Rand) func(int) float64 {
			return func(int) float64 {
				if r.Float64() < 1.0/200 {
					return 30
				}
				return 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			alarms := 0
			for seed := range uint64(10) {
				grows := grow(rand.New(rand.NewPCG(seed, 11)))
				var node [8]tally
				var values [8]float64
				for m := range 23 * 60 {
					var p tallyPeers
					for i := range node {
						values[i] += grows(m)
						node[i].add(day.Add(time.Duration(m)*time.Minute), values[i])
						p.add(&node[i])
					}
					for i := range node {
						events, _, _ := node[i].hour()
						nats, young := node[i].among(p)
						if !young {
							t.Fatal("a counter of less than a day is not young")
						}
						if events >= minReplays && tallyScore(nats) >= 1 {
							alarms++
						}
					}
				}
			}
			if alarms > 0 {
				t.Errorf("%d alarms on the first day of 80 healthy counters", alarms)
			}
		})
	}
}
