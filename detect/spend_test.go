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

func only(t *testing.T, step time.Duration, d Detector) *stage {
	st := newStage(t, DetectorConfig{}, step)
	st.e = NewEngine(Config{Node: "n1"}, []Detector{d})
	st.failed = failures(st.e)
	return st
}

// ofTeam is money of one team that is not what the test is about where it is not given.
func ofTeam(spent, threeDays, expected, overrun, budget float64) collector.TeamMoney {
	return collector.TeamMoney{Team: "nlp", Spent: spent, ThreeDays: threeDays, Expected: expected, Overrun: overrun, Budget: budget}
}

func TestBudgetBurn(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		team  collector.TeamMoney
		fires bool
		title string
		seen  string
	}{
		// March has 31 days: a budget of 3100 is 100 a day.
		"will not last": {ofTeam(1200, 370, 3900, 0.95, 3100), true, "Budget will not last",
			"1200 USD spent on this node of a month's 3100 USD, 3900 USD by its end; the last three days went 1.2 times as fast as the budget allows"},
		"is used up":                           {ofTeam(3200, 100, 3300, 1, 3100), true, "Budget is used up", "3200 USD spent on this node of a month's 3100 USD"},
		"likely, and already slower":           {ofTeam(1900, 300, 3900, 0.95, 3100), false, "", ""},
		"fast, and not likely":                 {ofTeam(900, 500, 3000, 0.6, 3100), false, "", ""},
		"begin of the month":                   {ofTeam(90, nan, nan, nan, 3100), false, "", ""},
		"no budget":                            {ofTeam(1e6, 1e6, 1e7, nan, nan), false, "", ""},
		"a big job that the budget allows for": {ofTeam(1200, 360, 2900, 0.2, 3100), false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			st := only(t, time.Minute, NewSpend(SpendConfig{}))
			st.set = func(s *collector.Snapshot) {
				s.Money = &collector.Money{At: s.Time.Add(-time.Second), Currency: "USD", Teams: []collector.TeamMoney{c.team}}
			}
			st.run(10 * time.Minute)
			st.again(NewSpend(SpendConfig{}))
			st.run(10 * time.Minute)
			if !c.fires {
				st.silent(name)
				return
			}
			f := st.ticketed(rules.IDSpend, "team:nlp", "budget_burn")
			if f.Title() != c.title || f.Evidence.Seen != c.seen {
				t.Errorf("it says %s: %s\nwant %s: %s", f.Title(), f.Evidence.Seen, c.title, c.seen)
			}
		})
	}
}

// purse plays a team that spends so much an hour, with its budget.
type purse struct {
	rate   func(at time.Time) float64
	budget float64
	spent  float64
	last   time.Time
	usual  float64 // expected by the hour in the days to come
}

func (p *purse) play(s *collector.Snapshot) {
	from, to := monthOf(s.Time)
	if p.last.Before(from) {
		p.spent = 0
	} else {
		p.spent += p.rate(s.Time) * s.Time.Sub(p.last).Hours()
	}
	p.last = s.Time
	s.Money = &collector.Money{At: s.Time, Currency: "USD", Teams: []collector.TeamMoney{
		ofTeam(p.spent, 72*p.usual, p.spent+p.usual*to.Sub(s.Time).Hours(), 0.5, p.budget)}}
}

func TestSpendingRunsAway(t *testing.T) {
	usual := func(at time.Time) float64 {
		if h := at.Hour(); h >= 8 && h < 18 {
			return 4
		}
		return 1
	}
	began := day.Add(10*24*time.Hour + 20*time.Hour)
	from := func(rate float64) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Before(began) {
				return usual(at)
			}
			return rate
		}
	}
	for name, c := range map[string]struct {
		rate   func(time.Time) float64
		budget float64
		fires  bool
	}{
		"thirty times, and too much for the budget":   {from(30), 3000, true},
		"a big job that the budget allows for":        {from(30), 50000, false},
		"a big job and no budget":                     {from(30), math.NaN(), false},
		"twice the usual":                             {from(2), 1000, false},
		"every day at eight it is four times as much": {usual, 900, false},
		"one hour only": {func(at time.Time) float64 {
			if !at.Before(began) && at.Before(began.Add(time.Hour)) {
				return 30
			}
			return usual(at)
		}, 3000, false},
	} {
		for _, step := range []time.Duration{15 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				p := &purse{rate: c.rate, budget: c.budget, usual: 2.25}
				st := only(t, time.Minute, NewSpend(SpendConfig{}))
				st.set = p.play
				st.run(10*24*time.Hour + 19*time.Hour)
				st.silent("before it began")
				st.step = step
				st.again(NewSpend(SpendConfig{}))
				st.run(5 * time.Hour)
				if !c.fires {
					st.silent(name)
					return
				}
				f := st.ticketed(rules.IDSpend, "team:nlp", "runaway")
				if !strings.HasPrefix(f.Evidence.Seen, "30.00 USD an hour for 2 h, more than 30 times what is usual at this time of day") && !strings.HasPrefix(f.Evidence.Seen, "30.00 USD an hour for 3 h") &&
					!strings.HasPrefix(f.Evidence.Seen, "30.00 USD an hour for 4 h") {
					t.Errorf("it says: %s", f.Evidence.Seen)
				}
				if f.Evidence.Expected != "1.00 USD an hour, and 3000 USD by the month's end at the most" {
					t.Errorf("expected: %s", f.Evidence.Expected)
				}
			})
		}
	}
}

