package detect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	slowClock     = 0.92 // of the peers' median clock: at or below, a GPU is slower than they are
	samePower     = 1.02 // times the peers' median: below, it draws no more than they do
	sameLoad      = 0.1  // of utilization or SM activity: within, GPUs do the same
	peersNeeded   = 3
	declaredLimit = 1.0  // watts that a limit may be off what the configuration says
	loweredLimit  = 0.98 // of the board's own limit: below, somebody or something has lowered it
)

// The causes of rule throttled_gpu beside those of slowdownReasons.
const (
	causeLowLimit  = "low_limit"  // the enforced power limit is below the board's own
	causeSlowClock = "slow_clock" // the clock is below that of peers at the same load
)

// ThrottledConfig is what the detector of rule throttled_gpu can be told. The zero value
// works untouched.
type ThrottledConfig struct {
	// PowerLimits are the limits, in watts, that somebody set on purpose. Without any,
	// one below the board's own is information, as nobody has said what is meant.
	PowerLimits []float64
}

// Throttled watches for GPUs whose clocks are held down by what is no part of normal
// work. The software power cap of a GPU at full power is one.
type Throttled struct {
	cfg    ThrottledConfig
	judge  *Judge
	told   map[string]*throttledWords
	clocks []float64 // scratch
	powers []float64
}

// Positions of evidence after those of slowdownReasons.
const (
	atLowLimit = len(slowdownReasons) + iota
	atSlowClock
	throttledCauses
)

// throttledWords are the evidence on one GPU, by cause.
type throttledWords struct {
	at   [throttledCauses]time.Time
	told [throttledCauses]Evidence
}

// NewThrottled returns the detector of rule throttled_gpu, which reads from the judge.
func NewThrottled(cfg ThrottledConfig, j *Judge) *Throttled {
	return &Throttled{cfg: cfg, judge: j, told: map[string]*throttledWords{}}
}

// Judge returns what the detector reads from.
func (d *Throttled) Judge() *Judge { return d.judge }

// Rule returns throttled_gpu.
func (d *Throttled) Rule() *rules.Rule { return rules.Get(rules.IDThrottledGPU) }

// Observe judges every GPU that answers.
func (d *Throttled) Observe(s *collector.Snapshot, report func(Observation)) {
	if !d.judge.fresh {
		return
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		st := d.judge.gpus[g.UUID]
		if st == nil || !g.Answers() {
			continue
		}
		words := d.told[g.UUID]
		if words == nil {
			if len(d.told) >= maxJudged {
				clear(d.told)
			}
			words = &throttledWords{}
			d.told[g.UUID] = words
		}
		for r := range slowdownReasons {
			o := about(g, slowdownReasons[r].cause, st.slow.score(r, s.Time), rules.Ticket)
			if words.due(r, &o, s.Time) {
				words.told[r] = saySlowdown(g, st, r, s.Time)
			}
			words.report(r, &o, report)
		}
		o := about(g, causeLowLimit, d.lowLimit(g), rules.Info)
		if len(d.cfg.PowerLimits) > 0 {
			o.Severity = rules.Ticket
		}
		if words.due(atLowLimit, &o, s.Time) {
			words.told[atLowLimit] = d.sayLowLimit(g)
		}
		words.report(atLowLimit, &o, report)
		clock, peers, power := d.peers(s, g, st)
		o = about(g, causeSlowClock, slowness(clock, peers, power), rules.Ticket)
		if words.due(atSlowClock, &o, s.Time) {
			words.told[atSlowClock] = saySlowClock(clock, peers, len(d.clocks))
		}
		words.report(atSlowClock, &o, report)
	}
}

func about(g *collector.GPU, cause string, score float64, severity rules.Severity) Observation {
	return Observation{Subject: gpuSubject(g.UUID), Cause: cause, Severity: severity, GPU: g, Owner: holder(g), Score: score}
}

// due reports whether the evidence must be put into words anew.
func (w *throttledWords) due(at int, o *Observation, now time.Time) bool {
	if o.Score < 1 || now.Sub(w.at[at]) < wordsEvery {
		return false
	}
	w.at[at] = now
	return true
}

func (w *throttledWords) report(at int, o *Observation, report func(Observation)) {
	if o.Score >= 1 {
		o.Evidence = w.told[at]
	}
	report(*o)
}

// lowLimit returns how far the enforced limit is below the board's own; 1 and above is
// clearly below. One that is declared is not.
func (d *Throttled) lowLimit(g *collector.GPU) float64 {
	limit, own := g.Value(metric.PowerLimit), g.Value(metric.PowerDefaultLimit)
	if !(limit > 0 && own > 0) || slices.ContainsFunc(d.cfg.PowerLimits, func(w float64) bool { return math.Abs(w-limit) <= declaredLimit }) {
		return 0
	}
	return loweredLimit * own / limit
}

