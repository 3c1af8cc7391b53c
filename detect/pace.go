package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

// paceLaw is for the logarithm of a step's time: a tenth more is 0.095. What a
// workload tells is a mean of five minutes, so a pause shows for as long.
var paceLaw = stream.RiseLaw{Slack: 0.05, Sigmas: 1.5, Least: 0.08, Limit: 0.4, Clip: 0.3, Young: 30, Memory: 12 * 60}

const (
	paceMost   = 128                // workloads and endpoints whose pace is kept
	paceKept   = 7 * 24 * time.Hour // without a sign of life
	pacePause  = 0.7                // in logarithms: twice as slow is a pause, not a pace …
	paceHeld   = 20                 // minutes that a regression lasts at least
	pauseMost  = 15                 // minutes; what lasts longer is one
	paceBack   = 0.04               // in logarithms: half of the least rise; a minute nearer to what is usual is no slow one
	paceGap    = 5 * time.Minute    // without a unit of work: what comes then begins anew
	paceNewest = 0.2                // weight of the newest minute in the recent mean
	alikeLoad  = 0.3                // of the usual number of running requests: endpoints are compared at it
	loadMemory = 12 * 60            // minutes
)

// pace is how long a unit of work takes, held against what is usual for whoever does it.
type pace struct {
	Rise    stream.Rise `json:"rise"`
	Signal  int         `json:"signal"` // which of paceSignals it is by
	Seen    time.Time   `json:"seen"`
	Began   time.Time   `json:"began,omitzero"` // when the work slowed down
	Running float64     `json:"running,omitempty"`
	Minutes int         `json:"minutes,omitempty"` // that Running is over
	Held    int         `json:"held,omitempty"`    // minutes in a row above the threshold
	Lag     float64     `json:"lag,omitempty"`     // by how much the last minutes were slower, in logarithms

	at     time.Time
	paused int // minutes in a row that looked like a pause
	mean   meanOf
	load   meanOf
	now    float64 // of the newest minute, in seconds for each unit; NaN if there is none
	tokens float64
	back   bool // the newest minute is as usual, whatever those before it were
}

// paceSignals are what tells the pace of a training, from the best. All but the first
// are rates.
var paceSignals = [...]struct {
	row  *metric.Def
	unit string
}{
	{metric.WorkloadStepTime, "step"}, {metric.WorkloadStepRate, "step"}, {metric.WorkloadSampleRate, "sample"}, {metric.WorkloadTokenRate, "token"},
}

// add takes up what a training tells of itself, unless it stands still: the time of the
// last step says nothing then.
func (p *pace) add(l *collector.Workload) {
	at := l.SampledAt(metric.Slow)
	if at.IsZero() || at.Equal(p.at) {
		return
	}
	p.at = at
	if moved := l.Value(metric.WorkloadProgress); float64(at.Unix())-moved > paceGap.Seconds() {
		return
	}
	for i, sig := range paceSignals {
		x := l.Value(sig.row)
		if !(x > 0) {
			continue
		}
		if i > 0 {
			x = 1 / x
		}
		if i != p.Signal { // it tells something else now: another scale
			*p = pace{Signal: i, at: at, tokens: math.NaN()}
		}
		p.mean.add(x)
		return
	}
}

// serve takes up what an inference server does: how long a token of one request takes.
func (p *pace) serve(e *collector.Endpoint) {
	at, tokens, running := e.SampledAt(metric.Fast), e.Value(metric.GeneratedTokens), e.Value(metric.RequestsRunning)
	if at.IsZero() || at.Equal(p.at) {
		return
	}
	if made, took := tokens-p.tokens, at.Sub(p.at).Seconds(); made > 0 && running >= 1 && took > 0 && took <= sampleGap.Seconds() {
		p.mean.add(took * running / made)
		p.load.add(running)
	}
	p.at, p.tokens = at, tokens
}

