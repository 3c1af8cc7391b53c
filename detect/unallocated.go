package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// UnallocatedConfig is what the detector of unallocated compute can be told. The zero
// value works.
type UnallocatedConfig struct {
	Allowed []string // owners who may compute outside of any allocation, as kind:id
}

const (
	computes       = 0.3  // SM activity, or utilization where that is not told, in each minute
	steadyCompute  = 0.15 // a minute's mean lies within so much of that of all of them
	steadyPower    = 0.1
	steadyMemory   = 0.15 // in parts of the memory's time
	steadyMinutes  = 30
	outlierMinutes = 1                  // may lie outside: it pauses to fetch work
	givenKept      = 7 * 24 * time.Hour // a node on which nothing was given away for so long has no scheduler
	untold         = -1                 // a signal's value where the GPU does not tell it
	heldLonger     = 2 * time.Minute    // an allocation ends a little before or after its processes do
)

// The causes of rule unallocated_compute.
const unallocatedCause = "unallocated"

// Unallocated watches for GPUs that compute steadily and were given to nobody.
type Unallocated struct {
	cfg   UnallocatedConfig
	gpus  map[string]*steadiness
	given time.Time // when any GPU of the node was last seen to be given to somebody
	now   time.Time
}

// steadiness is what is kept of one GPU: the means of the last minutes.
type steadiness struct {
	Minute  int64                                 `json:"minute"`
	Since   time.Time                             `json:"since"`         // it is given to nobody
	Busy    time.Time                             `json:"busy,omitzero"` // it computes steadily
	At      time.Time                             `json:"at"`            // of the newest reading
	Sum     [steadySignals]float64                `json:"sum"`           // of this minute
	Count   int                                   `json:"count"`
	Means   [steadyMinutes][steadySignals]float64 `json:"means"` // of the minutes before, oldest at Next
	Next    int                                   `json:"next"`
	Minutes int                                   `json:"minutes"` // known in a row

	told   Evidence
	toldAt time.Time
}

// The signals whose steadiness is looked at.
const (
	computeSignal = iota
	powerSignal
	memorySignal
	steadySignals
)

// NewUnallocated returns the detector of rule unallocated_compute.
func NewUnallocated(cfg UnallocatedConfig) *Unallocated {
	return &Unallocated{cfg: cfg, gpus: map[string]*steadiness{}}
}

// Rule returns unallocated_compute.
func (d *Unallocated) Rule() *rules.Rule { return rules.Get(rules.IDUnallocated) }

// Observe judges the GPUs while it is known who was given what, and only where a
// scheduler gives GPUs away.
func (d *Unallocated) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	if s.Node.Value(metric.AllocationsKnown) != 1 || s.Node.Value(metric.AllocationsUnresolved) > 0 {
		return
	}
	for i := range s.GPUs {
		if given(s, &s.GPUs[i]) {
			d.given = s.Time
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if !g.Answers() {
			continue
		}
		st := d.gpus[g.UUID]
		if st == nil {
			st = &steadiness{Since: s.Time}
			d.gpus[g.UUID] = st
		}
		if given(s, g) || d.given.IsZero() || s.Time.Sub(d.given) > givenKept || d.allowed(g) {
			*st = steadiness{Since: s.Time}
		} else if at := g.SampledAt(metric.Fast); at.After(st.At) {
			st.read(g, at)
		}
		d.tell(s, g, st, report)
	}
}

// given reports whether the GPU or a part of it was given to somebody.
func given(s *collector.Snapshot, g *collector.GPU) bool {
	if len(g.Allocations) > 0 {
		return true
	}
	for i := range s.Instances {
		if m := &s.Instances[i]; m.UUID == g.UUID && len(m.Allocations) > 0 {
			return true
		}
	}
	return false
}

// allowed reports whether all who use the GPU may do so without an allocation.
func (d *Unallocated) allowed(g *collector.GPU) bool {
	for _, o := range g.Owners {
		if !d.allows(o) {
			return false
		}
	}
	return len(g.Owners) > 0
}

func (d *Unallocated) allows(o collector.Owner) bool {
	return slices.ContainsFunc(d.cfg.Allowed, func(a string) bool {
		return len(a) == len(o.Kind)+1+len(o.ID) && a[:len(o.Kind)] == o.Kind && a[len(o.Kind)] == ':' && a[len(o.Kind)+1:] == o.ID
	})
}

func (st *steadiness) read(g *collector.GPU, at time.Time) {
	v := [steadySignals]float64{g.Value(metric.SMActivity), g.Value(metric.PowerDraw), g.Value(metric.MemoryUtilization)}
	if math.IsNaN(v[computeSignal]) {
		v[computeSignal] = g.Value(metric.Utilization)
	}
	if at.Sub(st.At) > sampleGap && !st.At.IsZero() {
		*st = steadiness{Since: st.Since}
	}
	st.At = at
	if minute := minuteOf(at); minute != st.Minute {
		st.close()
		st.Minute = minute
	}
	for i := range v {
		if math.IsNaN(v[i]) {
			v[i] = untold
		}
		st.Sum[i] += v[i]
	}
	st.Count++
}

