package config

import (
	"strings"
	"testing"
	"time"
)

const routed = `
alerting:
  slack:
  - {name: oncall, webhook_url_env: A}
  - {name: nlp, webhook_url_env: B}
  time_intervals:
  - name: nights
    time_intervals:
    - times: [{start_time: 00:00, end_time: "06:00"}]
      weekdays: ['monday:friday']
      location: Europe/Berlin
  route:
    receiver: oncall
    repeat_interval: 4h
    mentions: [S0123456789]
    routes:
    - matchers: [severity!=page, 'team=~"nlp|vision"']
      receiver: nlp
      mute_time_intervals: [nights]
    - matchers: [rule=idle_gpu]
      receiver: none
  maintenance:
  - name: roll-out
    matchers: [node=~"gpu-1.*"]
    from: 2026-03-14T22:00:00Z
    to: 2026-03-15T02:00:00+01:00
`

func TestRoutesAreReadAsAlertmanagerWritesThem(t *testing.T) {
	c, err := Parse("gpuvigil.yml", []byte(routed))
	if err != nil {
		t.Fatal(err)
	}
	a := &c.Alerting
	first := a.Route.Routes[0]
	if m := first.Matchers.Labels(); len(m) != 2 || m[1].Name != "team" || !m[1].Matches("vision") || m[1].Matches("nlp2") || m[0].Matches("page") {
		t.Errorf("the matchers of the first route are %v", m)
	}
	night := a.TimeIntervals[0].Intervals[0]
	for at, want := range map[string]bool{"2026-03-13T04:59:00Z": true, "2026-03-13T05:00:00Z": false, "2026-03-14T04:00:00Z": false} {
		when, _ := time.Parse(time.RFC3339, at)
		if got := night.ContainsTime(when); got != want {
			t.Errorf("%s is in the interval nights of Berlin: %v, want %v", at, got, want)
		}
	}
	if from, to := a.Maintenance[0].Span(); to.Sub(from) != 3*time.Hour {
		t.Errorf("the maintenance goes on for %s, want 3 h", to.Sub(from))
	}
	if first.RepeatInterval != nil || time.Duration(*a.Route.RepeatInterval) != 4*time.Hour {
		t.Error("a route that says no repeat_interval has one of its own")
	}
}

func TestMistakesInRoutesAreNamed(t *testing.T) {
	f := func(old, new string, want ...string) {
		t.Helper()
		source := strings.Replace(routed, old, new, 1)
		if source == routed {
			t.Fatalf("%q is not in the example", old)
		}
		_, err := Parse("gpuvigil.yml", []byte(source))
		if err == nil {
			t.Errorf("with %q the configuration is accepted, want an error with %q", new, want)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("with %q the error does not say %q:\n%v", new, w, err)
			}
		}
	}
	f("receiver: nlp", "receiver: npl", "gpuvigil.yml:18", "alerting.route.routes[0].receiver", "npl", "nlp, oncall, none")
	f("rule=idle_gpu", "rulle=idle_gpu", "gpuvigil.yml:20", `label "rulle"`, "severity, rule")
	f("rule=idle_gpu", "rule~idle", "gpuvigil.yml:20", "a matcher such as")
	f(`'team=~"nlp|vision"'`, `'team=~"(nlp"'`, "gpuvigil.yml:17", "a matcher such as")
	f("[nights]", "[night]", "gpuvigil.yml:19", `"night"`, "nights")
	f("    receiver: oncall\n", "", "alerting.route.receiver", "is missing")
	f("    receiver: oncall\n", "    receiver: oncall\n    matchers: [team=nlp]\n", "the first route takes everything")
	f("4h", "10s", "alerting.route.repeat_interval", "1m to 30d, or 0s (never)")
	f("S0123456789", "'@oncall'", "alerting.route.mentions[0]", "the id of a user")
	f(`end_time: "06:00"`, `end_time: "26:00"`, "gpuvigil.yml:9", "time_intervals[0].times[0]")
	f("monday:friday", "monday:freitag", "gpuvigil.yml:10", "freitag")
	f("Europe/Berlin", "Europe/Bonn", "gpuvigil.yml:11", "Bonn")
	f("start_time: 00:00", "begin: 00:00", "gpuvigil.yml:9", "unknown key", "start_time")
	f("name: nights", "title: nights", "gpuvigil.yml:7", "unknown key")
	f("2026-03-14T22:00:00Z", "2026-03-14 22:00", "alerting.maintenance[0].from", "with its zone")
	f("2026-03-15T02:00:00+01:00", "2026-03-14T02:00:00Z", "a time after from")
	f("    from: 2026-03-14T22:00:00Z\n    to: 2026-03-15T02:00:00+01:00\n", "", "time_intervals, allowed: one of the two")
	f("  slack:\n", "  burst: -1\n  slack:\n", "alerting.burst")
	f("  slack:\n", "  digest: {receivers: [me], at: 8, weekday: mon, time_zone: X/Y}\n  slack:\n",
		"alerting.digest.receivers", "alerting.digest.at", "alerting.digest.weekday", "alerting.digest.time_zone")
}
