package detect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"gpuvigil/rules"
)

const (
	groupWindow  = 10 * time.Minute
	maxIncidents = 256
	keepResolved = 24 * time.Hour
)

// incident is an Incident with what is needed to lead its life.
type incident struct {
	Incident
	lastSince time.Time // when the youngest member began
	told      time.Time // Updated as people last heard of it, by the clock of then
	dirty     bool      // a member came, went or got worse with this snapshot
	loud      bool      // and it is one that is told
}

// incidents groups findings that belong together: of the same rule and cause on one
// node, begun within ten minutes of each other or while the incident is open; and of a
// chain of the rule book on one GPU, or on the node, begun within ten minutes of each
// other.
type incidents struct {
	all    []*incident // in the order in which they were opened
	across *Gatherer   // of findings of many nodes, by its rules; nil: of one node
}

// join puts a finding that fires into its incident and opens that if need be.
func (is *incidents) join(t *tracked, now time.Time) {
	in := is.of(t)
	if in == nil {
		in = &incident{Incident: Incident{
			ID: is.newID(t, now), Rule: t.Rule, Cause: t.Cause, Opened: now, Severity: t.Severity, Began: originOf(&t.Finding),
		}}
		is.all = append(is.all, in)
	}
	if _, heads := rules.Chained(t.Rule, t.Cause, in.Rule, in.Cause); in.Cause != causeFleetFlipped && (heads || is.across != nil && headsAcross(t, in)) {
		in.Rule, in.Cause = t.Rule, t.Cause
	}
	in.State, in.Resolved = Firing, time.Time{}
	if t.Since.After(in.lastSince) {
		in.lastSince = t.Since
	}
	t.incident = in
	t.member = slices.IndexFunc(in.Members, func(f Finding) bool {
		return f.Subject == t.Subject && f.Rule == t.Rule && f.Cause == t.Cause && f.Node == t.Node
	})
	switch {
	case t.member >= 0:
	case len(in.Members) >= maxMembers:
		in.Unlisted++
	default:
		t.member = len(in.Members)
		in.Members = append(in.Members, Finding{})
	}
	is.touch(t, now)
}

// of returns the incident that a finding belongs to, or nil.
func (is *incidents) of(t *tracked) *incident {
	if is.across != nil {
		return is.across.of(t)
	}
	for _, in := range slices.Backward(is.all) {
		if in.Members[0].Node == t.Node && in.takes(t) {
			return in
		}
	}
	return nil
}

// takes reports whether a finding belongs to the incident.
func (in *incident) takes(t *tracked) bool {
	if in.Rule == t.Rule && (in.Cause == t.Cause || t.Together > 0) && (in.State == Firing || near(t.Since, in.lastSince)) {
		return true
	}
	return slices.ContainsFunc(in.Members, func(f Finding) bool {
		if !near(t.Since, f.Since) && !near(t.Since, f.Fired) {
			return false
		}
		if f.Rule == t.Rule && f.Cause == t.Cause {
			return true
		}
		chained, _ := rules.Chained(t.Rule, t.Cause, f.Rule, f.Cause)
		return chained && samePart(&f, &t.Finding)
	})
}

func near(a, b time.Time) bool { return a.Sub(b).Abs() <= groupWindow }

// samePart reports whether two findings of one node are about the same part of it, or
// one of them about the node as a whole.
func samePart(a, b *Finding) bool {
	return a.Subject == b.Subject || a.Subject.Kind == "node" || b.Subject.Kind == "node"
}

// touch notes that a member came, went or got worse.
func (is *incidents) touch(t *tracked, now time.Time) {
	in := t.incident
	if in == nil {
		return
	}
	switch {
	case t.member >= 0:
		in.Members[t.member] = t.Finding
	case t.State == Resolved:
		in.Unlisted = max(in.Unlisted-1, 0)
	}
	in.Severity = max(in.Severity, t.Severity)
	in.loud = in.loud || t.Suppressed == ""
	if in.dirty {
		return
	}
	// Updated tells one state of the incident from another, also while the time
	// stands still and after the clock was set.
	in.dirty, in.Updated = true, later(now, in.Updated.Add(1))
	if in.Updated.Equal(in.told) {
		in.Updated = in.Updated.Add(1)
	}
}

