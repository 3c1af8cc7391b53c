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
// and a GPU with peers at its load is judged by them and not by its past.
func (d *HotGPU) tell(s *collector.Snapshot, g *collector.GPU, h *heat, together bool, report func(Observation)) {
	peers, past := h.worst(func(v *sensor) *stream.Rise { return &v.Bands[h.band].Peers }), h.worst(func(v *sensor) *stream.Rise { return &v.Bands[h.band].Past })
	v := &h.Sensors[peers]
	o := d.about(g, hotterThanPeers)
	if b := &v.Bands[h.band]; v.compare >= hotPeers {
		if o.Score = b.Peers.Score(); o.Score >= 1 {
			o.Surprise, o.Evidence = b.Peers.Surprise(&hotOfPeers), d.abovePeers(g, h, peers)
		}
	}
	higher := o.Score >= 1
	report(o)

	v, o = &h.Sensors[past], d.about(g, hotterThanUsual)
	if b := &v.Bands[h.band]; v.compare < hotPeers && !together {
		if o.Score = b.Past.Score(); o.Score >= 1 {
			o.Surprise, o.Evidence = b.Past.Surprise(&hotOfPast), d.abovePast(g, h, past)
		}
	}
	higher = higher || o.Score >= 1
	report(o)

	o = d.about(g, nearSlowdown)
	if c := h.Sensors[0].Close; c > 0 {
		if o.Score = float64(c) / hotCloseFor; o.Score >= 1 {
			o.Evidence = nearWords(g, h)
		}
	}
	report(o)

	o = d.about(g, heatingUp)
	if k := h.steepest(); !together && !higher { // what is hotter has been told already
		d.trendOf(s, g, h, k, &o)
	}
	report(o)
}

func (d *HotGPU) about(g *collector.GPU, cause string) Observation {
	return Observation{Subject: gpuSubject(g.UUID), Cause: cause, Severity: rules.Ticket, GPU: g, Owner: holder(g)}
}

// worst returns the sensor with the highest score.
func (h *heat) worst(rise func(*sensor) *stream.Rise) (best int) {
	for k := 1; k < hotSensors; k++ {
		v := &h.Sensors[k]
		if !math.IsNaN(v.now) && rise(v).Score() > rise(&h.Sensors[best]).Score() {
			best = k
		}
	}
	return best
}

func (h *heat) steepest() (best int) {
	for k := 1; k < hotSensors; k++ {
		if h.Sensors[k].Trend.growth().Score > h.Sensors[best].Trend.growth().Score {
			best = k
		}
	}
	return best
}

func (d *HotGPU) abovePeers(g *collector.GPU, h *heat, k int) Evidence {
	v := &h.Sensors[k]
	r := &v.Bands[h.band].Peers
	want := v.peers + r.Usual()
	return Evidence{
		Title: fmt.Sprintf("GPU %d runs hotter than its peers", g.Index),
		Seen: fmt.Sprintf("GPU %d: %s at %s at %s of its power limit, %s above the median of %d peers at the same load, for %s",
			g.Index, sensorNames[k], celsius(v.now), percentOf(h.Load), kelvins(v.now-v.peers), v.compare, lastingOf(r)),
		Expected: fmt.Sprintf("%s %s its peers, as is usual for it", kelvins(math.Abs(r.Usual())), aboveOrBelow(r.Usual())),
		Observed: v.now, Want: &want, Confidence: sureOf(r.Surprise(&hotOfPeers)),
		Why:    fmt.Sprintf("%s more than usual, where %s do not count", kelvins(r.Recent()), kelvins(hotOfPeers.Slack)),
		Action: "Look for a blocked heat sink, a failed fan or a loose cold plate of this GPU; move work away before it slows down.",
	}
}

func (d *HotGPU) abovePast(g *collector.GPU, h *heat, k int) Evidence {
	v := &h.Sensors[k]
	r := &v.Bands[h.band].Past
	want := r.Usual()
	return Evidence{
		Title: fmt.Sprintf("GPU %d runs hotter than usual", g.Index),
		Seen: fmt.Sprintf("GPU %d: %s at %s at %s of its power limit, for %s; it has %s at this load to compare with",
			g.Index, sensorNames[k], celsius(v.now), percentOf(h.Load), lastingOf(r), count(v.compare, "peer", "peers")),
		Expected: "about " + celsius(want) + " at this load, by its own past",
		Observed: v.now, Want: &want, Confidence: sureOf(r.Surprise(&hotOfPast)),
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
func (d *HotGPU) trendOf(s *collector.Snapshot, g *collector.GPU, h *heat, k int, o *Observation) {
	v := &h.Sensors[k]
	t := v.Trend.growth()
	if o.Score = min(t.Score, 0.9); t.Score < 1 || k == hotMemory || math.IsNaN(h.slowdown) {
		return
	}
	limit, matters := v.Trend.limit(v, h.slowdown)
	soonest, likely, latest := t.Until(limit, s.Time.Add(-d.moved))
	if likely > matters {
		return
	}
	want := v.top().Past.Usual()
	o.Score, o.At = t.Score, t.At.Add(d.moved-t.Over)
	o.Surprise = leakSurprise(time.Duration(v.Trend.lasting) * time.Minute)
	o.Evidence = Evidence{
		Title: fmt.Sprintf("GPU %d heats up", g.Index),
		Seen: fmt.Sprintf("GPU %d: core rises by %s an hour since %s at the same load, now %s, at its slowdown of %s in %s",
			g.Index, kelvins(3600*t.PerSecond), timeOf(o.At, s.Time), celsius(v.now), celsius(h.slowdown), rangeOf(soonest, likely, latest)),
		Expected: "about " + celsius(want) + " at full load", Observed: v.now, Want: &want, Confidence: Likely,
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
			if r := &h.Sensors[k].Bands[h.band].Past; r.Score() >= 1 {
				above = max(above, r.Recent())
				least = min(least, r.Surprise(&hotOfPast))
				o.Score = max(o.Score, r.Score())
			}
		}
	}
	o.Surprise = least // of one alone: that they are several is no better evidence, as they share the air
	want := 0.0
	o.Evidence = Evidence{
		Title:    "All GPUs of the node run hot",
		Seen:     fmt.Sprintf("%d of %d GPUs that are under steady load are up to %s hotter than each was at that load", hot, judged, kelvins(above)),
		Expected: "each about as hot as usual at its load",
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

func aboveOrBelow(x float64) string {
	if x < 0 {
		return "below"
	}
	return "above"
}

type trendState struct {
	Leak    []byte  `json:"leak,omitempty"`
	Base    float64 `json:"base,omitempty"`
	Peers   bool    `json:"peers,omitempty"`
	Lasting int     `json:"lasting,omitempty"`
}

func (t trend) MarshalJSON() ([]byte, error) {
	if t.leak == nil {
		return []byte("{}"), nil
	}
	packed, err := t.leak.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(trendState{packed, t.base, t.peers, t.lasting})
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
	*t = trend{leak, s.Base, s.Peers, s.Lasting}
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
