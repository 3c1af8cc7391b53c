package collector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

const (
	sameFault    = 5 * time.Second // two sources' times of one error differ by less
	strangerWait = time.Minute     // for the driver to list the first GPU
	maxFaults    = 1024            // that are remembered to be told apart
	maxCodes     = 256             // different errors of one GPU, or of all switches
)

// faults joins what the driver's events, the kernel log and the fabric manager's
// log tell of one and the same error. An error waits a little for the other
// source, so that it is told once and with its message.
type faults struct {
	list  []*fault
	read  LogPosition // of the newest part, at first an earlier agent's
	mark  LogPosition // all before it is delivered
	sxids []SXidCount
}

type fault struct {
	Event
	seen      time.Time   // the snapshot that met it first
	before    LogPosition // where to read again if it gets lost
	delivered bool
}

// toldXid is how often an error has been shown.
type toldXid struct {
	code   int
	events uint64    // that were delivered, also by an earlier agent
	floor  uint64    // by the source's own count, which knows of events that got lost
	last   time.Time // of both
	since  time.Time // when the source's count began to be ahead
}

// hearing says who can tell of errors now.
type hearing struct {
	driver, log bool
	wait        time.Duration // that one may be behind the other
}

func (c *composer) hearing(inputs []input) hearing {
	h := hearing{wait: 2*c.tiers[metric.Fast] + time.Second}
	for _, in := range inputs {
		switch {
		case !in.fresh:
		case in.Log != nil:
			h.log = true
			c.faults.read = *in.Log
		case len(in.GPUs) > 0:
			h.driver = true
		}
	}
	return h
}

// settleFaults puts into the snapshot the errors that no other source can be
// expected to add to, and counts them.
func (c *composer) settleFaults(s *Snapshot, inputs []input) {
	f := &c.faults
	before := f.read
	h := c.hearing(inputs)
	rest := make([]Event, 0, len(s.Events))
	for _, ev := range s.Events {
		if ev.Kind != XidEvent && ev.Kind != SXidEvent {
			rest = append(rest, ev)
			continue
		}
		c.gpus.place(&ev)
		if !f.joins(ev) {
			f.list = append(f.list, &fault{Event: ev, seen: s.Time, before: before})
		}
	}
	s.Events = rest
	for i, e := range f.list {
		if e.delivered {
			continue
		}
		c.gpus.place(&e.Event)
		if len(f.list)-i > maxFaults || s.Time.Sub(e.seen) >= c.due(e, h) {
			e.delivered = true
			s.Events = append(s.Events, e.Event)
			c.gpus.fell(e.Event)
			f.fell(e.Event)
		}
	}
	f.forget(s.Time, h)
	s.Log = f.mark
	s.SXids = f.sxids
	grace := time.Duration(0)
	if h.log {
		grace = 2*h.wait + sameFault
	}
	for i, seen := range c.gpus.list {
		s.GPUs[i].Xids = seen.shown(s.Time, grace)
	}
}

// due is how long an error waits for what others know of it.
func (c *composer) due(e *fault, h hearing) time.Duration {
	both := strings.Contains(e.Source, "+")
	switch {
	case e.Kind == SXidEvent || both || h.wait == 0:
		return 0
	case e.PCI == "": // told by the driver
		if h.log {
			return h.wait
		}
	case e.UUID == "" && len(c.gpus.list) == 0:
		return strangerWait
	case h.driver:
		return h.wait
	}
	return 0
}

// joins reports whether another source has told of the error already, and adds
// what is new.
func (f *faults) joins(ev Event) bool {
	for _, e := range f.list {
		if !e.sameAs(ev) {
			continue
		}
		over(&e.UUID, ev.UUID)
		over(&e.PCI, ev.PCI)
		if e.Text == "" {
			e.Text = ev.Text
		}
		if ev.Time.Before(e.Time) && !e.delivered {
			e.Time = ev.Time
		}
		e.Fatal = e.Fatal || ev.Fatal
		sources := append(strings.Split(e.Source, "+"), strings.Split(ev.Source, "+")...)
		slices.Sort(sources)
		e.Source = strings.Join(slices.Compact(sources), "+")
		return true
	}
	return false
}