// settle resolves incidents whose members all have, forgets old ones, and returns
// those that people must hear about.
func (is *incidents) settle(now time.Time) []Incident {
	var told []Incident
	for _, in := range is.all {
		if !in.dirty {
			continue
		}
		if !in.lead() {
			in.State, in.Resolved = Resolved, now
			in.loud = in.loud || !in.told.IsZero()
		}
		if in.loud {
			in.told = in.Updated
			told = append(told, in.export())
		}
		in.dirty, in.loud = false, false
	}
	is.prune(now)
	return told
}

// lead makes the incident be about what heads its chain of those findings that still
// fire, and reports whether any does: what is over is not what is wrong.
func (in *incident) lead() bool {
	var head *Finding
	for i := range in.Members {
		f := &in.Members[i]
		if f.State != Firing {
			continue
		}
		if f.Rule == in.Rule && f.Cause == in.Cause {
			return true
		}
		if head == nil {
			head = f
		} else if _, before := rules.Chained(f.Rule, f.Cause, head.Rule, head.Cause); before {
			head = f
		}
	}
	if head != nil {
		in.Rule, in.Cause = head.Rule, head.Cause
	}
	return head != nil || in.Unlisted > 0
}

func (is *incidents) prune(now time.Time) {
	spare := len(is.all) - is.most()
	is.all = slices.DeleteFunc(is.all, func(in *incident) bool {
		if in.State != Resolved || (spare <= 0 && now.Sub(in.Resolved) < keepResolved) {
			return false
		}
		spare--
		return true
	})
}

func (is *incidents) most() int {
	if is.across != nil {
		return maxGatheredIncidents
	}
	return maxIncidents
}

// export returns a copy that nothing changes any more, members in their order.
func (in *incident) export() Incident {
	out := in.Incident
	out.Members = slices.Clone(in.Members)
	slices.SortStableFunc(out.Members, byBeginning)
	// What the incident is about comes first; of several such, the one that began it.
	root := max(0, slices.IndexFunc(out.Members, func(f Finding) bool { return f.Rule == in.Rule && f.Cause == in.Cause }))
	head := out.Members[root]
	copy(out.Members[1:], out.Members[:root])
	out.Members[0] = head
	slices.SortStableFunc(out.Members[1:], func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), byBeginning(a, b))
	})
	return out
}

func byBeginning(a, b Finding) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.GPUIndex, b.GPUIndex), cmp.Compare(a.Subject.ID, b.Subject.ID))
}

func (is *incidents) newID(t *tracked, opened time.Time) string {
	if is.across != nil {
		return is.across.id(t)
	}
	return is.id(t, opened)
}

// id returns an ID that no other incident has: the clock may have been set back, so
// that another was opened at the same time.
func (is *incidents) id(t *tracked, opened time.Time) string {
	for {
		id := incidentID(t, opened)
		if !slices.ContainsFunc(is.all, func(in *incident) bool { return in.ID == id }) {
			return id
		}
		opened = opened.Add(1)
	}
}

func incidentID(t *tracked, opened time.Time) string {
	sum := sha256.Sum256([]byte(t.Node + "\x00" + string(t.Rule) + "\x00" + t.Cause + "\x00" + opened.UTC().Format(time.RFC3339Nano)))
	return hex.EncodeToString(sum[:8])
}

// worst returns the highest severity of findings that fire, and whether any does.
func worst(findings []Finding) (s rules.Severity, any bool) {
	for _, f := range findings {
		if f.State == Firing {
			s, any = max(s, f.Severity), true
		}
	}
	return s, any
}
