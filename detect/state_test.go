package detect

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpuvigil/rules"
)

// halfway is an engine with a finding that fires, one that is pending and one that
// has resolved.
func halfway(t *testing.T) *bench {
	b := newBench(t, testRule("r"), Config{})
	b.score["GPU-0"], b.score["GPU-1"] = 2, 2
	b.run(5 * time.Minute)
	b.score["GPU-1"] = 0
	b.run(5 * time.Minute)
	b.score["GPU-2"] = 3
	b.run(30 * time.Second)
	return b
}

func restart(t *testing.T, b *bench) *bench {
	t.Helper()
	data, err := b.e.Save()
	if err != nil {
		t.Fatal(err)
	}
	after := newBench(t, testRule("r"), Config{})
	after.now, after.score = b.now, b.score
	if err := after.e.Restore(data); err != nil {
		t.Fatal(err)
	}
	return after
}

func TestFindingsSurviveARestart(t *testing.T) {
	b := halfway(t)
	after := restart(t, b)
	if diff := cmp.Diff(b.e.View(), after.e.View(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("view after the restart (-before +after):\n%s", diff)
	}
	// A minute is lost with the restart; the life goes on as if it had not been.
	after.now = after.now.Add(time.Minute)
	told := after.run(2 * time.Second)
	if len(told) != 1 || told[0].ID != b.told[0].ID || len(told[0].Members) != 3 {
		t.Errorf("after the restart told %+v, want GPU-2 in the incident %s", told, b.told[0].ID)
	}
	since := b.state().Since
	if got := after.state(); got.State != Firing || !got.Since.Equal(since) {
		t.Errorf("after the restart GPU-0 is %s since %s, want firing since %s", got.State, got.Since, since)
	}
	delete(after.score, "GPU-0")
	after.score["GPU-2"] = 0
	after.run(16 * time.Minute)
	if told := after.told[len(after.told)-1]; told.State != Resolved {
		t.Errorf("last told %+v, want the incident resolved", told)
	}
}

// The detectors need minutes to fill their windows again. A finding must not
// expire for that, however long the agent was away.
func TestLongPauseExpiresNothing(t *testing.T) {
	b := restart(t, halfway(t))
	b.now = b.now.Add(3 * time.Hour)
	saved := b.score
	b.score = map[string]float64{}
	b.run(10 * time.Minute)
	b.want(Firing, "before the detector can judge again")
	b.score = saved
	b.run(59 * time.Second)
	b.want(Firing, "when the detector judges again")
	if len(b.told) != 0 {
		t.Errorf("told %+v of what held for a moment before the pause and for less than a minute after it", b.told)
	}
	b.run(2 * time.Second)
	if n := len(b.told); n != 1 || b.told[0].State != Firing {
		t.Errorf("told %+v, want only GPU-2 that fires now", b.told)
	}
}

func TestStateThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"damaged":         {`{"version":1,"findings":[{`, "damaged"},
		"of another type": {`{"version":1,"findings":7}`, "damaged"},
		"newer":           {`{"version":2,"findings":"of a shape we do not know"}`, "version 2 and this release of gpuvigil knows up to 1"},
		"none":            {`{}`, "no version"},
		"empty":           {``, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b := halfway(t)
			before := b.e.View()
			err := b.e.Restore([]byte(c.state))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "move the state file away") {
				t.Errorf("error %v, want %q and what to do", err, c.want)
			}
			if b.e.View() != before {
				t.Error("a state that cannot be read has changed something")
			}
		})
	}
}

// forgetful is a detector with a memory that a test sets.
type forgetful struct {
	script
	memory string
	err    error
}

func (d *forgetful) Save() ([]byte, error) { return json.Marshal(d.memory) }
func (d *forgetful) Restore(data []byte) error {
	if d.err != nil {
		return d.err
	}
	return json.Unmarshal(data, &d.memory)
}

func TestDetectorsMemory(t *testing.T) {
	one := &forgetful{script: script{rule: testRule("one")}, memory: "of one"}
	two := &forgetful{script: script{rule: testRule("two")}, memory: "of two"}
	data, err := NewEngine(Config{}, []Detector{one, two}).Save()
	if err != nil {
		t.Fatal(err)
	}
	one.memory, two.memory, one.err = "", "", errors.New("its memory is damaged")
	var log strings.Builder
	e := NewEngine(Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, []Detector{one, two})
	before := failures(e)
	if err := e.Restore(data); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "starts without memory") || !strings.Contains(log.String(), "rule=one") || failures(e) != before+1 {
		t.Errorf("a memory that cannot be read was counted %d times and logged as %q, want once with the rule's name", failures(e)-before, log.String())
	}
	if two.memory != "of two" {
		t.Errorf("the other detector's memory is %q", two.memory)
	}
	// The memory of a rule that is switched off is not thrown away.
	one.err, one.memory = nil, ""
	off := NewEngine(Config{Settings: map[rules.ID]Setting{"one": {Disabled: true}}}, []Detector{one, two})
	if err := off.Restore(data); err != nil {
		t.Fatal(err)
	}
	if data, err = off.Save(); err != nil {
		t.Fatal(err)
	}
	if err := NewEngine(Config{}, []Detector{one, two}).Restore(data); err != nil || one.memory != "of one" {
		t.Errorf("after the rule was off and on its memory is %q, error %v", one.memory, err)
	}
}

