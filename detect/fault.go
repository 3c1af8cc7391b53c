package detect

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// faulty is a GPU, or with an empty uuid the node, that has had an error.
type faulty struct {
	Faults []*fault `json:"faults"`
	Lost   bool     `json:"lost"`   // it fell off the bus and has not answered since
	Absent bool     `json:"absent"` // and the driver has stopped to answer for it

	gpu *collector.GPU
}

// fault is one code on one GPU.
type fault struct {
	Code    int       `json:"code"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
	Message string    `json:"message"` // of NVLink and recovery errors: the part that says what it is
	After   []string  `json:"after"`   // follow-on errors

	// Recovery is what the driver recommended after it, if that is more urgent than
	// the error itself.
	Recovery string `json:"recovery,omitempty"`
	Place    string `json:"place,omitempty"`  // PCI address, of a GPU that is not known
	Source   string `json:"source,omitempty"` // who told, as in collector.Event

	Joined bool `json:"joined"` // a follow-on that is told with its cause
	Told   bool `json:"told"`   // the finding knows of the newest error

	cause     string
	told      Evidence
	answering int // GPUs that answered when told
}

// fault returns the GPU's entry for a code, nil if it has too many.
func (g *faulty) fault(code int) *fault {
	for _, f := range g.Faults {
		if f.Code == code {
			return f
		}
	}
	if len(g.Faults) >= maxFaults {
		return nil
	}
	f := &fault{Code: code}
	g.Faults = append(g.Faults, f)
	return f
}

// gist keeps of a driver's message only what the book knows to read; the rest may
// hold names of processes.
func gist(code int, message string) string {
	switch {
	case rules.NVLink5(code):
		return linkWords.FindString(message)
	case code == rules.RecoveryXid:
		return rules.RecoveryAction(message)
	}
	return ""
}

// linkWords are unit, severity and link of an NVLink error.
var linkWords = regexp.MustCompile(`(?:\b[A-Z][A-Z0-9_]{1,31} )?\b(?:Nonfatal|Fatal)\b(?:, link -?\d{1,4})?`)

// entry is what the book says of the newest error, and of what the driver
// recommended after it.
func (f *fault) entry() rules.Xid {
	e := rules.XidOf(f.Code, f.Message)
	if f.Recovery != "" {
		if r := rules.XidOf(rules.RecoveryXid, f.Recovery); r.Severity > e.Severity {
			e.Severity, e.Action = r.Severity, r.Action
		}
	}
	return e
}

// told says in words who told of an error.
func told(source string) string {
	words := map[string]string{"nvml": "through NVML", "kernel": "in the kernel log", "fabric_manager": "in the fabric manager's log",
		"gpu_exporter": "on the page of the GPU exporter"}
	var ways []string
	for name := range strings.SplitSeq(source, "+") {
		if w := words[name]; w != "" {
			ways = append(ways, w)
		}
	}
	return strings.TrimSpace("reported by the driver " + strings.Join(ways, " and "))
}

func (f *fault) followOn() bool { return rules.XidInfo(f.Code).Class == rules.XidFollowOn }

func (d *Xid) evidence(f *fault, entry rules.Xid, lost bool, answering, gpus int) Evidence {
	var b strings.Builder
	fmt.Fprintf(&b, "Xid %d at %s: %s", f.Code, clock(f.Last), entry.Meaning)
	if f.Place != "" {
		fmt.Fprintf(&b, ", on a GPU at %s that the driver does not list", f.Place)
	}
	if f.Message != "" {
		fmt.Fprintf(&b, " (%s)", f.Message)
	}
	if f.Count > 1 {
		fmt.Fprintf(&b, ", %d times since %s", f.Count, clock(f.First))
	}
	if len(f.After) > 0 {
		fmt.Fprintf(&b, "; followed by %s", strings.Join(f.After, ", "))
	}
	if lost {
		fmt.Fprintf(&b, "; %d of %d GPUs answer", answering, gpus)
	}
	return Evidence{
		Seen: b.String(), Expected: "no such error", Observed: float64(f.Count),
		Confidence: Certain, Why: told(f.Source), Action: entry.Action,
		Title: fmt.Sprintf("%s (Xid %d)", capital(entry.Meaning), f.Code),
	}
}

type xidState struct {
	Version int                `json:"version"`
	Order   []string           `json:"order"`
	GPUs    map[string]*faulty `json:"gpus"`
}

// Save returns the errors of the last day.
func (d *Xid) Save() ([]byte, error) { return json.Marshal(xidState{1, d.order, d.gpus}) }

// Restore takes up what Save returned.
func (d *Xid) Restore(data []byte) error {
	var s xidState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	d.gpus, d.order = map[string]*faulty{}, nil
	clear(d.known)
	for _, uuid := range s.Order {
		g := s.GPUs[uuid]
		if g == nil || d.gpus[uuid] != nil {
			continue
		}
		g.Faults = slices.DeleteFunc(g.Faults, func(f *fault) bool { return f == nil })
		d.gpus[uuid] = g
		d.order = append(d.order, uuid)
		for _, f := range g.Faults {
			d.known[seenXid{uuid, f.Code}] = f.Last
		}
	}
	return nil
}
