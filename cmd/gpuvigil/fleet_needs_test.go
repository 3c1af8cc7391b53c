package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"gpuvigil/collector/series"
	"gpuvigil/rules"
)

// Of each need it is said that it is missing while nothing tells it, with its rules, and not
// any more once something that can be read does.
func TestFleetSaysWhatIsMissing(t *testing.T) {
	a := series.New(series.Config{})
	log := slog.New(slog.DiscardHandler)
	said := func(names []string) []string {
		f := &found{}
		f.tell(a, names, log)
		return f.notices()
	}
	tells := func(n need, name string) bool {
		return n.of != "" && a.Source(name) == n.of || slices.Contains(n.rows, a.Row(name)) && a.Row(name) != nil
	}
	for _, n := range fleetNeeds {
		with, without := a.Metrics(), slices.DeleteFunc(a.Metrics(), func(name string) bool { return tells(n, name) })
		if len(with) == len(without) {
			t.Errorf("nothing that can be read tells of %s: it is missing for everybody", n.what)
		}
		about := func(lines []string) (out string) {
			for _, l := range lines {
				if strings.Contains(l, "Nothing tells of "+n.what+":") {
					out = l
				}
			}
			return out
		}
		line := about(said(without))
		for _, id := range n.rules {
			if rules.Get(id) == nil || !strings.Contains(line, string(id)) {
				t.Errorf("without %s nobody is told that %s knows less: %q", n.what, id, line)
			}
		}
		if !strings.Contains(line, n.give) {
			t.Errorf("nobody is told that %s would tell of %s: %q", n.give, n.what, line)
		}
		for _, name := range with {
			if tells(n, name) {
				if line := about(said([]string{name})); line != "" {
					t.Errorf("%s tells of %s, but it is said: %s", name, n.what, line)
				}
			}
		}
		if line := about(said(with)); line != "" {
			t.Errorf("all is told, but it is said: %s", line)
		}
	}
	if lines := said(nil); len(lines) != 1 || !strings.Contains(lines[0], "no metric that anything is made of") {
		t.Errorf("of a Prometheus without anything it is said: %q", lines)
	}
}
