package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// SaturatedConfig is what the detector of saturated GPUs can be told. Zero fields
// take the defaults.
type SaturatedConfig struct {
	Window       time.Duration // over which the GPU must be busy and the CPU not; 5 min
	QueueTimeSLO time.Duration // above which requests wait too long; 0: the endpoint's own 99th percentile decides
	StaleAfter   time.Duration // without a new token, what an endpoint says of its queue is not believed; 2 min
}

// The causes of rule saturated_gpu, named as the verdicts are where there is one.
const (
	causeGPUBound = "gpu_bound"
	causeKVFull   = string(VerdictVRAMBound)
)

var saturatedCauses = [...]string{causeGPUBound, causeKVFull}

const (
	busyGPU     = 0.95 // utilization of a GPU that works all the time
	busyShare   = 0.95 // of the window; the rest may be single dips
	busyCPU     = 0.5  // of all CPUs: below, they have little to do
	peggedCore  = 0.9  // one core at its limit is not an idle CPU
	minCoverage = 0.9  // of a window by samples, below which it is not judged
)

// Saturated watches for GPUs that are busy all the time beside CPUs that are not.
// That is true of every healthy training job, so it is a state; it is a finding
// only while requests wait for the GPU longer than they should.
type Saturated struct {
	cfg       SaturatedConfig
	judge     *Judge
	gpus      map[string]*busyState
	endpoints map[collector.EndpointKey]*demand
	cpuAt     time.Time
	cpu, core *stream.Mean
	now       time.Time
}

// busyState is what is kept of one GPU.
type busyState struct {
	at         time.Time // of the newest reading
	busy, util *stream.Mean
	since      time.Time // since when it has been saturated; zero: it is not
	told       Evidence
	toldAt     time.Time
	toldOf     *demand
	cause      string // of what it is full while somebody waits; empty: nobody does
}

// NewSaturated returns the detector of rule saturated_gpu. What the GPU is full of, the
// judge knows.
func NewSaturated(cfg SaturatedConfig, judge *Judge) *Saturated {
	if cfg.Window <= 0 {
		cfg.Window = 5 * time.Minute
	}
	if cfg.StaleAfter <= 0 {
		cfg.StaleAfter = 2 * time.Minute
	}
	d := &Saturated{cfg: cfg, judge: judge, gpus: map[string]*busyState{}, endpoints: map[collector.EndpointKey]*demand{}}
	d.cpu, d.core = d.window(), d.window()
	return d
}

func (d *Saturated) window() *stream.Mean { return stream.NewMean(d.cfg.Window, 30, sampleGap) }

// Rule returns saturated_gpu.
func (d *Saturated) Rule() *rules.Rule { return rules.Get(rules.IDSaturatedGPU) }

// Observe judges every GPU that reports its utilization, once its window is full.
func (d *Saturated) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	if at := s.Node.SampledAt(metric.Fast); !at.Equal(d.cpuAt) {
		d.cpuAt = at
		d.cpu.Add(at, s.Node.Value(metric.CPUBusy))
		d.core.Add(at, s.Node.Value(metric.CPUBusiest))
	}
	for i := range s.Endpoints {
		d.ask(&s.Endpoints[i])
	}
	cpu, cpuCovered := d.cpu.Over(s.Time, d.cfg.Window)
	core, coreCovered := d.core.Over(s.Time, d.cfg.Window)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		b := d.track(g)
		if b == nil {
			continue
		}
		busy, covered := b.busy.Over(s.Time, d.cfg.Window)
		if !d.full(covered) || !d.full(cpuCovered) || !d.full(coreCovered) {
			continue
		}
		saturated := busy >= busyShare && cpu < busyCPU && core < peggedCore
		switch {
		case !saturated:
			b.since = time.Time{}
		case b.since.IsZero():
			b.since = s.Time.Add(-covered)
		}
		d.tell(s, g, b, cpu, report)
	}
}

func (d *Saturated) full(covered time.Duration) bool {
	return covered.Seconds() >= float64(minCoverage*d.cfg.Window.Seconds())
}

// track takes up a GPU's utilization; nil if it does not tell any.
func (d *Saturated) track(g *collector.GPU) *busyState {
	if !g.Answers() || !g.Has(metric.Utilization) {
		return nil
	}
	b := d.gpus[g.UUID]
	if b == nil {
		b = &busyState{busy: d.window(), util: d.window()}
		d.gpus[g.UUID] = b
	}
	if at := g.SampledAt(metric.Fast); !at.Equal(b.at) {
		b.at = at
		u := g.Value(metric.Utilization)
		b.util.Add(at, u)
		b.busy.Add(at, indicator(u >= busyGPU))
	}
	return b
}

// tell reports the cause, and that the others are not so.
func (d *Saturated) tell(s *collector.Snapshot, g *collector.GPU, b *busyState, cpu float64, report func(Observation)) {
	saturated := !b.since.IsZero()
	o := Observation{Subject: gpuSubject(g.UUID), State: saturated, Severity: rules.Ticket, GPU: g, Owner: holder(g)}
	worst := d.worstFor(s, g)
	if !saturated || worst == nil {
		b.cause = ""
	} else {
		o.At = later(b.since, worst.since)
		chosen := b.choose(d.judge.verdictOf(g.UUID), worst.long.kv, s.Time.Sub(o.At))
		if chosen || b.toldOf != worst || s.Time.Sub(b.toldAt) >= evidenceEvery {
			util, _ := b.util.Over(s.Time, d.cfg.Window)
			b.told, b.toldAt, b.toldOf = worst.evidence(util, cpu, s.Time.Sub(o.At)), s.Time, worst
			if b.cause == causeKVFull {
				b.told.Title = "KV cache full while the CPU idles"
				b.told.Action = "The KV cache is the limit: give it more memory, shorten the context, or add replicas; scale on waiting requests instead of CPU usage."
			}
		}
	}
	for _, o.Cause = range saturatedCauses {
		if o.Cause != b.cause {
			report(o)
		}
	}
	if o.Cause = b.cause; o.Cause != "" {
		o.Score, o.Evidence = worst.ratio(), b.told
		report(o)
	}
}

