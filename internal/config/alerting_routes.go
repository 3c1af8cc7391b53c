package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/matcher/parse"
	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/alertmanager/timeinterval"
)

// Nobody is the receiver of a route whose incidents nobody is told of.
const Nobody = "none"

// Route says who is told of the incidents that it matches, in the words of
// Alertmanager's own configuration.
type Route struct {
	Receiver string   `yaml:"receiver"` // empty: the one of the route above
	Matchers Matchers `yaml:"matchers"` // all must match one finding of the incident
	Continue bool     `yaml:"continue"` // also try the routes behind this one

	MuteTimeIntervals   []string  `yaml:"mute_time_intervals"`                       // names; while one holds, nobody is rung
	ActiveTimeIntervals []string  `yaml:"active_time_intervals"`                     // names; only while one holds, somebody is
	RepeatInterval      *Duration `yaml:"repeat_interval" in:"1m..30d" zero:"never"` // what still fires and nobody acknowledged rings again; 0s: it does not; not given: that of the route above
	Mentions            []string  `yaml:"mentions"`                                  // whom a page calls; not given: those of the route above

	Routes []Route `yaml:"routes"`
}

// Matchers are conditions on labels, each in Alertmanager's notation: team="nlp",
// node=~"gpu-1.*", severity!=info.
type Matchers []Matcher

// Matcher is one condition on a label.
type Matcher struct{ *labels.Matcher }

// UnmarshalText reads a matcher as Alertmanager does.
func (m *Matcher) UnmarshalText(text []byte) error {
	parsed, err := parse.Matcher(string(text))
	if err != nil {
		if maySecret(string(text)) {
			return fmt.Errorf("found %q, allowed: a matcher such as severity=\"page\" or node=~\"gpu-1.*\"", clean(string(text)))
		}
		return fmt.Errorf("found %q, allowed: a matcher such as severity=\"page\" or node=~\"gpu-1.*\": %w", clean(string(text)), err)
	}
	m.Matcher = parsed
	return nil
}

