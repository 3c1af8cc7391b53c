package detect

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

var day = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// script is a detector whose observations a test sets.
type script struct {
	rule *rules.Rule
	say  func(s *collector.Snapshot, report func(Observation))
}

func (d *script) Rule() *rules.Rule { return d.rule }
func (d *script) Observe(s *collector.Snapshot, report func(Observation)) {
	if d.say != nil {
		d.say(s, report)
	}
}

func testRule(id rules.ID) *rules.Rule {
	return &rules.Rule{ID: id, Severity: rules.Ticket, For: time.Minute, Hold: 2 * time.Minute, Watch: []*metric.Def{metric.Utilization, metric.CPUBusy}}
}

// bench runs an engine second by second over one scripted condition on one GPU.
type bench struct {
	t      *testing.T
	e      *Engine
	now    time.Time
	score  map[string]float64 // by subject id; a subject that is not in it is not judged
	events []collector.Event
	told   []Incident
}

func newBench(t *testing.T, rule *rules.Rule, cfg Config) *bench {
	b := &bench{t: t, now: day, score: map[string]float64{}}
	cfg.Node = "n1"
	b.e = NewEngine(cfg, []Detector{b.detector(rule)})
	return b
}

func (b *bench) detector(rule *rules.Rule) Detector {
	return &script{rule, func(s *collector.Snapshot, report func(Observation)) {
		for i := range 9 {
			id := fmt.Sprintf("GPU-%d", i)
			if score, ok := b.score[id]; ok {
				report(Observation{Subject: Subject{"gpu", id}, Cause: "c", Score: score, Severity: rules.Ticket,
					GPU: &collector.GPU{Index: i, UUID: id, Model: "H100"}})
			}
		}
	}}
}

// run feeds a snapshot a second for d and returns the incidents told in it.
func (b *bench) run(d time.Duration) []Incident {
	b.t.Helper()
	var told []Incident
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(time.Second)
		told = append(told, b.e.Observe(&collector.Snapshot{Time: b.now, Events: b.events})...)
		b.events = nil
	}
	b.told = append(b.told, told...)
	return told
}

// state returns the finding on GPU-0 that lives, or the newest that ended.
func (b *bench) state() *Finding {
	for _, f := range b.e.View().Findings {
		if f.Subject.ID == "GPU-0" {
			return &f
		}
	}
	return &Finding{State: "none"}
}

func (b *bench) want(s State, when string) {
	b.t.Helper()
	if got := b.state().State; got != s {
		b.t.Fatalf("%s the finding is %s, want %s", when, got, s)
	}
}

func TestLifeOfAFinding(t *testing.T) {
	b := newBench(t, testRule("r"), Config{})
	b.score["GPU-0"] = 0.5
	b.run(time.Minute)
	b.want("none", "below the threshold")

	b.score["GPU-0"] = 1.5
	began := b.now.Add(time.Second)
	b.run(59 * time.Second)
	b.want(Pending, "before the condition held for a minute")
	told := b.run(2 * time.Second)
	b.want(Firing, "after a minute")
	if len(told) != 1 || told[0].State != Firing || told[0].Severity != rules.Ticket {
		t.Fatalf("told %+v, want one firing incident", told)
	}
	b.run(10 * time.Minute)
	if len(b.told) != 1 {
		t.Errorf("an incident that does not change was told %d times", len(b.told))
	}
	f := b.state()
	if !f.Since.Equal(began) || f.Fired.Sub(began) != time.Minute || f.GPUIndex != 0 || f.GPUModel != "H100" || f.Node != "n1" || f.Count != 661 {
		t.Errorf("finding %+v, want since %s, fired a minute later, GPU 0, node n1, 661 observations", f, began)
	}

	b.score["GPU-0"] = 0.2
	b.run(time.Minute + 59*time.Second)
	b.want(Firing, "before the condition was gone for two minutes")
	told = b.run(2 * time.Second)
	b.want(Resolved, "after two minutes")
	f = b.state()
	if len(told) != 1 || told[0].State != Resolved || f.Ended != "cleared" || !f.Since.Equal(began) {
		t.Errorf("told %+v and finding %+v, want one resolved incident, cleared", told, f)
	}
	b.now = b.now.Add(25 * time.Hour)
	b.run(time.Second)
	b.want("none", "a day after it resolved")
	if len(b.e.View().Incidents) != 0 {
		t.Error("a day after it resolved the incident is still shown")
	}
}