// choose says what the GPU is full of, and reports whether that is another thing than
// before. It stands once a finding of it may have been told: what people were told of does
// not change its name.
func (b *busyState) choose(verdict VerdictName, kv float64, lasted time.Duration) bool {
	before := b.cause
	switch {
	case before == causeKVFull:
	case before != "" && lasted >= rules.Get(rules.IDSaturatedGPU).For:
	case verdict == VerdictVRAMBound || kv >= fullKV:
		b.cause = causeKVFull
	default:
		b.cause = causeGPUBound
	}
	return b.cause != before
}

// worstFor returns the demand on the GPU that exceeds its limit the most, or nil.
func (d *Saturated) worstFor(s *collector.Snapshot, g *collector.GPU) *demand {
	var worst *demand
	for i := range s.Endpoints {
		e := d.endpoints[s.Endpoints[i].Key()]
		if e != nil && !e.since.IsZero() && covers(&s.Endpoints[i], g) && (worst == nil || e.ratio() > worst.ratio()) {
			worst = e
		}
	}
	return worst
}

// tells reports whether the rule tells of the endpoint's queue: requests wait too long,
// and a GPU that the endpoint runs on is why.
func (d *Saturated) tells(s *collector.Snapshot, e *collector.Endpoint) bool {
	w := d.endpoints[e.Key()]
	if w == nil || w.since.IsZero() {
		return false
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if b := d.gpus[g.UUID]; b != nil && !b.since.IsZero() && g.Answers() && covers(e, g) {
			return true
		}
	}
	return false
}

func (d *Saturated) ask(e *collector.Endpoint) {
	w := kept(d.endpoints, e)
	if w == nil {
		if !d.roomFor() {
			return
		}
		w = newDemand(d.cfg)
		d.endpoints[e.Key()] = w
	}
	w.update(e, d.cfg)
}

// roomFor forgets endpoints that are gone before the memory of them grows without
// end.
func (d *Saturated) roomFor() bool {
	return room(d.endpoints, 256, 24*time.Hour, func(w *demand) time.Time { return w.at }, d.now)
}

// evidence says what was seen: how busy the GPU and the CPUs were, and who waits.
func (w *demand) evidence(util, cpu float64, lasted time.Duration) Evidence {
	limit := w.limit
	ev := Evidence{Observed: w.long.p95, Want: &limit}
	seen := []string{
		fmt.Sprintf("GPU %s busy for %s", percentOf(util), span(lasted)), "CPU " + percentOf(cpu),
		fmt.Sprintf("%.0f requests waiting", w.long.waiting), "queue-time p95 " + seconds(w.long.p95),
	}
	if w.long.kv >= 0 {
		seen = append(seen, "KV cache "+percentOf(w.long.kv))
	}
	if w.at.After(w.long.at) {
		seen = append(seen, "until "+clock(w.long.at))
	}
	ev.Seen = strings.Join(seen, ", ")
	if w.model != "" {
		ev.Seen = w.model + ": " + ev.Seen
	}
	usual := ""
	if w.queue.Weight() >= blindBefore.Seconds() {
		usual = seconds(w.queue.Typical(0.5))
	}
	switch {
	case w.slo && usual != "":
		ev.Expected = fmt.Sprintf("queue-time p95 below its SLO of %s, usually about %s", seconds(limit), usual)
	case w.slo:
		ev.Expected = fmt.Sprintf("queue-time p95 below its SLO of %s", seconds(limit))
	default:
		ev.Expected = fmt.Sprintf("queue-time p95 below its own 99th percentile of %s, usually about %s", seconds(limit), usual)
	}
	ev.Confidence, ev.Why = w.sure()
	return ev
}

type saturatedState struct {
	Version int           `json:"version"`
	Demands []demandState `json:"demands"`

	// Of version 1, by URL.
	Endpoints map[string]*stream.Histogram `json:"endpoints,omitempty"`
	Seen      map[string]time.Time         `json:"seen,omitempty"`
}

type demandState struct {
	collector.EndpointKey
	Queue *stream.Histogram `json:"queue"`
	Seen  time.Time         `json:"seen"`
}

// Save returns what is usual for each endpoint. The windows of a few minutes
// begin anew after a restart.
func (d *Saturated) Save() ([]byte, error) {
	s := saturatedState{Version: 2}
	for key, w := range d.endpoints {
		s.Demands = append(s.Demands, demandState{key, w.queue, w.at})
	}
	slices.SortFunc(s.Demands, func(a, b demandState) int { return strings.Compare(a.String(), b.String()) })
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *Saturated) Restore(data []byte) error {
	s := saturatedState{}
	if err := decodeState(data, &s, 2); err != nil {
		return err
	}
	for url, h := range s.Endpoints {
		s.Demands = append(s.Demands, demandState{collector.EndpointKey{URL: url}, h, s.Seen[url]})
	}
	for _, saved := range s.Demands {
		if saved.Queue == nil {
			continue
		}
		w := newDemand(d.cfg)
		w.queue, w.at = saved.Queue, saved.Seen
		d.endpoints[saved.EndpointKey] = w
	}
	return nil
}