// CheckMatchers reports what is wrong with matchers that a person gives, as with those of
// the configuration.
func CheckMatchers(matchers []string) error {
	for _, text := range matchers {
		var m Matcher
		if err := m.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		var wrong error
		checkMatchers(Matchers{m}, "", func(_, format string, args ...any) { wrong = fmt.Errorf(format, args...) })
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// Labels returns the matchers for Alertmanager's packages.
func (ms Matchers) Labels() labels.Matchers {
	out := make(labels.Matchers, 0, len(ms))
	for _, m := range ms {
		if m.Matcher != nil {
			out = append(out, m.Matcher)
		}
	}
	return out
}

// TimeInterval is a time that routes and maintenance windows name, as Alertmanager
// writes it.
type TimeInterval struct {
	Name      string                      `yaml:"name"`
	Intervals []timeinterval.TimeInterval `yaml:"time_intervals"`
}

// Maintenance is a time in which what is wrong with certain things rings nobody.
type Maintenance struct {
	Name          string   `yaml:"name"`
	Matchers      Matchers `yaml:"matchers"`
	From          string   `yaml:"from"` // RFC 3339: 2026-03-14T22:00:00Z
	To            string   `yaml:"to"`
	TimeIntervals []string `yaml:"time_intervals"` // names, in place of from and to
}

// Span returns when the window begins and ends; both are zero if time intervals say it.
func (m *Maintenance) Span() (from, to time.Time) {
	from, _ = time.Parse(time.RFC3339, m.From) // checked when it was read
	to, _ = time.Parse(time.RFC3339, m.To)
	return from, to
}

// MatchedLabels are those that a matcher of a route or a maintenance window can ask for.
var MatchedLabels = []string{
	"severity", "rule", "cause", "cluster", "node", "subject", "subject_kind", "gpu", "uuid", "model",
	"owner", "owner_kind", "team", "critical", "simulated", "drill",
}

// maxRouteDepth is more than anybody can follow.
const maxRouteDepth = 8

// namedReceiver is a receiver's name and where it stands.
type namedReceiver struct{ key, name string }

// named returns all receivers.
func (a *Alerting) named() []namedReceiver {
	var out []namedReceiver
	add := func(kind string, i int, name string) {
		out = append(out, namedReceiver{fmt.Sprintf("alerting.%s[%d]", kind, i), name})
	}
	for i := range a.Slack {
		add("slack", i, a.Slack[i].Name)
	}
	for i := range a.Webhook {
		add("webhook", i, a.Webhook[i].Name)
	}
	for i := range a.Alertmanager {
		add("alertmanager", i, a.Alertmanager[i].Name)
	}
	return out
}

// receivers are the names that a route may send to.
func (a *Alerting) receivers() map[string]bool {
	names := map[string]bool{}
	for _, r := range a.named() {
		if r.name != "" && r.name != Nobody {
			names[r.name] = true
		}
	}
	return names
}

// receiverWords are the names that a route may send to, as an error lists them.
func receiverWords(names map[string]bool) string {
	return strings.Join(append(sorted(names), Nobody), ", ")
}

// orNone lists names, or says that there are none.
func orNone(names []string, before, none string) string {
	if len(names) == 0 {
		return none
	}
	return before + strings.Join(names, ", ")
}

func (a *Alerting) checkRouting(fail func(key, format string, args ...any)) {
	intervals := map[string]bool{}
	for i, t := range a.TimeIntervals {
		key := fmt.Sprintf("alerting.time_intervals[%d]", i)
		switch {
		case t.Name == "":
			fail(key+".name", "is missing, allowed: a plain name, as routes and maintenance windows name it")
		case intervals[t.Name]:
			fail(key+".name", "found %q a second time, allowed: a name of its own for each", clean(t.Name))
		case len(t.Intervals) == 0:
			fail(key+".time_intervals", "is missing, allowed: one or more times, such as weekdays: [saturday, sunday]: without it never holds")
		}
		intervals[t.Name] = true
	}
	names := a.receivers()
	for _, r := range a.named() {
		if r.name == Nobody {
			fail(r.key+".name", "found %q, allowed: any other name: that is the one for nobody in routes", Nobody)
		}
	}
	if a.Route != nil {
		if a.Route.Receiver == "" {
			fail("alerting.route.receiver", "is missing, allowed: the receiver of what no route below matches: %s", receiverWords(names))
		}
		if len(a.Route.Matchers)+len(a.Route.MuteTimeIntervals)+len(a.Route.ActiveTimeIntervals) > 0 || a.Route.Continue {
			fail("alerting.route", "found matchers, continue or time intervals, allowed: in the routes below it: the first route takes everything")
		}
		checkRoute(a.Route, "alerting.route", names, intervals, 0, fail)
	}
	for i := range a.Maintenance {
		a.Maintenance[i].check(fmt.Sprintf("alerting.maintenance[%d]", i), intervals, fail)
	}
	for i, s := range a.Slack {
		checkMentions(s.Mentions, fmt.Sprintf("alerting.slack[%d].mentions", i), fail)
	}
}

func checkRoute(r *Route, key string, receivers, intervals map[string]bool, depth int, fail func(key, format string, args ...any)) {
	if depth > maxRouteDepth {
		fail(key, "found more than %d routes within each other, allowed: at most so many", maxRouteDepth)
		return
	}
	if r.Receiver != "" && r.Receiver != Nobody && !receivers[r.Receiver] {
		fail(key+".receiver", "found %q, allowed: %s", clean(r.Receiver), receiverWords(receivers))
	}
	checkMatchers(r.Matchers, key+".matchers", fail)
	checkIntervals(r.MuteTimeIntervals, key+".mute_time_intervals", intervals, fail)
	checkIntervals(r.ActiveTimeIntervals, key+".active_time_intervals", intervals, fail)
	checkMentions(r.Mentions, key+".mentions", fail)
	for i := range r.Routes {
		checkRoute(&r.Routes[i], fmt.Sprintf("%s.routes[%d]", key, i), receivers, intervals, depth+1, fail)
	}
}

func checkIntervals(names []string, key string, intervals map[string]bool, fail func(key, format string, args ...any)) {
	for i, n := range names {
		if !intervals[n] {
			fail(fmt.Sprintf("%s[%d]", key, i), "found %q, allowed: %s", clean(n), orNone(sorted(intervals), "names of alerting.time_intervals: ", "none, as alerting.time_intervals names none yet"))
		}
	}
}

// mention is a user or a group of Slack by its id, or one of the words for a channel.
var mention = regexp.MustCompile(`^(?:[UWS][A-Z0-9]{6,20}|here|channel)$`)

func checkMentions(mentions []string, key string, fail func(key, format string, args ...any)) {
	for i, m := range mentions {
		if !mention.MatchString(m) {
			fail(fmt.Sprintf("%s[%d]", key, i), "found %q, allowed: the id of a user (U…) or a group (S…), as their profile in Slack shows it, here, or channel", clean(m))
		}
	}
}

func (m *Maintenance) check(key string, intervals map[string]bool, fail func(key, format string, args ...any)) {
	if m.Name == "" || !plainName(m.Name) {
		fail(key+".name", "found %q, allowed: a plain name: messages and logs say it", clean(m.Name))
	}
	if len(m.Matchers) == 0 {
		fail(key+".matchers", "is missing, allowed: one or more matchers of what is maintained; cluster=~\".*\" is all of it")
	}
	checkMatchers(m.Matchers, key+".matchers", fail)
	checkIntervals(m.TimeIntervals, key+".time_intervals", intervals, fail)
	if spanned := m.From != "" || m.To != ""; spanned == (len(m.TimeIntervals) > 0) {
		fail(key, "found both or neither of from and to, and time_intervals, allowed: one of the two")
		return
	} else if !spanned {
		return
	}
	bad := false
	for name, text := range map[string]string{"from": m.From, "to": m.To} {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			fail(key+"."+name, "found %q, allowed: a time with its zone, such as 2026-03-14T22:00:00Z", clean(text))
			bad = true
		}
	}
	if from, to := m.Span(); !bad && !from.Before(to) {
		fail(key+".to", "found %s, allowed: a time after from, which is %s", clean(m.To), clean(m.From))
	}
}

func sorted(set map[string]bool) []string {
	var out []string
	for s := range set {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