// sameAs reports whether an event of another source tells of this error. A source
// that tells twice means two errors.
func (f *fault) sameAs(ev Event) bool {
	if f.Kind != ev.Kind || f.Code != ev.Code || f.Time.Sub(ev.Time).Abs() > sameFault {
		return false
	}
	for name := range strings.SplitSeq(ev.Source, "+") {
		if slices.Contains(strings.Split(f.Source, "+"), name) {
			return false
		}
	}
	switch {
	case f.Kind == SXidEvent:
		return f.PCI == ev.PCI
	case f.UUID != "" && ev.UUID != "":
		return f.UUID == ev.UUID
	case f.UUID == ev.UUID: // neither is known
		return f.PCI == ev.PCI || f.PCI == "" || ev.PCI == ""
	case f.UUID == "":
		return f.PCI == ""
	}
	return ev.PCI == ""
}

// forget drops the errors that nothing can join any more, and moves the mark.
func (f *faults) forget(now time.Time, h hearing) {
	f.mark = f.read
	for _, e := range f.list {
		if !e.delivered && e.PCI != "" {
			f.mark = e.before
			break
		}
	}
	spare := len(f.list) - maxFaults
	f.list = slices.DeleteFunc(f.list, func(e *fault) bool {
		gone := e.delivered && (spare > 0 || now.Sub(e.seen) > sameFault+2*h.wait)
		if gone {
			spare--
		}
		return gone
	})
}

// fell counts an error of a switch.
func (f *faults) fell(ev Event) {
	if ev.Kind == SXidEvent {
		f.add(SXidCount{Switch: ev.PCI, Code: ev.Code, Fatal: ev.Fatal, Count: 1, Last: ev.Time})
	}
}

// add adds to the counts of the switches. They are in snapshots that were handed
// out, so they are copied.
func (f *faults) add(x SXidCount) {
	f.sxids = slices.Clone(f.sxids)
	i := slices.IndexFunc(f.sxids, func(o SXidCount) bool { return o.Switch == x.Switch && o.Code == x.Code && o.Fatal == x.Fatal })
	switch {
	case i >= 0:
		f.sxids[i].Count += x.Count
		f.sxids[i].Last = later(f.sxids[i].Last, x.Last)
	case len(f.sxids) < maxCodes:
		f.sxids = append(f.sxids, x)
	}
	slices.SortStableFunc(f.sxids, func(a, b SXidCount) int {
		return cmp.Or(cmp.Compare(a.Switch, b.Switch), cmp.Compare(a.Code, b.Code), cmp.Compare(number(a.Fatal), number(b.Fatal)))
	})
}

// place finds the GPU of an error that was told with a PCI address.
func (f *fleet) place(ev *Event) {
	if ev.Kind != XidEvent || ev.UUID != "" || ev.PCI == "" {
		return
	}
	for _, g := range f.list {
		if PCIAddress(g.identity.PCIBusID) == ev.PCI {
			ev.UUID = g.identity.UUID
			return
		}
	}
}

// fell counts an error of a GPU that is known.
func (f *fleet) fell(ev Event) {
	g, ok := f.byUUID[ev.UUID]
	if !ok || ev.Kind != XidEvent {
		return
	}
	if t := g.tell(ev.Code); t != nil {
		t.events++
		t.last = later(t.last, ev.Time)
	}
}

// tell returns the entry of a code, nil if the GPU has too many.
func (s *seenGPU) tell(code int) *toldXid {
	for i := range s.told {
		if s.told[i].code == code {
			return &s.told[i]
		}
	}
	if len(s.told) == maxCodes {
		return nil
	}
	s.told = append(s.told, toldXid{code: code})
	return &s.told[len(s.told)-1]
}

// shown returns the errors so far: those that were delivered, or the source's own
// count if that has been ahead for longer than an event takes.
func (s *seenGPU) shown(now time.Time, grace time.Duration) []XidCount {
	for _, c := range s.xids {
		t := s.tell(c.code)
		if t == nil {
			continue
		}
		switch n := c.before + c.count; {
		case n <= max(t.events, t.floor):
			t.since = time.Time{}
			continue
		case t.since.IsZero():
			t.since = now
		}
		if now.Sub(t.since) >= grace {
			t.floor, t.last = c.before+c.count, later(t.last, c.latest)
			t.since = time.Time{}
		}
	}
	var out []XidCount
	for _, t := range s.told {
		if n := max(t.events, t.floor); n > 0 {
			out = append(out, XidCount{Code: t.code, Count: n, Last: t.last})
		}
	}
	slices.SortFunc(out, func(a, b XidCount) int { return cmp.Compare(a.Code, b.Code) })
	return out
}

// signed says of each error who told of it. The part's own events stay as they are.
func signed(events []Event, source string) []Event {
	copied := false
	for i := range events {
		if k := events[i].Kind; k != XidEvent && k != SXidEvent || events[i].Source != "" {
			continue
		}
		if !copied {
			events, copied = slices.Clone(events), true
		}
		events[i].Source = source
	}
	return events
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