// peers returns the mean clock of a GPU over ten minutes, the median of its peers', and
// its power as a share of theirs; NaN if there are too few. Peers are of the same model
// and do the same work, as far as that can be told: for the same holder, as busy.
func (d *Throttled) peers(s *collector.Snapshot, g *collector.GPU, st *judged) (clock, peers, power float64) {
	mean := func(st *judged, i int) float64 { return over(st.mean[i], s.Time, jobWindow, jobWindow*9/10) }
	load := func(st *judged) float64 {
		if sm := mean(st, meanSM); !math.IsNaN(sm) {
			return sm
		}
		return mean(st, meanUtil)
	}
	own := load(st)
	d.clocks, d.powers = d.clocks[:0], d.powers[:0]
	if !(own >= idleUtilization) || len(g.Owners) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	for i := range s.GPUs {
		p := &s.GPUs[i]
		other := d.judge.gpus[p.UUID]
		if p.UUID == g.UUID || other == nil || p.Model != g.Model || holder(p) != holder(g) || math.Abs(load(other)-own) > sameLoad {
			continue
		}
		if c, w := mean(other, meanClock), mean(other, meanPower); !math.IsNaN(c) && !math.IsNaN(w) {
			d.clocks, d.powers = append(d.clocks, c), append(d.powers, w)
		}
	}
	if len(d.clocks) < peersNeeded {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(d.clocks)
	slices.Sort(d.powers)
	return mean(st, meanClock), d.clocks[len(d.clocks)/2], mean(st, meanPower) / d.powers[len(d.powers)/2]
}

// slowness returns how far a clock is below its peers'; 1 is eight per cent, 0 if it is
// not known or bought by power.
func slowness(clock, peers, power float64) float64 {
	if !(clock > 0 && peers > 0 && power < samePower) {
		return 0
	}
	return max(1-clock/peers, 0) / (1 - slowClock)
}

func saySlowdown(g *collector.GPU, st *judged, r int, now time.Time) Evidence {
	share, want := st.slow.share(r, now), slowdownReasons[r].limit
	ev := Evidence{
		Seen:       fmt.Sprintf("%s held the clocks for %s of the last ten minutes", reasonWords[r], percentFine(share)),
		Expected:   "at most " + percentOf(want),
		Observed:   share,
		Want:       &want,
		Confidence: Certain,
		Why:        "reported by the driver",
		Title:      "GPU held down by " + reasonWords[r],
		Action:     reasonActions[r],
	}
	if t := g.Value(metric.Temperature); !math.IsNaN(t) {
		ev.Seen += fmt.Sprintf(", %.0f °C", t)
	}
	if p := g.Value(metric.PowerDraw); !math.IsNaN(p) {
		ev.Seen += fmt.Sprintf(", %.0f W", p)
	}
	return ev
}

// What people call the slowdowns, and what they do about them, in their order.
var (
	reasonWords   = [len(slowdownReasons)]string{"its thermal protection", "the power brake", "the driver's thermal policy", "a hardware slowdown"}
	reasonActions = [len(slowdownReasons)]string{
		"Look at fans, air flow and coolant of the node; the GPU protects itself from damage.",
		"Look at the node's power supplies and the rack's power budget: the board was told to slow down.",
		"Look at inlet temperature, fans and air flow of the node.",
		"Look at temperature and power supply; if neither explains it, have the GPU examined.",
	}
)

func percentFine(share float64) string { return significant(100*share, 2) + " %" }

func (d *Throttled) sayLowLimit(g *collector.GPU) Evidence {
	limit, own := g.Value(metric.PowerLimit), g.Value(metric.PowerDefaultLimit)
	share, want := limit/own, 1.0
	expected := fmt.Sprintf("%.0f W, unless somebody lowered it on purpose", own)
	if len(d.cfg.PowerLimits) > 0 {
		expected = fmt.Sprintf("%.0f W, or one of the limits that the configuration declares", own)
	}
	return Evidence{
		Seen:       fmt.Sprintf("the enforced power limit is %.0f W, the board's own is %.0f W", limit, own),
		Expected:   expected,
		Observed:   share,
		Want:       &want,
		Confidence: Certain,
		Why:        "reported by the driver",
		Title:      "Power limit below the board's own",
		Action:     "Find out who lowered it; nvidia-smi -pl sets it.",
	}
}

func saySlowClock(clock, peers float64, n int) Evidence {
	share, want := clock/peers, slowClock
	return Evidence{
		Seen:       fmt.Sprintf("clock %.0f MHz at the load of %s with %.0f MHz (median), %s slower, at no more power", clock/1e6, count(n, "peer", "peers"), peers/1e6, percentOf(1-share)),
		Expected:   fmt.Sprintf("above %.0f MHz", slowClock*peers/1e6),
		Observed:   share,
		Want:       &want,
		Confidence: VerySure,
		Why:        "means of five minutes of the same model for the same owner",
		Title:      "GPU clocks below its peers",
		Action:     "Compare its clock limits with the peers' (nvidia-smi -q -d CLOCK), then its temperature and power; move the job and reset the GPU.",
	}
}
