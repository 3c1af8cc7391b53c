package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

func TestSwitchErrors(t *testing.T) {
	x := newXidStage(t)
	sxid := func(code int, fatal bool, link string) []Incident {
		x.fall = append(x.fall, collector.Event{Kind: collector.SXidEvent, PCI: "0000:a9:00.0", Code: code, Fatal: fatal, Text: link, Source: "fabric_manager+kernel"})
		return x.run(time.Second)
	}
	if told := sxid(12028, false, "link 5"); len(told) != 1 || told[0].Severity != rules.Info || told[0].Cause != "non_fatal" {
		t.Errorf("an error that is not fatal is told as %+v, want as information", told)
	}
	if told := sxid(20034, true, "link 30"); len(told) != 1 || told[0].Severity != rules.Page || told[0].Cause != "fatal" {
		t.Errorf("a fatal error is told as %+v, want as a page", told)
	}
	sxid(20034, true, "link 31")
	if told := sxid(22013, true, ""); len(told) != 0 {
		t.Errorf("more errors of the same fault are told anew: %+v", told)
	}
	var fatal *Finding
	for _, f := range x.e.View().Findings {
		if f.Rule == rules.IDSXid && f.Cause == "fatal" {
			fatal = &f
		}
	}
	if fatal == nil {
		t.Fatal("no finding of the fatal errors")
	}
	x.says(fatal, "SXid 22013 (fatal) at 00:00:04 UTC on NVSwitch 0000:a9:00.0; 3 errors since 00:00:02 UTC with codes 20034, 22013", "no such error")
	if fatal.Evidence.Why != "reported by the driver in the fabric manager's log and in the kernel log" || !strings.Contains(fatal.Action(), "Drain the node") {
		t.Errorf("why: %s, do: %s", fatal.Evidence.Why, fatal.Action())
	}
	x.restart()
	x.run(10 * time.Minute)
	if !x.firing(rules.IDSXid, "node:n1") {
		t.Error("ten minutes after the error and a restart its finding is over")
	}
	x.run(6 * time.Minute)
	if x.firing(rules.IDSXid, "node:n1") {
		t.Error("a quarter of an hour after the last error the finding still fires")
	}
	if told := sxid(20034, true, ""); len(told) != 1 || told[0].Severity != rules.Page {
		t.Errorf("an error after that is told as %+v, want a page", told)
	}
}

func TestOldSwitchErrorsAreHistory(t *testing.T) {
	x := newXidStage(t)
	x.also = func(s *collector.Snapshot) {
		s.Events = []collector.Event{{Time: s.Time.Add(-time.Hour), Kind: collector.SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Fatal: true}}
	}
	x.run(5 * time.Second)
	x.silent("an error of an hour ago, as the kernel log still has it when an agent starts")
}

func TestSwitchErrorsMoveWithTheClock(t *testing.T) {
	d := NewSXid(SXidConfig{})
	s := &collector.Snapshot{Time: day, Node: collector.Node{Name: "n1"}, Events: []collector.Event{{Time: day, Kind: collector.SXidEvent, PCI: "0000:a9:00.0", Code: 20034, Fatal: true}}}
	d.Observe(s, func(Observation) {})
	d.Shift(-48 * time.Hour)
	s.Time, s.Events[0].Time = day.Add(-48*time.Hour+time.Minute), day.Add(-48*time.Hour+time.Minute)
	var seen string
	d.Observe(s, func(o Observation) { seen = o.Evidence.Seen })
	if !strings.Contains(seen, "2 errors since 00:00:00 UTC") {
		t.Errorf("after the clock was set back: %s", seen)
	}
}
