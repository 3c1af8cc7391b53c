package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

func TestFlappingIsDamped(t *testing.T) {
	rule := testRule("r")
	rule.For, rule.Hold = 0, time.Minute
	b := newBench(t, rule, Config{})
	for range 12 { // R62: five minutes on, five off
		b.score["GPU-0"] = 2
		b.run(5 * time.Minute)
		b.score["GPU-0"] = 0
		b.run(5 * time.Minute)
	}
	opened := 0
	for _, in := range b.told {
		if in.State == Firing {
			opened++
		}
	}
	if opened < 2 || opened > 5 {
		t.Errorf("a condition that came back every ten minutes for two hours was told %d times, want each of the first few and then no more", opened)
	}
	b.want(Firing, "while it flaps")
	if f := b.state(); f.Flaps <= flapsBefore {
		t.Errorf("flaps are %d, want more than %d", f.Flaps, flapsBefore)
	}
	b.run(3 * time.Hour)
	b.want(Resolved, "hours after the flapping ended")
}

func TestCauseHidesItsConsequence(t *testing.T) {
	cause, effect := testRule("cause"), testRule("effect")
	cause.For, effect.For, effect.HiddenBy = 0, 0, []rules.ID{"cause"}
	scores := map[rules.ID]float64{"effect": 2}
	severity := rules.Ticket
	say := func(id rules.ID) func(*collector.Snapshot, func(Observation)) {
		return func(_ *collector.Snapshot, report func(Observation)) {
			report(Observation{Subject: Subject{"gpu", "GPU-0"}, Cause: "c", Score: scores[id], Severity: severity})
		}
	}
	e := NewEngine(Config{}, []Detector{&script{cause, say("cause")}, &script{effect, say("effect")}})
	now := day
	run := func(d time.Duration) (told []Incident) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(time.Second)
			told = append(told, e.Observe(&collector.Snapshot{Time: now})...)
		}
		return told
	}
	state := func() (out string) {
		for _, f := range e.View().Findings {
			out += fmt.Sprintf("%s %s %s; ", f.Rule, f.State, f.Ended)
		}
		return out
	}
	run(10 * time.Second)
	if got := state(); got != "effect firing ; " {
		t.Fatalf("without the cause: %s", got)
	}
	scores["cause"] = 2
	run(10 * time.Second)
	if got := state(); !strings.HasPrefix(got, "cause firing ; effect resolved hidden") {
		t.Fatalf("with the cause: %s", got)
	}
	scores["cause"] = 0
	run(5 * time.Minute)
	if got := state(); !strings.HasPrefix(got, "effect firing ; ") {
		t.Fatalf("after the cause: %s", got)
	}
	// Information explains nothing away.
	severity, scores["cause"] = rules.Info, 2
	run(10 * time.Second)
	if got := state(); !strings.HasPrefix(got, "effect firing ; cause firing ; ") {
		t.Fatalf("with a cause that is only information: %s", got)
	}
}

// What nobody looks at must not wake anybody up: a condition that held for a
// moment and is not judged any more is not a finding.
func TestPendingDoesNotFireUnseen(t *testing.T) {
	for _, wait := range []time.Duration{2 * time.Minute, 5 * time.Minute} {
		rule := testRule("r")
		rule.For = wait
		b := newBench(t, rule, Config{})
		b.score["GPU-0"] = 2
		b.run(3 * time.Second)
		delete(b.score, "GPU-0")
		b.run(20 * time.Minute)
		if len(b.told) != 0 {
			t.Errorf("a condition that must hold for %v and was judged for three seconds was told: %+v", wait, b.told)
		}
	}
	// A detector may pause for less than a minute.
	b := newBench(t, testRule("r"), Config{})
	b.score["GPU-0"] = 2
	b.run(40 * time.Second)
	delete(b.score, "GPU-0")
	b.run(30 * time.Second)
	b.want(Firing, "half a minute after it was last judged, which is no pause")
}
