package detect

import (
	"fmt"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

func immediate() *rules.Rule {
	r := testRule("r")
	r.For = 0
	return r
}

// Eight GPUs lost is one incident, not eight.
func TestEightFindingsAreOneIncident(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	for i := range 8 {
		b.score[fmt.Sprintf("GPU-%d", (i+5)%8)] = 2
		b.run(time.Minute)
	}
	view := b.e.View()
	if len(view.Incidents) != 1 || len(view.Incidents[0].Members) != 8 {
		t.Fatalf("incidents %+v, want one with eight members", view.Incidents)
	}
	in := view.Incidents[0]
	if in.Members[0].Subject.ID != "GPU-5" {
		t.Errorf("the root cause is %s, want the GPU that began it", in.Members[0].Subject)
	}
	if len(b.told) != 8 {
		t.Errorf("told %d times, want once for each member that came", len(b.told))
	}
	for _, told := range b.told {
		if told.ID != in.ID || !told.Opened.Equal(day.Add(time.Second)) {
			t.Errorf("incident %s opened %s, want %s all the time", told.ID, told.Opened, in.ID)
		}
	}
	for i := range 7 {
		b.score[fmt.Sprintf("GPU-%d", i)] = 0
	}
	told := b.run(3 * time.Minute)
	if len(told) != 1 || told[0].State != Firing {
		t.Errorf("seven members that went told %+v, want the incident once, still open", told)
	}
	b.score["GPU-7"] = 0
	told = b.run(3 * time.Minute)
	if len(told) != 1 || told[0].State != Resolved || told[0].Resolved.IsZero() {
		t.Errorf("the last member that went told %+v, want the incident resolved", told)
	}
}

func TestIncidentOpensAgainOnlySoon(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	b.score["GPU-0"] = 2
	first := b.run(time.Minute)[0].ID
	b.score["GPU-0"] = 0
	b.run(3 * time.Minute)
	b.score["GPU-1"] = 2
	told := b.run(time.Minute)
	if len(told) != 1 || told[0].ID != first || told[0].State != Firing || len(told[0].Members) != 2 {
		t.Fatalf("four minutes later another GPU: %+v, want the first incident again with two members", told)
	}
	if m := told[0].Members; m[0].State != Resolved || m[1].State != Firing {
		t.Errorf("members are %s and %s, want one resolved and one firing", m[0].State, m[1].State)
	}
	b.score["GPU-1"] = 0
	b.run(20 * time.Minute)
	b.score["GPU-0"] = 2
	told = b.run(time.Minute)
	if len(told) != 1 || told[0].ID == first || len(told[0].Members) != 1 {
		t.Errorf("twenty minutes later: %+v, want an incident of its own", told)
	}
}

// While an incident is open, what comes late still belongs to it.
func TestLateMemberJoinsTheOpenIncident(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	b.score["GPU-0"] = 2
	b.run(2 * time.Hour)
	b.score["GPU-1"] = 2
	told := b.run(time.Minute)
	if len(told) != 1 || told[0].ID != b.told[0].ID || len(told[0].Members) != 2 {
		t.Errorf("two hours later another GPU: %+v, want it in the open incident", told)
	}
}

func TestIncidentsOfDifferentCausesStayApart(t *testing.T) {
	e := NewEngine(Config{}, []Detector{&script{immediate(), func(_ *collector.Snapshot, report func(Observation)) {
		for _, cause := range []string{"xid_79", "xid_48"} {
			report(Observation{Subject: Subject{"gpu", "GPU-0"}, Cause: cause, Score: 1, Severity: rules.Info})
		}
	}}})
	told := e.Observe(&collector.Snapshot{Time: day})
	if len(told) != 2 || told[0].ID == told[1].ID {
		t.Errorf("told %+v, want two incidents with ids of their own", told)
	}
}

func TestMembersAreOrderedBySeverityAfterTheRoot(t *testing.T) {
	severities := []rules.Severity{rules.Info, rules.Info, rules.Ticket}
	n := 0
	e := NewEngine(Config{}, []Detector{&script{immediate(), func(_ *collector.Snapshot, report func(Observation)) {
		for i := range n {
			report(Observation{Subject: Subject{"gpu", fmt.Sprintf("GPU-%d", i)}, Cause: "c", Score: 1, Severity: severities[i]})
		}
	}}})
	for n = 1; n <= 3; n++ {
		e.Observe(&collector.Snapshot{Time: day.Add(time.Duration(n) * time.Second)})
	}
	in := e.View().Incidents[0]
	order := ""
	for _, m := range in.Members {
		order += m.Subject.ID + " "
	}
	if order != "GPU-0 GPU-2 GPU-1 " || in.Severity != rules.Ticket {
		t.Errorf("order is %s with severity %s, want GPU-0 (root) GPU-2 (ticket) GPU-1 and ticket", order, in.Severity)
	}
}

// What an incident began as stays, so that others can know it by that, while its root
// cause becomes another and over a restart.
func TestIncidentKeepsWhatItBeganAs(t *testing.T) {
	b := newBench(t, immediate(), Config{})
	b.score["GPU-3"] = 2
	b.run(time.Minute)
	b.score["GPU-3"], b.score["GPU-1"] = 0, 2
	b.run(time.Minute)
	want := Origin{Rule: "r", Cause: "c", Subject: Subject{"gpu", "GPU-3"}, Node: b.told[0].Members[0].Node, GPUIndex: b.told[0].Members[0].GPUIndex}
	want.Cause = b.told[0].Cause
	for k, in := range b.told {
		if in.Origin() != want {
			t.Errorf("state %d of the incident began as %+v, want %+v", k, in.Origin(), want)
		}
	}
	state, err := b.e.Save()
	if err != nil {
		t.Fatal(err)
	}
	later := newBench(t, immediate(), Config{})
	if err := later.e.Restore(state); err != nil {
		t.Fatal(err)
	}
	if got := later.e.View().Incidents[0].Origin(); got != want {
		t.Errorf("after a restart the incident began as %+v, want %+v", got, want)
	}
	// An earlier release did not write it down.
	old := b.told[0]
	old.Began = Origin{}
	if got := old.Origin(); got != want {
		t.Errorf("an incident of an earlier release began as %+v, want its root cause %+v", got, want)
	}
}