// A new month begins at nothing, and so does an agent that was down: neither is a leap.
func TestSpendingOverTheMonthsEndAndAGap(t *testing.T) {
	p := &purse{rate: func(time.Time) float64 { return 1 }, budget: 400, usual: 1}
	st := only(t, time.Minute, NewSpend(SpendConfig{}))
	st.set = p.play
	st.run(25 * 24 * time.Hour)
	st.now = st.now.Add(9 * time.Hour) // spent and not seen hour by hour
	st.run(12 * 24 * time.Hour)
	for _, in := range st.told {
		if in.Cause == "runaway" {
			t.Errorf("told of %s: %s", in.Cause, in.Members[0].Evidence.Seen)
		}
	}
}

func TestCostsMoreThanDeclared(t *testing.T) {
	for name, c := range map[string]struct {
		label, value string
		spent        float64
		fires        bool
	}{
		"above":             {"gpuvigil/max-cost", "250", 251, true},
		"below":             {"gpuvigil/max-cost", "250", 249, false},
		"another label":     {"max-cost", "250", 251, false},
		"no amount":         {"gpuvigil/max-cost", "NaN", 251, false},
		"nothing":           {"gpuvigil/max-cost", "", 251, false},
		"money not known":   {"gpuvigil/max-cost", "250", math.NaN(), false},
		"an amount of zero": {"gpuvigil/max-cost", "0", 251, false},
	} {
		t.Run(name, func(t *testing.T) {
			st := only(t, time.Minute, NewSpend(SpendConfig{CapLabel: "gpuvigil/max-cost"}))
			st.set = func(s *collector.Snapshot) {
				s.Workloads = []collector.Workload{{Owner: pod, Readings: collector.NewReadings(metric.Workload), Labels: []collector.Label{{Name: c.label, Value: c.value}}}}
				if !math.IsNaN(c.spent) {
					s.Money = &collector.Money{At: s.Time, Currency: "EUR", Owners: []collector.OwnerMoney{{Owner: pod, Spent: c.spent}}}
				}
			}
			st.run(5 * time.Minute)
			if !c.fires {
				st.silent(name)
				return
			}
			f := st.ticketed(rules.IDSpend, "pod:vision/loader-0", "over_cap")
			st.says(f, "cost 251 EUR on this node so far", "at most 250 EUR, as its label gpuvigil/max-cost declares")
		})
	}
}

// training plays a job on both GPUs that tells of its progress. A rate of 0 is none.
type training struct {
	rate       func(at time.Time) float64 // steps a second
	checkpoint func(at time.Time) time.Time
	writes     func(at time.Time) float64
	finished   bool
	untold     bool

	steps, written float64
	last, moved    time.Time
}

