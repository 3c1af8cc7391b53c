// Package rules is the rule book: every condition that a person is told about,
// with its title, meaning, severity, first action and defaults. Native detection,
// the generated Prometheus rules, Slack, the page and the docs read the same
// entries. No code of a detector is here.
package rules

import (
	"fmt"
	"time"

	"gpuvigil/internal/metric"
)

// Severity is how urgent a finding is.
type Severity uint8

// The severities, from the least urgent.
const (
	Info   Severity = iota // worth knowing, in the digest
	Ticket                 // somebody looks at it in working hours
	Page                   // somebody is woken
)

var severityNames = []string{"info", "ticket", "page"}

// String returns info, ticket or page.
func (s Severity) String() string { return severityNames[s] }

// ParseSeverity reads what String writes.
func ParseSeverity(name string) (Severity, error) {
	for i, n := range severityNames {
		if n == name {
			return Severity(i), nil
		}
	}
	return 0, fmt.Errorf("unknown severity %q: use info, ticket or page", name)
}

// MarshalText writes the severity as String does.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSeverity(string(text))
	return err
}

// ID names a rule in labels, configuration and links: lower case with underscores.
type ID string

// Rule is one condition that a person is told about.
type Rule struct {
	ID       ID
	Title    string   // what is wrong, for a headline: "GPU saturated while the CPU idles"
	Severity Severity // of its worst finding: the most that it may reach, lesser findings have a lower one
	Meaning  string   // why it matters, one or two sentences
	Action   string   // the first thing to do, in the imperative
	Unit     string   // of a finding's observed and expected values: ratio, seconds, changes …

	For  time.Duration // how long the condition must hold before it fires; 0 fires at once
	Hold time.Duration // how long it must be gone before the finding resolves

	// Pages says that the rule is on the short list that may page out of the box
	// and is sent even in the first week.
	Pages bool

	// Hardware says that a page of the rule is about a part of the node: no job
	// should start on it.
	Hardware bool

	// Statistical says that the rule's findings are told from what is usual, and may be
	// chance: they share the alert budget. Those of other rules are facts.
	Statistical bool

	// HiddenBy names rules whose finding on the same subject is the cause of this
	// one: while it fires as a ticket or a page, and is no less urgent, this one stays
	// silent.
	HiddenBy []ID

	// Work says that a finding of a GPU tells of the work that it does: what hides it
	// also does so from another GPU of the same work, which has stopped as a whole.
	Work bool

	// Anomaly says that the rule knows no cause, only that something is not as usual. Its
	// findings are silent for as long as they go on if a cause fired when they began, on
	// the same GPU, the same work, or a part of the node that its GPUs share.
	Anomaly bool

	// Whole says that a finding of this rule on a node hides what it hides on every part
	// of the node, unless that began before it.
	Whole bool

	// State says that the rule is also exported as a condition metric, whether or
	// not anybody needs to be told.
	State bool

	// Watch lists the gauges that show the condition: drawn beside the finding and
	// kept for six hours.
	Watch []*metric.Def

	Runbook string // anchor in the docs
}
