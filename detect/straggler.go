package detect

import (
	"fmt"
	"math"
	"slices"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The signals by which the GPUs of a job are compared: what they do, not how long a
// step takes, as in synchronous training all wait for the slowest.
const (
	sigPower = iota
	sigSM
	sigTensor
	sigClock
	sigUtilization
	signals
)

var signalNames = [signals]string{"power", "SM activity", "tensor activity", "SM clock", "utilization"}

// signalSides are where the GPU lies that the others wait for: it computes for a larger
// part of each step while they spin, or at a lower clock, or runs nothing while they do,
// as it waits for its data. A GPU that differs the other way waits itself.
var signalSides = [signals]float64{1, 1, 1, -1, -1}

// The causes of rule straggler.
const (
	stragglerHardware = "hardware"
	stragglerSoftware = "software_or_data"
)

const (
	stragglerPeers   = 4                   // GPUs of a job on the node, at least
	stragglerGroups  = 32                  // jobs whose GPUs are compared
	stragglerGone    = time.Hour           // without its GPUs, a job makes room for another
	stragglerSlow    = 0.08                // in logarithms: a tenth slower, less the noise and what was learned of it
	stragglerFor     = 10                  // minutes
	stragglerShare   = 0.5                 // of the slow-down, that the difference of the GPU has to explain
	alikeMemory      = 2.0                 // factor of memory in use within which GPUs have the same role
	clockLag         = 0.95                // of the peers' median clock: evidence of the hardware
	hotterPeer       = 8.0                 // kelvin above the peers' median: likewise
	stragglerRecalls = 30 * 24 * time.Hour // for which it is remembered that a GPU slowed a job down
	stragglerMemory  = 64                  // GPUs of which it is
)

// oddLaw is for the logarithm of a GPU's signal relative to what all do: that
// all wait for one shows as some per cent of power or activity. It may be sensitive, as
// it counts only while the job is slow.
var oddLaw = stream.RiseLaw{Slack: 0.015, Sigmas: 1.5, Least: 0.02, Limit: 0.12, Clip: 0.5, Young: 20, Memory: 4 * 60}

// Straggler watches for the GPU of a job that holds the others up: while the job makes
// less progress than usual, the one that works longer than its peers, at a lower clock,
// or not at all, by as much as explains it. What differs from the start is a role and no
// straggler.
type Straggler struct {
	minute minutes
	paces  paceBook
	groups []*peerGroup // in the order in which the jobs were first seen
	gpus   map[string]*stragglerGPU
	slowed map[string][]slowedJob // by GPU, which jobs it slowed down
	turn   uint64
	capped *vm.Counter
	most   int                         // GPUs that are remembered
	named  func(*collector.GPU) string // what people call a GPU
}

// peerGroup is the GPUs of one job.
type peerGroup struct {
	owner   collector.Owner
	members []string
	seen    time.Time
	odd     []oddness // of each member
	slow    int       // minutes for which the job has been slow
	values  []float64
	sorted  []float64
}

// oddness is how a member differs from the others by each signal, to its side.
type oddness [signals]struct {
	Rise stream.Rise `json:"rise"`
	now  float64     // by how much more than usual in the newest minute, NaN if it is not known
}

// worst returns the signal that differs most, and its score, if the job is slower by so
// much (in logarithms): 1 takes a difference that is not chance, that is still there,
// and without which the job would not be as slow.
func (o *oddness) worst(lag float64) (k int, score float64) {
	for i := range o {
		need := stragglerShare * lag
		s := min(o[i].Rise.Score(), o[i].Rise.Recent()/need)
		if !(o[i].now > need/2) {
			s = min(s, 0.9)
		}
		if s > score {
			k, score = i, s
		}
	}
	return k, score
}

// stragglerGPU is a minute of one GPU.
type stragglerGPU struct {
	at                time.Time
	mean              [signals]meanOf
	value             [signals]float64
	memory, heat      meanOf
	used, temperature float64
	held              bool // a reason that is the hardware's held its clocks down
	holds             bool
	seen              time.Time
}

type slowedJob struct {
	Owner collector.Owner `json:"owner"`
	At    time.Time       `json:"at"`
}

// NewStraggler returns the detector of rule straggler.
func NewStraggler() *Straggler {
	return &Straggler{paces: newPaceBook(), gpus: map[string]*stragglerGPU{}, slowed: map[string][]slowedJob{},
		capped: vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(rules.IDStraggler))), most: hotGPUsMost,
		named: func(g *collector.GPU) string { return fmt.Sprintf("GPU %d", g.Index) }}
}

