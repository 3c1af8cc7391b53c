package collector

import (
	"cmp"
	"slices"
	"time"
)

// toldXid is how often an error has been shown.
type toldXid struct {
	code   int
	events uint64    // that were delivered, also by an earlier agent
	floor  uint64    // by the source's own count, which knows of events that got lost
	last   time.Time // of both
	since  time.Time // when the source's count began to be ahead
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
