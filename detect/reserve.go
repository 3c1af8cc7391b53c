package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// traffic is when an endpoint last did something.
type traffic struct {
	Tokens float64   `json:"tokens"`
	Last   time.Time `json:"last"`
	Seen   time.Time `json:"seen"`
}

// serve notes an endpoint's traffic. One that has served before it was first seen
// gets the benefit of the doubt.
func (d *Idle) serve(e *collector.Endpoint) {
	at := e.SampledAt(metric.Fast)
	if at.IsZero() {
		return
	}
	t := kept(d.endpoints, e)
	if t == nil {
		if !d.roomForEndpoint() {
			return
		}
		t = &traffic{}
		d.endpoints[e.Key()] = t
	}
	t.Seen = at
	tokens := e.Value(metric.GeneratedTokens)
	if e.Value(metric.RequestsRunning) > 0 || !math.IsNaN(tokens) && tokens > 0 && tokens != t.Tokens {
		t.Last = at
	}
	if !math.IsNaN(tokens) {
		t.Tokens = tokens
	}
}

// roomForEndpoint forgets endpoints that are gone before the memory of them grows
// without end.
func (d *Idle) roomForEndpoint() bool {
	return room(d.endpoints, maxHolders, d.cfg.ReserveFor, func(t *traffic) time.Time { return t.Seen }, d.now)
}

// reserve reports whether the GPU belongs to an endpoint that had traffic lately:
// a smallest replica is kept for the next request.
func (d *Idle) reserve(s *collector.Snapshot, g *collector.GPU) bool {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		t := d.endpoints[e.Key()]
		if t != nil && !t.Last.IsZero() && s.Time.Sub(t.Last) <= d.cfg.ReserveFor && covers(e, g) {
			return true
		}
	}
	return false
}
