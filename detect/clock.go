package detect

import (
	"slices"
	"time"

	"gpuvigil/collector"
)

// Clocked is a detector that remembers times. All of them do that look further
// than one snapshot.
type Clocked interface {
	Detector
	// Shift moves every time that the detector remembers, as the clock that it
	// measures by was set: ages and durations stay what they are.
	Shift(by time.Duration)
}

// follow moves the engine's clock to the snapshot's. A snapshot that is older than
// the last without saying that the clock was set comes after a restart, in which
// nobody has seen that.
func (e *Engine) follow(s *collector.Snapshot) {
	e.turn++
	e.step = 0
	if !e.now.IsZero() {
		e.step = min(s.Step, s.Time.Sub(e.now))
	}
	if e.step != 0 {
		e.shift(e.step)
	}
	e.elapsed = 0
	if passed := s.Time.Sub(e.now); !e.now.IsZero() && passed <= longPause {
		e.elapsed = max(passed, 0)
	}
	if e.resumed.IsZero() || s.Time.Sub(e.now) > longPause {
		e.resumed = s.Time
	}
	e.now = s.Time
}

// shift moves everything that the engine remembers. Detectors are moved when they
// look at the snapshot.
func (e *Engine) shift(by time.Duration) {
	e.history.shift(e.now, by)
	shift(by, &e.now, &e.resumed, &e.published, &e.state.drained)
	if e.judge != nil {
		e.judge.Shift(by)
	}
	for _, w := range e.watchers {
		for _, t := range w.order {
			t.Finding.shift(by)
			shift(by, &t.ended, &t.explained, &t.flipped)
			shiftAll(by, t.comebacks)
		}
		shiftAll(by, w.seenAt)
	}
	for _, in := range e.incidents.all {
		shift(by, &in.Opened, &in.Resolved, &in.Updated, &in.lastSince)
		for i := range in.Members {
			in.Members[i].shift(by)
		}
	}
	e.flips.shift(by)
	for i := range e.finished {
		e.finished[i].shift(by)
	}
	for i := range e.events.events {
		shift(by, &e.events.events[i].Time)
	}
	e.changed = true
}

func (f *Finding) shift(by time.Duration) {
	shift(by, &f.Since, &f.Fired, &f.Resolved, &f.LastSeen, &f.LastTrue)
	f.Before = slices.Clone(f.Before) // shared with views that were handed out
	for i := range f.Before {
		shift(by, &f.Before[i].Time)
	}
}

// shift moves times; the zero time stays what it is.
func shift(by time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
}

func shiftAll(by time.Duration, times []time.Time) {
	for i := range times {
		shift(by, &times[i])
	}
}

// Shift moves the windows and what is known of endpoints.
func (d *Saturated) Shift(by time.Duration) {
	shift(by, &d.now, &d.cpuAt)
	d.cpu.Shift(by)
	d.core.Shift(by)
	for _, b := range d.gpus {
		shift(by, &b.at, &b.since, &b.toldAt)
		b.busy.Shift(by)
		b.util.Shift(by)
	}
	for _, w := range d.endpoints {
		shift(by, &w.at, &w.moved, &w.p95At, &w.long.at, &w.since)
		w.queue.Shift(by)
		w.waiters.Shift(by)
	}
}

// Shift moves how long GPUs have been idle, the ledger and the traffic.
func (d *Idle) Shift(by time.Duration) {
	d.ledger.shift(hour(d.now.Add(by)) - hour(d.now))
	shift(by, &d.now, &d.listedAt)
	for _, st := range d.gpus {
		shift(by, &st.Since, &st.At, &st.Booked, &st.toldAt)
		st.Busy.Shift(by)
		st.Power.Shift(by)
	}
	for _, t := range d.endpoints {
		shift(by, &t.Last, &t.Seen)
	}
}

func (l *ledger) shift(hours int64) {
	for _, a := range l.accounts {
		old := *a
		a.Seconds, a.Cost, a.Hour = [slots]float64{}, [slots]float64{}, max(a.Hour+hours, 0)
		for back := range min(int64(slots), old.Hour+1, a.Hour+1) {
			a.Seconds[(a.Hour-back)%slots] = old.Seconds[(old.Hour-back)%slots]
			a.Cost[(a.Hour-back)%slots] = old.Cost[(old.Hour-back)%slots]
		}
	}
}

// Shift moves when versions came.
func (d *Version) Shift(by time.Duration) {
	for _, c := range d.components {
		shift(by, &c.Since)
		shiftAll(by, c.Changes)
	}
}

// Shift moves the errors of the last day.
func (d *Xid) Shift(by time.Duration) {
	shift(by, &d.now)
	for k, at := range d.known {
		d.known[k] = at.Add(by)
	}
	for _, g := range d.gpus {
		for _, f := range g.Faults {
			shift(by, &f.First, &f.Last)
			f.told.Seen = "" // it names the time
		}
	}
}

// Shift moves when words were last found.
func (d *Throttled) Shift(by time.Duration) {
	for _, w := range d.told {
		shiftAll(by, w.at[:])
	}
}
