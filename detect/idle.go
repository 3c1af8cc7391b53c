package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// IdleConfig is what the detector of idle GPUs can be told. Zero fields take the
// defaults.
type IdleConfig struct {
	Training time.Duration // a GPU of a batch job may be idle for so long; 20 min
	Notebook time.Duration // a GPU of a notebook; 2 h
	Other    time.Duration // any other; 30 min

	TicketGPUHours float64       // idle GPU-hours of one holder in a day that make it a ticket; 8
	TicketCost     float64       // or what they cost, in units of the currency; 50
	ReserveFor     time.Duration // an endpoint that had traffic within it is kept in reserve; 24 h
}

const (
	idleUtilization = 0.05 // at or above, the GPU works
	idleShare       = 0.05 // of the time in which it may work and still be idle: its p95 is below
	resting         = 0.01 // at or below, the power is that of an idle GPU with its contexts
	workingMargin   = 0.1  // of the power limit above that: something works that utilization does not show
	backAtWork      = 2 * time.Minute
	powerHalfLife   = 7 * 24 * time.Hour
	powerKnown      = 10 * time.Minute
)

// Idle watches for GPUs that somebody holds, by a process with a context or by an
// allocation, and does not use.
type Idle struct {
	cfg       IdleConfig
	gpus      map[string]*idleState
	endpoints map[collector.EndpointKey]*traffic
	ledger    *ledger
	listedAt  time.Time // of the newest process list
	now       time.Time
}

// idleState is what is kept of one GPU. Its exported fields survive a restart.
type idleState struct {
	Busy    *stream.Mean      `json:"busy"`     // share of time at work
	Power   *stream.Histogram `json:"power"`    // while resting with a context open
	Holder  collector.Owner   `json:"holder"`   //
	Since   time.Time         `json:"since"`    // held by the holder, or last at work
	Idle    bool              `json:"idle"`     //
	At      time.Time         `json:"at"`       // of the newest reading
	Booked  time.Time         `json:"booked"`   // up to then its idle time is in the ledger
	Process bool              `json:"process"`  // a process has a context
	Listed  bool              `json:"listed"`   // it is known whether one has
	Note    bool              `json:"notebook"` // and is a notebook

	listed   int // processes in the newest list, without services
	toldAt   time.Time
	told     Evidence
	severity rules.Severity
}

// NewIdle returns the detector of rule idle_gpu.
func NewIdle(cfg IdleConfig) *Idle {
	if cfg.Training <= 0 {
		cfg.Training = 20 * time.Minute
	}
	if cfg.Notebook <= 0 {
		cfg.Notebook = 2 * time.Hour
	}
	if cfg.Other <= 0 {
		cfg.Other = 30 * time.Minute
	}
	if cfg.TicketGPUHours <= 0 {
		cfg.TicketGPUHours = 8
	}
	if cfg.TicketCost <= 0 {
		cfg.TicketCost = 50
	}
	if cfg.ReserveFor <= 0 {
		cfg.ReserveFor = 24 * time.Hour
	}
	return &Idle{cfg: cfg, gpus: map[string]*idleState{}, endpoints: map[collector.EndpointKey]*traffic{}, ledger: newLedger()}
}

// Rule returns idle_gpu.
func (d *Idle) Rule() *rules.Rule { return rules.Get(rules.IDIdleGPU) }

// Observe judges every GPU that reports its utilization.
func (d *Idle) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	if s.Money != nil {
		d.ledger.in(s.Money.Currency)
	}
	for i := range s.Endpoints {
		d.serve(&s.Endpoints[i])
	}
	d.list(s)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if !g.Answers() || !g.Has(metric.Utilization) {
			continue
		}
		st := d.state(g)
		if at := g.SampledAt(metric.Fast); !at.Equal(st.At) {
			d.sample(s, g, st, at)
		}
		d.tell(s, g, st, report)
	}
}

// sample takes up a GPU's readings and decides whether it is idle.
func (d *Idle) sample(s *collector.Snapshot, g *collector.GPU, st *idleState, at time.Time) {
	util := g.Value(metric.Utilization)
	dt := min(max(at.Sub(st.At), 0), sampleGap)
	if st.At.IsZero() || at.Before(st.Since) {
		dt, st.Since = 0, at
	}
	st.At = at
	st.Busy.Add(at, indicator(util >= idleUtilization || st.working(g)))
	held := st.Process || len(g.Owners) > 0
	if owner := holder(g); !held || owner != st.Holder {
		st.Holder, st.Since, st.Idle = owner, at, false
	}
	if st.Process && util <= resting {
		st.Power.Add(at, g.Value(metric.PowerDraw), dt.Seconds())
	}
	if recent, _ := st.Busy.Over(at, backAtWork); recent > 0.5 {
		st.Since, st.Idle = at, false
	}
	limit := d.limit(g, st)
	share, covered := st.Busy.Over(at, limit)
	quiet := held && at.Sub(st.Since) >= limit && share < idleShare && covered.Seconds() >= float64(minCoverage*limit.Seconds())
	quiet = quiet && !d.reserve(s, g)
	if quiet {
		longest := limit // what led to the finding was idle, too
		if st.Idle {
			longest = dt
		}
		d.ledger.add(st.Holder, later(at.Add(-longest), later(st.Since, st.Booked)), at, s.Money.PriceOf(g.UUID))
		st.Booked = at
	}
	st.Idle = quiet
}

