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

const (
	leakSeriesMost = 256              // readings that are watched; each keeps 1.9 KiB
	leakForgotten  = time.Hour        // without a sample, after which a reading makes room for another
	leakFresh      = 10 * time.Minute // so old a growth still stands beside newer ones
	leakSoon       = 24 * time.Hour   // until it is full, somebody has to look
	leakLasts      = 30 * time.Minute // that a growth must have scored before it is told
	leakLull       = 30 * time.Minute // a growth that was gone for less goes on

	// A growth matters that fills what there is within leakSoon and has come so far …
	leakOfLimit = 0.05
	leakOfLevel = 0.25 // … or that has grown by so much of where it began, and …
	leakLeast   = 0.01 // … by so much of what there is,
	leakFiles   = 100  // if these are files, by as many.

	// What is open follows the traffic of the day. Until a day of it is known, only
	// what comes to its limit soon is told.
	filesKnown = 24 * time.Hour
	filesSoon  = 4 * time.Hour

	kvFull    = 0.97    // use, from which on more would not show
	kvLately  = 0.2     // of a minute in what use and requests lately were: five minutes
	kvYoung   = 30      // minutes, after which it is known what a request takes of a KV cache
	kvMemory  = 24 * 60 // minutes that this is learned over
	kvSure    = 0.05    // of what a request takes: so small an error tells what it is
	kvSuspect = 0.5     // score of a growth from which on it is learned …
	kvHold    = 0.25    // … at this part of the speed
)

// The causes of rule memory_leak.
const (
	gpuMemory  = "gpu_memory"
	hostMemory = "host_memory"
	kvCache    = "kv_cache"
	openFiles  = "open_files"
)

// MemoryLeak watches for what grows steadily and does not come back: memory of each
// owner on each GPU and in the host, its open files, and what an inference server's KV
// cache holds beside that of the requests that run. It says when that is full.
type MemoryLeak struct {
	series map[leakOf]*leakSeries
	order  []*leakSeries // as first seen
	now    time.Time
	// moved is by how much the clock was set in all. What grows is dated by a clock
	// that never was, as the blocks of a trend cannot be moved.
	moved  time.Duration
	lists  map[string]time.Time // when each GPU's processes were last listed
	turn   uint64               // of snapshots: two may be of the same time
	capped *vm.Counter
}

// leakOf tells the readings apart.
type leakOf struct {
	Owner    collector.Owner       `json:"owner,omitzero"`
	Endpoint collector.EndpointKey `json:"endpoint,omitzero"`
	UUID     string                `json:"uuid,omitempty"`
	MIG      string                `json:"mig,omitempty"`
	Cause    string                `json:"cause"`
}

// leakSeries is one reading and what was seen of it.
type leakSeries struct {
	of      leakOf
	subject Subject
	leak    *stream.Leak
	first   processID // the oldest process that it is of
	made    time.Time // when it was first seen
	known   time.Time // when it, or what it inherits from, was
	at      time.Time // of the newest sample
	since   time.Time // since when it has grown like a leak; zero: it does not
	last    time.Time // when it last did
	from    float64   // the level that it has grown from since then
	level   float64
	limit   float64 // NaN if unknown
	turn    uint64  // of the newest sample

	sum    float64 // of this snapshot's processes
	oldest processID
	minute minutes
	kv     kvUse
	told   Evidence
	toldAt time.Time
}

// processID tells a process from all that were and will be.
type processID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func (p processID) olderThan(q processID) bool {
	return q == processID{} || p.Start < q.Start || p.Start == q.Start && p.PID < q.PID
}

// NewMemoryLeak returns the detector of rule memory_leak.
func NewMemoryLeak() *MemoryLeak {
	return &MemoryLeak{series: map[leakOf]*leakSeries{}, lists: map[string]time.Time{},
		capped: vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(rules.IDMemoryLeak)))}
}

// Rule returns memory_leak.
func (d *MemoryLeak) Rule() *rules.Rule { return rules.Get(rules.IDMemoryLeak) }

// Observe takes up what is new and judges what it was of.
func (d *MemoryLeak) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	d.turn++
	for i := range s.GPUs {
		d.addGPU(s, &s.GPUs[i])
	}
	for i := range s.Workloads {
		d.addWorkload(s, &s.Workloads[i])
	}
	for i := range s.Endpoints {
		d.addEndpoint(&s.Endpoints[i])
	}
	for i, w := range d.order {
		if w.turn == d.turn && !slices.ContainsFunc(d.order[:i], func(o *leakSeries) bool { return o.turn == d.turn && o.together(w) }) {
			d.tell(s, d.worst(w), report)
		}
	}
}

