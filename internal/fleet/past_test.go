package fleet

import (
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

// TestNobodyIsToldOfThePast has an incident that was over before the role began, and one
// that still holds.
func TestNobodyIsToldOfThePast(t *testing.T) {
	var told []detect.Incident
	a := newAgents(t, 4)
	a.role = clusterRole(t, Config{Tell: func(in []detect.Incident) { told = append(told, in...) }})
	past := a.role.Past()
	if got := a.role.Observe(a.now.Add(24*time.Hour), a.snapshots()); got != nil || len(a.role.View().Nodes) != 0 {
		t.Errorf("while the past is looked at, the present is judged: %v", got)
	}
	run := func(d time.Duration, look func(time.Time, []*collector.Snapshot)) {
		for end := a.now.Add(d); a.now.Before(end); {
			a.now = a.now.Add(time.Minute)
			look(a.now, a.snapshots())
		}
	}
	run(time.Hour, past.Observe)
	a.says("gpu-000", "xid", "page", "gpu:GPU-gpu-000-1", "79")
	run(20*time.Minute, past.Observe)
	delete(a.told, "gpu-000")
	run(2*time.Hour, past.Observe)
	began := a.now
	a.says("gpu-001", "xid", "page", "gpu:GPU-gpu-001-1", "79")
	run(20*time.Minute, past.Observe)
	if len(told) != 0 {
		t.Fatalf("people are told of the past: %s", namesOf(told))
	}
	if got := past.End(); len(got) != 1 || len(told) != 1 || told[0].Members[0].Node != "gpu-001" || told[0].State != detect.Firing || !told[0].Members[0].Since.Equal(began) {
		t.Fatalf("told %s since %v, want the incident on gpu-001 alone, since %s", namesOf(told), told, began)
	}
	live := func(now time.Time, nodes []*collector.Snapshot) { a.role.Observe(now, nodes) }
	run(10*time.Minute, live)
	if len(told) != 1 {
		t.Errorf("what had been told once is told again: %s", namesOf(told))
	}
	delete(a.told, "gpu-001")
	run(time.Hour, live)
	if len(told) != 2 || told[1].State != detect.Resolved {
		t.Errorf("told %s, want the end of the incident", namesOf(told))
	}
}

// TestTheEndOfWhatWasToldIsTold has an incident that people know of from before a
// restart, and that ended while nobody looked.
func TestTheEndOfWhatWasToldIsTold(t *testing.T) {
	a := newAgents(t, 3)
	a.run(time.Hour)
	a.says("gpu-000", "xid", "page", "gpu:GPU-gpu-000-1", "79")
	a.run(10 * time.Minute)
	if len(a.said) != 1 {
		t.Fatalf("told %s, want one incident", namesOf(a.said))
	}
	parts, _ := a.role.Save(a.now)
	var told []detect.Incident
	again := clusterRole(t, Config{Tell: func(in []detect.Incident) { told = append(told, in...) }})
	for name, data := range parts {
		if err := again.Restore(name, data); err != nil {
			t.Fatal(err)
		}
	}
	past := again.Past()
	for at := a.now.Add(-3 * time.Hour); at.Before(a.now); at = at.Add(time.Minute) { // it is known already
		s := a.snapshots()
		for i := range s {
			s[i].Time = at
		}
		past.Observe(at, s)
	}
	delete(a.told, "gpu-000")
	for range 60 {
		a.now = a.now.Add(time.Minute)
		past.Observe(a.now, a.snapshots())
	}
	past.End()
	if len(told) != 1 || told[0].State != detect.Resolved || told[0].ID != a.said[0].ID {
		t.Errorf("told %s, want the end of what people know of", namesOf(told))
	}
}
