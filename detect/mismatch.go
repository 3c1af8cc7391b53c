package detect

import (
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// MismatchConfig is what the detector of versions that do not fit can be told. The
// zero value judges by what is known to everybody.
type MismatchConfig struct {
	Approved map[string][]string // globs of the versions that a component may have; of others nothing is judged
	KnownBad []BadVersions       // beside those of the rule book
}

// BadVersions are versions of a component that must not run here.
type BadVersions struct {
	Component string
	Versions  []string // globs
	Why       string
}

// The causes of rule version_mismatch on one node.
const (
	ranksDiffer   = "ranks_differ"
	gpusDiffer    = "gpus_differ"
	runtimeNewer  = "runtime_newer_than_driver"
	moduleDiffers = "kernel_module_differs"
	fabricDiffers = "fabric_manager_differs"
	knownBad      = "known_bad"
	notApproved   = "not_approved"
)

const (
	lookEvery  = 30 * time.Second // at the versions: they are told once a minute
	mostClash  = 256              // conditions that are followed at once
	mostLines  = 4                // of one condition that are told in full
	staleAfter = 10 * time.Minute // an inventory that is older says nothing of now
	goneAfter  = 30 * time.Minute // a condition that is over is reported as such for so long

	// Whoever upgrades a driver reloads it, or boots the node, within that time.
	reloadTakes = 30 * time.Minute
	// Replicas of one service are replaced one after the other; that takes a while, and
	// is stuck if nothing moves for longer.
	rolloutTakes = 2 * time.Hour
)

// Mismatch watches for versions that do not fit together, on one node.
type Mismatch struct {
	cfg     MismatchConfig
	looked  time.Time
	clashes []*clash // in the order in which they were found

	software bool // the last look had an inventory
	models   []string
	rows     []rankRow // kept for its memory
}

// clash is one condition on one subject. Its exported fields survive a restart.
type clash struct {
	Subject Subject   `json:"subject"`
	Cause   string    `json:"cause"`
	Since   time.Time `json:"since"` // it has held, or nothing has moved in it
	State   string    `json:"state"` // what it was like; a change of it is a move
	Seen    time.Time `json:"seen"`  // by the last look that found it

	Software bool `json:"software,omitempty"` // it is told by the inventory
	Missed   bool `json:"missed,omitempty"`   // the last look that could have found it did not

	wait     time.Duration // beyond the rule's own
	severity rules.Severity
	owner    collector.Owner
	told     Evidence
	lines    []string
	holds    bool
}

// NewMismatch returns the detector of rule version_mismatch.
func NewMismatch(cfg MismatchConfig) *Mismatch { return &Mismatch{cfg: cfg} }

// Rule returns version_mismatch.
func (d *Mismatch) Rule() *rules.Rule { return rules.Get(rules.IDVersionMismatch) }

// Observe looks at the versions every half minute, and reports what it found last.
func (d *Mismatch) Observe(s *collector.Snapshot, report func(Observation)) {
	if age := s.Time.Sub(d.looked); d.looked.IsZero() || age < 0 || age >= lookEvery {
		d.looked = s.Time
		d.look(s)
	}
	d.tell(s.Time, report)
}

// tell reports what was found last.
func (d *Mismatch) tell(now time.Time, report func(Observation)) {
	for _, c := range d.clashes {
		if c.Software && !d.software {
			continue // nobody can say
		}
		o := Observation{Subject: c.Subject, Cause: c.Cause, Severity: c.severity, Owner: c.owner}
		if c.holds {
			lasted := now.Sub(c.Since)
			o.Score = 1
			if c.wait > 0 {
				o.Score = max(lasted.Seconds()/c.wait.Seconds(), 0)
			}
			o.Evidence = c.told
			if c.wait == 0 {
				o.At = c.Since
			}
		}
		report(o)
	}
}

// look judges all versions of the snapshot.
func (d *Mismatch) look(s *collector.Snapshot) {
	d.begin()
	d.models = d.models[:0]
	for i := range s.GPUs {
		if m := s.GPUs[i].Model; m != "" && !slices.Contains(d.models, m) {
			d.models = append(d.models, m)
		}
	}
	d.lookAtNode(s)
	d.lookAtGPUs(s)
	d.software = s.Inventory != nil && s.Time.Sub(s.Inventory.At) < staleAfter
	if inv := s.Inventory; d.software {
		d.lookAtRuntimes(s, inv)
		d.lookAtRanks(s, inv)
	}
	d.end(s.Time)
}

// begin takes nothing for found yet.
func (d *Mismatch) begin() {
	for _, c := range d.clashes {
		c.holds, c.lines = false, c.lines[:0]
	}
}

// end forgets what has not been found for long.
func (d *Mismatch) end(now time.Time) {
	for _, c := range d.clashes {
		c.Missed = c.Missed || !c.holds && (d.software || !c.Software)
	}
	d.clashes = slices.DeleteFunc(d.clashes, func(c *clash) bool {
		age := now.Sub(c.Seen)
		return !c.holds && (age >= goneAfter || age < 0)
	})
}

// find takes up a condition that holds, and returns nil if there are too many. A
// condition that has moved, or that comes back, begins anew.
func (d *Mismatch) find(s *collector.Snapshot, subject Subject, cause, state string) *clash {
	i := slices.IndexFunc(d.clashes, func(c *clash) bool { return c.Subject == subject && c.Cause == cause })
	if i < 0 {
		if len(d.clashes) >= mostClash {
			return nil
		}
		i = len(d.clashes)
		d.clashes = append(d.clashes, &clash{Subject: subject, Cause: cause, Since: s.Time, State: state})
	}
	c := d.clashes[i]
	if !c.holds { // the first that this look has found of it
		if c.State != state || c.Missed {
			c.Since, c.State = s.Time, state
		}
		c.severity, c.Missed = rules.Info, false
	}
	c.Seen, c.holds = s.Time, true
	return c
}

// bad adds one line to a condition about versions that somebody has judged.
func (d *Mismatch) bad(s *collector.Snapshot, subject Subject, owner collector.Owner, cause string, severity rules.Severity, line, why, action string) {
	c := d.find(s, subject, cause, "")
	if c == nil {
		return
	}
	c.owner, c.severity, c.Software = owner, max(c.severity, severity), subject.Kind != "node"
	c.lines = append(c.lines, line)
	c.told = Evidence{
		Seen: listed(c.lines), Observed: float64(len(c.lines)), Confidence: Certain, Why: why, Action: action,
	}
	want := 0.0
	c.told.Want = &want
	switch cause {
	case knownBad:
		c.told.Title, c.told.Expected = "Version that is known to be bad", "a version without that fault"
	case notApproved:
		c.told.Title, c.told.Expected = "Version that is not approved", "one of the versions that the configuration approves"
	}
}
