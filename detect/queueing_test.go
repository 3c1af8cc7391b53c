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

const chatEndpoint = "endpoint:http://chat-70b:8000/metrics#vllm/chat-70b"

// asked is what is asked of an endpoint whose GPU has room: its server's own CPU is what
// is slow.
type asked struct {
	waiting, running, queue    float64
	arrivals, served, load, kv float64
	preempts                   float64 // a minute
	util                       float64 // of the GPU
	frozen                     bool    // its counters stand still
}

var tooMuch = asked{waiting: 38, running: 64, queue: 4.1, arrivals: 21, served: 17, load: 1.24, kv: 0.8, util: 0.6}

var bearable = asked{waiting: 1, running: 30, queue: 0.2, arrivals: 10, served: 10, load: 0.6, kv: 0.5, util: 0.6}

func (a asked) apply(s *collector.Snapshot) {
	s.GPUs[0].Set(metric.Utilization, a.util)
	s.Node.Set(metric.CPUBusy, 0.11)
	s.Node.Set(metric.CPUBusiest, 0.4)
	e := endpoint(s, "GPU-0")
	for d, v := range map[*metric.Def]float64{
		metric.EndpointUp: 1, metric.RequestsWaiting: a.waiting, metric.RequestsRunning: a.running, metric.QueueTimeP95: a.queue,
		metric.ArrivalRate: a.arrivals, metric.ServiceRate: a.served, metric.ServerUtilization: a.load, metric.KVCacheUsage: a.kv, metric.QueueConsistency: 1.02,
	} {
		e.Set(d, v)
	}
	since := s.Time.Sub(day)
	if a.frozen {
		since = 0
	}
	e.Set(metric.GeneratedTokens, math.Floor(1e6+900*since.Seconds()))
	e.Set(metric.Preemptions, math.Floor(a.preempts*since.Minutes()))
}

// causes returns the causes of the rule of which people were told, in order.
func (st *stage) causes(id rules.ID) string {
	var causes []string
	for _, in := range st.told {
		if in.Rule == id && in.State == Firing {
			causes = append(causes, in.Cause)
		}
	}
	return strings.Join(causes, " ")
}

func eachStep(t *testing.T, f func(t *testing.T, step time.Duration)) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) { f(t, step) })
	}
}

func TestQueueAboveItsObjective(t *testing.T) {
	eachStep(t, func(t *testing.T, step time.Duration) {
		st := newStage(t, withSLO, step)
		above := tooMuch
		above.arrivals, above.load, above.preempts = 17, 1, 60
		st.set = above.apply
		st.run(4 * time.Minute)
		st.silent("before it lasted five minutes")
		st.run(6 * time.Minute)
		f := st.finding(rules.IDQueueing, chatEndpoint)
		if f == nil || f.State != Firing || f.Cause != causeAboveSLO || f.Severity != rules.Ticket || f.Evidence.Confidence != Certain {
			t.Fatalf("after ten minutes above the objective the finding is %+v, want a ticket of above_slo, certain", f)
		}
		for _, want := range []string{"chat-70b: 38 requests waiting, queue-time p95 4.1 s for ", "17/s arrive and 17/s are served", "utilization 100 %",
			"KV cache 80 %", "60 preemptions a minute", "Little's law agrees", "about 1 more replica is needed beside the 1 here"} {
			if !strings.Contains(f.Evidence.Seen, want) {
				t.Errorf("seen %q does not say %q", f.Evidence.Seen, want)
			}
		}
		if f.Evidence.Expected != "queue-time p95 below its SLO of 1 s" || !strings.Contains(f.Action(), "KV cache") {
			t.Errorf("expected %q, to do %q", f.Evidence.Expected, f.Action())
		}
		st.restart()
		st.set = bearable.apply
		st.run(8 * time.Minute)
		if f := st.finding(rules.IDQueueing, chatEndpoint); f.State != Resolved || f.Ended != "cleared" {
			t.Errorf("eight minutes after the queue went away the finding is %s %s, want resolved, cleared", f.State, f.Ended)
		}
	})
}

