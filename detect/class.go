package detect

import (
	"strings"

	"gpuvigil/collector"
)

// class is a kind of workload: what its replicas and its runs have in common. What is
// usual is kept for a class, so that a pod that is replaced, or another run of a job, is
// not taken for a change, and another workload on the same GPU is not either. The zero
// class is "nobody".
type class struct {
	Kind  string `json:"kind,omitempty"`  // as collector.Owner's
	Name  string `json:"name,omitempty"`  // namespace/name of a pod without what tells replicas apart; the team of a job
	Stage string `json:"stage,omitempty"` // as collector.Workload's
}

// classOf returns the class of an owner. The workload may be nil.
func classOf(o collector.Owner, w *collector.Workload) class {
	c := class{Kind: o.Kind, Name: o.ID}
	switch o.Kind {
	case "pod":
		c.Name = podFamily(o.ID)
	case "job":
		c.Name = o.Team // the number of a job says nothing about it
	}
	if w != nil {
		c.Stage = w.Stage
	}
	return c
}

// podFamily returns the name of a pod without what a Deployment, a StatefulSet, a Job or
// a DaemonSet added to tell its pods apart.
func podFamily(name string) string {
	if base, ok := cutLast(name, isOrdinal); ok {
		return base
	}
	if base, ok := cutLast(name, isSuffix); ok {
		name = base
		if base, ok := cutLast(name, isTemplateHash); ok {
			name = base
		}
	}
	return name
}

func cutLast(name string, matches func(string) bool) (string, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || name[i-1] == '/' || !matches(name[i+1:]) {
		return name, false
	}
	return name[:i], true
}

// generated are the letters of names that Kubernetes makes up: without vowels, and
// without what can be mistaken for one.
const generated = "bcdfghjklmnpqrstvwxz2456789"

func isSuffix(s string) bool { return len(s) == 5 && strings.Trim(s, generated) == "" }

func isTemplateHash(s string) bool {
	return len(s) >= 6 && len(s) <= 10 && strings.Trim(s, generated) == ""
}

func isOrdinal(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }
