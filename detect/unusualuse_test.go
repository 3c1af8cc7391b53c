package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// modelUse is what a model is asked in a second on average.
type modelUse struct {
	requests, prompt, answer, errors float64 // errors: share
	uncounted                        bool    // the server counts no requests
}

var everyday = modelUse{requests: 2, prompt: 800, answer: 200, errors: 0.002}

// clients ask a model; what they ask is added up by its server.
type clients struct {
	rng                             *rand.Rand
	at                              time.Time
	asks                            func(at time.Time) modelUse
	good, failed, prompts, answered float64
}

func newClients(asks func(time.Time) modelUse) *clients {
	return &clients{rng: rand.New(rand.NewPCG(7, 7)), asks: asks}
}

// some is a number of events with a Poisson's mean and deviation.
func (c *clients) some(mean float64) float64 {
	return math.Max(0, math.Round(mean+math.Sqrt(mean)*c.rng.NormFloat64()))
}

func (c *clients) apply(s *collector.Snapshot) {
	w := c.asks(s.Time)
	if !c.at.IsZero() && s.Time.After(c.at) {
		n := c.some(w.requests * s.Time.Sub(c.at).Seconds())
		bad := 0.0
		if n > 0 {
			bad = min(n, c.some(n*w.errors))
			c.prompts += math.Round(n * w.prompt * math.Exp(c.rng.NormFloat64()/math.Sqrt(n)))
			c.answered += math.Round(n * w.answer * math.Exp(c.rng.NormFloat64()/math.Sqrt(n)))
		}
		c.good, c.failed = c.good+n-bad, c.failed+bad
	}
	c.at = s.Time
	e := endpoint(s, "GPU-0")
	e.Set(metric.PromptTokens, c.prompts)
	e.Set(metric.GeneratedTokens, c.answered)
	if !w.uncounted {
		e.SetAt(metric.Requests, metric.Outcomes.Index("success"), c.good)
		e.SetAt(metric.Requests, metric.Outcomes.Index("error"), c.failed)
	}
}

// habitOf lets a model be used in the same way for so many days, and returns what is
// remembered of that, and when it ended.
func habitOf(t *testing.T, days int, usual func(at time.Time) modelUse) (state []byte, end time.Time) {
	t.Helper()
	st := newStage(t, DetectorConfig{}, time.Minute)
	st.set = newClients(usual).apply
	st.run(time.Duration(days) * 24 * time.Hour)
	if got := st.causes(rules.IDUnusualModelUse); got != "" {
		t.Errorf("%d days of the same use are called unusual", days)
	}
	state, err := st.e.Save()
	if err != nil {
		t.Fatal(err)
	}
	return state, st.now
}

// then lets a model of that habit be used as it is asked, after a restart of its server
// and of the agent.
func then(t *testing.T, habit []byte, from time.Time, step time.Duration, use func(at time.Time) modelUse, lasts time.Duration) *stage {
	t.Helper()
	st := newStage(t, DetectorConfig{}, step)
	st.now = from
	if err := st.e.Restore(habit); err != nil {
		t.Fatal(err)
	}
	st.set = newClients(use).apply
	st.run(lasts)
	return st
}

func alwaysUse(w modelUse) func(time.Time) modelUse { return func(time.Time) modelUse { return w } }

func TestUnusualModelUse(t *testing.T) {
	change := func(f func(*modelUse)) modelUse {
		w := everyday
		f(&w)
		return w
	}
	uncounted := change(func(w *modelUse) { w.uncounted = true })
	counted, from := habitOf(t, 5, alwaysUse(everyday))
	untold, _ := habitOf(t, 5, alwaysUse(uncounted))
	for name, c := range map[string]struct {
		habit  []byte
		then   modelUse
		within time.Duration
		says   string
	}{
		"short prompts and long answers": {counted, change(func(w *modelUse) { w.prompt, w.answer = 300, 1200 }), 20 * time.Minute, "tokens an answer on average, "},
		"long prompts":                   {counted, change(func(w *modelUse) { w.prompt = 2400 }), 50 * time.Minute, "tokens a prompt on average"},
		"long answers":                   {counted, change(func(w *modelUse) { w.answer = 600 }), 50 * time.Minute, "tokens an answer on average"},
		"errors":                         {counted, change(func(w *modelUse) { w.errors = 0.15 }), 50 * time.Minute, "of requests with an error"},
		"errors and more requests":       {counted, change(func(w *modelUse) { w.errors, w.requests = 0.15, 12 }), 20 * time.Minute, "times the requests of this hour"},
		"many more requests":             {counted, change(func(w *modelUse) { w.requests = 12 }), 50 * time.Minute, "times the requests of this hour"},
		"an engine without requests":     {untold, change(func(w *modelUse) { w.uncounted, w.answer = true, 800 }), 50 * time.Minute, "tokens out for each one in"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStep(t, func(t *testing.T, step time.Duration) {
				st := then(t, c.habit, from, step, alwaysUse(c.then), c.within)
				f := st.finding(rules.IDUnusualModelUse, chat)
				if f == nil || f.State != Firing || f.Severity != rules.Ticket {
					t.Fatalf("after %s the finding is %+v, want a ticket", c.within, f)
				}
				if !strings.Contains(f.Evidence.Seen, c.says) || !strings.Contains(f.Evidence.Seen, "volume per client: not available") {
					t.Errorf("seen %q does not say %q, and what is not known", f.Evidence.Seen, c.says)
				}
			})
		})
	}
}

