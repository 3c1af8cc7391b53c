package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// SXidConfig is what the detector of NVSwitch errors can be told. Zero fields take
// the defaults.
type SXidConfig struct {
	MaxAge time.Duration // an error that is first told so long after it fell is history; 15 min
}

// SXid reports the errors of the node's NVSwitches. The jobs of a node share its
// switches, so the node is the subject, with one finding for fatal errors and one
// for the others.
type SXid struct {
	cfg    SXidConfig
	errors [2]switchErrors // not fatal, fatal
}

// switchErrors are the errors of one severity.
type switchErrors struct {
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Count  int       `json:"count"`
	Code   int       `json:"code"` // of the last one, with where it fell
	Switch string    `json:"switch"`
	Link   string    `json:"link"`
	Codes  []int     `json:"codes"` // different ones, in the order in which they fell
	Source string    `json:"source"`
	Told   bool      `json:"told"`

	evidence Evidence
}

const maxSXidCodes = 8 // that evidence lists

// NewSXid returns the detector of rule sxid.
func NewSXid(cfg SXidConfig) *SXid {
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = 15 * time.Minute
	}
	return &SXid{cfg: cfg}
}

// Rule returns sxid.
func (d *SXid) Rule() *rules.Rule { return rules.Get(rules.IDSXid) }

// Observe takes up the snapshot's errors of switches.
func (d *SXid) Observe(s *collector.Snapshot, report func(Observation)) {
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == collector.SXidEvent && s.Time.Sub(ev.Time) <= d.cfg.MaxAge {
			d.errors[fatality(ev.Fatal)].fell(ev, s.Time)
		}
	}
	if s.Node.Name == "" {
		return
	}
	for fatal := range d.errors {
		e := &d.errors[fatal]
		if e.Count == 0 {
			continue
		}
		o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: "non_fatal", Severity: rules.Info, At: e.Last}
		if fatal == 1 {
			o.Cause, o.Severity = "fatal", rules.Page
		}
		if !e.Told {
			o.Score = float64(e.Count)
			e.evidence, e.Told = e.say(fatal == 1), true
		}
		o.Evidence = e.evidence
		report(o)
	}
}

func fatality(fatal bool) int {
	if fatal {
		return 1
	}
	return 0
}

func (e *switchErrors) fell(ev *collector.Event, now time.Time) {
	at := ev.Time
	if at.After(now) {
		at = now
	}
	if now.Sub(e.Last) > faultKept {
		*e = switchErrors{First: at}
	}
	e.Last, e.Count, e.Told = later(e.Last, at), e.Count+1, false
	e.Code, e.Switch, e.Link, e.Source = ev.Code, ev.PCI, ev.Text, ev.Source
	if !slices.Contains(e.Codes, ev.Code) && len(e.Codes) < maxSXidCodes {
		e.Codes = append(e.Codes, ev.Code)
	}
}

func (e *switchErrors) say(fatal bool) Evidence {
	kind := "not fatal"
	action := "Nothing now; watch whether it repeats on the same switch and link."
	if fatal {
		kind, action = "fatal", "" // the rule's
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SXid %d (%s) at %s on NVSwitch %s", e.Code, kind, clock(e.Last), e.Switch)
	if e.Link != "" {
		fmt.Fprintf(&b, ", %s", e.Link)
	}
	if e.Count > 1 {
		fmt.Fprintf(&b, "; %d errors since %s", e.Count, clock(e.First))
	}
	if len(e.Codes) > 1 {
		fmt.Fprintf(&b, " with codes %s", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(e.Codes)), ", "), "[]"))
	}
	return Evidence{
		Seen: b.String(), Expected: "no such error", Observed: float64(e.Count), Confidence: Certain, Why: told(e.Source), Action: action,
		Title: fmt.Sprintf("NVSwitch error, %s (SXid %d)", kind, e.Code),
	}
}

// Shift moves the errors of the last day.
func (d *SXid) Shift(by time.Duration) {
	for i := range d.errors {
		shift(by, &d.errors[i].First, &d.errors[i].Last)
	}
}

type sxidState struct {
	Version int             `json:"version"`
	Errors  [2]switchErrors `json:"errors"`
}

// Save returns the errors of the last day.
func (d *SXid) Save() ([]byte, error) { return json.Marshal(sxidState{1, d.errors}) }

// Restore takes up what Save returned.
func (d *SXid) Restore(data []byte) error {
	var s sxidState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	d.errors = s.Errors
	return nil
}
