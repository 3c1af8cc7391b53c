package detect

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of queueing.
const (
	causeAboveSLO    = "above_slo"
	causeGrowing     = "growing"
	causeEpisodes    = "episodes"
	causeIdleSibling = "idle_sibling"
	causeAllReplicas = "all_replicas" // only where all nodes are looked at
)

const (
	maxQueues    = 256
	queuesKept   = 7 * 24 * time.Hour // of endpoints that have not been seen since
	boundStays   = 10 * time.Minute   // after the GPU was last the reason: the other rule's finding may still be open
	capacityOver = 15 * time.Minute

	queueAllowed = 0.05            // of what is served: by so much more may arrive
	grownMuch    = 30.0            // seconds of work
	growsFor     = 5 * time.Minute // after which a burst has its peak behind it
	peakFresh    = 2 * time.Minute
	healthyLoad  = 0.8 // of a server; at most
	weekOfQueues = 7 * 24 * 12
	certainLog   = 4.605170185988092 // ln 100: one false finding of a healthy subject in a hundred weeks
)

// Queueing watches for requests that wait in front of a model for another reason than
// that the GPU is busy all the time, of which saturated_gpu tells.
type Queueing struct {
	cfg       SaturatedConfig
	saturated *Saturated // tells of the queues that a GPU is the reason of
	endpoints map[collector.EndpointKey]*queue
	now       time.Time
}

// queue is what is kept of one endpoint's queue.
type queue struct {
	*demand
	subject  Subject
	waited   *stream.Histogram // of the number that wait
	capacity *stream.Mean      // requests served in a second while others waited
	preempts *stream.Mean      // preemptions in a second
	lost     rate
	idle     *stream.Mean // share of time in which it waited beside an idle sibling
	kept     queueMemory

	relic      bool // the queue that the server shows is none any more
	idleSince  time.Time
	sibling    string
	replicas   int
	arrivals   float64
	served     float64
	load       float64 // utilization by Little's law
	consistent float64
	bound      time.Time // when saturated_gpu last told of it
	told       [4]Evidence
	toldAt     [4]time.Time
}

// queueMemory is what of a queue survives a restart, beside what is usual of it.
type queueMemory struct {
	First    time.Time `json:"first"`
	Work     float64   `json:"work"`           // seconds of work by which the queue has grown since it was last empty
	Since    time.Time `json:"since,omitzero"` // when that began
	Peak     float64   `json:"peak"`           // most that have waited since
	PeakAt   time.Time `json:"peak_at,omitzero"`
	Episodes []episode `json:"episodes,omitempty"`
}

// NewQueueing returns the detector of rule queueing. It has the other detector's
// objective, leaves to it what that tells of, and must be observed after it.
func NewQueueing(saturated *Saturated) *Queueing {
	return &Queueing{cfg: saturated.cfg, saturated: saturated, endpoints: map[collector.EndpointKey]*queue{}}
}

// Rule returns queueing.
func (d *Queueing) Rule() *rules.Rule { return rules.Get(rules.IDQueueing) }

// Observe judges every endpoint whose numbers are fresh.
func (d *Queueing) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		at := e.SampledAt(metric.Fast)
		if at.IsZero() || s.Time.Sub(at) > sampleGap {
			continue
		}
		q := d.get(e)
		if q == nil {
			continue
		}
		if d.saturated.tells(s, e) {
			q.bound = s.Time
		}
		if !at.Equal(q.at) {
			q.take(s, e, at, d.cfg)
		}
		d.judge(s, e, q, report)
	}
}

func (d *Queueing) get(e *collector.Endpoint) *queue {
	if q := d.endpoints[e.Key()]; q != nil {
		return q
	}
	if !room(d.endpoints, maxQueues, queuesKept, func(q *queue) time.Time { return q.at }, d.now) {
		return nil
	}
	q := newQueue(e.Key(), d.cfg)
	q.kept.First = d.now
	d.endpoints[e.Key()] = q
	return q
}

