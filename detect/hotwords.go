package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/rules"
)

var sensorNames = [hotSensors]string{"core", "memory"}

// tell reports each cause. What all GPUs of the node have together is told of the node,
// and a GPU with peers is judged by them and not by its past.
func (d *HotGPU) tell(s *collector.Snapshot, g *collector.GPU, h *heat, together bool, report func(Observation)) {
	higher := false
	if k := h.worst(func(v *sensor) float64 { return v.Peers.Score() }); h.Sensors[k].known && h.Sensors[k].compare >= hotPeers {
		o, v := d.about(g, hotterThanPeers), &h.Sensors[k]
		if o.Score = v.Peers.Score(); o.Score >= 1 {
			o.Surprise, o.Evidence, higher = nats(&v.Peers, &hotOfPeers), abovePeers(g, h, k), true
		}
		report(o)
	}
	if k := h.worst(func(v *sensor) float64 { return v.Past.Score() }); h.Sensors[k].wellKnown {
		o, v := d.about(g, hotterThanUsual), &h.Sensors[k]
		if v.compare < hotPeers && !together {
			o.Score = v.Past.Score()
		}
		if o.Score >= 1 {
			o.Surprise, o.Evidence, higher = nats(&v.Past, &hotOfPast), abovePast(g, h, k), true
		}
		report(o)
	}
	o := d.about(g, nearSlowdown)
	if o.Score = float64(h.Sensors[0].Close) / hotCloseFor; o.Score >= 1 {
		o.Evidence = nearWords(g, h)
	}
	report(o)
	if v := &h.Sensors[0]; v.known {
		o = d.about(g, heatingUp)
		if !together && !higher { // what is hotter has been told already
			d.trendOf(s, g, h, &o)
		}
		report(o)
	}
}

func (d *HotGPU) about(g *collector.GPU, cause string) Observation {
	return Observation{Subject: gpuSubject(g.UUID), Cause: cause, Severity: rules.Ticket, GPU: g, Owner: holder(g)}
}

// worst returns the sensor with the highest score.
func (h *heat) worst(score func(*sensor) float64) (best int) {
	for k := 1; k < hotSensors; k++ {
		if v := &h.Sensors[k]; v.known && score(v) > score(&h.Sensors[best]) {
			best = k
		}
	}
	return best
}

func abovePeers(g *collector.GPU, h *heat, k int) Evidence {
	v := &h.Sensors[k]
	want := v.expected + v.common + v.Peers.Usual()
	return Evidence{
		Title: fmt.Sprintf("GPU %d runs hotter than its peers", g.Index),
		Seen: fmt.Sprintf("GPU %d: %s at %s at %s of its power limit, %s hotter than its load explains, for %s; %d peers are %s hotter",
			g.Index, sensorNames[k], celsius(v.now), percentOf(h.Load), kelvins(v.rest), lastingOf(&v.Peers), v.compare, kelvins(v.common)),
		Expected: "about " + celsius(want) + ", by its load and what its peers have in common now",
		Observed: v.now, Want: &want, Confidence: sureOf(nats(&v.Peers, &hotOfPeers)),
		Why:    "how its temperature follows from the load was learned of itself, so that a place in warmer air does not count",
		Action: "Look for a blocked heat sink, a failed fan or a loose cold plate of this GPU; move work away before it slows down.",
	}
}

func abovePast(g *collector.GPU, h *heat, k int) Evidence {
	v := &h.Sensors[k]
	want := v.expected
	return Evidence{
		Title: fmt.Sprintf("GPU %d runs hotter than usual", g.Index),
		Seen: fmt.Sprintf("GPU %d: %s at %s at %s of its power limit, %s hotter than its load explains, for %s; it has %s to compare with",
			g.Index, sensorNames[k], celsius(v.now), percentOf(h.Load), kelvins(v.rest), lastingOf(&v.Past), count(v.compare, "peer", "peers")),
		Expected: "about " + celsius(want) + " at this load, by its own past",
		Observed: v.now, Want: &want, Confidence: sureOf(nats(&v.Past, &hotOfPast)),
		Why: "by its own past only: warmer air looks the same",
	}
}

func nearWords(g *collector.GPU, h *heat) Evidence {
	want := h.slowdown - hotClose
	return Evidence{
		Title: fmt.Sprintf("GPU %d is close to its slowdown temperature", g.Index),
		Seen: fmt.Sprintf("GPU %d: core at %s, %s below the slowdown at %s, for %s",
			g.Index, celsius(h.Sensors[0].now), kelvins(h.slowdown-h.Sensors[0].now), celsius(h.slowdown), span(time.Duration(h.Sensors[0].Close)*time.Minute)),
		Expected: "below " + celsius(want), Observed: h.Sensors[0].now, Want: &want, Confidence: Certain, Why: "measured by the driver",
	}
}

