package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	leastMoved     = 50e9 // bytes of an hour, or of what adds up, that are worth a ticket
	timesUsual     = 3    // and the multiple of the owner's own 99.9th percentile
	moverBeginning = 30 * time.Minute
	moverGone      = 10 * time.Minute // without a reading: what comes then begins anew
	maxMovers      = 512
	unusualLasts   = 10 * time.Minute
)

// The directions of the network that are added up by the hour.
const (
	ingress = iota
	egress
	directions
)

// The causes of rule data_movement.
const (
	egressCause  = "egress"
	ingressCause = "ingress"
	slowCause    = "slow_egress"
	unusualCause = "unusual"
)

// movedThing is something that an owner moves, as a counter.
type movedThing struct {
	name string
	row  *metric.Def
	at   int // value of the row's dimension; both: their sum
}

const both = -1

var movedThings = [...]movedThing{
	ingress: {"network ingress", metric.WorkloadNetworkBytes, 0},
	egress:  {"network egress", metric.WorkloadNetworkBytes, 1},
	2:       {"disk traffic", metric.WorkloadBlockBytes, both},
	3:       {"network file traffic", metric.WorkloadNetworkFileBytes, both},
	4:       {"PCIe traffic", metric.WorkloadPCIeBytes, both},
	5:       {"NVLink traffic", metric.WorkloadNVLinkBytes, both},
}

func (f *movedThing) of(w *collector.Workload) float64 {
	if f.at == both {
		return w.ValueAt(f.row, 0) + w.ValueAt(f.row, 1)
	}
	return w.ValueAt(f.row, f.at)
}

// What is made of movedThings and of other things.
const (
	infiniband = len(movedThings) + iota
	perToken
	perGPUSecond
	movedReadings // the number of them
)

var readingNames = [movedReadings]string{infiniband: "InfiniBand and RoCE traffic", perToken: "egress for each token", perGPUSecond: "egress for each GPU-second"}

func readingName(i int) string {
	if i < len(movedThings) {
		return movedThings[i].name
	}
	return readingNames[i]
}

// Movement watches what owners move: the network's total of an hour, what adds up over
// hours, and what is unlike the habit of the workload's class.
type Movement struct {
	habits  *habits
	classes map[class]*movedClass
	movers  map[collector.Owner]*mover
	ports   rate
	now     time.Time
}

// mover is what is kept of one owner. Its exported fields survive a restart.
type mover struct {
	Owner  collector.Owner        `json:"owner"`
	Class  class                  `json:"class"`
	First  time.Time              `json:"first"` // when it began
	At     time.Time              `json:"at"`    // the newest reading
	Flows  [len(movedThings)]rate `json:"movedThings"`
	Tokens rate                   `json:"tokens"`
	Last   [directions]lastHour   `json:"last_hour"`
	Hours  [directions]hourSum    `json:"hours"`

	total  [directions]float64 // of the last hour
	told   [directions]Evidence
	toldAt [directions]time.Time
}

// NewMovement returns the detector of rule data_movement.
func NewMovement() *Movement {
	return &Movement{habits: newHabits(), classes: map[class]*movedClass{}, movers: map[collector.Owner]*mover{}}
}

// Rule returns data_movement.
func (d *Movement) Rule() *rules.Rule { return rules.Get(rules.IDDataMovement) }

// Observe judges every owner that tells what it moves.
func (d *Movement) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	port := d.ports.next(portsAt(s), portBytes(s))
	sole := soleOwner(s)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		at := w.SampledAt(metric.Slow)
		m := d.mover(w, at)
		if m == nil {
			continue
		}
		c := d.class(m.Class, s.Time)
		if c == nil {
			continue
		}
		if at.After(m.At) {
			d.read(s, w, m, c, at)
			if w.Owner == sole && !math.IsNaN(port) {
				c.now[infiniband].add(port)
			}
			m.At = at
		}
	}
	for k, c := range d.classes {
		d.close(k, c, s.Time)
	}
	d.findLeaders(s)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		m, c := d.known(w)
		if c != nil && w.Has(metric.WorkloadNetworkBytes) {
			d.tell(s, w, m, c, report)
		}
	}
}

func (d *Movement) known(w *collector.Workload) (*mover, *movedClass) {
	m := d.movers[w.Owner]
	if m == nil {
		return nil, nil
	}
	return m, d.classes[m.Class]
}

