package detect

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	historyPoints = 6 * 60 // one a minute
	maxEvents     = 512
	maxBefore     = 16
)

// history keeps six hours of the readings that rules watch, one minute a point,
// for the node, its GPUs and the endpoints beside them. It begins anew with the
// process.
type history struct {
	watched [4][]*metric.Def // by entity; those of Node, GPU and Endpoint are used
	of      map[Subject]*rings
}

// rings are one subject's readings, in the order of watched.
type rings struct {
	at    [metric.Tiers]time.Time // tiers' times when last added
	last  time.Time
	kind  int
	rings []ring
}

type ring struct {
	minute int64 // the newest, since the epoch
	points []minute
}

// minute is packed: a node of eight GPUs has some 40 rings.
type minute struct {
	number        int64
	min, max, sum float32
	samples       uint32
}

const (
	ofNode = iota
	ofGPU
	ofEndpoint
)

func newHistory(watchers []*watcher) history {
	h := history{of: map[Subject]*rings{}}
	for _, w := range watchers {
		for _, d := range w.rule.Watch {
			if k, ok := kindOf(d.Entity); ok && !slices.Contains(h.watched[k], d) {
				h.watched[k] = append(h.watched[k], d)
			}
		}
	}
	return h
}

func kindOf(e metric.Entity) (int, bool) {
	switch e {
	case metric.Node:
		return ofNode, true
	case metric.GPU:
		return ofGPU, true
	case metric.Endpoint:
		return ofEndpoint, true
	default:
		return 0, false
	}
}

func (h *history) add(s *collector.Snapshot, node string) {
	if h.of == nil {
		return
	}
	h.take(Subject{"node", node}, ofNode, &s.Node.Readings, s.Time)
	for i := range s.GPUs {
		h.take(Subject{"gpu", s.GPUs[i].UUID}, ofGPU, &s.GPUs[i].Readings, s.Time)
	}
	for i := range s.Endpoints {
		h.take(EndpointSubject(&s.Endpoints[i]), ofEndpoint, &s.Endpoints[i].Readings, s.Time)
	}
}

func (h *history) take(of Subject, kind int, r *collector.Readings, now time.Time) {
	if len(h.watched[kind]) == 0 {
		return
	}
	rs := h.of[of]
	if rs == nil {
		h.prune(now)
		rs = &rings{kind: kind, rings: make([]ring, len(h.watched[kind]))}
		h.of[of] = rs
	}
	rs.last = now
	var moved [metric.Tiers]bool
	for t := range metric.Tiers {
		if at := r.SampledAt(t); at.After(rs.at[t]) {
			moved[t], rs.at[t] = true, at
		}
	}
	for i, d := range h.watched[kind] {
		if moved[d.Tier] {
			rs.rings[i].add(rs.at[d.Tier], r.Value(d))
		}
	}
}

// shift moves the points with the clock, by whole minutes: now is the newest
// snapshot's time by the clock as it was.
func (h *history) shift(now time.Time, by time.Duration) {
	minutes := now.Add(by).Unix()/60 - now.Unix()/60
	for _, rs := range h.of {
		shift(by, &rs.last)
		shiftAll(by, rs.at[:])
		for i := range rs.rings {
			rs.rings[i].shift(minutes)
		}
	}
}

func (r *ring) shift(minutes int64) {
	if r.points == nil {
		return
	}
	old := r.points
	r.minute, r.points = max(r.minute+minutes, 0), make([]minute, historyPoints)
	for _, p := range old {
		if p.number += minutes; p.samples > 0 && p.number >= 0 {
			r.points[p.number%historyPoints] = p
		}
	}
}

// prune forgets subjects that have not been seen for as long as anybody looks back.
func (h *history) prune(now time.Time) {
	for s, r := range h.of {
		if now.Sub(r.last) > historyPoints*time.Minute {
			delete(h.of, s)
		}
	}
}

func (r *ring) add(at time.Time, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	n := at.Unix() / 60
	if n < 0 || n < r.minute {
		return
	}
	if r.points == nil {
		r.points = make([]minute, historyPoints)
	}
	r.minute = n
	p, x := &r.points[n%historyPoints], float32(v)
	if p.number != n || p.samples == 0 {
		*p = minute{number: n, min: x, max: x}
	}
	p.min, p.max = min(p.min, x), max(p.max, x)
	p.sum += x
	p.samples++
}

