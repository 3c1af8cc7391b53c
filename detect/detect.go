// Package detect turns snapshots into findings. A Detector reports what it sees
// in one snapshot after the other; the Engine owns the life of the findings that
// come of it: pending, firing, resolved.
//
// Time comes only from the snapshots, so the same code runs live, over a fleet
// and in a backtest, and two runs over the same input give the same findings.
package detect

import (
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Detector looks at snapshots in the order of their time and reports, for each
// subject that it can judge, how far the condition of its rule holds.
type Detector interface {
	// Rule returns the rule that the detector's observations are about.
	Rule() *rules.Rule
	// Observe judges one snapshot. A subject that it does not report was not
	// judged: its finding keeps its state until it expires.
	Observe(s *collector.Snapshot, report func(Observation))
}

// Stateful is a detector whose memory must survive a restart of the agent.
type Stateful interface {
	Detector
	// Save returns the state, versioned by the detector.
	Save() ([]byte, error)
	// Restore takes up what Save of this or an older release returned.
	Restore(state []byte) error
}

// Subject is what a finding is about.
type Subject struct {
	Kind string `json:"kind"` // gpu, node, endpoint, job …
	ID   string `json:"id"`   // GPU uuid, node name, URL#engine/model …
}

// String returns kind:id, the value of the subject label.
func (s Subject) String() string { return s.Kind + ":" + s.ID }

// ParseSubject reads what String writes. A string without a kind is a GPU's uuid
// if it looks like one, else a node's name.
func ParseSubject(s string) Subject {
	if kind, id, ok := strings.Cut(s, ":"); ok {
		return Subject{Kind: kind, ID: id}
	}
	if strings.HasPrefix(s, "GPU-") || strings.HasPrefix(s, "MIG-") {
		return Subject{Kind: "gpu", ID: s}
	}
	return Subject{Kind: "node", ID: s}
}

// Confidence is how sure a detector is, in words that a tired person understands.
type Confidence string

// The words, from the surest.
const (
	Certain  Confidence = "certain"   // a fact was reported, nothing was inferred
	VerySure Confidence = "very sure" // less than one in a thousand by chance
	Likely   Confidence = "likely"    // less than one in twenty by chance
	Young    Confidence = "young"     // too little history to say
)

// Observation is what a detector says of one subject in one snapshot.
type Observation struct {
	Subject Subject
	Cause   string // closed set per rule, label value: gpu_bound, xid_79 …

	// Score is how far the condition holds: 1 is the threshold, above it the
	// condition holds, below it does not. It must be finite and not negative.
	Score float64
	// State says whether the rule's plain state holds, with or without a reason to
	// tell anybody. It is exported for rules with Rule.State.
	State bool
	// Surprise says how rare a statistical observation is: minus the logarithm, in
	// nats, of how many findings as strong a healthy subject gives in a week. 0 says
	// that nothing is statistical about it.
	Surprise float64
	// At is when what was seen happened, for point events; zero means the
	// snapshot's time. A condition that began before now gives its beginning.
	At time.Time

	Severity rules.Severity // for this observation; the engine caps it
	Evidence Evidence
	GPU      *collector.GPU // the GPU that it is about, if any: index, model, owner
	Owner    collector.Owner
	Node     string // where it is, if the snapshot is of several nodes; empty: the snapshot's
}

// Evidence is what a finding stands on, in numbers and in words. Words are plain
// text with the numbers in them; they may hold untrusted names.
type Evidence struct {
	Seen       string     `json:"seen"`               // "GPU 98 % busy for 6 min, CPU 11 %, 38 requests waiting"
	Expected   string     `json:"expected,omitempty"` // "queue-time p95 below its usual 0.3 s"
	Observed   float64    `json:"observed"`
	Want       *float64   `json:"want,omitempty"` // in the same unit; nil if there is no expectation in numbers
	Confidence Confidence `json:"confidence"`
	Why        string     `json:"why,omitempty"`    // one clause on the confidence: "reported by the driver", "p = 1e-6 over 5 min"
	Title      string     `json:"title,omitempty"`  // what is wrong, where it is more precise than the rule's
	Action     string     `json:"action,omitempty"` // the first thing to do, where it is more precise than the rule's
}

// State is where a finding is in its life.
type State string

// The states. A finding that never left pending is forgotten.
const (
	Pending  State = "pending"
	Firing   State = "firing"
	Resolved State = "resolved"
)

// Finding is one condition on one subject, through its life. Its JSON form is
// part of the agent's API and of its state file.
type Finding struct {
	Rule     rules.ID       `json:"rule"`
	Subject  Subject        `json:"subject"`
	Cause    string         `json:"cause"`
	Severity rules.Severity `json:"severity"`
	State    State          `json:"state"`

	Since    time.Time `json:"since"`             // the condition has held since
	Fired    time.Time `json:"fired,omitzero"`    // when it became a finding
	Resolved time.Time `json:"resolved,omitzero"` // when it ended
	LastSeen time.Time `json:"last_seen"`         // when the detector last judged the subject
	LastTrue time.Time `json:"last_true"`         // when the condition last held

	Score    float64  `json:"score"`              // as last judged
	Evidence Evidence `json:"evidence"`           // of when the condition last held
	Surprise float64  `json:"surprise,omitempty"` // nats, of a statistical finding; see Observation
	Together int      `json:"together,omitempty"` // on how many GPUs of the node it began at once, if that is more than chance
	Count    int      `json:"count"`              // observations at or above the threshold since it began
	Flaps    int      `json:"flaps"`              // how often it came back within the flap window
	Ended    string   `json:"ended,omitempty"`    // why it resolved: cleared, expired, hidden

	Node      string            `json:"node"`
	GPUIndex  int               `json:"gpu_index"` // -1 if it is not about a GPU
	GPUModel  string            `json:"gpu_model,omitempty"`
	Owner     collector.Owner   `json:"owner"`
	Critical  bool              `json:"critical,omitempty"` // it is about a workload that the configuration calls critical
	Before    []collector.Event `json:"before,omitempty"`   // what changed in the ten minutes before it began
	Simulated bool              `json:"simulated,omitempty"`

	// Suppressed is why nobody is told of it: drained, because it began on a node that
	// had been drained and on which nothing ran; empty if it is told.
	Suppressed string `json:"suppressed,omitempty"`
}

// Key identifies a finding among those of one agent: rule, subject and cause.
func (f *Finding) Key() string { return string(f.Rule) + "|" + f.Subject.String() + "|" + f.Cause }

// Title says what is wrong: in the finding's own words, else in its rule's.
func (f *Finding) Title() string {
	if f.Evidence.Title != "" {
		return f.Evidence.Title
	}
	if r := rules.Get(f.Rule); r != nil {
		return r.Title
	}
	return string(f.Rule)
}

// Action returns the first thing to do about the finding: its own, else its rule's.
func (f *Finding) Action() string {
	if f.Evidence.Action != "" {
		return f.Evidence.Action
	}
	if r := rules.Get(f.Rule); r != nil {
		return r.Action
	}
	return ""
}

// Incident is what a person is told about: a root cause and the findings that
// belong to it. It is the only grouping; alerting delivers it and does not
// regroup.
type Incident struct {
	ID       string         `json:"id"` // stable for the incident's life
	Rule     rules.ID       `json:"rule"`
	Cause    string         `json:"cause"`
	Severity rules.Severity `json:"severity"` // the highest of its members
	State    State          `json:"state"`    // firing or resolved
	Opened   time.Time      `json:"opened"`
	Resolved time.Time      `json:"resolved,omitzero"`
	Updated  time.Time      `json:"updated"` // when a member last came, went or got worse
	Members  []Finding      `json:"members"` // the root cause first, then by severity and time

	// Of an incident across nodes: how many nodes its findings are on, what those have in
	// common and others have not, and how many findings beyond the members fire.
	Nodes    int    `json:"nodes,omitempty"`
	Common   string `json:"common,omitempty"`
	Unlisted int    `json:"unlisted,omitempty"`

	// Began is what opened the incident. Rule, Cause and Members follow the root cause
	// as it becomes known; this stays, so that others can know the incident by it.
	Began Origin `json:"began,omitzero"`

	// Drill says that nothing is wrong: somebody rehearses. An engine never says so.
	Drill bool `json:"drill,omitempty"`
}

// Origin is what of the finding that opened an incident tells it from others.
type Origin struct {
	Rule     rules.ID `json:"rule"`
	Cause    string   `json:"cause"`
	Subject  Subject  `json:"subject"`
	Node     string   `json:"node"`
	GPUIndex int      `json:"gpu_index"` // -1 if it is not about a GPU
	Team     string   `json:"team,omitempty"`
}

// Origin returns what opened the incident. One that an earlier release opened, or that
// did not come from an engine, has its root cause for that.
func (i *Incident) Origin() Origin {
	switch {
	case i.Began != (Origin{}):
		return i.Began
	case len(i.Members) == 0:
		return Origin{Rule: i.Rule, Cause: i.Cause, GPUIndex: -1}
	}
	return originOf(&i.Members[0])
}

func originOf(f *Finding) Origin {
	return Origin{Rule: f.Rule, Cause: f.Cause, Subject: f.Subject, Node: f.Node, GPUIndex: f.GPUIndex, Team: f.Owner.Team}
}

// Point is one minute of a watched reading.
type Point struct {
	Time           time.Time // the minute's beginning
	Min, Mean, Max float64
}

// History is a watched reading of one subject over the last hours.
type History struct {
	Reading *metric.Def
	Points  []Point
}