// close takes up the minute's means.
func (st *steadiness) close() {
	if st.Count == 0 {
		return
	}
	for i := range st.Sum {
		st.Means[st.Next][i] = st.Sum[i] / float64(st.Count)
	}
	st.Next = (st.Next + 1) % steadyMinutes
	st.Minutes = min(st.Minutes+1, steadyMinutes)
	st.Sum, st.Count = [steadySignals]float64{}, 0
}

// steady returns for how many of the last minutes the GPU computed steadily, by all
// signals that are told, and the signals' means.
func (st *steadiness) steady() (minutes int, means [steadySignals]float64) {
	if st.Minutes == 0 {
		return 0, means
	}
	for k := range st.Minutes {
		for i, v := range st.Means[(st.Next-1-k+steadyMinutes)%steadyMinutes] {
			means[i] += v / float64(st.Minutes)
		}
	}
	for k := range st.Minutes {
		m := &st.Means[(st.Next-1-k+steadyMinutes)%steadyMinutes]
		outside := m[computeSignal] < computes || math.Abs(m[computeSignal]-means[computeSignal]) > steadyCompute*means[computeSignal] ||
			m[powerSignal] <= 0 || math.Abs(m[powerSignal]-means[powerSignal]) > steadyPower*means[powerSignal] ||
			math.Abs(m[memorySignal]-means[memorySignal]) > steadyMemory
		if !outside {
			minutes++
		}
	}
	return minutes, means
}

func (d *Unallocated) tell(s *collector.Snapshot, g *collector.GPU, st *steadiness, report func(Observation)) {
	o := Observation{Subject: gpuSubject(g.UUID), Cause: unallocatedCause, GPU: g, Owner: holder(g), Severity: rules.Ticket}
	minutes, means := st.steady()
	o.Score = float64(minutes) / (steadyMinutes - outlierMinutes)
	if s.Time.Sub(st.Since) < steadyMinutes*time.Minute+heldLonger {
		o.Score = min(o.Score, 0.99)
	}
	if o.Score < 1 {
		st.Busy = time.Time{}
	} else {
		if st.Busy.IsZero() {
			st.Busy = s.Time.Add(-steadyMinutes * time.Minute)
		}
		o.At = st.Busy
		if st.toldAt.IsZero() || s.Time.Sub(st.toldAt) >= time.Minute {
			st.told, st.toldAt = unallocatedEvidence(s, g, st, means), s.Time
		}
		o.Evidence = st.told
	}
	report(o)
}

func unallocatedEvidence(s *collector.Snapshot, g *collector.GPU, st *steadiness, means [steadySignals]float64) Evidence {
	want := 0.0
	lasted := s.Time.Sub(st.Busy)
	seen := fmt.Sprintf("given to nobody, and computes steadily for %s, at %s and %.0f W", span(lasted), percentOf(means[computeSignal]), means[powerSignal])
	if means[memorySignal] >= 0 {
		seen += fmt.Sprintf(", its memory busy %s of the time", percentOf(means[memorySignal]))
	}
	n := 0
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UUID == g.UUID && !p.Service() {
			n++
		}
	}
	if n > 0 {
		seen += ", by " + count(n, "process", "processes")
	}
	return Evidence{
		Seen: seen, Expected: "no compute on a GPU that the scheduler has given to nobody",
		Observed: lasted.Seconds(), Want: &want, Confidence: Certain,
		Why: "the scheduler's allocations are known, and " + measuredBy(s),
	}
}

type unallocatedMemory struct {
	Version int                    `json:"version"`
	GPUs    map[string]*steadiness `json:"gpus"`
	Given   time.Time              `json:"given"`
}

// Save returns the last half hour of each GPU, and when any was last given away.
func (d *Unallocated) Save() ([]byte, error) {
	return json.Marshal(unallocatedMemory{Version: 1, GPUs: d.gpus, Given: d.given})
}

// Restore takes up what Save returned.
func (d *Unallocated) Restore(data []byte) error {
	var m unallocatedMemory
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	gpus := map[string]*steadiness{}
	for uuid, st := range m.GPUs {
		if st == nil || st.Next < 0 || st.Next >= steadyMinutes || st.Minutes < 0 || st.Minutes > steadyMinutes || st.Count < 0 {
			return fmt.Errorf("its memory of GPU %s is not complete", uuid)
		}
		gpus[uuid] = st
	}
	d.gpus, d.given = gpus, m.Given
	return nil
}

// Shift moves since when GPUs are nobody's.
func (d *Unallocated) Shift(by time.Duration) {
	shift(by, &d.now, &d.given)
	for _, st := range d.gpus {
		shift(by, &st.Since, &st.Busy, &st.At, &st.toldAt)
		st.Minute += int64(by.Round(time.Minute).Minutes())
	}
}