// together reports whether two readings make one finding: the same owner's on two GPUs.
func (w *leakSeries) together(o *leakSeries) bool {
	return w.of.Cause == o.of.Cause && w.subject == o.subject
}

// worst returns the reading that makes the finding of w: the one that grows most.
func (d *MemoryLeak) worst(w *leakSeries) *leakSeries {
	best := w
	for _, o := range d.order {
		if o.together(w) && d.now.Sub(o.at) <= leakFresh && o.leak.Growth().Score > best.leak.Growth().Score {
			best = o
		}
	}
	return best
}

// get returns what is kept of a reading, nil if there is no room for it.
func (d *MemoryLeak) get(of leakOf) *leakSeries {
	w := d.series[of]
	if w == nil {
		if len(d.order) >= leakSeriesMost && !d.makeRoom() {
			d.capped.Inc()
			return nil
		}
		w = newLeakSeries(of)
		w.made, w.known = d.now, d.now
		d.inherit(w)
		d.series[of] = w
		d.order = append(d.order, w)
	}
	return w
}

func newLeakSeries(of leakOf) *leakSeries {
	w := &leakSeries{of: of, leak: stream.NewLeak(), limit: math.NaN()}
	switch {
	case of.Cause == kvCache:
		w.subject = Subject{Kind: "endpoint", ID: of.Endpoint.String()}
	case of.Owner.Kind == "":
		w.subject = gpuSubject(of.UUID)
	default:
		w.subject = OwnerSubject(of.Owner)
	}
	return w
}

// inherit gives a new reading what was usual of one that is gone, of the same class of
// workload: the job of every night, the pod that takes another's place.
func (d *MemoryLeak) inherit(w *leakSeries) {
	if w.of.Owner.Kind == "" {
		return
	}
	for _, o := range slices.Backward(d.order) {
		if o.of.Cause == w.of.Cause && o.of.Owner != w.of.Owner && d.now.Sub(o.seen()) > leakFresh && classOf(o.of.Owner, nil) == classOf(w.of.Owner, nil) {
			*w.leak, w.known = *o.leak, o.known
			w.leak.Restart()
			return
		}
	}
}

// makeRoom forgets the reading that has been gone for longest.
func (d *MemoryLeak) makeRoom() bool {
	oldest := 0
	for i, w := range d.order {
		if w.seen().Before(d.order[oldest].seen()) {
			oldest = i
		}
	}
	w := d.order[oldest]
	if d.now.Sub(w.seen()) < leakForgotten {
		return false
	}
	delete(d.series, w.of)
	d.order = slices.Delete(d.order, oldest, oldest+1)
	return true
}

func (w *leakSeries) seen() time.Time { return later(w.at, w.made) }

// addGPU takes up a new list of a GPU's processes by whom they are; where there is none, the
// memory in use of the GPU.
func (d *MemoryLeak) addGPU(s *collector.Snapshot, g *collector.GPU) {
	at := g.SampledAt(metric.Processes)
	if !g.Answers() || at.IsZero() || at.Equal(d.lists[g.UUID]) {
		return
	}
	d.lists[g.UUID] = at
	listed := false
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.UUID != g.UUID || !p.Has(metric.ProcessMemoryUsed) {
			continue
		}
		listed = true
		if p.Service() {
			continue
		}
		if w := d.get(leakOf{Owner: p.Owner, UUID: g.UUID, MIG: p.MIG, Cause: gpuMemory}); w != nil {
			w.add(p, d.turn)
		}
	}
	if !listed && !g.MIG && !g.Has(metric.ProcessCount) && g.Has(metric.MemoryUsed) {
		if w := d.get(leakOf{UUID: g.UUID, Cause: gpuMemory}); w != nil {
			w.sum, w.oldest, w.turn = g.Value(metric.MemoryUsed), processID{}, d.turn
		}
	}
	for _, w := range d.order {
		if w.turn == d.turn && w.of.UUID == g.UUID {
			w.limit = w.sum + free(s, g, w.of.MIG)
			d.take(w, at, w.sum)
		}
	}
}

// add counts a process to the snapshot's sum.
func (w *leakSeries) add(p *collector.Process, turn uint64) {
	if w.turn != turn {
		w.turn, w.sum, w.oldest = turn, 0, processID{}
	}
	w.sum += p.Value(metric.ProcessMemoryUsed)
	if id := (processID{p.PID, p.Start}); id.olderThan(w.oldest) {
		w.oldest = id
	}
}