// One fact is one message: where the GPU is the bound saturated_gpu tells of it.
func TestQueueInFrontOfABusyGPUIsTheOtherRules(t *testing.T) {
	eachStep(t, func(t *testing.T, step time.Duration) {
		st := newStage(t, withSLO, step)
		busy := tooMuch
		busy.util = 0.99
		st.set = busy.apply
		st.run(20 * time.Minute)
		st.fires(rules.IDSaturatedGPU)
		if got := st.causes(rules.IDQueueing); got != "" {
			t.Errorf("queueing tells of %s, too", got)
		}
		// The GPU is not the bound any more, and requests wait on.
		st.set = tooMuch.apply
		st.run(30 * time.Minute)
		if got := st.causes(rules.IDQueueing); !strings.Contains(got, causeAboveSLO) || st.firing(rules.IDSaturatedGPU, "gpu:GPU-0") {
			t.Errorf("half an hour after the GPU got room queueing tells of %q, and saturated_gpu fires: %v", got, st.firing(rules.IDSaturatedGPU, "gpu:GPU-0"))
		}
	})
}

// growing makes a queue of so many more each second, and is how it is asked.
func growingQueue(from time.Time, perSecond float64) func(*collector.Snapshot) {
	return func(s *collector.Snapshot) {
		a := tooMuch
		a.queue, a.waiting = 0.05, 1+math.Floor(perSecond*s.Time.Sub(from).Seconds())
		a.apply(s)
	}
}

func TestQueueThatGrows(t *testing.T) {
	eachStep(t, func(t *testing.T, step time.Duration) {
		st := newStage(t, DetectorConfig{}, step)
		st.set = bearable.apply
		st.run(time.Hour)
		st.set = growingQueue(st.now, 4)
		st.run(4 * time.Minute)
		st.restart() // how far it has grown survives
		st.silent("a queue that has grown for four minutes")
		st.run(5 * time.Minute)
		f := st.finding(rules.IDQueueing, chatEndpoint)
		if f == nil || f.State != Firing || f.Cause != causeGrowing || f.Evidence.Confidence != Young {
			t.Fatalf("after nine minutes of growth the finding is %+v, want it of growing, young", f)
		}
		if !strings.Contains(f.Evidence.Seen, "the queue has grown for") || !strings.Contains(f.Evidence.Seen, "21/s arrive and 17/s are served") {
			t.Errorf("seen %q does not say how the queue grows", f.Evidence.Seen)
		}
		if f.Title() != "Queue grows: more requests arrive than are served" {
			t.Errorf("the finding's title is %q", f.Title())
		}
	})
}

func TestQueueingLookAlikes(t *testing.T) {
	relic := tooMuch
	relic.frozen = true
	unserved := tooMuch
	unserved.served = 0
	for name, set := range map[string]func(begin time.Time, s *collector.Snapshot){
		"nobody waits": func(_ time.Time, s *collector.Snapshot) { bearable.apply(s) },
		"a queue that is none any more": func(_ time.Time, s *collector.Snapshot) {
			relic.apply(s)
			s.Endpoints[0].Set(metric.EndpointStale, 1)
		},
		"one burst": func(begin time.Time, s *collector.Snapshot) {
			a := bearable
			if m := s.Time.Sub(begin).Minutes(); m > 30 && m < 33 {
				a = tooMuch
				a.waiting = math.Floor(1 + 300*(m-30))
			} else if m >= 33 && m < 50 {
				a.waiting, a.arrivals, a.served = math.Floor(900*(50-m)/17), 9, 17
			}
			a.queue = 0.05
			a.apply(s)
		},
		"load by the hour": func(begin time.Time, s *collector.Snapshot) {
			a := bearable
			part := (1 - math.Cos(2*math.Pi*s.Time.Sub(begin).Hours()/24)) / 2
			a.waiting, a.queue = math.Floor(1+20*part), 0.1+0.5*part
			a.arrivals, a.served = 2+10*part, 2+10*part
			a.apply(s)
		},
		"scaled to nothing": func(begin time.Time, s *collector.Snapshot) {
			if int(s.Time.Sub(begin).Hours())%2 == 0 {
				bearable.apply(s)
			}
		},
		"nothing is told": func(_ time.Time, s *collector.Snapshot) { endpoint(s, "GPU-0") },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			begin := st.now
			st.set = func(s *collector.Snapshot) { set(begin, s) }
			span := 4 * time.Hour
			if strings.Contains(name, "hour") || strings.Contains(name, "scaled") {
				st.step, span = time.Minute, 5*24*time.Hour
			}
			st.run(span)
			if got := st.causes(rules.IDQueueing); got != "" {
				t.Errorf("queueing tells of %s", got)
			}
		})
	}
}