// R56: a condition that goes away before its time starts over.
func TestPendingStartsOver(t *testing.T) {
	b := newBench(t, testRule("r"), Config{})
	for range 5 {
		b.score["GPU-0"] = 2
		b.run(50 * time.Second)
		b.score["GPU-0"] = 0
		b.run(time.Second)
		b.want("none", "after the condition went away early")
	}
	if len(b.told) != 0 {
		t.Errorf("told %d incidents of a condition that never held for a minute", len(b.told))
	}
}

func TestUnjudgedSubjectKeepsItsStateUntilItExpires(t *testing.T) {
	b := newBench(t, testRule("r"), Config{})
	b.score["GPU-0"] = 2
	b.run(2 * time.Minute)
	delete(b.score, "GPU-0")
	b.run(15 * time.Minute)
	b.want(Firing, "a quarter of an hour without a judgement")
	b.run(2 * time.Second)
	b.want(Resolved, "after that")
	if f := b.state(); f.Ended != "expired" {
		t.Errorf("it ended as %q, want expired", f.Ended)
	}
}

func TestSettingsOverrideTheRule(t *testing.T) {
	second, hour, page := time.Second, time.Hour, rules.Page
	b := newBench(t, testRule("r"), Config{Settings: map[rules.ID]Setting{"r": {For: &second, Hold: &hour, Severity: &page}}})
	b.score["GPU-0"] = 1
	b.run(3 * time.Second)
	b.want(Firing, "with a waiting time of a second")
	if s := b.state().Severity; s != rules.Page {
		t.Errorf("severity is %s, want the page that the user asked for", s)
	}
	b.score["GPU-0"] = 0
	b.run(59 * time.Minute)
	b.want(Firing, "before the hold time of an hour")

	b = newBench(t, testRule("r"), Config{Settings: map[rules.ID]Setting{"r": {Disabled: true}}})
	b.score["GPU-0"] = 5
	b.run(5 * time.Minute)
	b.want("none", "with the rule switched off")
}

func TestSeverityIsBounded(t *testing.T) {
	info := rules.Info
	for _, c := range []struct {
		rule      rules.Severity
		set       *rules.Severity
		said, got rules.Severity
	}{
		{rules.Ticket, nil, rules.Page, rules.Ticket},
		{rules.Page, nil, rules.Page, rules.Page},
		{rules.Page, nil, rules.Info, rules.Info},
		{rules.Page, &info, rules.Page, rules.Info},
		{rules.Ticket, ptr(rules.Page), rules.Ticket, rules.Page},
		{rules.Ticket, ptr(rules.Page), rules.Info, rules.Info},
		{rules.Page, ptr(rules.Ticket), rules.Info, rules.Info},
	} {
		w := &watcher{rule: &rules.Rule{Severity: c.rule}, severity: c.set}
		if got := w.bound(c.said, false); got != c.got {
			t.Errorf("rule %s, setting %v, detector %s: severity %s, want %s", c.rule, c.set, c.said, got, c.got)
		}
	}
}