// free is how much more the GPU, or the instance, can give.
func free(s *collector.Snapshot, g *collector.GPU, mig string) float64 {
	if mig == "" {
		return g.Value(metric.MemoryFree)
	}
	for i := range s.Instances {
		if in := &s.Instances[i]; in.UUID == g.UUID && isInstance(mig, in.GI, in.CI) {
			return in.Value(metric.MIGMemoryFree)
		}
	}
	return math.NaN()
}

// addWorkload takes up what an owner has of the host: memory, and open files.
func (d *MemoryLeak) addWorkload(s *collector.Snapshot, l *collector.Workload) {
	if l.Owner.Kind == "" {
		return
	}
	used := l.Value(metric.WorkloadMemory)
	if shmem := l.ValueAt(metric.WorkloadMemory, 1); shmem > 0 {
		used += shmem
	}
	limit := used + s.Node.Value(metric.HostMemoryAvailable)
	if own := l.Value(metric.WorkloadMemoryLimit); own > 0 && !(limit < own) {
		limit = own
	}
	d.addHost(s, l, hostMemory, used, limit)
	d.addHost(s, l, openFiles, l.Value(metric.WorkloadOpenFiles), l.Value(metric.WorkloadOpenFilesLimit))
}

func (d *MemoryLeak) addHost(s *collector.Snapshot, l *collector.Workload, cause string, used, limit float64) {
	if math.IsNaN(used) {
		return
	}
	at := l.SampledAt(metric.Slow)
	w := d.get(leakOf{Owner: l.Owner, Cause: cause})
	if w == nil || at.Equal(w.at) {
		return
	}
	w.oldest = processID{}
	for i := range s.Processes {
		p := &s.Processes[i]
		if id := (processID{p.PID, p.Start}); p.Owner == l.Owner && id.olderThan(w.oldest) {
			w.oldest = id
		}
	}
	w.turn, w.limit = d.turn, limit
	d.take(w, at, used)
}

// addEndpoint takes up what the KV cache holds in a minute beside that of the requests
// that run: what is kept of those that have ended makes it grow, a busier hour and
// longer requests do not.
func (d *MemoryLeak) addEndpoint(e *collector.Endpoint) {
	at, used, running := e.SampledAt(metric.Fast), e.Value(metric.KVCacheUsage), e.Value(metric.RequestsRunning)
	if math.IsNaN(used) || math.IsNaN(running) {
		return
	}
	w := d.get(leakOf{Endpoint: e.Key(), Cause: kvCache})
	if w == nil || at.Equal(w.at) {
		return
	}
	passed := at.Sub(w.at)
	w.at = at
	if w.minute.over(at) {
		if held, free := w.kv.end(w.leak.Growth().Score >= kvSuspect); !math.IsNaN(held) {
			w.turn, w.limit = d.turn, held+free
			if !w.since.IsZero() && free <= 1-kvFull && w.leak.Growth().Score < 1 {
				// That it no longer grows is because it cannot: the growth waits.
				w.since, w.last = w.since.Add(max(passed, time.Minute)), at
			}
			d.take(w, at, held)
		}
	}
	w.kv.used.add(used)
	w.kv.running.add(running)
}

// take gives a sample to the trend.
func (d *MemoryLeak) take(w *leakSeries, at time.Time, x float64) {
	if w.oldest != w.first {
		if w.first != (processID{}) && w.oldest != (processID{}) {
			w.leak.Restart()
			w.since = time.Time{}
		}
		w.first = w.oldest
	}
	w.at, w.level = at, x
	score := w.leak.Add(at.Add(-d.moved), x)
	switch {
	case score >= 1:
		if w.since.IsZero() {
			w.since, w.from = at, math.Inf(1)
		}
		w.last = at
		g := w.leak.Growth()
		w.from = min(w.from, g.Level-g.Rise)
	case at.Sub(w.last) > leakLull:
		w.since = time.Time{}
	}
}

// matters reports whether anybody has to know of a growth: noise and habits can grow
// as steadily as a leak, but not for long.
func (w *leakSeries) matters(likely time.Duration, now time.Time) bool {
	grown, whole := w.leak.Growth().Level-w.from, w.limit
	if w.of.Cause == kvCache {
		whole = 1
	}
	if w.of.Cause == openFiles && now.Sub(w.known) < filesKnown && likely > filesSoon {
		return false
	}
	if likely < leakSoon && grown >= leakOfLimit*whole {
		return true
	}
	if w.of.Cause == openFiles && grown < leakFiles {
		return false
	}
	return w.of.Cause != kvCache && grown >= leakOfLevel*w.from && !(grown < leakLeast*whole)
}
