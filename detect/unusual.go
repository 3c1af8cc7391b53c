package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Unusual watches what a GPU, its holder and the servers on it do against what is usual
// for that kind of workload. One reading alone is never a finding, nor is a change that
// matters to nobody: what all that matters says together in half an hour is.
type Unusual struct {
	habits *habits
	gpus   map[string]*unusualGPU
	tokens map[collector.EndpointKey]*tokenRate
}

// unusualGPU is what is kept of one GPU.
type unusualGPU struct {
	readings  [unusualReadings]fusedReading
	at        time.Time // of the newest fast reading
	began     time.Time // of the workload, as far as this process has seen it
	restarted time.Time // when it last was, in the time that this process has seen
	owner     collector.Owner
	stage     string
	class     class
	known     bool // owner, stage and class are
	nvlink    rate
	fused     fused
	dirty     bool // a minute of a reading has become whole
	told      Evidence
	toldAt    time.Time
}

// tokenRate is the rate of tokens of one endpoint.
type tokenRate struct {
	prompt, generated rate
	now               float64
	at                time.Time
}

// NewUnusual returns the detector of rule unusual.
func NewUnusual() *Unusual {
	return &Unusual{habits: newHabits(), gpus: map[string]*unusualGPU{}, tokens: map[collector.EndpointKey]*tokenRate{}}
}

// Rule returns unusual.
func (d *Unusual) Rule() *rules.Rule { return rules.Get(rules.IDUnusual) }

// Observe judges every GPU that answers, once its readings have been seen for as long as
// evidence is summed over.
func (d *Unusual) Observe(s *collector.Snapshot, report func(Observation)) {
	for i := range s.Endpoints {
		d.serve(&s.Endpoints[i], s.Time)
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if !g.Answers() {
			continue
		}
		st := d.gpus[g.UUID]
		if at := g.SampledAt(metric.Fast); st == nil || at.After(st.at) {
			st = d.state(s, g)
			st.at = at
			d.read(s, g, st)
		}
		if st.at.Sub(st.began) >= fuseWindow {
			d.tell(s, g, st, report)
		}
	}
	d.forget(s.Time)
}

// serve follows how many tokens an endpoint makes.
func (d *Unusual) serve(e *collector.Endpoint, now time.Time) {
	t := d.tokens[e.Key()]
	if t == nil {
		if len(d.tokens) >= maxHabits/4 {
			return
		}
		t = &tokenRate{now: math.NaN()}
		d.tokens[e.Key()] = t
	}
	at := e.SampledAt(metric.Fast)
	if !at.After(t.at) {
		return
	}
	t.at = at
	t.now = sum(t.prompt.next(at, e.Value(metric.PromptTokens)), t.generated.next(at, e.Value(metric.GeneratedTokens)))
}

// state returns what is kept of a GPU, and begins anew where another class of workload
// has it now: a change of jobs is no change of habit.
func (d *Unusual) state(s *collector.Snapshot, g *collector.GPU) *unusualGPU {
	st := d.gpus[g.UUID]
	if st == nil {
		st = &unusualGPU{}
		d.gpus[g.UUID] = st
	}
	owner := holder(g)
	w := s.WorkloadOf(owner)
	stage := ""
	if w != nil {
		stage = w.Stage
	}
	if st.known && owner == st.owner && stage == st.stage {
		return st
	}
	if c := classOf(owner, w); !st.known || c != st.class {
		*st = unusualGPU{class: c, began: s.Time}
	}
	st.owner, st.stage, st.known = owner, stage, true
	return st
}

// read takes up the readings of a GPU, its holder and what is served on it.
func (d *Unusual) read(s *collector.Snapshot, g *collector.GPU, st *unusualGPU) {
	warming := !st.restarted.IsZero() && st.at.Sub(st.restarted) < warmTime
	for i, x := range d.values(s, g, st) {
		if math.IsNaN(x) || warming {
			continue
		}
		r := &st.readings[i]
		if r.habit == nil {
			h := d.habits.get(habitKey{gpuSubject(g.UUID), unusualKinds[i].name, st.class}, st.at)
			if h == nil {
				continue // there are more than a node has
			}
			*r = newFusedReading(unusualKinds[i].kind, &unusualKinds[i].effect, h)
		}
		st.dirty = r.add(st.at, x, g) || st.dirty
	}
	if r := &st.readings[oddOwner]; r.habit != nil && r.habit.mean < float64(restartShare*r.usual) {
		st.restart()
	}
	if st.dirty {
		st.fused, st.dirty = fuse(st.readings[:]), false
	}
}

// restart begins anew with a workload that has done so: how it warms up is no fault, and
// no habit.
func (st *unusualGPU) restart() {
	st.restarted = st.at
	for i := range st.readings {
		if r := &st.readings[i]; r.habit != nil {
			*r = newFusedReading(r.kind, r.effect, r.habit)
		}
	}
	st.dirty = true
}

func (d *Unusual) tell(s *collector.Snapshot, g *collector.GPU, st *unusualGPU, report func(Observation)) {
	o := Observation{Subject: gpuSubject(g.UUID), Cause: "fused", Score: st.fused.score(), GPU: g, Owner: st.owner}
	if o.Score >= 1 {
		o.Surprise, o.Severity = st.fused.surprise(), rules.Ticket
		if st.young() {
			o.Severity = rules.Info
		}
		o.At = st.since()
		if st.toldAt.IsZero() || s.Time.Sub(st.toldAt).Abs() >= time.Minute {
			st.told, st.toldAt = st.evidence(), s.Time
		}
		o.Evidence = st.told
	}
	report(o)
}

// forget drops endpoints that are gone.
func (d *Unusual) forget(now time.Time) {
	for key, t := range d.tokens {
		if now.Sub(t.at) > time.Hour {
			delete(d.tokens, key)
		}
	}
}

// Shift moves the habits and the windows.
func (d *Unusual) Shift(by time.Duration) {
	d.habits.shift(by)
	for _, st := range d.gpus {
		shift(by, &st.at, &st.began, &st.restarted, &st.toldAt)
		st.nvlink.shift(by)
		for i := range st.readings {
			if st.readings[i].odd != nil {
				st.readings[i].shift(by)
			}
		}
	}
	for _, t := range d.tokens {
		shift(by, &t.at)
		t.prompt.shift(by)
		t.generated.shift(by)
	}
}

// Save returns what is usual. The evidence of the last half hour begins anew.
func (d *Unusual) Save() ([]byte, error) { return d.habits.MarshalJSON() }

// Restore takes up what Save returned.
func (d *Unusual) Restore(data []byte) error { return d.habits.UnmarshalJSON(data) }
