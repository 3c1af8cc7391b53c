package ledger

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

const (
	busySM     = 0.05 // at or above, the SMs work
	busyMargin = 0.1  // of the power limit above the power at rest: something works
	atRest     = 0.01 // utilization at or below which power is that of rest
	// restShare is taken for the power at rest, as a share of the limit, until that
	// is known and where utilization is not told: published are 16 to 27 %.
	restShare = 0.3
)

// BusyMeans is what counts as busy, for people who read a report.
func BusyMeans() string {
	return fmt.Sprintf("SM activity of %.0f %% or more; where the GPU does not tell it, power above that of rest with a context open "+
		"by more than %.0f %% of its limit, and until the power at rest is known, utilization of %.0f %% or more", 100*busySM, 100*busyMargin, 100*busySM)
}

// ownerSource is the name of the source of owners.
const ownerSource = "owner"

// part is a share of a GPU's time.
type part struct {
	weight uint64
	owner  collector.Owner
	state  cost.State
	shares []part // of this part; nil: it is one
}

// unseen is the whole time if nobody knows what it was.
var unseen = []part{{weight: 1, state: cost.Unobserved}}

// timed is a part with its time.
type timed struct {
	owner collector.Owner
	state cost.State
	ns    int64
}

// divide gives each part its time; that of all sums to elapsed.
func divide(elapsed int64, parts []part) []timed {
	var out []timed
	for i, ns := range cost.Split(elapsed, weights(parts)) {
		switch p := parts[i]; {
		case ns == 0:
		case p.shares != nil:
			out = append(out, divide(ns, p.shares)...)
		default:
			out = append(out, timed{p.owner, p.state, ns})
		}
	}
	return out
}

func weights(parts []part) []uint64 {
	w := make([]uint64, len(parts))
	for i, p := range parts {
		w[i] = p.weight
	}
	return w
}

// evidence is what a snapshot says of all GPUs together.
type evidence struct {
	s         *collector.Snapshot
	interval  time.Duration // between snapshots
	given     bool          // it is known who was given what, or nobody is asked
	drained   bool
	processes map[string][]*collector.Process // by GPU, without services
	services  map[string][]collector.Owner    // whose they are, by GPU
}

func newEvidence(s *collector.Snapshot) *evidence {
	e := &evidence{s: s, given: true, drained: s.Node.Value(metric.Drained) == 1,
		processes: map[string][]*collector.Process{}, services: map[string][]collector.Owner{}}
	for _, src := range s.Sources {
		if src.Interval > 0 && (e.interval == 0 || src.Interval < e.interval) {
			e.interval = src.Interval
		}
		if src.Name == ownerSource {
			e.given = s.Node.Value(metric.AllocationsKnown) == 1
		}
	}
	if e.interval == 0 {
		e.interval = time.Second
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if at := p.UUID + p.MIG; p.Service() {
			e.services[at] = append(e.services[at], p.Owner)
		} else {
			e.processes[at] = append(e.processes[at], p)
		}
	}
	return e
}

// named returns those owners whom a source named itself, without those who only run
// a service there.
func (e *evidence) named(owners []collector.Owner, at string) []collector.Owner {
	if len(e.services[at]) == 0 {
		return owners
	}
	return slices.DeleteFunc(slices.Clone(owners), func(o collector.Owner) bool { return slices.Contains(e.services[at], o) })
}

// slot is what can be given to somebody: a whole GPU or an instance of one.
type slot struct {
	given    []collector.Allocation
	named    []collector.Owner // whom a source named itself
	users    []*collector.Process
	listed   bool // there is a fresh list of its processes
	open     bool // somebody has a context on it
	working  bool
	measured bool // whether it works is known
}

// parts says whose the GPU is now and what it is to him.
func (e *evidence) parts(g *collector.GPU, st *gpu) []part {
	present := g.Value(metric.GPUPresent)
	switch {
	case math.IsNaN(present), present == 0 && e.s.GPUPage() != nil: // an exporter's page that leaves it out does not say why
		return unseen
	case present == 0 || g.Hung:
		return []part{{weight: 1, state: cost.Unavailable}}
	case !g.MIG:
		s := slot{given: g.Allocations, named: e.named(g.Owners, g.UUID), users: e.processes[g.UUID], listed: g.Has(metric.ProcessCount)}
		s.open = len(s.users) > 0 || g.Value(metric.ProcessCount) > float64(len(e.services[g.UUID]))
		s.working, s.measured = st.working(g)
		return e.judge(g, s)
	}
	var out []part
	left := slicesIn(g.Model)
	for i := range e.s.Instances {
		m := &e.s.Instances[i]
		if m.UUID != g.UUID {
			continue
		}
		n := slicesOf(m.Profile)
		left -= min(n, left)
		out = append(out, part{weight: n, shares: e.judge(g, e.instance(g, m, st))})
	}
	if left > 0 { // what is no part of an instance, nobody can have a context on
		out = append(out, part{weight: left, shares: e.judge(g, slot{listed: true})})
	}
	return out
}

