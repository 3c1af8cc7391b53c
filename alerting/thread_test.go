package alerting_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// later returns the incident as it is after a while.
func later(i detect.Incident, after time.Duration) detect.Incident {
	i.Updated = example.Start.Add(after)
	i.Members = append([]detect.Finding(nil), i.Members...)
	return i
}

func TestAThreadTellsTheHistory(t *testing.T) {
	i := example.Of(rules.IDThrottledGPU)
	told := alerting.Begin(&i)
	news := func(what string, i detect.Incident, rings bool, want ...string) {
		t.Helper()
		m := example.Message(i)
		if m.Rung = told.Rung; rings {
			m.Ring, m.Rung = "the outbox says so", told.Rung+1
		}
		r := told.News(&m)
		if r == nil {
			if want != nil {
				t.Fatalf("%s: nothing is told, want %q", what, want)
			}
			return
		}
		if diff := cmp.Diff(want, r.Lines); diff != "" {
			t.Errorf("%s is told differently (-want +got):\n%s", what, diff)
		}
		if r.Rings != rings {
			t.Errorf("%s: rings %v, want %v", what, r.Rings, rings)
		}
		told = r.Told
	}
	news("the same again", later(i, time.Hour), false)
	grown := later(example.Join(i, 2), time.Minute)
	news("who joins within the pause", grown, false)
	grown = later(example.Join(i, 7), 14*time.Minute)
	news("seven who joined", grown, false, "7 more, 8 in all: gpu-117/10; gpu-117/9; gpu-117/8; gpu-117/7; gpu-117/6; and 2 more")
	worse := later(grown, 15*time.Minute)
	worse.Severity = rules.Page
	news("a page soon after", worse, true, "Worse: page, was ticket")
	fewer := later(worse, 21*time.Minute)
	fewer.Severity = rules.Page
	fewer.Members[2].State, fewer.Members[3].State = detect.Resolved, detect.Resolved
	news("two who are over", fewer, false, "2 of 8 are over")
	back := later(fewer, 27*time.Minute)
	back.Members[2].State = detect.Firing
	news("one who came back", back, false, "came back: 1 of 8 are over now, 2 were")
	end := example.Resolve(back)
	end.Resolved, end.Updated = example.Start.Add(28*time.Minute), example.Start.Add(28*time.Minute)
	news("the end", end, false, "Resolved after 28 min, from 2026-03-14 03:12:04 to 03:40:04 UTC; no longer seen")
	again := later(back, 30*time.Minute)
	news("an incident that comes back", again, true, "It is back: page", "came back: 1 of 8 are over now, 8 were")
	if told.Replies != 6 {
		t.Errorf("%d replies are counted, 6 were told", told.Replies)
	}
	news("an incident that still fires", later(again, 30*time.Minute), true, "the outbox says so")
	m := example.Message(later(again, 30*time.Minute))
	if m.Ring, m.Rung = "the outbox says so", told.Rung; told.News(&m) != nil {
		t.Error("what has rung rings once more: after a crash it would be said twice")
	}
	muted := later(back, 31*time.Minute)
	muted.Severity = rules.Page
	low := alerting.Begin(&grown)
	m = example.Message(muted)
	if r := low.News(&m); r == nil || r.Rings {
		t.Errorf("an incident that gets worse while the route is muted is told as %+v, want it told without a ring", r)
	}
}

func TestTheEndTellsWhatItCost(t *testing.T) {
	i := example.Of(rules.IDJobHung)
	m := example.Message(example.Resolve(i))
	r := alerting.Begin(&i).News(&m)
	if r == nil {
		t.Fatal("the end is no news")
	}
	said := strings.Join(r.Lines, "\n")
	for _, want := range []string{"Resolved after 14 min", "Cost: about 4.67 USD in all", "Lost: 5.1 GPU-hours"} {
		if !strings.Contains(said, want) {
			t.Errorf("the end does not tell %q:\n%s", want, said)
		}
	}
}

// TestAThreadIsBounded holds that an incident that moves all day does not fill its thread,
// and that its end is told all the same.
func TestAThreadIsBounded(t *testing.T) {
	i := example.Of(rules.IDThrottledGPU)
	told, replies := alerting.Begin(&i), 0
	for k := range 200 {
		grown := later(example.Join(i, k+1), time.Duration(k)*10*time.Minute)
		m := example.Message(grown)
		if r := told.News(&m); r != nil {
			told = r.Told
			replies++
		}
	}
	if replies < 10 || replies > 20 {
		t.Errorf("an incident that grew 200 times has %d replies, want 10 to 20", replies)
	}
	m := example.Message(example.Resolve(example.Join(i, 200)))
	if r := told.News(&m); r == nil || !strings.Contains(strings.Join(r.Lines, "\n"), "Resolved") || !strings.Contains(r.Lines[1], "201 in all") {
		t.Errorf("the end of an incident that moved a lot is told as %+v", r)
	}
}

func TestWhatWasToldIsReadBack(t *testing.T) {
	f := func(told alerting.Told) {
		t.Helper()
		text, err := told.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back alerting.Told
		if err := back.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(told, back); diff != "" {
			t.Errorf("%s is read back differently:\n%s", text, diff)
		}
	}
	f(alerting.Told{At: example.Start.Add(123456789), State: detect.Firing, Severity: rules.Page, Members: 200, Over: 3, Replies: 7})
	f(alerting.Told{At: time.Unix(0, 0).UTC()})
}

func FuzzTold(f *testing.F) {
	f.Add([]byte("firing page 200 3 7 2026-03-14T03:12:04Z"))
	f.Add([]byte("pending page 1 1 1 2026-03-14T03:12:04Z"))
	f.Add([]byte("- info -1 0 0 x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var told alerting.Told
		if told.UnmarshalText(text) != nil {
			return
		}
		again, err := told.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back alerting.Told
		if err := back.UnmarshalText(again); err != nil {
			t.Fatalf("%q was read, what it is written as is not: %v", text, err)
		}
		if !back.At.Equal(told.At) {
			t.Errorf("%q is read back as %+v, was %+v", text, back, told)
		}
	})
}