func TestFindingOfARuleThatIsGoneEnds(t *testing.T) {
	data, err := halfway(t).e.Save()
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, testRule("another"), Config{})
	if err := b.e.Restore(data); err != nil {
		t.Fatal(err)
	}
	b.now = day.Add(time.Hour)
	told := b.run(time.Second)
	if len(told) != 1 || told[0].State != Resolved {
		t.Errorf("told %+v, want the old rule's incident resolved", told)
	}
}

// In parts, a part that is lost or damaged costs nothing else.
func TestStateInParts(t *testing.T) {
	one := &forgetful{script: script{rule: testRule("one")}, memory: "of one"}
	two := &forgetful{script: script{rule: testRule("two")}, memory: "of two"}
	e := NewEngine(Config{}, []Detector{one, two})
	state, memories, err := e.SaveParts()
	if err != nil || strings.Contains(string(state), "of one") || string(memories["one"]) != `"of one"` {
		t.Fatalf("state %s, memories %s, %v: want the memories beside the state", state, memories, err)
	}
	quiet := Config{Log: slog.New(slog.DiscardHandler)}
	memories["gone"] = json.RawMessage(`[{`)
	memories["two"] = json.RawMessage(`[{`)
	for name, state := range map[string][]byte{"intact": state, "lost": nil} {
		one.memory, two.memory = "", ""
		e := NewEngine(quiet, []Detector{one, two})
		if err := e.RestoreParts(state, memories); err != nil || one.memory != "of one" || two.memory != "" {
			t.Errorf("state %s, a memory damaged: %v, the others remember %q", name, err, one.memory)
		}
		if _, err := e.Save(); err != nil {
			t.Errorf("state %s: after it was damaged it cannot be saved: %v", name, err)
		}
	}
	if err := e.RestoreParts([]byte(`{"version":2}`), nil); !errors.Is(err, ErrNewer) {
		t.Errorf("the state of a newer release: %v, want ErrNewer", err)
	}
}

// A state that the first release wrote must be read by all that follow.
func TestStateOfTheFirstRelease(t *testing.T) {
	const golden = "testdata/state-v1.json"
	b := halfway(t)
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	old := newBench(t, testRule("r"), Config{})
	if err := old.e.Restore(data); err != nil {
		t.Fatal(err)
	}
	// It did not yet count how often rules fire, nor keep what opened an incident.
	got, want := old.e.View(), b.e.View()
	ignored := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Standing{}, "Fired"), cmpopts.IgnoreFields(Incident{}, "Began")}
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		t.Errorf("view from the first release's state (-want +got):\n%s", diff)
	}
	for i := range got.Incidents {
		if o, w := got.Incidents[i].Origin(), want.Incidents[i].Origin(); o != w {
			t.Errorf("an incident of the first release's state was opened by %+v, want its root cause %+v", o, w)
		}
	}
}

func FuzzRestore(f *testing.F) {
	data, err := os.ReadFile("testdata/state-v1.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"incidents":[{}],"findings":[{"rule":"xid","state":"firing","incident":""}],"detectors":{"xid":{"version":1,"order":["a","a"],"gpus":{"a":null}}}}`))
	f.Add([]byte(`{"version":1,"detectors":{"xid":{"version":1,"order":["a"],"gpus":{"a":{"faults":[null]}}},"idle_gpu":{"version":1,"gpus":{"a":null,"b":{"busy":null,"power":null}},"ledger":null,"endpoints":{"a":null}},"saturated_gpu":{"version":1,"endpoints":{"a":{}}},"version_changed":{"version":1,"components":{"a":null},"order":["a"]}}}`))
	f.Add([]byte(`{"version":1,"detectors":{"data_movement":{"version":1,"habits":{"version":1,"habits":[]},"movers":[null],"classes":[{"class":{},"totals":null}]},"spend":{"version":1,"teams":{"a":null},"owners":[{"owner":{}}],"servers":[{}]},"unallocated_compute":{"version":1,"gpus":{"GPU-0":{"next":99}}},"unknown_use":{"version":1,"processes":{"a":null},"users":null}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := NewEngine(Config{}, Detectors(DetectorConfig{}))
		if e.Restore(data) != nil {
			return
		}
		before := failures(e)
		for i := range 3 {
			e.Observe(node(day.Add(time.Duration(i)*time.Second), 2))
		}
		if failures(e) != before {
			t.Error("a detector failed on what it restored")
		}
		if _, err := e.Save(); err != nil {
			t.Errorf("what was restored cannot be saved: %v", err)
		}
	})
}

func failures(e *Engine) (n uint64) {
	for _, w := range e.watchers {
		n += w.failures.Get()
	}
	return n
}