// trendOf fills in how soon the slowdown is reached, if the temperature goes on to rise.
func (d *HotGPU) trendOf(s *collector.Snapshot, g *collector.GPU, h *heat, o *Observation) {
	v := &h.Sensors[0]
	t := v.Trend.growth()
	matters := hotReachedAlone
	if v.Trend.peers {
		matters = hotReached
	}
	soonest, likely, latest := t.Until(v.Trend.now+h.slowdown-v.now, s.Time.Add(-d.moved))
	if o.Score = min(t.Score, 0.9); t.Score < 1 || v.Trend.lasting < hotGrowsFor || likely > matters {
		return
	}
	want := v.now - t.Rise
	o.Score, o.At = t.Score, t.At.Add(d.moved-t.Over)
	o.Surprise = leakSurprise(time.Duration(v.Trend.lasting) * time.Minute)
	o.Evidence = Evidence{
		Title: fmt.Sprintf("GPU %d heats up", g.Index),
		Seen: fmt.Sprintf("GPU %d: core rises by %s an hour since %s at the same load, now %s, at its slowdown of %s in %s",
			g.Index, kelvins(3600*t.PerSecond), timeOf(o.At, s.Time), celsius(v.now), celsius(h.slowdown), rangeOf(soonest, likely, latest)),
		Expected: "about " + celsius(want) + " at this load, as before", Observed: v.now, Want: &want, Confidence: Likely,
		Why: fmt.Sprintf("a trend over %s (Mann–Kendall z %s)", span(t.Over), significant(t.Z, 2)),
	}
}

func (d *HotGPU) tellNode(s *collector.Snapshot, judged, hot int, together bool, report func(Observation)) {
	o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: nodeHot, Severity: rules.Ticket}
	if o.Score = min(float64(hot)/max(2, hotTogether*float64(judged)), 0.99); !together {
		report(o)
		return
	}
	above, least := 0.0, math.Inf(1)
	for i := range s.GPUs {
		h := d.gpus[s.GPUs[i].UUID]
		if h == nil || !h.fresh || !h.hotter() {
			continue
		}
		for k := range h.Sensors {
			if r := &h.Sensors[k].Past; h.Sensors[k].wellKnown && r.Score() >= 1 {
				above = max(above, r.Recent())
				least = min(least, nats(r, &hotOfPast))
				o.Score = max(o.Score, r.Score())
			}
		}
	}
	o.Surprise = least // of one alone: that they are several is no better evidence, as they share the air
	want := 0.0
	o.Evidence = Evidence{
		Title:    "All GPUs of the node run hot",
		Seen:     fmt.Sprintf("%d of %d GPUs that are under steady load are up to %s hotter than their load explains", hot, judged, kelvins(above)),
		Expected: "each as hot as its load makes it",
		Observed: above, Want: &want, Confidence: sureOf(least),
		Why:    "so many at once share a cause: the air that comes in, or the fans",
		Action: "Look at the room's and the rack's temperature, the node's fans and its air filters before any GPU.",
	}
	report(o)
}

func lastingOf(r *stream.Rise) string { return span(time.Duration(r.Lasting()) * time.Minute) }

// sureOf puts nats into words.
func sureOf(nats float64) Confidence {
	if nats >= 6.9 { // less than one in a thousand a week
		return VerySure
	}
	return Likely
}

func celsius(t float64) string { return fmt.Sprintf("%.0f °C", t) }

func kelvins(t float64) string { return fmt.Sprintf("%.1f K", t) }

type trendState struct {
	Leak    []byte                      `json:"leak,omitempty"`
	Loads   [stream.PlaneInputs]float64 `json:"loads,omitzero"`
	Base    float64                     `json:"base,omitempty"`
	Peers   bool                        `json:"peers,omitempty"`
	Lasting int                         `json:"lasting,omitempty"`
}

func (t trend) MarshalJSON() ([]byte, error) {
	if t.leak == nil {
		return []byte("{}"), nil
	}
	packed, err := t.leak.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(trendState{packed, t.loads, t.base, t.peers, t.lasting})
}

func (t *trend) UnmarshalJSON(data []byte) error {
	var s trendState
	if err := json.Unmarshal(data, &s); err != nil || s.Leak == nil {
		return err
	}
	leak := stream.NewLeak()
	if err := leak.UnmarshalBinary(s.Leak); err != nil {
		return err
	}
	*t = trend{leak: leak, loads: s.Loads, base: s.Base, peers: s.Peers, lasting: s.Lasting}
	return nil
}

// Shift moves when GPUs were seen; the trends keep a clock of their own.
func (d *HotGPU) Shift(by time.Duration) {
	d.moved += by
	d.minute.shift(by)
	for _, h := range d.gpus {
		shift(by, &h.at, &h.Seen)
	}
}

type hotMemoryState struct {
	Version int              `json:"version"`
	Moved   time.Duration    `json:"moved,omitempty"`
	GPUs    map[string]*heat `json:"gpus"`
}

// Save returns what is usual for each GPU, 5 KiB each.
func (d *HotGPU) Save() ([]byte, error) { return json.Marshal(hotMemoryState{1, d.moved, d.gpus}) }

// Restore takes up what Save returned.
func (d *HotGPU) Restore(data []byte) error {
	var m hotMemoryState
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	n := NewHotGPU()
	n.moved = m.Moved
	for uuid, h := range m.GPUs {
		if h != nil && uuid != "" && len(n.gpus) < hotGPUsMost {
			h.Steady = 0
			n.gpus[uuid] = h
		}
	}
	*d = *n
	return nil
}