func TestUnusualUseLookAlikes(t *testing.T) {
	hourly := func(at time.Time) modelUse {
		w := everyday
		w.requests = 0.3 + 4*(1-math.Cos(2*math.Pi*float64(at.Unix()%86400)/86400))/2
		return w
	}
	nightly := func(at time.Time) modelUse {
		w := hourly(at)
		if h := at.UTC().Hour(); h == 2 {
			w.prompt, w.answer, w.requests = 6000, 20, 3
		}
		return w
	}
	for name, c := range map[string]struct {
		usual, then func(time.Time) modelUse
		days        int
		lasts       time.Duration
	}{
		"load by the hour":        {hourly, hourly, 5, 3 * 24 * time.Hour},
		"long prompts each night": {nightly, nightly, 5, 3 * 24 * time.Hour},
		"scaled to nothing and back": {hourly, func(at time.Time) modelUse {
			if at.Hour()%4 == 0 {
				return modelUse{}
			}
			return hourly(at)
		}, 5, 2 * 24 * time.Hour},
		"one burst": {alwaysUse(everyday), func(at time.Time) modelUse {
			w := everyday
			if at.Hour() == 3 && at.Minute() < 4 {
				w.requests = 20
			}
			return w
		}, 5, 6 * time.Hour},
		"errors for some minutes": {alwaysUse(everyday), func(at time.Time) modelUse {
			w := everyday
			if at.Hour() == 3 && at.Minute() < 8 {
				w.errors = 0.5
			}
			return w
		}, 5, 6 * time.Hour},
		"a little longer": {alwaysUse(everyday), func(time.Time) modelUse {
			w := everyday
			w.prompt, w.answer = 1100, 260
			return w
		}, 5, 6 * time.Hour},
		"too young": {alwaysUse(everyday), func(time.Time) modelUse {
			w := everyday
			w.prompt, w.answer = 2400, 1200
			return w
		}, 2, 6 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			habit, from := habitOf(t, c.days, c.usual)
			st := then(t, habit, from, time.Minute, c.then, c.lasts)
			if f := st.finding(rules.IDUnusualModelUse, chat); f != nil || st.causes(rules.IDUnusualModelUse) != "" {
				t.Errorf("%s is called unusual: %+v", name, f)
			}
		})
	}
}

// A restart in the middle, and a clock that was set, cost nothing.
func TestUnusualUseGoesOn(t *testing.T) {
	w := everyday
	w.prompt = 2400
	habit, from := habitOf(t, 5, alwaysUse(everyday))
	st := then(t, habit, from, 15*time.Second, alwaysUse(w), 20*time.Minute)
	if got := st.causes(rules.IDUnusualModelUse); got != "" {
		t.Fatal("one reading that is unusual for twenty minutes is a finding already")
	}
	st.restart()
	st.run(10 * time.Minute)
	by := -2 * time.Hour
	play, first := st.set, true
	st.now = st.now.Add(by)
	st.set = func(s *collector.Snapshot) {
		play(s)
		if first {
			s.Step, first = by, false
		}
	}
	st.run(20 * time.Minute)
	if !st.firing(rules.IDUnusualModelUse, chat) {
		t.Errorf("the finding is %+v, want it to fire", st.finding(rules.IDUnusualModelUse, chat))
	}
	st.set = newClients(alwaysUse(everyday)).apply
	st.run(time.Hour)
	if st.firing(rules.IDUnusualModelUse, chat) {
		t.Error("an hour after the use is usual again the finding fires on")
	}
}

func TestUnusualUseIsBounded(t *testing.T) {
	d := NewUnusualUse()
	s := node(day, 1)
	for i := range maxServed + 20 {
		e := endpoint(s)
		e.URL = fmt.Sprintf("http://%d/metrics", i)
	}
	d.Observe(s, func(Observation) {})
	if len(d.endpoints) != maxServed {
		t.Errorf("%d endpoints are kept, want at most %d", len(d.endpoints), maxServed)
	}
}

// By hand: of 100 requests 20 end with an error, usually 1 %: 100 × KL(0.2 ‖ 0.01) =
// 100 × (0.2 ln 20 + 0.8 ln(0.8/0.99)) = 42.9 nats.
func TestErrorTail(t *testing.T) {
	u := endpointUse{kept: useMemory{Requests: 9999, Errors: 99.5}}
	if got := u.errorTail(useSum{requests: 100, errors: 20}); math.Abs(got-42.87) > 0.01 {
		t.Errorf("20 of 100 are errors, usually 1 of 100: %v nats, want 42.87", got)
	}
	for name, b := range map[string]useSum{"as usual": {requests: 1000, errors: 10}, "a few": {requests: 40, errors: 4}, "not counted": {requests: 100, errors: math.NaN()}} {
		if got := u.errorTail(b); got != 0 {
			t.Errorf("%s: %v nats, want 0", name, got)
		}
	}
}

func BenchmarkUnusualUse(b *testing.B) {
	d := NewUnusualUse()
	c := newClients(alwaysUse(everyday))
	snapshots := make([]*collector.Snapshot, 24*60)
	for i := range snapshots {
		snapshots[i] = node(day.Add(time.Duration(i)*time.Minute), 1)
		c.apply(snapshots[i])
	}
	report := func(Observation) {}
	for _, s := range snapshots {
		d.Observe(s, report)
	}
	next := len(snapshots)
	b.ReportAllocs()
	for b.Loop() {
		s := snapshots[next%len(snapshots)]
		s.Time = s.Time.Add(24 * time.Hour)
		s.Endpoints[0].Stamp(metric.Fast, s.Time)
		d.Observe(s, report)
		next++
	}
}
