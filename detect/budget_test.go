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

// odd is a node of GPUs on which a statistical rule sees something as rare as a test
// says.
type odd struct {
	t        *testing.T
	e        *Engine
	now      time.Time
	gpus     int
	surprise map[int]float64 // by GPU; none: not at all
	severity rules.Severity
	cause    func(gpu int) string
	set      func(*collector.Snapshot)
	told     []Incident
	cfg      Config
	rule     *rules.Rule
}

func newOdd(t *testing.T, gpus int, cfg Config) *odd {
	r := testRule("r")
	r.For, r.Statistical, r.Severity, r.Pages = 0, true, rules.Page, true
	o := &odd{t: t, now: day, gpus: gpus, surprise: map[int]float64{}, severity: rules.Ticket, rule: r,
		cause: func(int) string { return "c" }, set: func(*collector.Snapshot) {}}
	cfg.Node = "n1"
	o.cfg = cfg
	o.e = NewEngine(cfg, o.detectors())
	return o
}

func (o *odd) detectors() []Detector {
	return []Detector{&script{o.rule, func(s *collector.Snapshot, report func(Observation)) {
		for i := range s.GPUs {
			ob := Observation{Subject: gpuSubject(s.GPUs[i].UUID), Cause: o.cause(i), Severity: o.severity, GPU: &s.GPUs[i], Evidence: Evidence{Why: "odd"}}
			if nats, ok := o.surprise[i]; ok {
				ob.Score, ob.Surprise = 1, nats
			}
			report(ob)
		}
	}}}
}

// run feeds a snapshot a minute.
func (o *odd) run(d time.Duration) []Incident {
	o.t.Helper()
	var told []Incident
	for end := o.now.Add(d); o.now.Before(end); {
		o.now = o.now.Add(time.Minute)
		s := node(o.now, o.gpus)
		o.set(s)
		told = append(told, o.e.Observe(s)...)
	}
	if n := failures(o.e); n > 0 {
		o.t.Fatalf("the detector failed %d times", n)
	}
	o.told = append(o.told, told...)
	return told
}

func (o *odd) first() *Finding {
	for _, f := range o.e.View().Findings {
		if f.Subject.ID == "GPU-0" {
			return &f
		}
	}
	return &Finding{State: "none"}
}

func (o *odd) restart() {
	o.t.Helper()
	data, err := o.e.Save()
	if err != nil {
		o.t.Fatal(err)
	}
	o.e = NewEngine(o.cfg, o.detectors())
	if err := o.e.Restore(data); err != nil {
		o.t.Fatal(err)
	}
}

func (o *odd) standing() Standing { return o.e.View().Standings[0] }

// The same sight is told on a node and not in a fleet, which would have it hundreds
// of times a week.
func TestThresholdsTightenWithTheFleet(t *testing.T) {
	last := 0.0
	for _, gpus := range []int{0, 200, 2000, 10_000} {
		o := newOdd(t, 8, Config{Budget: Budget{GPUs: gpus}})
		o.run(time.Minute)
		need := o.standing().Need
		if want := math.Log(math.Max(1, float64(max(gpus, 8))/10)); math.Abs(need-want) > 1e-9 || need < last {
			t.Errorf("among %d GPUs a finding needs %g nats, want ln(GPUs / 10 tickets) = %g", gpus, need, want)
		}
		last = need
		o.surprise[0] = need - 0.1
		o.run(10 * time.Minute)
		if f := o.first(); need > 0.1 && f.State != Pending {
			t.Errorf("among %d GPUs what falls short of the budget is %s, want pending", gpus, f.State)
		}
		o.surprise[0] = need + 0.1
		o.run(time.Minute)
		if f := o.first(); f.State != Firing {
			t.Errorf("among %d GPUs what is as rare as the budget asks is %s, want firing", gpus, f.State)
		}
	}
}

