package collector

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

const (
	sameFault    = 5 * time.Second // two sources' times of one error differ by less
	maxWithin    = 2 * time.Minute // and by no more where one does not know it exactly
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

// hearing says who can tell of errors now.
type hearing struct {
	driver, log bool
	wait        time.Duration // that one may be behind the other
	within      time.Duration // by how much one may not know the time of an error
}

func (c *composer) hearing(inputs []input) hearing {
	h := hearing{wait: 2*c.tiers[metric.Fast] + time.Second}
	for _, in := range inputs {
		switch {
		case !in.fresh:
		case in.Log != nil:
			h.log = true
			c.faults.read = *in.Log
		case len(in.Pages) > 0: // an exporter tells long after the driver did: nobody waits for it
			h.within = maxWithin
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
		if !e.delivered && (ev.Time.Before(e.Time) || ev.Within < e.Within) {
			e.Time, e.Within = ev.Time, min(e.Within, ev.Within)
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
	// Positive: this one is told with the later time.
	after := f.Time.Sub(ev.Time)
	if f.Kind != ev.Kind || f.Code != ev.Code || after > sameFault+min(f.Within, maxWithin) || -after > sameFault+min(ev.Within, maxWithin) {
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
		gone := e.delivered && (spare > 0 || now.Sub(e.seen) > sameFault+h.within+2*h.wait)
		if gone {
			spare--
		}
		return gone
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