// Requests wait too long for three minutes an hour, four times each morning.
func TestQueueingAgainAndAgain(t *testing.T) {
	for name, cfg := range map[string]DetectorConfig{"an objective": withSLO, "a habit": {}} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, cfg, 15*time.Second)
			calm := func(s *collector.Snapshot) { bearable.apply(s) }
			st.set = calm
			st.step = time.Minute
			st.run(7 * 24 * time.Hour)
			st.silent("a week in which nobody waits")
			st.step = 15 * time.Second
			short := bearable
			short.waiting, short.queue = 12, 3
			for range 2 {
				st.set = calm
				st.run(time.Duration(24*time.Hour-(st.now.Sub(st.now.Truncate(24*time.Hour)))) + 9*time.Hour)
				for range 4 {
					st.set = short.apply
					st.run(3 * time.Minute)
					st.set = calm
					st.run(32 * time.Minute)
				}
			}
			f := st.finding(rules.IDQueueing, chatEndpoint)
			if f == nil || f.Cause != causeEpisodes || st.causes(rules.IDQueueing) != causeEpisodes {
				t.Fatalf("four times each of two mornings: %+v, told of %q; want one finding of episodes", f, st.causes(rules.IDQueueing))
			}
			limit := "its SLO of 1 s"
			if cfg.Saturated == (SaturatedConfig{}) {
				limit = "their own 99th percentile of "
			}
			for _, want := range []string{"times in 24 h requests waited longer than " + limit, "each day about 09:00-11:00 UTC"} {
				if !strings.Contains(f.Evidence.Seen, want) {
					t.Errorf("seen %q does not say %q", f.Evidence.Seen, want)
				}
			}
		})
	}
}

func TestQueueBesideAnIdleSibling(t *testing.T) {
	play := func(waiting, siblings float64, model string) func(*collector.Snapshot) {
		return func(s *collector.Snapshot) {
			a := bearable
			a.waiting = waiting
			a.apply(s)
			s.Endpoints[0].Set(metric.RequestsRunning, 30)
			a.apply(s)
			o := &s.Endpoints[1]
			o.URL, o.Model = "http://sibling:8000/metrics", model
			o.Set(metric.RequestsRunning, siblings)
			o.Set(metric.RequestsWaiting, 0)
		}
	}
	eachStep(t, func(t *testing.T, step time.Duration) {
		st := newStage(t, DetectorConfig{}, step)
		st.set = play(6, 0, "chat-70b")
		st.run(4 * time.Minute)
		st.silent("a sibling that was idle for four minutes")
		st.run(6 * time.Minute)
		f := st.finding(rules.IDQueueing, chatEndpoint)
		if f == nil || f.State != Firing || f.Cause != causeIdleSibling || !strings.Contains(f.Evidence.Seen, "they wait while http://sibling:8000/metrics of the same model has nothing to do") {
			t.Fatalf("the finding is %+v, want it of idle_sibling with the sibling's name", f)
		}
		if f := st.finding(rules.IDQueueing, "endpoint:http://sibling:8000/metrics#vllm/chat-70b"); f != nil {
			t.Errorf("the idle sibling has a finding, too: %s", f.Evidence.Seen)
		}
	})
	for name, set := range map[string]func(*collector.Snapshot){
		"the sibling works":         play(6, 3, "chat-70b"),
		"it is another model":       play(6, 0, "embed"),
		"nobody waits":              play(0, 0, "chat-70b"),
		"the sibling tells nothing": play(6, math.NaN(), "chat-70b"),
	} {
		st := newStage(t, DetectorConfig{}, 15*time.Second)
		st.set = set
		st.run(time.Hour)
		if got := st.causes(rules.IDQueueing); got != "" {
			t.Errorf("%s: queueing tells of %s", name, got)
		}
	}
}

// Where the clock is set, what was before keeps its distance.
func TestQueueingFollowsTheClock(t *testing.T) {
	for _, by := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		st := newStage(t, withSLO, 15*time.Second)
		set := tooMuch
		set.arrivals = 17
		st.set = set.apply
		st.run(3 * time.Minute)
		st.now = st.now.Add(by)
		first := true
		st.set = func(s *collector.Snapshot) {
			set.apply(s)
			if first {
				s.Step, first = by, false
			}
		}
		st.run(90 * time.Second)
		st.silent(fmt.Sprintf("four and a half minutes, the clock set by %s", by))
		st.run(3 * time.Minute)
		if got := st.causes(rules.IDQueueing); got != causeAboveSLO {
			t.Errorf("the clock set by %s: queueing tells of %q, want above_slo", by, got)
		}
	}
}

