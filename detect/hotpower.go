package detect

import (
	"fmt"
	"math"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	drawSameWork  = 0.1  // of SM, tensor activity or utilization: within, GPUs do the same
	drawSameClock = 0.03 // of the clock: what is held down, or runs free, is throttled_gpu's
	drawSameLimit = 0.02 // of the power limit
	drawSameRole  = 2.0  // times the memory in use
)

// drawOff is about the hundredfold logarithm of power, per cent nearly. What data a
// computation has makes some per cent; it is the same for the ranks of a job.
var drawOff = stream.RiseLaw{Slack: 4, Sigmas: 1.5, Least: 8, Limit: 400, Clip: 40, Young: 120, Memory: 3 * 24 * 60}

// The causes of rule hot_gpu that are about power.
const (
	powerAbovePeers = "power_above_peers"
	powerBelowPeers = "power_below_peers"
)

// draw is what a GPU draws beside peers that do the same work for the same holder. Which of
// them always draws more is learned anew for each holder: roles differ.
type draw struct {
	Of   collector.Owner `json:"of,omitzero"`
	More stream.Rise     `json:"more"`
	Less stream.Rise     `json:"less"`

	means  [drawn]meanOf
	now    [drawn]float64 // of the minute
	judged bool           // it had peers in it
	peers  int
	other  float64 // watts that their median comes to at this GPU's activity
}

// What is read for it.
const (
	drawPower = iota
	drawSM
	drawTensor
	drawUse // utilization
	drawClock
	drawLimit
	drawMemory
	drawn
)

func (w *draw) add(g *collector.GPU) {
	for i, v := range [drawn]float64{g.Value(metric.PowerDraw), g.Value(metric.SMActivity), g.Value(metric.TensorActivity), g.Value(metric.Utilization),
		g.ValueAt(metric.Clock, smClock), g.Value(metric.PowerLimit), g.Value(metric.MemoryUsed)} {
		w.means[i].add(v)
	}
}

// settle takes the means of the minute.
func (w *draw) settle(g *collector.GPU) {
	for i := range w.means {
		w.now[i] = w.means[i].take()
	}
	w.judged = false
	if o := holder(g); o != w.Of {
		w.Of, w.More, w.Less = o, stream.Rise{}, stream.Rise{}
	}
}

// active is how much of the GPU works: of the SMs, or where they tell nothing of any.
func (w *draw) active() float64 {
	if sm := w.now[drawSM]; !math.IsNaN(sm) {
		return sm
	}
	return w.now[drawUse]
}

// sameWork reports whether two GPUs do the same as far as is told. Clock, limit and
// memory must be; tensor activity is told by few.
func (w *draw) sameWork(o *draw) bool {
	near := func(i int, within float64) bool { return math.Abs(w.now[i]-o.now[i]) <= within*max(w.now[i], o.now[i]) }
	memory, others := w.now[drawMemory], o.now[drawMemory]
	return w.Of == o.Of && math.IsNaN(w.now[drawSM]) == math.IsNaN(o.now[drawSM]) && math.Abs(w.active()-o.active()) <= drawSameWork &&
		!(math.Abs(w.now[drawTensor]-o.now[drawTensor]) > drawSameWork) && near(drawClock, drawSameClock) && near(drawLimit, drawSameLimit) &&
		memory <= drawSameRole*others && others <= drawSameRole*memory
}

// comparePower holds a GPU's power against that of peers at the same work. Of what each
// does a little more or less its power is reckoned in proportion, so that a rank which
// computes for longer than the others is not taken for one that draws more: that is
// the straggler's rule.
func (d *HotGPU) comparePower(s *collector.Snapshot, i int) {
	g := &s.GPUs[i]
	h := d.gpus[g.UUID]
	w := &h.Draw
	if w.Of.Kind == "" || !(w.active() > 0) {
		return
	}
	d.rest = d.rest[:0]
	for j := range s.GPUs {
		o := d.gpus[s.GPUs[j].UUID]
		if j != i && o != nil && o.fresh && s.GPUs[j].Model == g.Model && o.Draw.active() > 0 && w.sameWork(&o.Draw) {
			d.rest = append(d.rest, o.Draw.now[drawPower]/o.Draw.active())
		}
	}
	if len(d.rest) < hotPeers {
		return
	}
	slices.Sort(d.rest)
	n := len(d.rest)
	w.judged, w.peers, w.other = true, n, w.active()*(d.rest[(n-1)/2]+d.rest[n/2])/2
	off := 100 * math.Log(w.now[drawPower]/w.other)
	w.More.Add(&drawOff, off)
	w.Less.Add(&drawOff, -off)
}

// tellPower reports both ways; nobody has to act on either at once.
func (d *HotGPU) tellPower(g *collector.GPU, h *heat, report func(Observation)) {
	w := &h.Draw
	if !w.judged {
		return
	}
	for _, side := range [...]struct {
		cause, more string
		rise        *stream.Rise
		sign        float64
	}{{powerAbovePeers, "more", &w.More, 1}, {powerBelowPeers, "less", &w.Less, -1}} {
		o := d.about(g, side.cause)
		o.Severity, o.Score = rules.Info, side.rise.Score()
		if o.Score >= 1 {
			o.Surprise = nats(side.rise, &drawOff)
			o.Evidence = w.words(g, side.more, side.rise, side.sign)
		}
		report(o)
	}
}

func (w *draw) words(g *collector.GPU, more string, rise *stream.Rise, sign float64) Evidence {
	want := w.other * math.Exp(sign*rise.Usual()/100)
	return Evidence{
		Title: fmt.Sprintf("GPU %d draws %s power than its peers at the same work", g.Index, more),
		Seen: fmt.Sprintf("GPU %d draws %.0f W where %d peers of its model and holder draw %.0f W (median) at the same activity (%s) and clock (%.0f MHz), for %s",
			g.Index, w.now[drawPower], w.peers, w.other, percentOf(w.active()), w.now[drawClock]/1e6, lastingOf(rise)),
		Expected: fmt.Sprintf("about %.0f W, by what it drew beside them before", want),
		Observed: w.now[drawPower], Want: &want, Confidence: sureOf(nats(rise, &drawOff)),
		Why:    "how it usually lies beside its peers was learned since this holder has it",
		Action: "Keep an eye on it: compare its heat with its peers', and run the vendor's diagnostics on it when the node is next free.",
	}
}
