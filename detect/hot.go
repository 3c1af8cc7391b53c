package detect

import (
	"math"
	"slices"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// What is compared with what: heat follows power within some minutes.
const (
	hotSteady       = 5                   // minutes for which the power must have been about the same
	hotSameLoad     = 0.1                 // of the power limit, within which the load is steady
	hotSmooth       = 0.3                 // weight of the newest minute in the mean of the power
	hotPeers        = 3                   // others that are judged; with fewer a GPU has its own past only
	hotTogether     = 0.6                 // of the GPUs, two at least: what makes so many hot is the node's
	hotClose        = 3.0                 // kelvin below the slowdown
	hotCloseFor     = 10                  // minutes
	hotReached      = 24 * time.Hour      // when a trend must reach the slowdown to matter
	hotReachedAlone = 12 * time.Hour      // the same without peers, where warmer air looks the same
	hotGrowsFor     = 30                  // minutes that a trend must last
	hotGPUsMost     = 64                  // that are remembered
	hotMedium       = 0.35                // of the power limit: below, a GPU rests, and is as warm as its neighbours make it
	hotKnown        = 0.05                // leverage of a load, up to which it is known: the prediction is good to a quarter of a deviation
	hotWellKnown    = 0.03                // and known well
	hotMemoryOf     = 3 * 24 * 60.0       // minutes that the way from power to heat is learned over
	hotAir          = 0.75                // of what the peers have in common is not learned; were it all, nothing would hold it to the air that is usual
	hotDoubt        = 0.25                // of the threshold, from which a minute teaches a quarter only
	hotTeaches      = 4.0                 // kelvin off, beyond which it teaches no more
	hotSensors      = 2                   // core and memory
	hotMemory       = 1                   // the second of them
	hotUnseen       = 30 * 24 * time.Hour // after which a GPU makes room for another
)

// Peers share the air, so little above them counts; a GPU's own past has other
// weather in it.
var (
	hotOfPeers = stream.RiseLaw{Slack: 3, Sigmas: 1.5, Least: 6, Limit: 60, Clip: 15, Young: 30, Memory: 24 * 60}
	hotOfPast  = stream.RiseLaw{Slack: 5, Sigmas: 1.5, Least: 10, Limit: 100, Clip: 20, Young: 60, Memory: 3 * 24 * 60}
)

// The causes of rule hot_gpu.
const (
	hotterThanPeers = "hotter_than_peers"
	hotterThanUsual = "hotter_than_usual"
	nearSlowdown    = "near_slowdown"
	heatingUp       = "heating_up"
	nodeHot         = "node_hot"
)

// HotGPU watches for a GPU that is hotter than its load explains. For each it learns how
// its temperature follows from its own power and from that of the others on the node, which
// warm the air that it gets. What is left is compared with what is left of the others of
// its model: what all have in common is the node's, its air or its fans. Beside that it
// compares what those draw that do the same work.
type HotGPU struct {
	minute minutes
	moved  time.Duration // by how much the clock was set in all: see MemoryLeak
	gpus   map[string]*heat
	rest   []float64 // of peers, to take their median
	capped *vm.Counter
}

// heat is what is known of one GPU.
type heat struct {
	Load    float64            `json:"load"`   // its power, smoothed, as a share of the limit
	Around  float64            `json:"around"` // about which it has been steady
	Steady  int                `json:"steady"` // minutes
	Seen    time.Time          `json:"seen"`
	Sensors [hotSensors]sensor `json:"sensors"`
	Draw    draw               `json:"draw,omitzero"`

	at           time.Time // of the newest reading
	power, limit meanOf
	slowdown     float64                     // of the core, in degrees Celsius; NaN if unknown
	fresh        bool                        // it has a minute to judge
	loads        [stream.PlaneInputs]float64 // its own, then those of the others on the node
}

// sensor is one temperature.
type sensor struct {
	Model stream.Plane `json:"model"`           // by the GPU's load and those of the others
	Peers stream.Rise  `json:"peers"`           // of what is left without the peers' median
	Past  stream.Rise  `json:"past"`            // of what is left
	Close int          `json:"close,omitempty"` // minutes near the slowdown
	Trend trend        `json:"trend"`

	mean      meanOf
	now       float64 // of the minute, NaN for none
	expected  float64
	rest      float64 // now less expected
	known     bool    // there has been enough of this load
	wellKnown bool
	common    float64 // median of what is left of the peers; NaN with too few
	compare   int     // how many peers
}

// NewHotGPU returns the detector of rule hot_gpu.
func NewHotGPU() *HotGPU {
	return &HotGPU{gpus: map[string]*heat{}, capped: vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(rules.IDHotGPU)))}
}

// Rule returns hot_gpu.
func (d *HotGPU) Rule() *rules.Rule { return rules.Get(rules.IDHotGPU) }