// findLeaders finds the owner of each class that sent the most in the last hour: what is
// of the whole class is reported under it.
func (d *Movement) findLeaders(s *collector.Snapshot) {
	for _, c := range d.classes {
		c.leader = nil
	}
	for i := range s.Workloads {
		m, c := d.known(&s.Workloads[i])
		if c == nil {
			continue
		}
		for i := range m.total {
			m.total[i] = m.Last[i].total(s.Time)
		}
		if l := c.leader; l == nil || m.total[egress] > l.total[egress] {
			c.leader = m
		}
	}
}

// mover returns what is kept of an owner; nil if there is no room, or nothing to keep.
func (d *Movement) mover(w *collector.Workload, at time.Time) *mover {
	if w.Kind == "" || at.IsZero() {
		return nil
	}
	m := d.movers[w.Owner]
	if m == nil {
		if !room(d.movers, maxMovers, moverGone, func(m *mover) time.Time { return m.At }, d.now) {
			return nil
		}
		m = &mover{Owner: w.Owner, Class: classOf(w.Owner, w), First: at}
		d.movers[w.Owner] = m
	}
	if !m.At.IsZero() && at.Sub(m.At) > moverGone {
		*m = mover{Owner: w.Owner, First: at}
	}
	if m.Class.Stage != w.Stage || m.Class.Kind == "" {
		m.Class = classOf(w.Owner, w)
	}
	return m
}

// read takes up an owner's readings.
func (d *Movement) read(s *collector.Snapshot, w *collector.Workload, m *mover, c *movedClass, at time.Time) {
	started := at.Sub(m.First) >= moverBeginning
	var speed [len(movedThings)]float64
	for i := range movedThings {
		before := m.Flows[i].At
		speed[i] = m.Flows[i].next(at, movedThings[i].of(w))
		if math.IsNaN(speed[i]) || !started {
			continue
		}
		c.now[i].add(speed[i])
		if i < directions {
			bytes := float64(speed[i] * at.Sub(before).Seconds())
			m.Last[i].add(at, bytes)
			if whole, ok := m.Hours[i].add(at, bytes); ok {
				c.learnHour(i, at, whole, m.Hours[i].spoiled)
				m.Hours[i].spoiled = false
			}
			if i == egress {
				c.addUp(at)
				c.Egress.Bytes += bytes
				c.Present = true
			}
		}
	}
	tokens := m.Tokens.next(at, tokensOf(s, w))
	if sent := speed[egress]; started && !math.IsNaN(sent) {
		if tokens > 0 {
			c.now[perToken].add(sent / tokens)
		}
		if busy := busyGPUs(s, w.Owner); busy >= idleUtilization {
			c.now[perGPUSecond].add(sent / busy)
		}
	}
	c.connect(w, at)
}

// close makes of what the owners of a class moved the class's own reading: the mean, so
// that more replicas are not more of anything.
func (d *Movement) close(k class, c *movedClass, now time.Time) {
	for i := range c.now {
		if c.now[i].count == 0 {
			continue
		}
		mean := c.now[i].sum / float64(c.now[i].count)
		c.now[i] = flowMean{}
		c.moves[i] = c.moves[i] || mean > 0
		if !c.moves[i] {
			continue // what never moves needs no habit
		}
		h := d.habits.get(habitKey{Reading: readingName(i), Class: k}, now)
		if h == nil {
			continue
		}
		score, whole := h.add(now, mean)
		if whole && score >= 1 && !h.young() {
			c.odd = oddMovement{reading: i, mean: h.mean, score: score, surprise: levelSurprise(score, h.evidence(), movedReadings), until: now.Add(unusualLasts)}
		}
	}
	c.addUp(now)
}

// falseADay is how many alarms a clean series gives in a day at the threshold of
// stream.Level: the most of the kinds of readings that docs/backtest.md measures.
const falseADay = 0.71

// levelSurprise is the surprise of an alarm of one of several series of one subject.
// Evidence is in nats, and the score is 1 at the threshold.
func levelSurprise(score, evidence float64, series int) float64 {
	return surpriseOf(falseADay * 7 * float64(series) * math.Exp(-evidence*(1-1/score)))
}