func TestBudgetIsSharedByTheStatisticalRules(t *testing.T) {
	var detectors []Detector
	for i := range 5 {
		r := testRule(rules.ID(fmt.Sprintf("r%d", i)))
		r.Statistical = i != 4
		detectors = append(detectors, &script{rule: r})
	}
	off := NewEngine(Config{Settings: map[rules.ID]Setting{"r0": {Disabled: true}}}, detectors)
	e := NewEngine(Config{}, detectors)
	for _, e := range []*Engine{e, off} {
		e.Observe(node(day, 80))
	}
	if got, want := e.View().Standings[1].Need, math.Log(80*4/10.0); math.Abs(got-want) > 1e-9 {
		t.Errorf("with four statistical rules one needs %g nats, want %g", got, want)
	}
	if got, want := off.View().Standings[0].Need, math.Log(80*3/10.0); math.Abs(got-want) > 1e-9 {
		t.Errorf("with one of them off the others need %g nats, want %g", got, want)
	}
	if s := e.View().Standings[4]; s.Statistical || s.Need != 0 {
		t.Errorf("a rule of facts stands as %+v", s)
	}
}

// A rule that reports what is statistical has its share, whatever the book says of it.
func TestWhatIsReportedAsStatisticalIsPartOfTheBudget(t *testing.T) {
	o := newOdd(t, 80, Config{})
	o.rule.Statistical = false
	o.e = NewEngine(o.cfg, o.detectors())
	o.run(time.Minute)
	if s := o.standing(); s.Statistical {
		t.Fatalf("before it has reported anything the rule stands as %+v", s)
	}
	o.surprise[0] = 1
	o.run(time.Minute)
	if s := o.standing(); !s.Statistical || math.Abs(s.Need-math.Log(8)) > 1e-9 || o.first().State != Pending {
		t.Errorf("what falls short of the budget is %s, and the rule stands as %+v", o.first().State, s)
	}
}

func TestFactsAreNotPartOfTheBudget(t *testing.T) {
	o := newOdd(t, 8, Config{Budget: Budget{GPUs: 1_000_000}})
	o.severity = rules.Page
	o.surprise[0] = 0
	o.run(2 * time.Minute)
	if f := o.first(); f.State != Firing || f.Severity != rules.Page {
		t.Errorf("a fact is %s with %s, want a page whatever the fleet", f.State, f.Severity)
	}
}

// What is rare enough for a page wakes nobody before the rule has shown for weeks that it
// is quiet, and says why.
func TestARuleWithoutCleanHistoryIsCappedAtTicket(t *testing.T) {
	o := newOdd(t, 8, Config{Budget: Budget{Pages: 8, GPUs: 8}}) // a page per GPU and week: three weeks of proof
	o.severity = rules.Page
	o.surprise[0] = 20
	o.run(2 * time.Minute)
	f := o.first()
	if f.State != Firing || f.Severity != rules.Ticket || !strings.HasPrefix(f.Evidence.Why, "odd; not a page: the rule has ") || !strings.HasSuffix(f.Evidence.Why, " of the 3 clean GPU-weeks behind it that a page takes") {
		t.Errorf("without history it is %s with %s, as %q; want a ticket that says what a page takes", f.State, f.Severity, f.Evidence.Why)
	}
	delete(o.surprise, 0)
	o.run(2 * 24 * time.Hour)
	o.restart()
	o.run(2 * 24 * time.Hour)
	if s := o.standing(); s.CleanWeeks < 4 || s.ProofWeeks != 3 {
		t.Fatalf("after four days of eight GPUs the rule stands as %+v", s)
	}
	o.surprise[0] = 20
	o.run(2 * time.Minute)
	if f := o.first(); f.Severity != rules.Page || f.Evidence.Why != "odd" {
		t.Errorf("with history it is %s, as %q; want a page", f.Severity, f.Evidence.Why)
	}
	if s := o.standing(); s.Fired != 2 || s.CleanWeeks > 4 {
		t.Errorf("after two findings the rule stands as %+v: each costs a clean week", s)
	}
	o.surprise[1] = o.e.need(rules.Page) - 0.01
	o.run(time.Minute)
	for _, f := range o.e.View().Findings {
		if f.Subject.ID == "GPU-1" && f.Severity != rules.Ticket {
			t.Errorf("what is not rare enough for a page is a %s", f.Severity)
		}
	}
}

func TestPromotedRuleMayPage(t *testing.T) {
	for promoted, want := range map[bool]rules.Severity{false: rules.Ticket, true: rules.Page} {
		r := testRule("r")
		r.For = 0
		vital := collector.Owner{Kind: "pod", ID: "chat"}
		e := NewEngine(Config{Settings: map[rules.ID]Setting{"r": {Promoted: promoted}}}, []Detector{&script{r, func(s *collector.Snapshot, report func(Observation)) {
			report(Observation{Subject: Subject{"gpu", "GPU-0"}, Cause: "c", Score: 1, Severity: rules.Ticket, Owner: vital})
		}}})
		s := node(day, 1)
		s.Workloads = []collector.Workload{{Owner: vital, Critical: true}}
		e.Observe(s)
		if f := e.View().Findings[0]; f.Severity != want || e.View().Standings[0].Promoted != promoted {
			t.Errorf("promoted %t: a critical workload's ticket is a %s, want %s", promoted, f.Severity, want)
		}
	}
}