// Rule returns straggler.
func (d *Straggler) Rule() *rules.Rule { return rules.Get(rules.IDStraggler) }

// Observe takes the readings of a minute, and compares the GPUs of each job once it is
// over.
func (d *Straggler) Observe(s *collector.Snapshot, report func(Observation)) {
	if d.minute.over(s.Time) {
		d.judge(s, report)
	}
	for i := range s.GPUs {
		if g := &s.GPUs[i]; g.Answers() && len(g.Owners) > 0 {
			d.add(g, s.Time)
		}
	}
	for i := range s.Workloads {
		if l := &s.Workloads[i]; l.Owner.Kind != "" && tellsPace(l) {
			if p := d.paces.get(l.Owner, s.Time); p != nil {
				p.add(l)
			} else {
				d.capped.Inc()
			}
		}
	}
}

func (d *Straggler) add(g *collector.GPU, now time.Time) {
	m := d.gpus[g.UUID]
	if m == nil {
		if !room(d.gpus, d.most, stragglerGone, func(m *stragglerGPU) time.Time { return m.seen }, now) {
			d.capped.Inc()
			return
		}
		m = &stragglerGPU{}
		d.gpus[g.UUID] = m
	}
	m.seen = now
	if at := g.SampledAt(metric.Fast); !at.Equal(m.at) {
		m.at = at
		m.mean[sigPower].add(g.Value(metric.PowerDraw))
		m.mean[sigSM].add(g.Value(metric.SMActivity))
		m.mean[sigTensor].add(g.Value(metric.TensorActivity))
		m.mean[sigClock].add(g.ValueAt(metric.Clock, smClock))
		m.mean[sigUtilization].add(g.Value(metric.Utilization))
		m.memory.add(g.Value(metric.MemoryUsed))
		m.heat.add(g.Value(metric.Temperature))
		for _, reason := range hardwareReasons {
			m.held = m.held || g.ValueAt(metric.ClockEvent, reason) > 0
		}
	}
}

const smClock = 1 // of metric.Clocks

// hardwareReasons are hw_slowdown, hw_thermal, hw_power_brake, of metric.ClockReason.
var hardwareReasons = [...]int{3, 6, 7}

// end takes the means of the minute.
func (m *stragglerGPU) end() {
	for k := range m.mean {
		m.value[k] = m.mean[k].take()
	}
	m.used, m.temperature = m.memory.take(), m.heat.take()
	m.holds, m.held = m.held, false
}

func (d *Straggler) judge(s *collector.Snapshot, report func(Observation)) {
	d.turn++
	for i := range s.GPUs {
		if m := d.gpus[s.GPUs[i].UUID]; m != nil {
			m.end()
		}
	}
	for _, o := range d.paces.order {
		d.paces.of[o].end(s.Time)
	}
	for i := range s.GPUs {
		who := holder(&s.GPUs[i])
		first := slices.IndexFunc(s.GPUs, func(g collector.GPU) bool { return holder(&g) == who }) == i
		if p := d.paces.of[who]; first && p != nil {
			if g := d.group(s, who); g != nil {
				d.compare(s, g, p, report)
			}
		}
	}
}

