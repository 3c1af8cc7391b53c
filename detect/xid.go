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

// XidConfig is what the detector of Xid errors can be told. Zero fields take the
// defaults.
type XidConfig struct {
	MaxAge time.Duration // an error that is first told so long after it fell is history; 15 min
	Join   time.Duration // a follow-on error within it belongs to the error before or after; 60 s
}

const (
	faultKept     = 24 * time.Hour  // an error is remembered, to count its repeats
	maxFaults     = 32              // different codes of one GPU
	sameError     = 2 * time.Second // a count and an event within it tell of the same error
	maxFaultyGPUs = 1024
)

// Xid reports the driver's Xid errors. An error is an event: its finding ends when
// the rule's hold time has passed without another. The finding of a lost GPU
// lasts until the driver answers for the GPU again.
//
// A finding says what the error means and what to do first; it does not know
// whether somebody has done it.
type Xid struct {
	cfg   XidConfig
	gpus  map[string]*faulty
	order []string // of gpus, by first error
	now   time.Time
	known map[seenXid]time.Time // time of the newest error of each code
}

type seenXid struct {
	uuid string
	code int
}

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
	Joined  bool      `json:"joined"`  // a follow-on that is told with its cause
	Told    bool      `json:"told"`    // the finding knows of the newest error

	cause     string
	told      Evidence
	answering int // GPUs that answered when told
}

// NewXid returns the detector of rule xid.
func NewXid(cfg XidConfig) *Xid {
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = 15 * time.Minute
	}
	if cfg.Join <= 0 {
		cfg.Join = time.Minute
	}
	return &Xid{cfg: cfg, gpus: map[string]*faulty{}, known: map[seenXid]time.Time{}}
}

// Rule returns xid.
func (d *Xid) Rule() *rules.Rule { return rules.Get(rules.IDXid) }

// Observe takes up the snapshot's Xid events and counts.
func (d *Xid) Observe(s *collector.Snapshot, report func(Observation)) {
	if s.Time.Before(d.now) {
		clear(d.known) // the clock was set back
	}
	d.now = s.Time
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == collector.XidEvent {
			d.fell(ev.UUID, ev.Code, ev.Time, ev.Text)
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		for _, x := range g.Xids {
			// A count whose event got lost on the way still tells of an error.
			if x.Last.Sub(d.known[seenXid{g.UUID, x.Code}]) > sameError {
				d.fell(g.UUID, x.Code, x.Last, "")
			}
		}
	}
	answering := 0
	for i := range s.GPUs {
		if s.GPUs[i].Present {
			answering++
		}
	}
	for _, uuid := range d.order {
		d.judge(s, uuid, d.gpus[uuid], answering, report)
	}
}

// fell takes up one error.
func (d *Xid) fell(uuid string, code int, at time.Time, message string) {
	if at.IsZero() || at.After(d.now) {
		at = d.now
	}
	k := seenXid{uuid, code}
	if _, ok := d.known[k]; ok || len(d.known) < maxFaults*maxFaultyGPUs {
		d.known[k] = later(d.known[k], at)
	}
	if d.now.Sub(at) > d.cfg.MaxAge {
		return
	}
	g := d.gpus[uuid]
	if g == nil {
		if len(d.order) >= maxFaultyGPUs {
			return
		}
		g = &faulty{}
		d.gpus[uuid] = g
		d.order = append(d.order, uuid)
	}
	f := g.fault(code)
	if f == nil {
		return
	}
	if f.Count == 0 {
		f.First = at
	}
	if at.Sub(f.Last) > d.cfg.Join {
		f.After = nil
	}
	f.Last, f.Count, f.Told, f.Joined = later(f.Last, at), f.Count+1, false, false
	f.Message = gist(code, message)
	g.Lost = g.Lost || rules.Lost(code)
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
	case rules.NVLink5(code) && strings.Contains(message, "Nonfatal"):
		return "Nonfatal"
	case code == 154:
		for _, action := range []string{"Drain and Reset", "GPU Reset Required", "Node Reboot Required", "Drain P2P"} {
			if i := strings.LastIndex(message, action); i >= 0 && strings.TrimLeft(message[i+len(action):], ") \n") == "" {
				return action
			}
		}
	}
	return ""
}

func (d *Xid) judge(s *collector.Snapshot, uuid string, g *faulty, answering int, report func(Observation)) {
	now := s.GPUByUUID(uuid)
	if now != nil {
		g.gpu = now
	}
	switch answers := now != nil && now.Present; {
	case answers && g.Absent:
		g.Lost, g.Absent = false, false
	case !answers && g.Lost && len(s.GPUs) > 0:
		g.Absent = true
	}
	g.Faults = slices.DeleteFunc(g.Faults, func(f *fault) bool { return d.now.Sub(f.Last) > faultKept && !g.Lost })
	for _, f := range g.Faults {
		d.join(g, f)
	}
	for _, f := range g.Faults {
		d.report(s, uuid, g, f, answering, report)
	}
}

// join makes a follow-on error that has a cause near it part of that cause's
// evidence.
func (d *Xid) join(g *faulty, f *fault) {
	if f.Told || f.Joined || !f.followOn() {
		return
	}
	for _, cause := range g.Faults {
		if cause.followOn() || cause.Last.Sub(f.Last).Abs() > d.cfg.Join {
			continue
		}
		after := fmt.Sprintf("Xid %d", f.Code)
		if f.Message != "" {
			after += " (" + f.Message + ")"
		}
		if len(cause.After) < 8 && !slices.Contains(cause.After, after) {
			cause.After = append(cause.After, after)
		}
		cause.Told, f.Joined = false, true
		return
	}
}

func (f *fault) followOn() bool { return rules.XidInfo(f.Code).Class == rules.XidFollowOn }

func (d *Xid) report(s *collector.Snapshot, uuid string, g *faulty, f *fault, answering int, report func(Observation)) {
	if !f.Told && f.followOn() && (f.Joined || d.now.Sub(f.Last) <= d.cfg.Join) {
		return // its cause tells of it, or may still come
	}
	entry := rules.XidOf(f.Code, f.Message)
	if f.cause == "" {
		f.cause = fmt.Sprintf("xid_%d", f.Code)
	}
	o := Observation{Subject: gpuSubject(uuid), Cause: f.cause, At: f.Last, Severity: entry.Severity, GPU: g.gpu}
	if uuid == "" {
		o.Subject = Subject{"node", s.Node.Name}
	}
	if o.Subject.ID == "" {
		return
	}
	if g.gpu != nil {
		o.Owner = holder(g.gpu)
	}
	lost := rules.Lost(f.Code) && g.Absent
	if !f.Told || lost {
		o.Score = float64(f.Count)
		if !f.Told || f.answering != answering || f.told.Seen == "" {
			f.told, f.answering = d.evidence(f, entry, lost, answering, len(s.GPUs)), answering
		}
		o.Evidence = f.told
		f.Told = true
	}
	report(o)
}

func (d *Xid) evidence(f *fault, entry rules.Xid, lost bool, answering, gpus int) Evidence {
	var b strings.Builder
	fmt.Fprintf(&b, "Xid %d at %s: %s", f.Code, clock(f.Last), entry.Meaning)
	if f.Message != "" && f.Code == 154 {
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
		Confidence: Certain, Why: "reported by the driver", Action: entry.Action,
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