// Each alone is too weak to be told in this fleet; that six of eight GPUs do it at once is
// no chance.
func TestWhatManyGPUsDoAtOnceIsOneIncident(t *testing.T) {
	o := newOdd(t, 8, Config{Budget: Budget{GPUs: 10_000}})
	o.cause = func(gpu int) string { return fmt.Sprintf("cause_%d", gpu%2) }
	o.run(24 * time.Hour)
	o.surprise[7] = 1
	o.run(30 * time.Minute)
	delete(o.surprise, 7)
	o.run(2 * time.Hour)
	if len(o.told) != 0 {
		t.Fatalf("one GPU with weak evidence was told: %+v", o.told)
	}
	for i := range 6 {
		o.surprise[i] = 1
		o.run(time.Minute)
	}
	firing := 0
	for _, f := range o.e.View().Findings {
		if f.State == Firing {
			firing++
		}
	}
	view := o.e.View()
	if len(view.Incidents) != 1 || firing != 6 {
		t.Fatalf("%d incidents with %d findings, want one with six", len(view.Incidents), firing)
	}
	if why := o.first().Evidence.Why; !strings.HasSuffix(why, "of 8 GPUs of the node within 10 min") {
		t.Errorf("why says %q, want how many GPUs do the same", why)
	}
	if n := len(o.told); n == 0 || o.told[n-1].ID != o.told[0].ID {
		t.Errorf("told as different incidents: %+v", o.told)
	}
}

// A rule that begins often is no surprise on two GPUs.
func TestWhatBeginsOftenIsNoSurprise(t *testing.T) {
	o := newOdd(t, 8, Config{Budget: Budget{GPUs: 10_000}})
	for k := range 200 {
		o.surprise = map[int]float64{k % 8: 1, (k + 1) % 8: 1, (k + 2) % 8: 1, (k + 3) % 8: 1}
		o.run(5 * time.Minute)
		o.surprise = map[int]float64{}
		o.run(15 * time.Minute)
	}
	if late := o.told; len(late) > 8 {
		t.Errorf("four GPUs that have begun together all the time were told %d times", len(late))
	}
}

func drained(s *collector.Snapshot) {
	s.Node.Set(metric.Drained, 1)
	for i := range s.GPUs {
		s.GPUs[i].Set(metric.ProcessCount, 0)
	}
}

func TestNobodyIsToldWhatBeginsOnADrainedNode(t *testing.T) {
	o := newOdd(t, 2, Config{})
	o.severity = rules.Page
	o.surprise[0] = 0 // a fact
	o.run(5 * time.Minute)
	if len(o.told) != 1 || o.told[0].Severity != rules.Page {
		t.Fatalf("before the drain told %+v, want a page", o.told)
	}
	before := o.e.watchers[0].suppressed.Get()
	o.set = drained
	o.run(time.Minute)
	o.restart()
	o.cause = func(gpu int) string { return fmt.Sprintf("cause_%d", gpu) }
	o.surprise[1] = 0
	if told := o.run(5 * time.Minute); len(told) != 0 {
		t.Errorf("what began after the drain was told: %+v", told)
	}
	var late *Finding
	for _, f := range o.e.View().Findings {
		if f.Subject.ID == "GPU-1" {
			late = &f
		}
	}
	if late == nil || late.State != Firing || late.Suppressed != "drained" || late.Severity != rules.Ticket {
		t.Fatalf("on the page it is %+v, want a ticket that fires and is not sent", late)
	}
	if n := o.e.watchers[0].suppressed.Get() - before; n != 2 {
		t.Errorf("%d findings are counted as suppressed, want those of the two causes", n)
	}
	o.set = func(s *collector.Snapshot) { s.Node.Set(metric.Drained, 0) }
	told := o.run(2 * time.Minute)
	paged := false
	for _, in := range told {
		paged = paged || in.Severity == rules.Page && in.Members[0].Subject.ID == "GPU-1" && in.Members[0].Suppressed == ""
	}
	if !paged {
		t.Errorf("when the node is given out again, told %+v; want the page that still holds", told)
	}
}