// Observe takes the readings of a minute, and judges them once it is over.
func (d *HotGPU) Observe(s *collector.Snapshot, report func(Observation)) {
	if d.minute.over(s.Time) {
		d.judge(s, report)
	}
	for i := range s.GPUs {
		d.add(s, &s.GPUs[i])
	}
}

func (d *HotGPU) add(s *collector.Snapshot, g *collector.GPU) {
	at := g.SampledAt(metric.Fast)
	if !g.Answers() || !g.Has(metric.Temperature) || !g.Has(metric.PowerDraw) {
		return
	}
	h := d.gpus[g.UUID]
	if h == nil {
		if len(d.gpus) >= hotGPUsMost && !d.makeRoom(s.Time) {
			d.capped.Inc()
			return
		}
		h = &heat{}
		d.gpus[g.UUID] = h
	}
	if at.Equal(h.at) {
		return
	}
	h.at, h.Seen = at, at
	h.Draw.add(g)
	h.power.add(g.Value(metric.PowerDraw))
	h.limit.add(g.Value(metric.PowerLimit))
	h.Sensors[0].mean.add(g.Value(metric.Temperature))
	h.Sensors[hotMemory].mean.add(g.Value(metric.MemoryTemperature))
}

// makeRoom forgets a GPU that has not been seen for long: what was replaced.
func (d *HotGPU) makeRoom(now time.Time) bool {
	oldest := ""
	for uuid, h := range d.gpus {
		if o := d.gpus[oldest]; o == nil || h.Seen.Before(o.Seen) || h.Seen.Equal(o.Seen) && uuid < oldest {
			oldest = uuid
		}
	}
	if now.Sub(d.gpus[oldest].Seen) < hotUnseen {
		return false
	}
	delete(d.gpus, oldest)
	return true
}

// judge looks at the minute that is over.
func (d *HotGPU) judge(s *collector.Snapshot, report func(Observation)) {
	for i := range s.GPUs {
		if h := d.gpus[s.GPUs[i].UUID]; h != nil {
			h.settle(&s.GPUs[i])
			h.Draw.settle(&s.GPUs[i])
		}
	}
	for i := range s.GPUs {
		if h := d.gpus[s.GPUs[i].UUID]; h != nil && h.fresh {
			d.gather(s, i, h)
			h.predict()
		}
	}
	judged, hot := 0, 0
	for i := range s.GPUs {
		h := d.gpus[s.GPUs[i].UUID]
		if h == nil || !h.fresh {
			continue
		}
		for k := range h.Sensors {
			d.compare(s, i, k)
		}
		d.comparePower(s, i)
		if h.Sensors[0].wellKnown {
			judged++
		}
		if h.hotter() {
			hot++
		}
	}
	together := hot >= 2 && float64(hot) >= hotTogether*float64(judged)
	for i := range s.GPUs {
		if h := d.gpus[s.GPUs[i].UUID]; h != nil && h.fresh {
			d.tell(s, &s.GPUs[i], h, together, report)
			d.tellPower(&s.GPUs[i], h, report)
		}
	}
	if judged >= 2 {
		d.tellNode(s, judged, hot, together, report)
	}
}

// gather lists what heats a GPU: its own load, and those of the others by their index. On a
// node of more than eight GPUs some of the others are one input together.
func (d *HotGPU) gather(s *collector.Snapshot, i int, h *heat) {
	h.loads = [stream.PlaneInputs]float64{h.Load}
	own := s.GPUs[i].Index
	for j := range s.GPUs {
		o, at := d.gpus[s.GPUs[j].UUID], s.GPUs[j].Index
		if j == i || o == nil || at < 0 {
			continue
		}
		if at > own {
			at--
		}
		h.loads[1+at%(stream.PlaneInputs-1)] += o.Load
	}
}

// settle takes the means of the minute. A GPU whose load has just changed is still on
// the way to its temperature, and is not judged.
func (h *heat) settle(g *collector.GPU) {
	share := h.power.take() / h.limit.take()
	h.fresh = false
	for k := range h.Sensors {
		h.Sensors[k].now = h.Sensors[k].mean.take()
	}
	if math.IsNaN(share) || !(share < 10) {
		h.Load, h.Steady = 0, 0
		return
	}
	if h.Steady == 0 {
		h.Load, h.Around = share, share
	}
	h.Load += float64(hotSmooth * (share - h.Load))
	if math.Abs(h.Load-h.Around) > hotSameLoad || math.Abs(share-h.Around) > 3*hotSameLoad {
		h.Load, h.Around, h.Steady = share, share, 0
	}
	h.Around += float64(hotSameLoad * (h.Load - h.Around))
	h.Steady = min(h.Steady+1, 1<<30)
	h.fresh = h.Steady > hotSteady && h.Load >= hotMedium && !math.IsNaN(h.Sensors[0].now)
	h.slowdown = slowdownOf(g)
}