func (d *Movement) tell(s *collector.Snapshot, w *collector.Workload, m *mover, c *movedClass, report func(Observation)) {
	for i, cause := range [directions]string{ingressCause, egressCause} {
		o := Observation{Subject: Subject{w.Kind, w.ID}, Cause: cause, Owner: w.Owner, Severity: rules.Ticket}
		limit, total := c.hourLimit(i), m.total[i]
		if c.mature(s.Time) && limit > 0 {
			o.Score = total / limit
			if o.Score >= 1 && c.newNetworks(s.Time) == 0 {
				o.Score = 0.99
			}
		}
		if o.Score >= 1 {
			m.Hours[i].spoiled = true
			o.Surprise = c.hourSurprise(i, total, s.Time)
			if m.toldAt[i].IsZero() || s.Time.Sub(m.toldAt[i]) >= time.Minute {
				m.told[i], m.toldAt[i] = c.hourEvidence(w, i, total, limit, o.Surprise, s.Time), s.Time
			}
			o.Evidence = m.told[i]
		}
		report(o)
	}
	d.tellClass(s, w, m, c, report)
}

// tellClass reports what is of all the class's owners.
func (d *Movement) tellClass(s *collector.Snapshot, w *collector.Workload, m *mover, c *movedClass, report func(Observation)) {
	subject := Subject{w.Kind, w.ID}
	slow := Observation{Subject: subject, Cause: slowCause, Owner: w.Owner, Severity: rules.Ticket}
	odd := Observation{Subject: subject, Cause: unusualCause, Owner: w.Owner, Severity: rules.Info}
	if m == c.leader {
		if limit := c.slowLimit(); limit > 0 && c.mature(s.Time) {
			slow.Score = c.Sum / limit
			if slow.Score >= 1 && c.newNetworks(s.Time) == 0 {
				slow.Score = 0.99
			}
			if slow.Score >= 1 {
				slow.Surprise = c.slowSurprise(s.Time)
				if c.toldAt.IsZero() || s.Time.Sub(c.toldAt) >= time.Minute {
					c.told, c.toldAt = c.slowEvidence(w, limit, slow.Surprise, s.Time), s.Time
				}
				slow.Evidence = c.told
			}
		}
		if u := &c.odd; s.Time.Before(u.until) {
			odd.Score, odd.Surprise = u.score, u.surprise
			if u.told.Seen == "" {
				u.told = Evidence{
					Seen:     fmt.Sprintf("unusual movement: %s of %s is unlike its habit", readingName(u.reading), u.amount()),
					Expected: "as in the days before, for this kind of workload", Observed: u.mean, Confidence: confidenceOf(u.surprise),
					Why: chance(u.surprise), Title: "Unusual data movement"}
			}
			odd.Evidence = u.told
		}
	}
	report(slow)
	report(odd)
}

// confidenceOf puts a surprise into words: nats of findings a week.
func confidenceOf(surprise float64) Confidence {
	if surprise >= 7 { // less than one in a thousand weeks
		return VerySure
	}
	return Likely
}

// soleOwner is who has all GPUs of the node, so that what its adapters move is his; the
// zero Owner if there is none.
func soleOwner(s *collector.Snapshot) (sole collector.Owner) {
	for i := range s.GPUs {
		o := holder(&s.GPUs[i])
		if o.Kind == "" || i > 0 && o != sole || len(s.GPUs[i].Owners) > 1 {
			return collector.Owner{}
		}
		sole = o
	}
	return sole
}

// portBytes are those of all ports, in both directions; NaN without ports, or if one
// does not tell.
func portBytes(s *collector.Snapshot) float64 {
	if len(s.Interfaces) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for i := range s.Interfaces {
		for at := range metric.InterfaceBytes.Width() {
			sum += s.Interfaces[i].ValueAt(metric.InterfaceBytes, at)
		}
	}
	return sum
}

func portsAt(s *collector.Snapshot) (at time.Time) {
	for i := range s.Interfaces {
		at = later(at, s.Interfaces[i].SampledAt(metric.Slow))
	}
	return at
}

// tokensOf counts the tokens that an owner trained on or generated; NaN if it tells of
// none.
func tokensOf(s *collector.Snapshot, w *collector.Workload) float64 {
	sum, told := 0.0, false
	add := func(v float64) {
		if !math.IsNaN(v) {
			sum, told = sum+v, true
		}
	}
	add(w.Value(metric.WorkloadTokens))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.GPUs) == 0 {
			continue
		}
		if g := s.GPUByUUID(e.GPUs[0]); g != nil && holder(g) == w.Owner {
			add(e.Value(metric.GeneratedTokens))
		}
	}
	if !told {
		return math.NaN()
	}
	return sum
}

// busyGPUs is how many GPUs' worth of work an owner's GPUs do.
func busyGPUs(s *collector.Snapshot, o collector.Owner) float64 {
	sum := 0.0
	for i := range s.GPUs {
		if g := &s.GPUs[i]; holder(g) == o && g.Has(metric.Utilization) {
			sum += g.Value(metric.Utilization)
		}
	}
	return sum
}
