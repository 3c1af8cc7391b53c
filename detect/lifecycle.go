package detect

import (
	"slices"
	"time"

	"gpuvigil/rules"
)

const (
	minExpiry   = 15 * time.Minute
	flapWindow  = time.Hour
	flapsBefore = 3 // a finding that came back more often within the window is damped
	dampedHold  = 15 * time.Minute
	maxHold     = 2 * time.Hour
	lookBack    = 10 * time.Minute // for what changed before a finding began
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
	ended     time.Time   // when it last resolved
	comebacks []time.Time // when the condition came back within the flap window
	worse     bool        // its severity rose since the incident was last told
	incident  *incident
	member    int // position among the incident's members
}

// open starts to track a condition; nil if the rule has reached its limit.
func (j *judge) open(o *Observation) *tracked {
	if len(j.order) >= j.limit && !j.evict() {
		return nil
	}
	t := &tracked{Finding: Finding{Rule: j.rule.ID, Subject: o.Subject, Cause: o.Cause, State: Resolved}}
	j.found[key{o.Subject, o.Cause}] = t
	j.order = append(j.order, t)
	return t
}

// evict forgets the finding that has been resolved for longest.
func (j *judge) evict() bool {
	oldest := -1
	for i, t := range j.order {
		if t.State == Resolved && (oldest < 0 || t.ended.Before(j.order[oldest].ended)) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	j.forget(j.order[oldest])
	j.order = slices.Delete(j.order, oldest, oldest+1)
	return true
}

func (j *judge) forget(t *tracked) { delete(j.found, key{t.Subject, t.Cause}) }

// see takes up what the detector says of a finding's condition. Of several
// observations in one snapshot one above the threshold wins.
func (e *Engine) see(j *judge, t *tracked, o *Observation) {
	if o.Score < 1 && t.holds && t.LastSeen.Equal(e.now) {
		return
	}
	t.LastSeen, t.Score = e.now, o.Score
	if o.Score < 1 {
		t.holds = false
		return
	}
	if !t.holds && !t.LastTrue.IsZero() {
		if gap := e.now.Sub(t.LastTrue); gap >= j.hold && gap < flapWindow {
			t.comeBack(e.now)
		}
	}
	if t.State == Resolved {
		e.begin(t, o)
	}
	t.holds, t.LastTrue = true, e.now
	t.Count++
	t.Evidence, t.Owner = o.Evidence, o.Owner
	if o.GPU != nil {
		t.GPUIndex, t.GPUModel = o.GPU.Index, o.GPU.Model
	}
	// Severity never falls while a finding lasts: a message that is taken back and
	// sent again is worse than one that stays serious for too long.
	if s := j.bound(o.Severity); s > t.Severity {
		t.Severity, t.worse = s, t.State == Firing
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
		Node: e.node(), GPUIndex: -1, Simulated: e.snapshot.Simulated,
		Before: e.events.before(since),
	}
	t.worse, t.incident = false, nil
}

// bound limits a severity to what the rule, or the user's setting for it, allows.
func (j *judge) bound(s rules.Severity) rules.Severity {
	if j.severity == nil {
		return min(s, j.rule.Severity)
	}
	if s >= j.rule.Severity {
		return *j.severity
	}
	return min(s, *j.severity)
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
func (e *Engine) settle(j *judge) {
	kept := j.order[:0]
	for _, t := range j.order {
		t.Flaps = len(t.recent(e.now))
		e.step(j, t)
		if t.State == Resolved && (t.ended.IsZero() || e.now.Sub(t.ended) >= flapWindow) {
			j.forget(t)
			continue
		}
		kept = append(kept, t)
	}
	clear(j.order[len(kept):])
	j.order = kept
	j.block()
	e.expireConditions(j)
}

func (e *Engine) step(j *judge, t *tracked) {
	switch t.State {
	case Pending:
		switch {
		case !t.holds || e.unseen(t) > longPause:
			e.withdraw(t)
		case e.now.Sub(t.Since) >= j.wait && !j.hidden(t):
			e.fire(t)
		}
	case Firing:
		switch {
		case j.hidden(t):
			e.resolve(t, "hidden")
		case e.unseen(t) > max(3*j.hold, minExpiry):
			e.resolve(t, "expired")
		case !t.holds && e.now.Sub(t.LastTrue) >= t.holdTime(j.hold):
			e.resolve(t, "cleared")
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

func (e *Engine) fire(t *tracked) {
	t.State, t.Fired, t.worse = Firing, e.now, false
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

// block lists the subjects on which this rule's findings hide others.
func (j *judge) block() {
	if !j.hides {
		return
	}
	clear(j.blocked)
	for _, t := range j.order {
		if t.State == Firing && t.Severity >= rules.Ticket {
			j.blocked[t.Subject] = struct{}{}
		}
	}
}

func (j *judge) hidden(t *tracked) bool {
	for _, h := range j.hiders {
		if _, ok := h.blocked[t.Subject]; ok {
			return true
		}
	}
	return false
}

// rebase goes on after the clock was set back: nothing lies in the future.
func (e *Engine) rebase(now time.Time) {
	for _, j := range e.judges {
		for _, t := range j.order {
			for _, at := range []*time.Time{&t.Since, &t.Fired, &t.LastSeen, &t.LastTrue, &t.ended} {
				if at.After(now) {
					*at = now
				}
			}
			t.comebacks = nil
		}
		for i := range j.seenAt {
			j.seenAt[i] = now
		}
	}
	e.resumed = now
	e.published = time.Time{}
	e.events, e.history = eventLog{}, newHistory(e.judges)
}