func (tr *training) play(s *collector.Snapshot) {
	dt := 0.0
	if !tr.last.IsZero() {
		dt = s.Time.Sub(tr.last).Seconds()
	}
	tr.last = s.Time
	w := collector.Workload{Owner: job, Stage: "training", Readings: collector.NewReadings(metric.Workload)}
	w.Stamp(metric.Slow, s.Time)
	for i := range s.GPUs {
		s.GPUs[i].Owners = []collector.Owner{job}
	}
	rate := tr.rate(s.Time)
	tr.steps += rate * dt
	if rate > 0 || tr.moved.IsZero() {
		tr.moved = s.Time
	}
	if tr.writes != nil {
		tr.written += tr.writes(s.Time) * dt
		w.SetAt(metric.WorkloadBlockBytes, 1, tr.written)
	}
	if !tr.untold {
		w.Set(metric.WorkloadStep, math.Floor(tr.steps))
		w.Set(metric.WorkloadStepRate, rate)
		w.Set(metric.WorkloadProgress, float64(tr.moved.Unix()))
		if tr.checkpoint != nil {
			w.Set(metric.WorkloadCheckpoint, float64(tr.checkpoint(s.Time).Unix()))
		}
		if tr.finished {
			w.Set(metric.WorkloadFinished, 1)
		}
	}
	s.Workloads = append(s.Workloads, w)
	s.Money = &collector.Money{At: s.Time, Currency: "USD", Prices: []collector.GPUPrice{{UUID: "GPU-0", PerHour: 2.5}, {UUID: "GPU-1", PerHour: 2.5}}}
}

const spenderSubject = "job:slurm/4711"

func TestWorkBecomesExpensive(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			tr := &training{rate: func(time.Time) float64 { return 0.5 }}
			st := only(t, time.Minute, NewSpend(SpendConfig{}))
			st.set = tr.play
			st.run(6 * time.Hour)
			st.step = step
			tr.rate = func(time.Time) float64 { return 0.2 }
			st.run(20 * time.Minute)
			st.again(NewSpend(SpendConfig{}))
			st.silent("not yet half an hour")
			st.run(12 * time.Minute)
			f := st.ticketed(rules.IDSpend, spenderSubject, "without_output")
			st.says(f, f.Evidence.Seen, "about 4.36 GPU-seconds for a step")
			if !strings.HasPrefix(f.Evidence.Seen, "10 GPU-seconds for a step, 2.3 times its own usual, since 06:0") || !strings.HasSuffix(f.Evidence.Seen, ", at 5.00 USD an hour") {
				t.Errorf("it says: %s", f.Evidence.Seen)
			}
			tr.rate = func(time.Time) float64 { return 0.5 }
			st.run(30 * time.Minute)
			if st.firing(rules.IDSpend, spenderSubject) {
				t.Error("it still fires when the work is as cheap as before")
			}
		})
	}
}

func TestSpendingWithoutOutput(t *testing.T) {
	tr := &training{rate: func(time.Time) float64 { return 0.5 }}
	st := only(t, 15*time.Second, NewSpend(SpendConfig{}))
	st.set = tr.play
	st.run(3 * time.Hour)
	tr.rate = func(time.Time) float64 { return 0 }
	st.run(29 * time.Minute)
	st.silent("half an hour is not over")
	st.again(NewSpend(SpendConfig{}))
	st.run(3 * time.Minute)
	f := st.ticketed(rules.IDSpend, spenderSubject, "without_output")
	st.says(f, "2 GPUs held and no progress since 03:00:00 UTC, for 32 min, at 5.00 USD an hour", "progress or a checkpoint within 30 min (its longest pause so far is 15 s)")
	if since := clock(f.Since); since != "03:00:00 UTC" {
		t.Errorf("the finding has lasted since %s, and its evidence since 03:00:00 UTC", since)
	}
}

func TestSpendLookAlikes(t *testing.T) {
	every := func(at time.Time, d, of time.Duration) bool { return at.Sub(day)%of < d }
	after := func(at time.Time, d time.Duration) bool { return at.Sub(day) >= d }
	for name, tr := range map[string]*training{
		"a checkpoint of ten minutes each hour": {rate: func(at time.Time) float64 {
			if every(at, 10*time.Minute, time.Hour) && after(at, time.Hour) {
				return 0
			}
			return 0.5
		}},
		"compilation in the first half hour": {rate: func(at time.Time) float64 {
			if !after(at, 25*time.Minute) {
				return 0.001
			}
			return 0.5
		}},
		"it never works": {rate: func(time.Time) float64 { return 0 }},
		"it never tells": {rate: func(time.Time) float64 { return 0 }, untold: true},
		"it says that it is done": {finished: true, rate: func(at time.Time) float64 {
			if after(at, 3*time.Hour) {
				return 0
			}
			return 0.5
		}},
		"an evaluation of 25 minutes each two hours": {rate: func(at time.Time) float64 {
			if every(at, 25*time.Minute, 2*time.Hour) && after(at, time.Hour) {
				return 0
			}
			return 0.5
		}},
		"a long checkpoint": {rate: func(at time.Time) float64 {
			if after(at, 3*time.Hour) && !after(at, 3*time.Hour+50*time.Minute) {
				return 0
			}
			return 0.5
		}, writes: func(at time.Time) float64 {
			if after(at, 3*time.Hour) && !after(at, 3*time.Hour+50*time.Minute) {
				return 1e9
			}
			return 1e3
		}},
		"half as fast for twenty minutes": {rate: func(at time.Time) float64 {
			if every(at, 20*time.Minute, 2*time.Hour) && after(at, 2*time.Hour) {
				return 0.2
			}
			return 0.5
		}},
		"a bit slower for good": {rate: func(at time.Time) float64 {
			if after(at, 3*time.Hour) {
				return 0.3
			}
			return 0.5
		}},
	} {
		t.Run(name, func(t *testing.T) {
			st := only(t, 15*time.Second, NewSpend(SpendConfig{}))
			st.set = tr.play
			st.run(8 * time.Hour)
			st.silent(name)
		})
	}
}

