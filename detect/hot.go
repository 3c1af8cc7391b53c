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
	hotBands        = 4                   // of load: the GPU's own, in the middle or at work, and that of all the node's, less or more than half
	hotSteady       = 5                   // minutes for which the power must have been about the same
	hotSameLoad     = 0.1                 // of the power limit: what is about the same
	hotSmooth       = 0.3                 // weight of the newest minute in the mean of the power
	hotPeers        = 3                   // others at the same load; with fewer a GPU has its own past only
	hotTogether     = 0.6                 // of the GPUs, two at least: what makes so many hot is the node's
	hotClose        = 3.0                 // kelvin below the slowdown
	hotCloseFor     = 10                  // minutes
	hotReached      = 7 * 24 * time.Hour  // when a trend must reach the slowdown to matter
	hotReachedAlone = 24 * time.Hour      // the same without peers, where warmer air looks the same
	hotGPUsMost     = 64                  // that are remembered
	hotMedium       = 0.35                // of the power limit: below, a GPU rests, and is as warm as its neighbours make it
	hotAtWork       = 0.7                 // and above, it is at work
	hotSensors      = 2                   // core and memory
	hotMemory       = 1                   // the second of them
	hotUnseen       = 30 * 24 * time.Hour // after which a GPU makes room for another
)

// Peers share the air, so little above them counts; a GPU's own past has other
// weather in it.
var (
	hotOfPeers = stream.RiseLaw{Slack: 2, Sigmas: 1.5, Least: 4, Limit: 45, Clip: 15, Young: 30, Memory: 24 * 60}
	hotOfPast  = stream.RiseLaw{Slack: 4, Sigmas: 1.5, Least: 8, Limit: 90, Clip: 20, Young: 120, Memory: 3 * 24 * 60}
)

// The causes of rule hot_gpu.
const (
	hotterThanPeers = "hotter_than_peers"
	hotterThanUsual = "hotter_than_usual"
	nearSlowdown    = "near_slowdown"
	heatingUp       = "heating_up"
	nodeHot         = "node_hot"
)

// HotGPU watches for a GPU that runs away from its peers: those of the same model on
// the node that draw about as much power. It learns by how much each is hotter than the
// others anyway. What makes all of them hot is the node's: its air or its fans.
type HotGPU struct {
	minute minutes
	moved  time.Duration // by how much the clock was set in all: see MemoryLeak
	gpus   map[string]*heat
	temps  []float64 // of peers, to take their median
	capped *vm.Counter
}

// heat is what is known of one GPU.
type heat struct {
	Load    float64            `json:"load"`   // its power, smoothed, as a share of the limit
	Around  float64            `json:"around"` // about which it has been steady
	Steady  int                `json:"steady"` // minutes
	Seen    time.Time          `json:"seen"`
	Sensors [hotSensors]sensor `json:"sensors"`

	at           time.Time // of the newest reading
	power, limit meanOf
	slowdown     float64 // of the core, in degrees Celsius; NaN if unknown
	fresh        bool    // it has a minute to judge
	band         int     // at this load
}

// sensor is one temperature.
type sensor struct {
	Bands [hotBands]band `json:"bands"`
	Close int            `json:"close,omitempty"` // minutes near the slowdown
	Trend trend          `json:"trend"`

	mean    meanOf
	now     float64 // of the minute, NaN for none
	peers   float64 // their median; NaN with too few
	compare int     // how many peers
}

// band is what is usual at about one load.
type band struct {
	Peers stream.Rise `json:"peers"`
	Past  stream.Rise `json:"past"`
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
	var load meanOf
	for i := range s.GPUs {
		if h := d.gpus[s.GPUs[i].UUID]; h != nil && h.settle(&s.GPUs[i]) {
			load.add(h.Load)
		}
	}
	node := load.take()
	judged, hot := 0, 0
	for i := range s.GPUs {
		h := d.gpus[s.GPUs[i].UUID]
		if h == nil || !h.fresh {
			continue
		}
		h.band = h.bandOf(node)
		for k := range h.Sensors {
			d.compare(s, i, k)
		}
		judged++
		if h.hotter() {
			hot++
		}
	}
	together := hot >= 2 && float64(hot) >= hotTogether*float64(judged)
	for i := range s.GPUs {
		if h := d.gpus[s.GPUs[i].UUID]; h != nil && h.fresh {
			d.tell(s, &s.GPUs[i], h, together, report)
		}
	}
	if judged >= 2 {
		d.tellNode(s, judged, hot, together, report)
	}
}