// end judges the minute that is over, and reports whether there was anything to judge.
func (p *pace) end(now time.Time) bool {
	load, known := p.load.take(), true
	if p.now = p.mean.take(); math.IsNaN(p.now) {
		return false
	}
	if now.Sub(p.Seen) > paceGap {
		p.restart()
	}
	p.Seen = now
	if !math.IsNaN(load) {
		p.Minutes = min(p.Minutes+1, loadMemory)
		if p.Minutes == 1 {
			p.Running = load
		}
		known = math.Abs(load-p.Running) <= alikeLoad*p.Running
		p.Running += (load - p.Running) / float64(p.Minutes)
	}
	x := math.Log(p.now)
	lag := x - p.Rise.Usual()
	p.back = lag < paceBack
	if p.Rise.Known(&paceLaw) && lag > pacePause {
		p.paused++
	} else {
		p.paused = 0
	}
	if p.pauses() || !known {
		return false
	}
	p.Lag += paceNewest * (lag - p.Lag)
	p.Rise.Add(&paceLaw, x)
	if p.Held++; p.Rise.Score() < 1 {
		p.Held = 0
	}
	switch {
	case p.Rise.Lasting() == 0:
		p.Began = time.Time{}
	case p.Began.IsZero():
		p.Began = now
	}
	return p.Rise.Known(&paceLaw)
}

// restart begins anew, but for what is usual: work that stood still was not slow, and
// what its last steps before and its first ones after tell is that it stood still.
func (p *pace) restart() {
	p.Rise.Restart()
	p.Held, p.Lag, p.paused, p.Began = 0, 0, 0, time.Time{}
}

// score is that of the rise once it has lasted and while it does: one that comes and
// goes is no regression.
func (p *pace) score() float64 {
	if p.Held < paceHeld || p.back || p.pauses() {
		return min(p.Rise.Score(), 0.9)
	}
	return p.Rise.Score()
}

// pauses reports whether the work makes a pause, as for a checkpoint.
func (p *pace) pauses() bool { return p.paused > 0 && p.paused <= pauseMost }

// slower is by which share of the usual time a unit of work takes longer in the newest
// minute.
func (p *pace) slower() float64 { return p.now/p.usual() - 1 }

func (p *pace) usual() float64 { return math.Exp(p.Rise.Usual()) }

func (p *pace) unit() string { return paceSignals[p.Signal].unit }

func (p *pace) shift(by time.Duration) { shift(by, &p.Seen, &p.Began, &p.at) }

// paceBook has those of all workloads, by owner.
type paceBook struct {
	of    map[collector.Owner]*pace
	order []collector.Owner
}

func newPaceBook() paceBook { return paceBook{of: map[collector.Owner]*pace{}} }

// get returns an owner's pace, nil if there is no room for it: what has not been
// seen for a week, or else nothing, gives way.
func (ps *paceBook) get(o collector.Owner, now time.Time) *pace {
	p := ps.of[o]
	if p != nil {
		return p
	}
	if len(ps.order) >= paceMost {
		kept := ps.order[:0]
		for _, o := range ps.order {
			if now.Sub(ps.of[o].Seen) < paceKept {
				kept = append(kept, o)
			} else {
				delete(ps.of, o)
			}
		}
		if ps.order = kept; len(kept) >= paceMost {
			return nil
		}
	}
	p = &pace{now: math.NaN(), tokens: math.NaN()}
	ps.of[o] = p
	ps.order = append(ps.order, o)
	return p
}

type paceOf struct {
	Owner collector.Owner `json:"owner"`
	Pace  *pace           `json:"pace"`
}

func (ps *paceBook) save() []paceOf {
	out := []paceOf{}
	for _, o := range ps.order {
		out = append(out, paceOf{o, ps.of[o]})
	}
	return out
}

func (ps *paceBook) restore(saved []paceOf) {
	*ps = newPaceBook()
	for _, k := range saved {
		p := k.Pace
		if p == nil || p.Signal < 0 || p.Signal >= len(paceSignals) || ps.of[k.Owner] != nil || len(ps.order) >= paceMost {
			continue
		}
		p.now, p.tokens, p.Minutes = math.NaN(), math.NaN(), max(p.Minutes, 0)
		ps.of[k.Owner] = p
		ps.order = append(ps.order, k.Owner)
	}
}