// Another run in the same pod or notebook has steps of its own.
func TestAnotherRunIsNoWorsening(t *testing.T) {
	tr := &training{rate: func(time.Time) float64 { return 5 }}
	st := only(t, 15*time.Second, NewSpend(SpendConfig{}))
	st.set = tr.play
	st.run(4 * time.Hour)
	tr.steps, tr.rate = 0, func(time.Time) float64 { return 0.5 }
	st.run(4 * time.Hour)
	st.silent("another run with longer steps")
}

func TestSpendWhenTheClockIsSet(t *testing.T) {
	tr := &training{rate: func(time.Time) float64 { return 0.5 }}
	st := only(t, 15*time.Second, NewSpend(SpendConfig{}))
	st.set = tr.play
	st.run(3 * time.Hour)
	by := -20 * time.Hour
	st.set = func(s *collector.Snapshot) {
		s.Step = by
		tr.play(s)
		st.set = tr.play
	}
	st.now, tr.last, tr.moved = st.now.Add(by), tr.last.Add(by), tr.moved.Add(by)
	st.run(time.Hour)
	st.silent("the clock was set back")
	tr.rate = func(time.Time) float64 { return 0 }
	st.run(31 * time.Minute)
	st.ticketed(rules.IDSpend, spenderSubject, "without_output")
}

func TestSpendMemoryIsBounded(t *testing.T) {
	d := NewSpend(SpendConfig{})
	for i := range 4000 {
		s := node(day.Add(time.Duration(i)*time.Minute), 1)
		w := collector.Workload{Owner: collector.Owner{Kind: "job", ID: fmt.Sprint(i)}, Readings: collector.NewReadings(metric.Workload)}
		w.Stamp(metric.Slow, s.Time)
		w.Set(metric.WorkloadProgress, float64(s.Time.Unix()))
		s.Workloads = []collector.Workload{w}
		s.Money = &collector.Money{At: s.Time, Teams: []collector.TeamMoney{{Team: fmt.Sprint(i)}}}
		d.Observe(s, func(Observation) {})
	}
	if len(d.owners) > maxHolders || len(d.teams) > maxTeams {
		t.Errorf("it keeps %d owners and %d teams, without end", len(d.owners), len(d.teams))
	}
}

func TestSpendAllocatesNothing(t *testing.T) {
	d := NewSpend(SpendConfig{CapLabel: "cap"})
	var ring []*collector.Snapshot
	for i := range 600 {
		s := node(day.Add(time.Duration(i)*15*time.Second), 8)
		m := &collector.Money{At: s.Time, Currency: "USD"}
		for k := range 8 {
			o := collector.Owner{Kind: "job", ID: string(rune('a' + k)), Team: string(rune('a' + k))}
			s.GPUs[k].Owners = []collector.Owner{o}
			w := collector.Workload{Owner: o, Readings: collector.NewReadings(metric.Workload), Labels: []collector.Label{{Name: "cap", Value: "1000"}}}
			w.Stamp(metric.Slow, s.Time)
			w.Set(metric.WorkloadProgress, float64(s.Time.Unix()))
			w.Set(metric.WorkloadStepRate, 2)
			s.Workloads = append(s.Workloads, w)
			m.Teams = append(m.Teams, collector.TeamMoney{Team: o.Team, Spent: float64(i), ThreeDays: 10, Expected: 100, Budget: 1000, Overrun: 0.1})
			m.Owners = append(m.Owners, collector.OwnerMoney{Owner: o, Spent: 1})
		}
		s.Money = m
		ring = append(ring, s)
	}
	next, report := 0, func(Observation) {}
	observe := func() { d.Observe(ring[next], report); next++ }
	for range 50 {
		observe()
	}
	if got := testing.AllocsPerRun(500, observe); got > 0.01 {
		t.Errorf("a snapshot of eight owners and teams costs %.2f allocations, want none", got)
	}
}