// list takes up the newest process list: which GPUs have one with a context, and
// whether it is a notebook.
func (d *Idle) list(s *collector.Snapshot) {
	newest := time.Time{}
	for i := range s.GPUs {
		newest = later(newest, s.GPUs[i].SampledAt(metric.Processes))
	}
	if newest.Equal(d.listedAt) && !newest.IsZero() {
		return
	}
	d.listedAt = newest
	services := 0
	for i := range s.GPUs {
		st := d.state(&s.GPUs[i])
		st.listed, st.Note = 0, false
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		st := d.gpus[p.UUID]
		switch {
		case st == nil:
		case p.Service():
			services++
		default:
			st.listed++
			st.Note = st.Note || isNotebook(p.Name)
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		st := d.state(g)
		// A count without names is believed, unless services explain it.
		st.Process = st.listed > 0 || services == 0 && g.Value(metric.ProcessCount) > 0
		st.Listed = st.Process || services > 0 || g.Has(metric.ProcessCount)
	}
}

// working reports whether the GPU draws clearly more than it does at rest. It is
// of one reading: single ones prove nothing, the share of them does.
func (st *idleState) working(g *collector.GPU) bool {
	if st.Power.Weight() < powerKnown.Seconds() {
		return false
	}
	margin := g.Value(metric.PowerLimit) * workingMargin
	return g.Value(metric.PowerDraw) > st.Power.Typical(0.05)+margin
}

// limit is how long the GPU's holder may leave it idle.
func (d *Idle) limit(g *collector.GPU, st *idleState) time.Duration {
	switch {
	case ofJob(g):
		return d.cfg.Training
	case st.Note || isNotebook(st.Holder.ID):
		return d.cfg.Notebook
	default:
		return d.cfg.Other
	}
}

func (d *Idle) tell(s *collector.Snapshot, g *collector.GPU, st *idleState, report func(Observation)) {
	o := Observation{Subject: gpuSubject(g.UUID), Cause: st.cause(), GPU: g, Owner: st.Holder}
	if st.Idle {
		limit := d.limit(g, st)
		hours, cost := d.ledger.idle(st.Holder, s.Time)
		o.At = st.Since
		o.Score = max(s.Time.Sub(st.Since).Seconds()/limit.Seconds(), 1)
		o.Severity = rules.Info
		if hours >= d.cfg.TicketGPUHours || cost >= d.cfg.TicketCost {
			o.Severity = rules.Ticket
		}
		if s.Time.Sub(st.toldAt) >= time.Minute || o.Severity != st.severity {
			st.told, st.toldAt, st.severity = d.evidence(s, g, st, limit), s.Time, o.Severity
		}
		o.Evidence = st.told
	}
	report(o)
	for _, other := range []string{idleWithContext, heldWithoutProcess, allocatedIdle} {
		if other != o.Cause { // a GPU cannot be several: what it was before ends
			report(Observation{Subject: o.Subject, Cause: other, GPU: g, Owner: st.Holder})
		}
	}
}

// The causes of rule idle_gpu.
const (
	idleWithContext    = "idle_with_context"    // a process has a context open
	heldWithoutProcess = "held_without_process" // it was given to somebody who has none
	allocatedIdle      = "allocated_idle"       // it was given to somebody, and nobody tells of processes
)

func (st *idleState) cause() string {
	switch {
	case st.Process:
		return idleWithContext
	case st.Listed:
		return heldWithoutProcess
	}
	return allocatedIdle
}

func (d *Idle) evidence(s *collector.Snapshot, g *collector.GPU, st *idleState, limit time.Duration) Evidence {
	lasted := s.Time.Sub(st.Since)
	want := limit.Seconds()
	seen := fmt.Sprintf("GPU under %s busy for %s", percentOf(idleUtilization), span(lasted))
	if watts := g.Value(metric.PowerDraw); !math.IsNaN(watts) {
		seen += fmt.Sprintf(", %.0f W", watts)
		if st.Process && st.Power.Weight() >= powerKnown.Seconds() {
			seen += fmt.Sprintf(" (at rest with a context open about %.0f W)", st.Power.Typical(0.5))
		}
	}
	if st.Process {
		seen += ", held by " + count(max(st.listed, 1), "process", "processes")
		if mem := g.Value(metric.ProcessMemory); mem > 0 {
			seen += " with " + gibibytes(mem)
		}
	} else if st.Listed {
		seen += ", allocated without a process"
	} else {
		seen += ", allocated; whether a process has it open is not known"
	}
	hours, cost := d.ledger.idle(st.Holder, s.Time)
	seen = fmt.Sprintf("%s; its holder left %s GPU-hours idle in 24 h", seen, significant(hours, 2))
	expected := fmt.Sprintf("at work within %s, or released; a ticket from %s idle GPU-hours a day", span(limit), significant(d.cfg.TicketGPUHours, 2))
	if cost > 0 {
		seen += ", for " + amount(cost, d.ledger.currency)
		expected += " or " + amount(d.cfg.TicketCost, d.ledger.currency)
	}
	return Evidence{
		Seen:       seen,
		Expected:   expected,
		Observed:   lasted.Seconds(),
		Want:       &want,
		Confidence: Certain,
		Why:        measuredBy(s),
	}
}

// measuredBy says who measured what is judged.
func measuredBy(s *collector.Snapshot) string {
	if page := s.GPUPage(); page != nil {
		return "measured by " + page.Exporter + " all that time"
	}
	return "measured by the driver all that time"
}

func (d *Idle) state(g *collector.GPU) *idleState {
	st := d.gpus[g.UUID]
	if st == nil {
		st = d.newState()
		d.gpus[g.UUID] = st
	}
	return st
}

func (d *Idle) newState() *idleState {
	longest := max(d.cfg.Training, d.cfg.Notebook, d.cfg.Other)
	return &idleState{Busy: stream.NewMean(longest, 120, sampleGap), Power: stream.NewHistogram(powerHalfLife)}
}
