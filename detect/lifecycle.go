package detect

import (
	"cmp"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

const (
	minExpiry   = 15 * time.Minute
	flapWindow  = time.Hour
	flapsBefore = 3 // a finding that came back more often within the window is damped
	dampedHold  = 15 * time.Minute
	maxHold     = 2 * time.Hour
	lookBack    = 10 * time.Minute // for what changed before a finding began
	lately      = time.Minute      // a condition that fires must have been judged within it
)

// key identifies a finding among those of one rule.
type key struct {
	subject Subject
	cause   string
}

// tracked is a finding with what the engine needs to lead its life. One that has
// resolved stays for as long as its coming back would count as flapping.
type tracked struct {
	Finding
	holds     bool        // the condition held when last judged
	turn      uint64      // of the snapshot in which it was last judged
	ended     time.Time   // when it last resolved
	comebacks []time.Time // when the condition came back within the flap window
	worse     bool        // its severity rose since the incident was last told
	incident  *incident
	member    int       // position among the incident's members
	explained time.Time // when a cause last stood for what is only unusual
	flipped   time.Time // when a statistical condition last began, or that of a finding ended
}

// open starts to track a condition; nil if the rule has reached its limit.
func (w *watcher) open(o *Observation) *tracked {
	if len(w.order) >= w.limit && !w.evict() {
		return nil
	}
	t := &tracked{Finding: Finding{Rule: w.rule.ID, Subject: o.Subject, Cause: o.Cause, State: Resolved}}
	w.found[key{o.Subject, o.Cause}] = t
	w.order = append(w.order, t)
	return t
}

// evict forgets the finding that has been resolved for longest.
func (w *watcher) evict() bool {
	oldest := -1
	for i, t := range w.order {
		if t.State == Resolved && (oldest < 0 || t.ended.Before(w.order[oldest].ended)) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	w.forget(w.order[oldest])
	w.order = slices.Delete(w.order, oldest, oldest+1)
	return true
}

func (w *watcher) forget(t *tracked) { delete(w.found, key{t.Subject, t.Cause}) }

// weigh takes up what the detector says of a finding's condition. Of several
// observations in one snapshot one above the threshold wins.
func (e *Engine) weigh(w *watcher, t *tracked, o *Observation) {
	if o.Score < 1 && t.holds && t.turn == e.turn {
		return
	}
	t.LastSeen, t.Score, t.turn = e.now, o.Score, e.turn
	if o.Score < 1 {
		if t.holds && t.State == Firing && t.Surprise > 0 {
			t.flipped = e.now
		}
		t.holds = false
		return
	}
	if !t.holds && !t.LastTrue.IsZero() {
		if gap := e.now.Sub(t.LastTrue); gap >= w.hold && gap < flapWindow {
			t.comeBack(e.now)
		}
	}
	if t.State == Resolved {
		e.begin(t, o)
		w.record.Onsets += onset(t)
		if o.Surprise > 0 && !t.holds { // one that was hidden goes on
			t.flipped = e.now
		}
	}
	t.holds, t.LastTrue = true, e.now
	t.Count++
	t.Surprise = o.Surprise
	t.Critical = e.critical(o)
	severity := e.afford(w, o, w.bound(o.Severity, t.Critical))
	t.Evidence, t.Owner = o.Evidence, o.Owner
	t.company(e.gpus)
	if o.GPU != nil {
		t.GPUIndex, t.GPUModel = o.GPU.Index, o.GPU.Model
	}
	// Severity never falls while a finding lasts: a message that is taken back and
	// sent again is worse than one that stays serious for too long.
	if severity > t.Severity {
		t.Severity, t.worse = severity, t.State == Firing
	}
}

// begin starts a finding's life, or another one.
func (e *Engine) begin(t *tracked, o *Observation) {
	since := e.now
	if !o.At.IsZero() && o.At.Before(since) {
		since = o.At
	}
	t.Finding = Finding{
		Rule: t.Rule, Subject: t.Subject, Cause: t.Cause, State: Pending,
		Since: since, LastSeen: e.now, Score: o.Score, Flaps: t.Flaps,
		Node: cmp.Or(o.Node, e.node()), GPUIndex: -1, Simulated: e.snapshot.Simulated,
		Before: e.events.before(since, o, e.snapshot),
	}
	t.worse, t.incident = false, nil
}

// onset is 1 for a condition that counts when several GPUs do the same.
func onset(t *tracked) float64 {
	if t.Subject.Kind == "gpu" {
		return 1
	}
	return 0
}

func (t *tracked) comeBack(now time.Time) {
	t.comebacks = append(t.recent(now), now)
	if len(t.comebacks) > 64 {
		t.comebacks = t.comebacks[1:]
	}
}

// recent drops comebacks that have left the flap window and returns the others.
func (t *tracked) recent(now time.Time) []time.Time {
	for len(t.comebacks) > 0 && now.Sub(t.comebacks[0]) >= flapWindow {
		t.comebacks = t.comebacks[1:]
	}
	return t.comebacks
}

// holdTime is how long the condition must be gone before the finding resolves:
// ever longer for one that keeps coming back.
func (t *tracked) holdTime(hold time.Duration) time.Duration {
	extra := t.Flaps - flapsBefore - 1
	if extra < 0 {
		return hold
	}
	return max(hold, min(max(hold, dampedHold)<<min(extra, 8), maxHold))
}

// settle moves a rule's findings along their lives.
func (e *Engine) settle(w *watcher) {
	kept := w.order[:0]
	for _, t := range w.order {
		t.Flaps = len(t.recent(e.now))
		e.advance(w, t)
		if t.State == Resolved && (t.ended.IsZero() || e.now.Sub(t.ended) >= flapWindow) && !t.accounted(e.now) {
			w.forget(t)
			continue
		}
		kept = append(kept, t)
	}
	clear(w.order[len(kept):])
	w.order = kept
	w.block()
	e.expireConditions(w)
}

func (e *Engine) advance(w *watcher, t *tracked) {
	if w.rule.Anomaly && t.State != Resolved && t.holds && w.explained(t, e.now) {
		t.explained = e.now
	}
	switch t.State {
	case Pending:
		switch {
		case !t.holds || e.unseen(t) > longPause:
			e.withdraw(t)
		case e.now.Sub(t.Since) >= w.wait && e.now.Sub(t.LastSeen) <= lately && !w.hidden(t, e.now) && !e.flips.withholds(t, e.now) && e.affordable(t):
			e.fire(w, t)
		}
	case Firing:
		switch {
		case w.hidden(t, e.now):
			e.resolve(t, "hidden")
		case e.unseen(t) > max(3*w.hold, minExpiry):
			e.resolve(t, "expired")
		case !t.holds && e.now.Sub(t.LastTrue) >= t.holdTime(w.hold):
			e.resolve(t, "cleared")
		case t.Suppressed != "" && e.state.drained.IsZero():
			t.Suppressed = "" // the node is given out again, and this is still so
			e.incidents.touch(t, e.now)
			e.changed = true
		case t.worse:
			t.worse = false
			e.incidents.touch(t, e.now)
		}
	}
}

// unseen is how long the detector could have judged the subject and did not.
func (e *Engine) unseen(t *tracked) time.Duration {
	if t.LastSeen.Before(e.resumed) {
		return e.now.Sub(e.resumed)
	}
	return e.now.Sub(t.LastSeen)
}

// withdraw ends a condition that never became a finding.
func (e *Engine) withdraw(t *tracked) {
	t.State = Resolved
	e.changed = true
}

func (e *Engine) fire(w *watcher, t *tracked) {
	t.State, t.Fired, t.worse = Firing, e.now, false
	w.record.fired(e.now, t.Surprise > 0)
	if e.state.suppresses(t.Since) {
		t.Suppressed = drainedReason
		w.suppressed.Inc()
	}
	e.incidents.join(t, e.now)
	e.changed = true
}

func (e *Engine) resolve(t *tracked, why string) {
	t.State, t.Resolved, t.Ended, t.ended = Resolved, e.now, why, e.now
	t.holds = false
	e.incidents.touch(t, e.now)
	e.finished = append(e.finished, t.Finding)
	e.changed = true
}

// block lists the subjects on which this rule's findings hide others, with their
// severity.
func (w *watcher) block() {
	if !w.hides {
		return
	}
	clear(w.blocked)
	clear(w.victims)
	for _, t := range w.order {
		if t.State == Firing && t.Severity >= rules.Ticket {
			w.blocked[t.Subject] = max(w.blocked[t.Subject], t.Severity)
			if owner := ownerSubject(t.Owner); owner != t.Subject {
				w.victims[owner] = max(w.victims[owner], t.Severity)
			}
		}
	}
}

// ownerSubject is an owner as the subject of a finding; zero for the unattributed.
func ownerSubject(o collector.Owner) Subject { return Subject{Kind: o.Kind, ID: o.ID} }