func TestIdleGPUBecomesATicketByTheMoney(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	st.set = func(s *collector.Snapshot) {
		hold(s, pod, "python3", 0, 118)
		s.Money = &collector.Money{At: s.Time, Currency: "USD", Prices: []collector.GPUPrice{{UUID: "GPU-0", PerHour: 12}}}
	}
	st.run(4 * time.Hour)
	if f := st.fires(rules.IDIdleGPU); f.Severity != rules.Info {
		t.Fatalf("severity is %s before 50 USD: %s", f.Severity, f.Evidence.Seen)
	}
	st.restart() // what has added up survives
	st.run(12 * time.Minute)
	f := st.fires(rules.IDIdleGPU)
	if f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Seen, "its holder left 4.2 GPU-hours idle in 24 h, for 50.") ||
		!strings.HasSuffix(f.Evidence.Expected, "a ticket from 8 idle GPU-hours a day or 50.00 USD") {
		t.Errorf("after 50 USD: %s, %s, %s", f.Severity, f.Evidence.Seen, f.Evidence.Expected)
	}
}

func TestServerThatAnswersNobody(t *testing.T) {
	after := func(at time.Time, d time.Duration) bool { return at.Sub(day) >= d }
	for name, c := range map[string]struct {
		running func(at time.Time) float64
		tokens  func(at time.Time) float64 // a second
		fires   bool
	}{
		"asked, and no token any more": {func(time.Time) float64 { return 12 }, func(at time.Time) float64 { return bitOf(!after(at, time.Hour)) }, true},
		"nobody asks any more":         {func(at time.Time) float64 { return bitOf(!after(at, time.Hour)) }, func(at time.Time) float64 { return bitOf(!after(at, time.Hour)) }, false},
		"never answered yet":           {func(time.Time) float64 { return 12 }, func(time.Time) float64 { return 0 }, false},
		"slow":                         {func(time.Time) float64 { return 12 }, func(at time.Time) float64 { return bitOf(at.Minute()%20 == 0) }, false},
		"asked now and then":           {func(at time.Time) float64 { return bitOf(at.Minute()%10 < 5) }, func(at time.Time) float64 { return bitOf(!after(at, time.Hour)) }, false},
		"does not tell of tokens":      {func(time.Time) float64 { return 12 }, func(time.Time) float64 { return math.NaN() }, false},
	} {
		for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				st := only(t, step, NewSpend(SpendConfig{}))
				tokens := 0.0
				st.set = func(s *collector.Snapshot) {
					tokens += c.tokens(s.Time) * step.Seconds()
					e := endpoint(s, "GPU-0")
					e.Set(metric.GeneratedTokens, tokens)
					e.Set(metric.RequestsRunning, c.running(s.Time))
				}
				st.run(time.Hour + 20*time.Minute)
				st.again(NewSpend(SpendConfig{}))
				st.run(8 * time.Minute)
				st.silent("before half an hour")
				st.run(5 * time.Minute)
				if !c.fires {
					st.silent(name)
					return
				}
				f := st.ticketed(rules.IDSpend, "endpoint:http://chat-70b:8000/metrics#vllm/chat-70b", "without_output")
				if f.Title() != "Server answers nobody" || !strings.HasPrefix(f.Evidence.Seen, "requests for 3") ||
					!strings.Contains(f.Evidence.Seen, " min, 12 now, and not one token or finished request since 00:59:") && !strings.Contains(f.Evidence.Seen, "since 01:00:00") {
					t.Errorf("%s: %s", f.Title(), f.Evidence.Seen)
				}
				if !strings.Contains(f.Evidence.Seen, " since "+clock(f.Since)) {
					t.Errorf("the finding has lasted since %s, and its evidence says: %s", clock(f.Since), f.Evidence.Seen)
				}
			})
		}
	}
}

func bitOf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