// slowdownOf returns the temperature at which the GPU is slowed down: by its margin, or
// by the threshold; NaN if neither is told.
func slowdownOf(g *collector.GPU) float64 {
	if m := g.Value(metric.TemperatureMargin); m > 0 {
		return g.Value(metric.Temperature) + m
	}
	return g.ValueAt(metric.TemperatureLimit, slowdownLimit)
}

const slowdownLimit = 1 // of metric.ThermalLimit

// predict says how hot the GPU should be, and how well that is known.
func (h *heat) predict() {
	for k := range h.Sensors {
		v := &h.Sensors[k]
		var leverage float64
		v.expected, leverage = v.Model.Predict(&h.loads)
		v.rest = v.now - v.expected
		v.known = leverage <= hotKnown && !math.IsNaN(v.now)
		v.wellKnown = leverage <= hotWellKnown && !math.IsNaN(v.now)
		v.Trend.normalize(v, h)
	}
}

// compare holds a sensor's minute against its peers and its past, and learns from it.
func (d *HotGPU) compare(s *collector.Snapshot, i, k int) {
	h := d.gpus[s.GPUs[i].UUID]
	v := &h.Sensors[k]
	if math.IsNaN(v.now) {
		return
	}
	v.common = d.median(s, i, k, func(o *sensor) float64 { return o.rest })
	v.compare = len(d.rest)
	if v.known {
		if v.compare >= hotPeers {
			v.Peers.Add(&hotOfPeers, v.rest-v.common)
		}
		v.Trend.add(h.Seen.Add(-d.moved), d.median(s, i, k, func(o *sensor) float64 { return o.Trend.normal }))
	}
	if v.wellKnown {
		v.Past.Add(&hotOfPast, v.rest)
	}
	v.learn(h)
	if v.Close = min(v.Close+1, 1<<30); k != 0 || !(h.slowdown-v.now <= hotClose) {
		v.Close = 0
	}
}

// learn takes the minute into the way from power to heat, without what the peers have in
// common: the air of the hours in which a load was had is no part of it. What is
// suspicious, or far off, teaches little.
func (v *sensor) learn(h *heat) {
	y, weight := v.now, 1.0
	if v.compare >= hotPeers {
		y -= float64(hotAir * v.common)
	}
	if v.known {
		y = v.expected + max(-hotTeaches, min(y-v.expected, hotTeaches))
	}
	if v.Peers.Score() > hotDoubt || v.Past.Score() > hotDoubt {
		weight = 0.25
	}
	v.Model.Add(&h.loads, y, weight, hotMemoryOf)
}

// median is of the same sensor of the peers that are judged; NaN with too few.
func (d *HotGPU) median(s *collector.Snapshot, i, k int, of func(*sensor) float64) float64 {
	d.rest = d.rest[:0]
	for j := range s.GPUs {
		o := d.gpus[s.GPUs[j].UUID]
		if j != i && o != nil && o.fresh && s.GPUs[j].Model == s.GPUs[i].Model && o.Sensors[k].known {
			d.rest = append(d.rest, of(&o.Sensors[k]))
		}
	}
	if len(d.rest) < hotPeers {
		return math.NaN()
	}
	slices.Sort(d.rest)
	n := len(d.rest)
	return (d.rest[(n-1)/2] + d.rest[n/2]) / 2
}

// hotter reports whether one of a GPU's temperatures is above what its past tells.
func (h *heat) hotter() bool {
	for k := range h.Sensors {
		if v := &h.Sensors[k]; v.wellKnown && v.Past.Score() >= 1 {
			return true
		}
	}
	return false
}

// trend is how a temperature grows as it would at one and the same load, that of the first
// minutes. With peers it is what it is above their median, so that the air that all
// share is no trend, on top of what that was at first.
type trend struct {
	leak    *stream.Leak
	loads   [stream.PlaneInputs]float64 // that all is as at
	base    float64
	peers   bool
	lasting int // minutes for which it has been a growth like a leak's

	normal float64 // the minute's temperature as it would be at that load; NaN if not known
	now    float64 // that, without what the peers have in common
}

func (t *trend) normalize(v *sensor, h *heat) {
	if t.normal = math.NaN(); !v.known {
		return
	}
	if t.leak == nil {
		t.leak, t.loads = stream.NewLeak(), h.loads
	}
	t.normal = v.now
	for i := range h.loads {
		t.normal -= float64(v.Model.Slope(i) * (h.loads[i] - t.loads[i]))
	}
}

func (t *trend) add(at time.Time, common float64) {
	if peers := !math.IsNaN(common); t.peers != peers {
		t.leak.Restart()
		if t.peers, t.base = peers, 0; peers {
			t.base = common
		}
	}
	t.now = t.normal
	if t.peers {
		t.now += t.base - common
	}
	if t.leak.Add(at, t.now) >= 1 {
		t.lasting++
	} else {
		t.lasting = 0
	}
}

func (t *trend) growth() stream.Growth {
	if t.leak == nil {
		return stream.Growth{}
	}
	return t.leak.Growth()
}
