package detect

import (
	"fmt"
	"slices"
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
	most  int                   // GPUs that were there at once, lost ones among them
}

type seenXid struct {
	uuid string
	code int
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
	d.now = s.Time
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == collector.XidEvent {
			d.fell(ev)
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		for _, x := range g.Xids {
			// A count whose event got lost on the way still tells of an error.
			if x.Last.Sub(d.known[seenXid{g.UUID, x.Code}]) > sameError {
				d.fell(&collector.Event{UUID: g.UUID, Code: x.Code, Time: x.Last})
			}
		}
	}
	answering := 0
	for i := range s.GPUs {
		if s.GPUs[i].Answers() {
			answering++
		}
	}
	for _, uuid := range d.order {
		d.settle(s, uuid, d.gpus[uuid])
	}
	d.most = max(d.most, len(s.GPUs)+d.missing(s))
	for _, uuid := range d.order {
		g := d.gpus[uuid]
		for _, f := range g.Faults {
			d.report(s, uuid, g, f, answering, report)
		}
	}
}

// missing is how many GPUs were lost to an error and are not in the snapshot at all.
func (d *Xid) missing(s *collector.Snapshot) (n int) {
	for uuid, g := range d.gpus {
		if uuid != "" && g.Absent && s.GPUByUUID(uuid) == nil {
			n++
		}
	}
	return n
}

// fell takes up one error.
func (d *Xid) fell(ev *collector.Event) {
	uuid, code, at := ev.UUID, ev.Code, ev.Time
	if at.IsZero() {
		at = d.now
	}
	k := seenXid{uuid, code}
	if _, ok := d.known[k]; ok || len(d.known) < maxFaults*maxFaultyGPUs {
		d.known[k] = later(d.known[k], at)
	}
	if at.After(d.now) {
		at = d.now
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
		f.After, f.Recovery = nil, ""
	}
	f.Last, f.Count, f.Told, f.Joined = later(f.Last, at), f.Count+1, false, false
	f.Message, f.Source = gist(code, ev.Text), ev.Source
	if uuid == "" {
		f.Place = ev.PCI
		return // nothing will ever say that it answers again
	}
	g.Lost = g.Lost || rules.Lost(code)
}

// settle brings what is known of a GPU up to date and joins its follow-on errors
// to their causes.
func (d *Xid) settle(s *collector.Snapshot, uuid string, g *faulty) {
	now := s.GPUByUUID(uuid)
	if now != nil {
		g.gpu = now
	}
	switch answers := now != nil && now.Answers(); {
	case answers && g.Absent:
		g.Lost, g.Absent = false, false
	case !answers && g.Lost && len(s.GPUs) > 0:
		g.Absent = true
	}
	g.Faults = slices.DeleteFunc(g.Faults, func(f *fault) bool { return d.now.Sub(f.Last) > faultKept && !g.Lost })
	for _, f := range g.Faults {
		if !f.Told && !f.Joined && f.followOn() {
			d.join(g, f)
		}
	}
}

// join makes a follow-on error that has a cause near it part of that cause's
// evidence. When a GPU is lost, the driver recommends a recovery for every GPU of
// the node.
func (d *Xid) join(g *faulty, f *fault) {
	cause := d.causeOf(g.Faults, f)
	if cause == nil && f.Code == rules.RecoveryXid {
		for _, uuid := range d.order {
			if other := d.causeOf(d.gpus[uuid].Faults, f); other != nil && rules.Lost(other.Code) {
				cause = other
				break
			}
		}
	}
	if cause == nil {
		return
	}
	after := fmt.Sprintf("Xid %d", f.Code)
	if f.Message != "" {
		after += " (" + f.Message + ")"
	}
	if len(cause.After) < 8 && !slices.Contains(cause.After, after) {
		cause.After = append(cause.After, after)
	}
	if f.Code == rules.RecoveryXid {
		cause.Recovery = f.Message
	}
	cause.Told, f.Joined = false, true
}

// causeOf returns the error near a follow-on error that may be its cause.
func (d *Xid) causeOf(faults []*fault, f *fault) *fault {
	for _, cause := range faults {
		if !cause.followOn() && cause.Last.Sub(f.Last).Abs() <= d.cfg.Join {
			return cause
		}
	}
	return nil
}

func (d *Xid) report(s *collector.Snapshot, uuid string, g *faulty, f *fault, answering int, report func(Observation)) {
	if !f.Told && f.followOn() && (f.Joined || d.now.Sub(f.Last) <= d.cfg.Join) {
		return // its cause tells of it, or may still come
	}
	entry := f.entry()
	if f.cause == "" {
		f.cause = rules.XidCause(f.Code)
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
			f.told, f.answering = d.evidence(f, entry, lost, answering, d.most), answering
		}
		o.Evidence = f.told
		f.Told = true
	}
	report(o)
}