// History returns the watched readings of a subject over the last six hours,
// oldest point first; minutes without a sample are left out. It is empty for a
// subject that is not watched.
func (e *Engine) History(of Subject) []History {
	e.mu.Lock()
	defer e.mu.Unlock()
	rs := e.history.of[of]
	if rs == nil {
		return nil
	}
	var out []History
	oldest := e.now.Unix()/60 - historyPoints
	for i, d := range e.history.watched[rs.kind] {
		r := &rs.rings[i]
		h := History{Reading: d}
		for n := max(r.minute-historyPoints+1, oldest+1); n <= r.minute && r.points != nil; n++ {
			if p := r.points[n%historyPoints]; p.number == n && p.samples > 0 {
				h.Points = append(h.Points, Point{
					Time: time.Unix(n*60, 0).UTC(), Min: float64(p.min), Mean: float64(p.sum) / float64(p.samples), Max: float64(p.max),
				})
			}
		}
		if len(h.Points) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// concerns reports whether an event may have to do with what was observed: it is about
// the observation's owner, about a GPU of its, or about the node. Who came to another
// GPU, or what another owner changed, says nothing; nor does an error on the GPU of
// others, unless it is one of the hardware.
func (o *Observation) concerns(ev *collector.Event, s *collector.Snapshot) bool {
	if o.Subject.Kind == "node" {
		return true
	}
	if ev.Kind == collector.XidEvent && ev.UUID != "" {
		return o.GPU != nil && o.GPU.UUID == ev.UUID || ev.Fatal || rules.XidOf(ev.Code, ev.Text).Class.Severity() >= rules.Page || o.sharesJob(s.GPUByUUID(ev.UUID))
	}
	if ev.Kind == collector.OwnerEvent {
		mine := func(who collector.Owner) bool {
			return who != (collector.Owner{}) && (ev.From == who.String() || ev.To == who.String())
		}
		return o.GPU != nil && o.GPU.UUID == ev.UUID || o.ofOwner(mine)
	}
	return ev.Owner == (collector.Owner{}) || o.ofOwner(func(who collector.Owner) bool { return who.Kind == ev.Owner.Kind && who.ID == ev.Owner.ID })
}

// sharesJob reports whether one of the observation's owners has the GPU too.
func (o *Observation) sharesJob(g *collector.GPU) bool {
	return g != nil && o.ofOwner(func(who collector.Owner) bool { return who != (collector.Owner{}) && slices.Contains(g.Owners, who) })
}

// ofOwner reports whether the observation is about an owner who is meant.
func (o *Observation) ofOwner(is func(collector.Owner) bool) bool {
	return is(o.Owner) || o.GPU != nil && slices.ContainsFunc(o.GPU.Owners, is)
}

// Changes returns the last changes of versions and of what runs on the node, oldest
// first: at most 64.
func (e *Engine) Changes() []collector.Event {
	const most = 64
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []collector.Event
	for _, ev := range e.events.events {
		if ev.Kind == collector.VersionEvent || ev.Kind == collector.InventoryEvent {
			out = append(out, ev)
		}
	}
	return out[max(len(out)-most, 0):]
}

// eventLog keeps the newest events, oldest first.
type eventLog struct{ events []collector.Event }

func (l *eventLog) add(events []collector.Event) {
	if len(events) == 0 {
		return
	}
	l.events = append(l.events, events...)
	if over := len(l.events) - maxEvents; over > 0 {
		l.events = append([]collector.Event(nil), l.events[over:]...)
	}
}

// before returns the newest events of the ten minutes before a finding began, of
// the whole node: what breaks one GPU's hardware often shows on another first. Of what
// one owner changed or broke, and of who came and went, only those are told that concern
// the finding. What happened at its very beginning is the finding itself.
func (l *eventLog) before(since time.Time, o *Observation, s *collector.Snapshot) []collector.Event {
	var out []collector.Event
	for i := range l.events {
		ev := &l.events[i]
		if ev.Time.Before(since) && since.Sub(ev.Time) <= lookBack && o.concerns(ev, s) {
			out = append(out, *ev)
		}
	}
	slices.SortStableFunc(out, func(a, b collector.Event) int { return a.Time.Compare(b.Time) })
	return out[max(len(out)-maxBefore, 0):]
}