// settle takes the means of the minute, and reports whether its load is known. A GPU whose
// load has just changed is still on the way to its temperature, and is not judged.
func (h *heat) settle(g *collector.GPU) bool {
	share := h.power.take() / h.limit.take()
	h.fresh = false
	for k := range h.Sensors {
		h.Sensors[k].now = h.Sensors[k].mean.take()
	}
	if math.IsNaN(share) || !(share < 10) {
		h.Steady = 0
		return false
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
	return true
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

// bandOf tells loads apart: what the others do warms the air that a GPU gets.
func (h *heat) bandOf(node float64) int {
	b := 0
	if h.Load >= hotAtWork {
		b += 2
	}
	if node >= 0.5 {
		b++
	}
	return b
}

// compare gives a sensor's minute to what is known of its peers and of its past.
func (d *HotGPU) compare(s *collector.Snapshot, i, k int) {
	h := d.gpus[s.GPUs[i].UUID]
	v := &h.Sensors[k]
	if math.IsNaN(v.now) {
		return
	}
	d.temps = d.temps[:0]
	for j := range s.GPUs {
		o := d.gpus[s.GPUs[j].UUID]
		if j != i && o != nil && o.fresh && s.GPUs[j].Model == s.GPUs[i].Model && math.Abs(o.Load-h.Load) <= hotSameLoad && !math.IsNaN(o.Sensors[k].now) {
			d.temps = append(d.temps, o.Sensors[k].now)
		}
	}
	b := &v.Bands[h.band]
	v.compare, v.peers = len(d.temps), math.NaN()
	if len(d.temps) >= hotPeers {
		slices.Sort(d.temps)
		v.peers = (d.temps[(len(d.temps)-1)/2] + d.temps[len(d.temps)/2]) / 2
		b.Peers.Add(&hotOfPeers, v.now-v.peers)
	}
	if b.Past.Known(&hotOfPast) {
		v.Trend.add(h.Seen.Add(-d.moved), v, h.band)
	}
	b.Past.Add(&hotOfPast, v.now)
	if v.Close = min(v.Close+1, 1<<30); k != 0 || !(h.slowdown-v.now <= hotClose) {
		v.Close = 0
	}
}

// top returns the highest band that is known: the one whose temperatures a trend is of.
func (v *sensor) top() *band {
	for b := hotBands - 1; b >= 0; b-- {
		if v.Bands[b].Past.Known(&hotOfPast) {
			return &v.Bands[b]
		}
	}
	return &v.Bands[0]
}

// hotter reports whether one of a GPU's temperatures is above its past.
func (h *heat) hotter() bool {
	for k := range h.Sensors {
		if v := &h.Sensors[k]; !math.IsNaN(v.now) && v.Bands[h.band].Past.Score() >= 1 {
			return true
		}
	}
	return false
}

// trend is how a temperature grows at the same load: what it is, less by how much it is
// usually lower at this load than at the highest. With peers it is what it is above
// them, so that the air that all share is no trend; then on top of what they had at first.
type trend struct {
	leak    *stream.Leak
	base    float64
	peers   bool
	lasting int // minutes for which it has been one
}

func (t *trend) add(at time.Time, v *sensor, band int) {
	here, top := &v.Bands[band], v.top()
	peers := !math.IsNaN(v.peers) && here.Peers.Known(&hotOfPeers) && top.Peers.Known(&hotOfPeers)
	if t.leak == nil || t.peers != peers {
		if t.leak == nil {
			t.leak = stream.NewLeak()
		}
		t.leak.Restart()
		t.peers, t.base = peers, 0
		if peers {
			t.base = v.peers
		}
	}
	x := v.now - here.Past.Usual() + top.Past.Usual()
	if peers {
		x = v.now - v.peers - here.Peers.Usual() + top.Peers.Usual() + t.base
	}
	if t.leak.Add(at, x) >= 1 {
		t.lasting++
	} else {
		t.lasting = 0
	}
}

// limit returns where the trend is at a temperature, and how soon that must be to matter.
func (t *trend) limit(v *sensor, temperature float64) (float64, time.Duration) {
	if t.peers {
		return temperature - v.peers + t.base, hotReached
	}
	return temperature, hotReachedAlone
}

func (t *trend) growth() stream.Growth {
	if t.leak == nil {
		return stream.Growth{}
	}
	return t.leak.Growth()
}