func TestSeverityOnANodeThatNobodyWorksOn(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*collector.Snapshot)
		want rules.Severity
	}{
		"drained and empty": {drained, rules.Ticket},
		"drained, and work is still on it": {func(s *collector.Snapshot) {
			drained(s)
			s.GPUs[1].Set(metric.ProcessCount, 1)
		}, rules.Page},
		"drained, and nobody knows of processes": {func(s *collector.Snapshot) { s.Node.Set(metric.Drained, 1) }, rules.Page},
		"booting": {func(s *collector.Snapshot) {
			drained(s)
			s.Node.Set(metric.Drained, 0)
			s.Boot = s.Time.Add(-9 * time.Minute)
		}, rules.Ticket},
		"booted long ago": {func(s *collector.Snapshot) {
			drained(s)
			s.Node.Set(metric.Drained, 0)
			s.Boot = s.Time.Add(-11 * time.Minute)
		}, rules.Page},
		"only a service": {func(s *collector.Snapshot) {
			drained(s)
			s.GPUs[0].Set(metric.ProcessCount, 1)
			s.Processes = []collector.Process{{UUID: "GPU-0", Name: "nv-hostengine", Owner: collector.Owner{Kind: "service", ID: "dcgm.service"}}}
		}, rules.Ticket},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOdd(t, 2, Config{})
			o.severity, o.set = rules.Page, c.set
			o.surprise[0] = 0
			o.run(time.Minute)
			if f := o.first(); f.State != Firing || f.Severity != c.want {
				t.Errorf("a page is %s with %s, want %s", f.State, f.Severity, c.want)
			}
		})
	}
}

func TestDrainedNodeThatIsStillOccupied(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	who := collector.Owner{Kind: "pod", ID: "nlp/train-0"}
	st.set = func(s *collector.Snapshot) {
		drained(s)
		s.GPUs[1].Set(metric.ProcessCount, 1)
		s.GPUs[1].Owners = []collector.Owner{who}
	}
	st.run(29 * time.Minute)
	if st.firing(rules.IDDrainedOccupied, "node:n1") {
		t.Error("a node that is being drained is a finding before half an hour")
	}
	st.run(3 * time.Minute)
	f := st.finding(rules.IDDrainedOccupied, "node:n1")
	if f == nil || f.State != Firing || f.Severity != rules.Ticket || f.Suppressed != "" {
		t.Fatalf("after half an hour it is %+v, want a ticket that is sent", f)
	}
	st.says(f, "the node is drained, and work runs on GPU 1: pod:nlp/train-0", "nothing runs on a drained node")
	st.set = drained
	st.run(10 * time.Minute)
	if st.firing(rules.IDDrainedOccupied, "node:n1") {
		t.Error("it does not end when the node is empty")
	}
	st.set = func(s *collector.Snapshot) { s.GPUs[1].Set(metric.ProcessCount, 1) }
	st.told = nil
	st.run(2 * time.Hour)
	st.silent("a node of which nobody says whether it is drained")
}

// A node alone never has the clean history that a page takes where its share is that of a
// whole fleet; all nodes together do, and what they owe counts against it.
func TestCleanHistoryOfManyNodesIsOne(t *testing.T) {
	o := newOdd(t, 8, Config{})
	o.e.Among(800)
	o.run(time.Minute)
	sum := map[rules.ID]float64{"r": 2 * o.e.proof()}
	o.e.CleanAmong(sum)
	o.severity, o.surprise[0] = rules.Page, 30
	o.run(5 * time.Minute)
	if f := o.first(); f.Severity != rules.Page {
		t.Errorf("a rule with twice the clean history that a page takes, on all nodes, tells %s: %s", f.Severity, f.Evidence.Why)
	}
	mine := map[rules.ID]float64{}
	o.e.Clean(mine)
	if mine["r"] > -0.9 {
		t.Errorf("a young node that has told a finding adds %v GPU-weeks of clean history, want one taken away", mine["r"])
	}
	alone := newOdd(t, 8, Config{})
	alone.e.Among(800)
	alone.severity, alone.surprise[0] = rules.Page, 30
	alone.run(5 * time.Minute)
	if f := alone.first(); f.Severity != rules.Ticket {
		t.Errorf("a node without history tells %s", f.Severity)
	}
}
