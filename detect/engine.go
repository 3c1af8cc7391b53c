package detect

import (
	"encoding/json"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	defaultMaxFindings = 512

	// longPause between two snapshots means that nobody looked: what was not judged
	// in it has not disappeared.
	longPause = 5 * time.Minute
)

// Setting changes a rule for this engine. What is nil stays as the rule book has it.
type Setting struct {
	For, Hold *time.Duration
	// Severity is what the rule's worst findings get, even above the rule's own
	// limit; lesser ones keep theirs but never exceed it.
	Severity *rules.Severity
	Disabled bool
	// Promoted says that the user has seen enough of the rule to be told from now on,
	// and woken where its severity says so.
	Promoted bool
}

// Config is what an engine can be told. The zero Config works.
type Config struct {
	Node        string       // for findings of snapshots that do not name their node
	Log         *slog.Logger // nil: nothing is logged
	Settings    map[rules.ID]Setting
	MaxFindings int // per rule, pending and firing together; 0 means 512
	Budget      Budget
	NoHistory   bool // readings are not kept for six hours: whoever shows them has them elsewhere
}

// Engine runs detectors over snapshots and owns the life of the findings.
// Observe is called from one goroutine at a time; everything else may be called
// from any.
type Engine struct {
	cfg       Config
	watchers  []*watcher // in the order of the detectors: causes before what they hide
	versions  interface{ VersionChanges() map[string]uint64 }
	judge     *Judge // nil if no detector reads from one
	unjudged  *vm.Counter
	view      atomic.Pointer[View]
	published time.Time // when the view was last rebuilt as a whole

	statistical int // rules that share the alert budget

	mu       sync.Mutex
	snapshot *collector.Snapshot // the one being observed
	now      time.Time           // its time
	turn     uint64              // its number: two may be of the same time
	step     time.Duration       // by how much the clock was set before it
	elapsed  time.Duration       // since the one before, as far as somebody looked
	resumed  time.Time           // since when snapshots have come without a long pause
	changed  bool                // the view has to be rebuilt
	gpus     int                 // the most that were seen
	among    int                 // of how many those are, see Among

	cleanAmong map[rules.ID]float64 // see CleanAmong
	state      nodeState
	events     eventLog
	history    history
	incidents  incidents
	flips      flips
	finished   []Finding                    // resolved in the last day, oldest first
	parked     map[rules.ID]json.RawMessage // state of detectors that do not run now
	records    map[rules.ID]record          // and of their rules
}

// NewEngine returns an engine that runs the detectors in the given order. A rule
// that hides another must come before it. It panics if the detectors contradict
// the rule book, which no configuration can bring about.
func NewEngine(cfg Config, detectors []Detector) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxFindings <= 0 {
		cfg.MaxFindings = defaultMaxFindings
	}
	cfg.Budget.complete()
	e := &Engine{cfg: cfg, unjudged: vm.GetOrCreateCounter(metric.DetectorPanics.Series("verdict"))}
	for _, d := range detectors {
		if v, ok := d.(interface{ VersionChanges() map[string]uint64 }); ok {
			e.versions = v
		}
		if v, ok := d.(judging); ok {
			e.judge = v.Judge()
		}
		if !cfg.Settings[d.Rule().ID].Disabled {
			e.watchers = append(e.watchers, e.newWatcher(d))
		}
	}
	e.link(detectors)
	e.flips = newFlips(e.watchers)
	if !cfg.NoHistory {
		e.history = newHistory(e.watchers)
	}
	e.publish()
	return e
}

// Observe judges a snapshot and returns the incidents that it opened, changed or
// resolved. It must be called with each snapshot, in the order in which they were
// made. Where the clock was set in between, all that is remembered moves with it.
func (e *Engine) Observe(s *collector.Snapshot) []Incident {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.follow(s)
	e.snapshot = s
	e.count(s)
	e.state.look(s)
	e.events.add(s.Events)
	e.history.add(s, e.node())
	e.pass(s)
	for _, w := range e.watchers {
		e.run(w, s)
	}
	e.flip(s)
	for _, w := range e.watchers {
		e.company(w)
		e.settle(w)
	}
	told := e.incidents.settle(e.now)
	e.changed = e.changed || len(told) > 0
	e.publish()
	e.snapshot = nil
	return told
}

// pass lets the judge look, whose verdicts stand also where no rule tells of them.
func (e *Engine) pass(s *collector.Snapshot) {
	if e.judge == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			e.unjudged.Inc()
			e.cfg.Log.Error("the verdicts failed on a snapshot and are those of the one before; please report this as a bug",
				"panic", p, "stack", string(debug.Stack()))
		}
	}()
	if e.judge.Observe(s) {
		e.changed = true
	}
}

// run lets one detector look. What it panics over costs only itself.
func (e *Engine) run(w *watcher, s *collector.Snapshot) {
	began := time.Now() // what looking costs is the one thing measured by the real clock
	defer func() {
		w.seconds.Add(time.Since(began).Seconds())
		if p := recover(); p != nil {
			w.failures.Inc()
			e.cfg.Log.Error("a detector failed on a snapshot and was skipped; please report this as a bug",
				"rule", w.rule.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if c, ok := w.detector.(Clocked); ok && e.step != 0 {
		c.Shift(e.step)
	}
	w.judged = false
	w.detector.Observe(s, w.report)
	if w.judged {
		w.record.watched(e.elapsed, len(s.GPUs))
	}
}

// take accepts one observation of the snapshot being observed.
func (e *Engine) take(w *watcher, o *Observation) {
	if !o.valid() {
		w.dropped.Inc()
		return
	}
	w.judged = true
	if o.Surprise > 0 {
		e.divide(w)
	}
	if w.rule.State {
		e.note(w, o)
	}
	t := w.found[key{o.Subject, o.Cause}]
	if t == nil {
		if o.Score < 1 {
			return
		}
		if t = w.open(o); t == nil {
			w.capped.Inc()
			return
		}
	}
	e.changed = e.changed || o.Score >= 1 || t.State == Firing
	e.weigh(w, t, o)
}

func (o *Observation) valid() bool {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	return finite(o.Score) && o.Score >= 0 && finite(o.Surprise) && o.Surprise >= 0 && finite(o.Evidence.Observed) && (o.Evidence.Want == nil || finite(*o.Evidence.Want)) &&
		o.Subject.Kind != "" && o.Subject.ID != ""
}

func (e *Engine) node() string {
	if e.snapshot != nil && e.snapshot.Node.Name != "" {
		return e.snapshot.Node.Name
	}
	return e.cfg.Node
}