func newQueue(key collector.EndpointKey, cfg SaturatedConfig) *queue {
	return &queue{
		demand: newDemand(cfg), subject: Subject{"endpoint", key.String()},
		waited:   stream.NewHistogram(queueHalfLife),
		capacity: stream.NewMean(capacityOver, 15, sampleGap),
		preempts: stream.NewMean(5*time.Minute, 5, sampleGap),
		idle:     stream.NewMean(demandWindow, 12, sampleGap),
		arrivals: math.NaN(), served: math.NaN(), load: math.NaN(), consistent: math.NaN(),
	}
}

// take takes up a new reading.
func (q *queue) take(s *collector.Snapshot, e *collector.Endpoint, at time.Time, cfg SaturatedConfig) {
	dt := 0.0
	if !q.at.IsZero() {
		dt = min(max(at.Sub(q.at), 0), sampleGap).Seconds()
	}
	q.update(e, cfg)
	q.relic = q.stale(cfg) || e.Value(metric.EndpointStale) == 1
	q.arrivals, q.served = e.Value(metric.ArrivalRate), e.Value(metric.ServiceRate)
	q.load, q.consistent = e.Value(metric.ServerUtilization), e.Value(metric.QueueConsistency)
	q.preempts.Add(at, q.lost.next(at, e.Value(metric.Preemptions)))
	q.grow(at, dt)
	learned := dt
	if q.kept.Work > 0 || q.suspect(at) {
		learned *= slowLearning
	}
	q.waited.Add(at, q.waiting, learned)
	q.episode(at)
	q.beside(s, e, at)
}

// grow adds up by how much more work arrives than is done, as long as requests wait: a
// CUSUM in seconds of work, which forgives a little.
func (q *queue) grow(at time.Time, dt float64) {
	busy := math.NaN()
	if q.waiting >= 1 {
		busy = q.served
	}
	q.capacity.Add(at, busy)
	if !(q.waiting >= 1) || q.relic {
		q.kept.stopGrowing()
		return
	}
	serves, _ := q.capacity.Over(at, capacityOver)
	step := dt * ((q.arrivals-q.served)/serves - queueAllowed)
	if !(serves > 0) || math.IsNaN(step) {
		return
	}
	q.kept.Work = max(0, q.kept.Work+step)
	switch {
	case q.kept.Work == 0:
		q.kept.stopGrowing()
		return
	case q.kept.Since.IsZero():
		q.kept.Since = at
	}
	if q.waiting > q.kept.Peak {
		q.kept.Peak, q.kept.PeakAt = q.waiting, at
	}
}

func (m *queueMemory) stopGrowing() {
	m.Work, m.Since, m.Peak, m.PeakAt = 0, time.Time{}, 0, time.Time{}
}

// growth is how far the queue has grown beyond what is tolerated, and how surprising a
// queue of that length is. It must still reach new heights minutes after it began to
// grow: after a burst it does not. A server of one place that is loaded to four fifths has a
// queue of n or more with a probability of 0.8^n; in a week it may begin to grow every
// five minutes.
func (q *queue) growth() (score, surprise float64) {
	surprise = max(0, float64(q.waiting*-math.Log(healthyLoad))-math.Log(weekOfQueues))
	score = min(q.kept.Work/grownMuch, surprise/certainLog, q.kept.PeakAt.Sub(q.kept.Since).Seconds()/growsFor.Seconds())
	if q.at.Sub(q.kept.PeakAt) > peakFresh {
		return 0, 0
	}
	if q.waited.Weight() >= blindBefore.Seconds() {
		score = min(score, q.waiting/max(1, q.waited.Quantile(0.99)))
	}
	if !(score > 0) {
		return 0, 0
	}
	return score, surprise
}

// beside looks for a sibling that has nothing to do while requests wait here.
func (q *queue) beside(s *collector.Snapshot, e *collector.Endpoint, at time.Time) {
	q.replicas = 1
	var idle *collector.Endpoint
	for i := range s.Endpoints {
		o := &s.Endpoints[i]
		if o == e || o.Model == "" || o.Model != e.Model || o.Engine != e.Engine || s.Time.Sub(o.SampledAt(metric.Fast)) > sampleGap {
			continue
		}
		q.replicas++
		if o.Value(metric.RequestsRunning) == 0 && o.Value(metric.RequestsWaiting) == 0 && o.Value(metric.EndpointUp) != 0 {
			idle = o
		}
	}
	found := idle != nil && q.waiting >= 1 && !q.relic
	if found {
		q.sibling = idle.URL
	}
	q.idle.Add(at, indicator(found))
	share, covered := q.idle.Over(at, demandWindow)
	switch {
	case covered < demandWindow/2 || share < 0.5:
		q.idleSince = time.Time{}
	case q.idleSince.IsZero():
		q.idleSince = at.Add(-time.Duration(share * float64(covered)))
	}
}