func TestQueuesAreBounded(t *testing.T) {
	d := NewQueueing(NewSaturated(SaturatedConfig{}, NewJudge()))
	s := node(day, 1)
	for i := range maxQueues + 20 {
		e := endpoint(s)
		e.URL = fmt.Sprintf("http://%d/metrics", i)
	}
	d.Observe(s, func(Observation) {})
	if len(d.endpoints) != maxQueues {
		t.Errorf("%d queues are kept, want at most %d", len(d.endpoints), maxQueues)
	}
	later := node(day.Add(queuesKept+time.Hour), 1)
	e := endpoint(later)
	e.URL = "http://new/metrics"
	d.Observe(later, func(Observation) {})
	if d.endpoints[e.Key()] == nil {
		t.Error("a new endpoint finds no room though the others have been gone for a week")
	}
	var q queue
	for i := range 3 * episodesMost {
		at := day.Add(time.Duration(i) * time.Hour)
		q.demand = &demand{since: at}
		q.episode(at)
	}
	if len(q.kept.Episodes) > episodesMost {
		t.Errorf("%d episodes are kept, want at most %d", len(q.kept.Episodes), episodesMost)
	}
}

// By hand: a rate known from no event in one day has the odds of a Jeffreys' prior.
func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		k       int
		n, days float64
		want    float64
	}{
		{0, 3, 2, 1},
		{1, 0, 1, 1 - math.Sqrt(0.5)},
		{2, 0.5, 1, 0.25},                // geometric: (1/2)^2
		{10, 0.5, 3, math.Pow(0.25, 10)}, // and (1/4)^10, of which 1 less the head would keep few digits
	} {
		if got := atLeast(c.k, c.n, c.days); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%d or more after %v in %v days: probability %v, want %v", c.k, c.n, c.days, got, c.want)
		}
	}
}

func TestPattern(t *testing.T) {
	at := func(days int, clock string) episode {
		d, err := time.ParseDuration(clock)
		if err != nil {
			t.Fatal(err)
		}
		start := day.Truncate(24 * time.Hour).Add(time.Duration(days)*24*time.Hour + d)
		return episode{Start: start, End: start.Add(20 * time.Minute)}
	}
	for name, c := range map[string]struct {
		episodes []episode
		want     string
	}{
		"mornings":       {[]episode{at(0, "9h5m"), at(1, "10h"), at(1, "10h40m"), at(2, "9h30m")}, "each day about 09:00-11:00 UTC"},
		"over midnight":  {[]episode{at(0, "23h40m"), at(1, "10m"), at(1, "23h50m"), at(2, "23h45m")}, "each day about 23:30-00:30 UTC"},
		"not each day":   {[]episode{at(0, "9h"), at(0, "9h40m"), at(2, "9h10m"), at(2, "9h50m")}, "on 2 of the last 3 days about 09:00-10:30 UTC"},
		"at any time":    {[]episode{at(0, "3h"), at(1, "10h"), at(1, "16h"), at(2, "22h")}, ""},
		"one day":        {[]episode{at(2, "9h"), at(2, "10h"), at(2, "11h"), at(2, "10h30m")}, ""},
		"too few to say": {[]episode{at(0, "9h"), at(2, "9h10m")}, ""},
	} {
		if got := pattern(c.episodes, day.Truncate(24*time.Hour).Add(60*time.Hour)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func BenchmarkQueueing(b *testing.B) {
	d := NewQueueing(NewSaturated(SaturatedConfig{QueueTimeSLO: time.Second}, NewJudge()))
	snapshots := make([]*collector.Snapshot, 600)
	for i := range snapshots {
		s := node(day.Add(time.Duration(i)*time.Second), 8)
		for k := range 8 {
			bearable.apply(s)
			s.Endpoints[k].URL = fmt.Sprintf("http://%d/metrics", k)
		}
		snapshots[i] = s
	}
	report := func(Observation) {}
	for _, s := range snapshots {
		d.Observe(s, report)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d.Observe(snapshots[i%len(snapshots)], report)
	}
}