// TestCriticalWorkloadsAreOneHigher has a GPU that a critical workload shares with
// another one, in the detector's own words and as the user has set the rule.
func TestCriticalWorkloadsAreOneHigher(t *testing.T) {
	vital, other := collector.Owner{Kind: "pod", ID: "chat"}, collector.Owner{Kind: "pod", ID: "batch"}
	for _, c := range []struct {
		pages     bool
		limit     rules.Severity
		set       *rules.Severity
		owners    []collector.Owner
		said, got rules.Severity
	}{
		{false, rules.Ticket, nil, []collector.Owner{other}, rules.Info, rules.Info},
		{false, rules.Ticket, nil, []collector.Owner{other, vital}, rules.Info, rules.Ticket},
		{false, rules.Info, nil, []collector.Owner{vital}, rules.Info, rules.Ticket},
		{false, rules.Ticket, nil, []collector.Owner{vital}, rules.Ticket, rules.Ticket}, // this rule may not page
		{true, rules.Page, nil, []collector.Owner{vital}, rules.Ticket, rules.Page},
		{true, rules.Page, nil, []collector.Owner{vital}, rules.Page, rules.Page},
		{true, rules.Page, ptr(rules.Info), []collector.Owner{vital}, rules.Page, rules.Info}, // the user's word is the limit
	} {
		rule := &rules.Rule{ID: "r", Severity: c.limit, Pages: c.pages, Hold: time.Minute}
		e := NewEngine(Config{Node: "n1", Settings: map[rules.ID]Setting{"r": {Severity: c.set}}}, []Detector{&script{rule, func(s *collector.Snapshot, report func(Observation)) {
			report(Observation{Subject: Subject{"gpu", "GPU-1"}, Cause: "c", Score: 1, Severity: c.said, GPU: &s.GPUs[0]})
		}}})
		e.Observe(&collector.Snapshot{Time: day, GPUs: []collector.GPU{{UUID: "GPU-1", Owners: c.owners}},
			Workloads: []collector.Workload{{Owner: other}, {Owner: vital, Critical: true}}})
		f := e.View().Findings[0]
		if f.Severity != c.got || f.Critical != (len(c.owners) > 1 || c.owners[0] == vital) {
			t.Errorf("rule of at most %s, pages %v, set to %v, owners %v, said %s: severity %s, critical %v, want %s", c.limit, c.pages, c.set, c.owners, c.said, f.Severity, f.Critical, c.got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestSeverityRisesAndIsToldOnce(t *testing.T) {
	severity := rules.Info
	rule := &rules.Rule{ID: "r", Severity: rules.Ticket, Hold: time.Minute}
	e := NewEngine(Config{Node: "n1"}, []Detector{&script{rule, func(s *collector.Snapshot, report func(Observation)) {
		report(Observation{Subject: Subject{"node", "n1"}, Cause: "c", Score: 1, Severity: severity})
	}}})
	var told []Incident
	for i := range 30 {
		if i == 10 {
			severity = rules.Ticket
		}
		if i == 20 {
			severity = rules.Info
		}
		told = append(told, e.Observe(&collector.Snapshot{Time: day.Add(time.Duration(i+1) * time.Second)})...)
	}
	if len(told) != 2 || told[0].Severity != rules.Info || told[1].Severity != rules.Ticket || told[0].ID != told[1].ID {
		t.Fatalf("told %+v, want the same incident as info and then as ticket", told)
	}
	if f := e.View().Findings[0]; f.Severity != rules.Ticket {
		t.Errorf("severity fell back to %s while the finding lasts", f.Severity)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	rule := testRule("bounded")
	rule.For = 0
	b := newBench(t, rule, Config{MaxFindings: 3})
	before := b.e.watchers[0].capped.Get()
	for i := range 9 {
		b.score[fmt.Sprintf("GPU-%d", i)] = 2
	}
	b.run(time.Second)
	if n := len(b.e.View().Findings); n != 3 {
		t.Errorf("%d findings, want the limit of 3", n)
	}
	if got := b.e.watchers[0].capped.Get() - before; got != 6 {
		t.Errorf("%d counted as capped, want 6", got)
	}
	// What has resolved makes room.
	for i := range 3 {
		b.score[fmt.Sprintf("GPU-%d", i)] = 0
	}
	b.run(4 * time.Minute)
	firing := 0
	for _, f := range b.e.View().Findings {
		if f.State == Firing {
			firing++
		}
	}
	if firing != 3 {
		t.Errorf("%d findings fire after others made room, want 3", firing)
	}
}

func TestBrokenDetectorCostsOnlyItself(t *testing.T) {
	good := testRule("good")
	good.For = 0
	b := newBench(t, good, Config{})
	bad := &script{testRule("bad"), func(_ *collector.Snapshot, report func(Observation)) {
		for _, o := range []Observation{
			{Subject: Subject{"gpu", "a"}, Score: math.NaN()}, {Subject: Subject{"gpu", "a"}, Score: math.Inf(1)},
			{Subject: Subject{"gpu", "a"}, Score: -1}, {Score: 2}, {Subject: Subject{"gpu", ""}, Score: 2},
			{Subject: Subject{"gpu", "a"}, Score: 2, Evidence: Evidence{Observed: math.NaN()}},
			{Subject: Subject{"gpu", "a"}, Score: 2, Evidence: Evidence{Want: ptr(math.Inf(-1))}},
		} {
			report(o)
		}
		panic("no")
	}}
	b.e = NewEngine(Config{}, []Detector{bad, b.detector(good)})
	w := b.e.watchers[0]
	failures, dropped := w.failures.Get(), w.dropped.Get()
	b.score["GPU-0"] = 2
	b.run(3 * time.Second)
	b.want(Firing, "beside a detector that panics")
	if f, d := w.failures.Get()-failures, w.dropped.Get()-dropped; f != 3 || d != 21 {
		t.Errorf("%d failures and %d dropped observations counted, want 3 and 21", f, d)
	}
	if n := len(b.e.View().Findings); n != 1 {
		t.Errorf("%d findings, want only the good detector's", n)
	}
}

func TestEventsBefore(t *testing.T) {
	rule := testRule("r")
	rule.For = 0
	b := newBench(t, rule, Config{})
	event := func(text string) collector.Event {
		return collector.Event{Time: b.now, Kind: collector.ClocksEvent, Text: text}
	}
	b.events = []collector.Event{event("long before")}
	b.run(11 * time.Minute)
	b.events = []collector.Event{event("just before")}
	b.run(time.Minute)
	b.score["GPU-0"] = 1
	b.run(time.Second)
	b.events = []collector.Event{event("after")}
	b.run(time.Second)
	before := b.state().Before
	if len(before) != 1 || before[0].Text != "just before" {
		t.Errorf("what changed before is %+v, want only what happened in the ten minutes before", before)
	}
}

// TestChangesOfOthersAreNotTold has three owners change something just before one's
// GPU is in trouble.
func TestChangesOfOthersAreNotTold(t *testing.T) {
	mine, other := collector.Owner{Kind: "pod", ID: "a/b", Team: "x"}, collector.Owner{Kind: "job", ID: "1"}
	change := func(o collector.Owner) collector.Event {
		return collector.Event{Time: day, Kind: collector.VersionEvent, Owner: o, Component: "vllm", From: "1", To: "2"}
	}
	f := func(o Observation, want ...collector.Owner) {
		t.Helper()
		rule := testRule("r")
		rule.For = 0
		e := NewEngine(Config{}, []Detector{&script{rule, func(_ *collector.Snapshot, report func(Observation)) { report(o) }}})
		e.Observe(&collector.Snapshot{Time: day.Add(time.Second), Events: []collector.Event{change(mine), change(other), change(collector.Owner{})}})
		if changes := e.Changes(); len(changes) != 3 {
			t.Errorf("of three changes %d are listed", len(changes))
		}
		var got []collector.Owner
		for _, ev := range e.View().Findings[0].Before {
			got = append(got, ev.Owner)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("before a finding about %v of %v these are told to have changed something (-want +got):\n%s", o.Subject, o.Owner, diff)
		}
	}
	gpu := Subject{"gpu", "GPU-0"}
	f(Observation{Subject: gpu, Score: 1}, collector.Owner{})
	f(Observation{Subject: gpu, Score: 1, Owner: collector.Owner{Kind: "pod", ID: "a/b"}}, mine, collector.Owner{})
	f(Observation{Subject: gpu, Score: 1, GPU: &collector.GPU{Owners: []collector.Owner{other, mine}}}, mine, other, collector.Owner{})
	f(Observation{Subject: Subject{"node", "n"}, Score: 1}, mine, other, collector.Owner{})
}

func TestConditionIsAStateOfItsOwn(t *testing.T) {
	rule := testRule("r")
	rule.State = true
	active := true
	e := NewEngine(Config{}, []Detector{&script{rule, func(_ *collector.Snapshot, report func(Observation)) {
		report(Observation{Subject: Subject{"gpu", "GPU-0"}, State: active, Score: 0.25})
	}}})
	e.Observe(&collector.Snapshot{Time: day})
	old := e.View()
	want := []Condition{{Rule: "r", Subject: Subject{"gpu", "GPU-0"}, Active: true, Score: 0.25}}
	if diff := cmp.Diff(want, old.Conditions); diff != "" || len(old.Findings) != 0 {
		t.Errorf("conditions (-want +got):\n%s\nfindings: %v", diff, old.Findings)
	}
	active = false
	e.Observe(&collector.Snapshot{Time: day.Add(time.Second)})
	if e.View().Conditions[0].Active {
		t.Error("the condition stays active")
	}
	if !old.Conditions[0].Active {
		t.Error("a view that was handed out has changed")
	}
}

func TestCauseMustComeBeforeItsConsequence(t *testing.T) {
	a, b := testRule("a"), testRule("b")
	a.HiddenBy = []rules.ID{"b"}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "must come after it") {
			t.Errorf("panic %v, want one that says how to order the detectors", p)
		}
	}()
	NewEngine(Config{}, []Detector{&script{rule: a}, &script{rule: b}})
}
