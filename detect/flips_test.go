package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// flipNode is an engine of eight GPUs with two statistical rules, whose findings a test
// sets, and rule suspect_monitor.
type flipNode struct {
	*bench
	odd    map[string][]int // GPUs by rule that are unusual now
	owners func(i int) collector.Owner
	next   func(s *collector.Snapshot)
}

func newFlipNode(t *testing.T) *flipNode {
	v := &flipNode{bench: &bench{t: t, now: day}, odd: map[string][]int{},
		owners: func(i int) collector.Owner { return collector.Owner{Kind: "pod", ID: fmt.Sprint("nlp/chat-", i/2)} },
		next:   func(*collector.Snapshot) {}}
	detectors := []Detector{NewSuspect()}
	for _, id := range []rules.ID{rules.IDUnusual, rules.IDStraggler} {
		r := *rules.Get(id)
		r.HiddenBy = []rules.ID{rules.IDSuspectMonitor}
		detectors = append(detectors, &script{&r, func(s *collector.Snapshot, report func(Observation)) {
			for i := range s.GPUs {
				o := Observation{Subject: gpuSubject(s.GPUs[i].UUID), Cause: "c", Severity: rules.Ticket, GPU: &s.GPUs[i], Owner: v.owners(i), Score: 0.2}
				for _, odd := range v.odd[string(id)] {
					if odd == i {
						o.Score, o.Surprise = 1.3, 20
					}
				}
				report(o)
			}
		}})
	}
	v.e = NewEngine(Config{Node: "n1"}, detectors)
	return v
}

func (v *flipNode) run(d time.Duration) []Incident {
	v.t.Helper()
	var told []Incident
	for end := v.now.Add(d); v.now.Before(end); {
		v.now = v.now.Add(15 * time.Second)
		s := node(v.now, 8)
		v.next(s)
		v.now = s.Time
		told = append(told, v.e.Observe(s)...)
	}
	v.told = append(v.told, told...)
	return told
}

// heads returns the rules of the incidents that were told as firing.
func heads(told []Incident) (out []string) {
	for _, in := range told {
		if in.State == Firing {
			out = append(out, string(in.Rule))
		}
	}
	return out
}

func TestFindingsThatFlipTogether(t *testing.T) {
	disturb := func(v *flipNode, do func(s *collector.Snapshot)) {
		v.next = func(s *collector.Snapshot) { do(s); v.next = func(*collector.Snapshot) {} }
		v.run(15 * time.Second)
	}
	for name, c := range map[string]struct {
		prepare func(v *flipNode)
		flip    func(v *flipNode)
		seen    string // empty: nobody is suspected
	}{
		"after the clock was set": {func(v *flipNode) {
			disturb(v, func(s *collector.Snapshot) { s.Step = 40 * time.Minute; s.Time = s.Time.Add(s.Step) })
		}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1, 2, 3, 5, 7} },
			"findings of unusual began on 6 and ended on 0 of 8 GPUs within a minute, at 02:40:30 UTC; at 02:40:15 UTC the clock was set by 40 min"},
		"after the driver was asked anew": {func(v *flipNode) {
			disturb(v, func(s *collector.Snapshot) {
				s.Events = []collector.Event{{Time: s.Time, Kind: collector.ChildRestart}}
			})
		}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1, 2, 3, 4, 5, 6, 7} }, "what asks the driver was started again"},
		"after the driver was replaced": {func(v *flipNode) {
			disturb(v, func(s *collector.Snapshot) {
				s.Events = []collector.Event{{Time: s.Time, Kind: collector.VersionEvent, Component: "driver", From: "570.86", To: "580.65"}}
			})
		}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1, 2, 3, 4, 5, 6, 7} }, "the driver was replaced"},
		"after a source was silent": {func(v *flipNode) {
			for _, last := range []time.Duration{time.Hour, 0} {
				disturb(v, func(s *collector.Snapshot) {
					s.Sources = []collector.SourceState{{Name: "nvml", Interval: time.Second, Last: s.Time.Add(-last)}}
				})
			}
		}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1, 2, 3, 4, 5, 6, 7} }, "source nvml told something again"},
		"of several holders and rules": {func(*flipNode) {}, func(v *flipNode) {
			v.odd["unusual"], v.odd["straggler"] = []int{0, 1, 2, 3}, []int{4, 5}
		}, "findings of straggler, unusual began on 6"},
		"of one rule, as all that a rush of requests makes": {func(*flipNode) {}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1, 2, 3, 4, 5, 6, 7} }, ""},
		"of one job": {func(v *flipNode) {
			v.owners = func(int) collector.Owner { return slurmJob }
		}, func(v *flipNode) { v.odd["unusual"], v.odd["straggler"] = []int{0, 1, 2, 3, 4, 5}, []int{6, 7} }, ""},
		"of two GPUs after the clock was set": {func(v *flipNode) {
			disturb(v, func(s *collector.Snapshot) { s.Step = 40 * time.Minute; s.Time = s.Time.Add(s.Step) })
		}, func(v *flipNode) { v.odd["unusual"] = []int{0, 1} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newFlipNode(t)
			v.run(2 * time.Hour)
			c.prepare(v)
			c.flip(v)
			told := v.run(8 * time.Minute)
			f := v.suspect()
			if c.seen == "" {
				if f != nil {
					t.Fatalf("who looks is suspected: %s", f.Evidence.Seen)
				}
				return
			}
			if f == nil || f.State != Firing || f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Seen, c.seen) {
				t.Fatalf("it is %+v, want a ticket that says %q", f, c.seen)
			}
			told = append(told, v.run(6*time.Minute)...)
			if got := heads(told); len(got) != 1 || got[0] != "suspect_monitor" {
				t.Errorf("told %v in a quarter of an hour, want one incident that suspects who looks", got)
			}
			// What holds is told, for what it is.
			if got := heads(v.run(20 * time.Minute)); len(got) == 0 || strings.Contains(strings.Join(got, " "), "suspect_monitor") {
				t.Errorf("after it is over %v is told, want what still holds", got)
			}
			if f := v.suspect(); f.State != Resolved {
				t.Errorf("half an hour later it is still %s", f.State)
			}
		})
	}
}

// Findings that all end at once after a pause are as suspicious as those that begin.
func TestFindingsThatEndTogether(t *testing.T) {
	v := newFlipNode(t)
	v.run(time.Hour)
	for i := range 8 { // one after the other
		v.odd["unusual"] = append(v.odd["unusual"], i)
		v.run(20 * time.Minute)
	}
	if f := v.suspect(); f != nil {
		t.Fatalf("findings that come one after the other are suspected: %s", f.Evidence.Seen)
	}
	v.now = v.now.Add(20 * time.Minute) // the agent was away
	v.odd["unusual"] = nil
	v.run(4 * time.Minute)
	if f := v.suspect(); f == nil || f.State != Firing || !strings.Contains(f.Evidence.Seen, "ended on 8 of 8 GPUs") || !strings.Contains(f.Evidence.Seen, "nobody had looked before") {
		t.Errorf("findings of all GPUs ended at once after a pause, and it is %+v", f)
	}
}

func (v *flipNode) suspect() *Finding {
	for _, f := range v.e.View().Findings {
		if f.Rule == rules.IDSuspectMonitor && f.Cause == causeFlipped {
			return &f
		}
	}
	return nil
}
