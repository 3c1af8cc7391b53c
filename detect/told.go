package detect

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

const (
	maxTold   = 512 // findings of one agent
	maxToldID = 512 // bytes of a subject's id
)

// toldWhy marks evidence that is made of numbers alone.
const toldWhy = "by the agent of the node, which has the evidence: its numbers alone are known here"

// plainID is what names of rules, causes and kinds look like.
var plainID = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// ownerKinds are the kinds of subjects that are owners of GPUs.
var ownerKinds = []string{"job", "pod", "container", "service", "user"}

// ToldFindings are the findings that an agent exports of its node, as far as labels and
// numbers tell: without the evidence that the agent itself has. left is how many were
// left out because their labels make no sense, or because they are too many.
func ToldFindings(s *collector.Snapshot) (findings []Finding, left int) {
	if s.Agent == nil {
		return nil, 0
	}
	for i := range s.Agent.Findings {
		f, ok := toldFinding(&s.Agent.Findings[i], s)
		if !ok || len(findings) >= maxTold {
			left++
			continue
		}
		findings = append(findings, f)
	}
	return findings, left
}

func toldFinding(t *collector.Told, s *collector.Snapshot) (f Finding, ok bool) {
	severity, err := rules.ParseSeverity(t.Severity)
	kind, id, _ := strings.Cut(t.Subject, ":")
	if err != nil || id == "" || len(id) > maxToldID {
		return f, false
	}
	for _, name := range [...]string{kind, t.Rule, t.Cause} {
		if !plainID.MatchString(name) {
			return f, false
		}
	}
	f = Finding{
		Rule: rules.ID(t.Rule), Subject: Subject{kind, id}, Cause: t.Cause, Severity: severity, State: Firing,
		Since: t.Since, Fired: t.Since, LastSeen: s.Time, LastTrue: s.Time, Score: finiteOr(t.Score, 1), Count: 1,
		Node: s.Node.Name, GPUIndex: -1, Simulated: s.Simulated,
	}
	if f.Since.IsZero() || f.Since.After(s.Time) {
		f.Since, f.Fired = s.Time, s.Time
	}
	f.place(s)
	f.Evidence = toldEvidence(t)
	return f, true
}

// place says which GPU it is about, and whose that is.
func (f *Finding) place(s *collector.Snapshot) {
	if f.Subject.Kind == "gpu" {
		if g := s.GPUByUUID(f.Subject.ID); g != nil {
			f.GPUIndex, f.GPUModel, f.Owner = g.Index, g.Model, holder(g)
		}
		return
	}
	if !slices.Contains(ownerKinds, f.Subject.Kind) {
		return
	}
	f.Owner = collector.Owner{Kind: f.Subject.Kind, ID: f.Subject.ID}
	for i := range s.GPUs {
		for _, o := range s.GPUs[i].Owners {
			if o.Kind == f.Subject.Kind && o.ID == f.Subject.ID {
				f.Owner = o
				return
			}
		}
	}
}

// toldEvidence is what numbers alone say.
func toldEvidence(t *collector.Told) Evidence {
	e := Evidence{Observed: finiteOr(t.Observed, 0), Confidence: Likely, Why: toldWhy}
	unit := ""
	if r := rules.Get(rules.ID(t.Rule)); r != nil {
		unit = " " + r.Unit
	}
	if !math.IsNaN(t.Observed) {
		e.Seen = fmt.Sprintf("%s%s", significant(e.Observed, 4), unit)
	}
	if !math.IsNaN(t.Expected) && !math.IsInf(t.Expected, 0) {
		want := t.Expected
		e.Want, e.Expected = &want, significant(want, 4)+unit
	}
	return e
}

func finiteOr(x, otherwise float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return otherwise
	}
	return x
}