// instance is a MIG instance. Where the driver does not tell its activity, the power
// of the GPU speaks for all instances that have a context open.
func (e *evidence) instance(g *collector.GPU, m *collector.Instance, st *gpu) slot {
	at := g.UUID + m.MIG()
	s := slot{given: m.Allocations, named: e.named(m.Owners, at), users: e.processes[at], listed: m.Has(metric.MIGProcesses)}
	s.open = len(s.users) > 0 || m.Value(metric.MIGProcesses) > float64(len(e.services[at]))
	if sm := m.Value(metric.MIGSMActivity); !math.IsNaN(sm) {
		s.working, s.measured = sm >= busySM, true
	} else if s.open {
		s.working, s.measured = st.working(g)
	}
	return s
}

// judge says what a slot is, and to whom.
func (e *evidence) judge(g *collector.GPU, s slot) []part {
	switch {
	case s.working:
		return s.used(cost.Busy)
	case s.open && s.measured:
		return s.used(cost.IdleHeld)
	case s.open || !s.listed:
		return unseen
	case e.drained || broken(g):
		return []part{{weight: 1, state: cost.Unavailable}}
	case len(s.given) > 0 || len(s.named) > 0:
		return s.held(cost.HeldWithoutProcess)
	case !e.given:
		return unseen
	}
	return []part{{weight: 1, state: cost.Free}}
}

// broken reports whether nobody can be given the GPU before it is reset or replaced.
// What already runs on it may go on.
func broken(g *collector.GPU) bool {
	switch g.Value(metric.RecoveryAction) {
	case 1, 2, 4, 6, 7: // reset, reboot, drain and reset, reset the bus, reboot the system
		return true
	}
	return g.Value(metric.RemapFailed) == 1
}

// working reports whether the GPU works, and whether that is known.
func (st *gpu) working(g *collector.GPU) (working, known bool) {
	if sm := g.Value(metric.SMActivity); !math.IsNaN(sm) {
		return sm >= busySM, true
	}
	power, limit, util := g.Value(metric.PowerDraw), g.Value(metric.PowerLimit), g.Value(metric.Utilization)
	readable := power >= 0 && limit > 0
	switch {
	case readable && st.Rest != nil && st.Rest.Weight() >= restKnown.Seconds():
		return power > st.Rest.Typical(restQuantile)+busyMargin*limit, true
	case !math.IsNaN(util):
		return util >= busySM, true
	case readable:
		return power > (restShare+busyMargin)*limit, true
	}
	return false, false
}

// learn takes up the power at rest of a GPU that does not tell its SM activity.
func (st *gpu) learn(g *collector.GPU, e *evidence, elapsed time.Duration) {
	power := g.Value(metric.PowerDraw)
	if g.Has(metric.SMActivity) || !(power > 0) || !(g.Value(metric.ProcessCount) > float64(len(e.services[g.UUID]))) {
		return
	}
	util := g.Value(metric.Utilization)
	if util > atRest || math.IsNaN(util) && !(power <= restShare*g.Value(metric.PowerLimit)) {
		return
	}
	if st.Rest == nil {
		st.Rest = stream.NewHistogram(restHalfLife)
	}
	st.Rest.Add(e.s.Time, power, elapsed.Seconds())
}

// slicesIn is into how many compute slices a GPU of the model can be cut.
func slicesIn(model string) uint64 {
	for _, four := range []string{"NVIDIA A30", "NVIDIA RTX PRO"} {
		if strings.HasPrefix(model, four) {
			return 4
		}
	}
	return 7
}

var profileSlices = regexp.MustCompile(`^(?:(\d)c\.)?(\d)g\.`)

// slicesOf is how many compute slices an instance of the profile has; one if the
// profile says nothing of it.
func slicesOf(profile string) uint64 {
	m := profileSlices.FindStringSubmatch(profile)
	if m == nil {
		return 1
	}
	digits := m[2]
	if m[1] != "" {
		digits = m[1]
	}
	n, _ := strconv.ParseUint(digits, 10, 8) // one digit
	return max(n, 1)
}
