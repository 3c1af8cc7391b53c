package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/alertmanager/pkg/labels"

	"gpuvigil/rules"
)

// closedLabels are the labels with few values: a matcher that fits none of them is a slip
// of the pen that sends an incident elsewhere, or nowhere.
var closedLabels = map[string]func() []string{
	"severity":  func() []string { return []string{rules.Info.String(), rules.Ticket.String(), rules.Page.String()} },
	"rule":      ruleIDs,
	"critical":  trueOrAbsent,
	"simulated": trueOrAbsent,
	"drill":     trueOrAbsent,
}

func trueOrAbsent() []string { return []string{"true", ""} }

var gpuNumber = regexp.MustCompile(`^[0-9]{0,4}$`)

func checkMatchers(ms Matchers, key string, fail func(key, format string, args ...any)) {
	for i, m := range ms {
		if m.Matcher == nil {
			continue
		}
		at := fmt.Sprintf("%s[%d]", key, i)
		values, closed := closedLabels[m.Name]
		switch {
		case !slices.Contains(MatchedLabels, m.Name):
			fail(at, "found label %q, allowed: %s", clean(m.Name), strings.Join(MatchedLabels, ", "))
		case closed && !fits(m.Matcher, values()):
			fail(at, "found %s %q, allowed: %s", m.Name, clean(m.Value), quotedEmpty(values()))
		case m.Name == "gpu" && plain(m.Matcher) && !gpuNumber.MatchString(m.Value):
			fail(at, "found gpu %q, allowed: the number of a GPU on its node, such as 3", clean(m.Value))
		}
	}
}

// fits reports whether what a matcher asks for, or excludes, is so for any of the values.
func fits(m *labels.Matcher, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return m.Matches(v) == asks(m) })
}

// asks reports whether a matcher asks for what it names, and does not exclude it.
func asks(m *labels.Matcher) bool { return m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp }

// plain reports whether a matcher names one value.
func plain(m *labels.Matcher) bool {
	return m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual
}

// quotedEmpty lists values; the empty one is what is not so.
func quotedEmpty(values []string) string {
	return strings.TrimSuffix(strings.Join(values, ", "), ", ") + map[bool]string{true: `, or "" for what is not so`}[slices.Contains(values, "")]
}