// group returns the GPUs of a job, nil if there are too few to compare. If they are
// others than before, nothing is known of them.
func (d *Straggler) group(s *collector.Snapshot, who collector.Owner) *peerGroup {
	i := slices.IndexFunc(d.groups, func(g *peerGroup) bool { return g.owner == who })
	n, same := 0, i >= 0
	for k := range s.GPUs {
		if g := &s.GPUs[k]; holder(g) == who && d.gpus[g.UUID] != nil {
			same = same && n < len(d.groups[i].members) && d.groups[i].members[n] == g.UUID
			n++
		}
	}
	if n < stragglerPeers {
		return nil
	}
	if same && n == len(d.groups[i].members) {
		d.groups[i].seen = s.Time
		return d.groups[i]
	}
	if i >= 0 {
		d.groups = slices.Delete(d.groups, i, i+1)
	}
	d.groups = slices.DeleteFunc(d.groups, func(g *peerGroup) bool { return s.Time.Sub(g.seen) > stragglerGone })
	if len(d.groups) >= stragglerGroups {
		d.capped.Inc()
		return nil
	}
	var members []string
	for k := range s.GPUs {
		if g := &s.GPUs[k]; holder(g) == who && d.gpus[g.UUID] != nil {
			members = append(members, g.UUID)
		}
	}
	g := newPeerGroup(who, members)
	g.seen = s.Time
	d.groups = append(d.groups, g)
	return g
}

func newPeerGroup(who collector.Owner, members []string) *peerGroup {
	n := len(members)
	return &peerGroup{owner: who, members: members, odd: make([]oddness, n), values: make([]float64, n), sorted: make([]float64, 0, n)}
}

// compare takes one minute of a job's GPUs, unless the job pauses in it.
func (d *Straggler) compare(s *collector.Snapshot, g *peerGroup, p *pace, report func(Observation)) {
	if math.IsNaN(p.now) || p.pauses() {
		return
	}
	if p.Lag >= stragglerSlow && p.Rise.Known(&paceLaw) {
		g.slow++
	} else {
		g.slow = 0
	}
	for k := range signals {
		d.compareBy(g, k)
	}
	odd, score, others := 0, 0.0, 0
	for i := range g.odd {
		_, x := g.odd[i].worst(max(p.Lag, stragglerSlow))
		if x >= 1 {
			others++
		}
		if x > score {
			odd, score = i, x
		}
	}
	if others > 1 && others > len(g.odd)/4 {
		score = min(score, 0.9) // it is no odd one that several are
	}
	if p.back {
		score = min(score, 0.9)
	}
	d.tell(s, g, p, odd, score, report)
}

// compareBy takes one signal of those GPUs that have the same role. What all do is the
// median of what is left without each one's usual difference: a median of the signals
// themselves would jump from one kind of ranks to another.
func (d *Straggler) compareBy(g *peerGroup, k int) {
	usual := g.median(d, func(m *stragglerGPU) float64 { return m.used })
	for i := range g.odd {
		g.odd[i][k].now = math.NaN()
	}
	g.sorted = g.sorted[:0]
	for i, uuid := range g.members {
		m := d.gpus[uuid]
		g.values[i] = math.NaN()
		if m != nil && m.value[k] > 0 && !(m.used > alikeMemory*usual) && !(m.used < usual/alikeMemory) {
			g.values[i] = math.Log(m.value[k])
			g.sorted = append(g.sorted, g.values[i]-signalSides[k]*g.odd[i][k].Rise.Usual())
		}
	}
	if len(g.sorted) < stragglerPeers {
		return
	}
	slices.Sort(g.sorted)
	n := len(g.sorted)
	common := (g.sorted[(n-1)/2] + g.sorted[n/2]) / 2
	for i, x := range g.values {
		if o := &g.odd[i][k]; !math.IsNaN(x) {
			x = signalSides[k] * (x - common)
			o.now = x - o.Rise.Usual()
			o.Rise.Add(&oddLaw, x)
		}
	}
}

// median is of the members that have a value, NaN if none has.
func (g *peerGroup) median(d *Straggler, of func(*stragglerGPU) float64) float64 {
	g.sorted = g.sorted[:0]
	for _, uuid := range g.members {
		if m := d.gpus[uuid]; m != nil {
			if x := of(m); !math.IsNaN(x) {
				g.sorted = append(g.sorted, x)
			}
		}
	}
	if len(g.sorted) == 0 {
		return math.NaN()
	}
	slices.Sort(g.sorted)
	n := len(g.sorted)
	return (g.sorted[(n-1)/2] + g.sorted[n/2]) / 2
}