// judge reports each cause. Where the GPU is the reason, or has just been, the queue is
// the other rule's.
func (d *Queueing) judge(s *collector.Snapshot, e *collector.Endpoint, q *queue, report func(Observation)) {
	elsewhere := !q.bound.IsZero() && d.now.Sub(q.bound) < boundStays
	tell := func(o Observation) {
		o.Subject, o.Severity = q.subject, rules.Ticket
		if o.Score >= 1 {
			o.Owner, _ = s.OwnerOf(e) // unattributed if it is not known
		}
		report(o)
	}
	o := Observation{Cause: causeAboveSLO}
	if q.slo && !q.since.IsZero() && !elsewhere {
		o.Score, o.At = q.ratio(), q.since
		o.Evidence = q.words(0, d.now, q.sayAboveSLO)
	}
	tell(o)

	o = Observation{Cause: causeGrowing}
	if !elsewhere {
		if o.Score, o.Surprise = q.growth(); o.Score >= 1 {
			o.At = q.kept.Since
			o.Evidence = q.words(1, d.now, q.sayGrowing)
		}
	}
	tell(o)

	o = Observation{Cause: causeEpisodes}
	if o.Score, o.Surprise = q.repeats(d.now); o.Score >= 1 {
		o.At = q.kept.Episodes[len(q.kept.Episodes)-1].Start
		o.Evidence = q.words(2, d.now, q.sayEpisodes)
	}
	tell(o)

	o = Observation{Cause: causeIdleSibling}
	if !q.idleSince.IsZero() {
		o.Score, o.At = max(1, min(q.waiting, 1000)), q.idleSince
		o.Evidence = q.words(3, d.now, q.sayIdleSibling)
	}
	tell(o)
}

type queueingState struct {
	Version int          `json:"version"`
	Queues  []queueState `json:"queues"`
}

type queueState struct {
	collector.EndpointKey
	Seen  time.Time         `json:"seen"`
	Queue *stream.Histogram `json:"queue"`
	Waits *stream.Histogram `json:"waits"`
	queueMemory
}

// Save returns what is usual of each queue and what it has been through. The windows of
// a few minutes begin anew after a restart.
func (d *Queueing) Save() ([]byte, error) {
	s := queueingState{Version: 1, Queues: []queueState{}}
	for key, q := range d.endpoints {
		s.Queues = append(s.Queues, queueState{key, q.at, q.queue, q.waited, q.kept})
	}
	slices.SortFunc(s.Queues, func(a, b queueState) int { return strings.Compare(a.String(), b.String()) })
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *Queueing) Restore(data []byte) error {
	var s queueingState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	for _, saved := range s.Queues {
		if saved.Queue == nil || saved.Waits == nil || len(d.endpoints) >= maxQueues {
			continue
		}
		q := newQueue(saved.EndpointKey, d.cfg)
		q.queue, q.waited, q.at, q.kept = saved.Queue, saved.Waits, saved.Seen, saved.queueMemory
		d.endpoints[saved.EndpointKey] = q
	}
	return nil
}

// Shift moves all that is remembered of queues.
func (d *Queueing) Shift(by time.Duration) {
	shift(by, &d.now)
	for _, q := range d.endpoints {
		shift(by, &q.at, &q.moved, &q.p95At, &q.since, &q.idleSince, &q.bound, &q.kept.First, &q.kept.Since, &q.kept.PeakAt)
		shiftAll(by, q.toldAt[:])
		for i := range q.kept.Episodes {
			shift(by, &q.kept.Episodes[i].Start, &q.kept.Episodes[i].End)
		}
		q.lost.shift(by)
		q.queue.Shift(by)
		q.waited.Shift(by)
		q.waiters.Shift(by)
		q.capacity.Shift(by)
		q.preempts.Shift(by)
		q.idle.Shift(by)
	}
}
