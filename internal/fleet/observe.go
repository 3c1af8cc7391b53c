package fleet

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

const (
	maxNodes   = 20_000
	nodeGone   = 24 * time.Hour   // without a word of a node, after which nothing is kept of it
	engineKept = 15 * time.Minute // after a node's agent has begun to speak for it
	engineNew  = 30 * time.Minute // for which an engine that remembers nothing is young
	proveEvery = 10 * time.Minute
	clusterID  = "cluster" // that findings of the whole are heard from
)

// node is what is kept of one node. Its engine is used by one worker at a time.
type node struct {
	name   string
	engine *detect.Engine // nil: its agent judges it
	since  time.Time      // when the engine began
	young  bool           // and it remembers nothing
	seen   time.Time      // of the newest snapshot
	last   *collector.Snapshot
	told   time.Time // when its agent last spoke for it

	dirty   bool      // the engine's findings have changed since it was last saved
	saved   time.Time // when it last was
	refused uint64    // findings of its agent that make no sense
}

// watch judges the nodes and the queues, and owns the incidents.
type watch struct {
	mu       sync.Mutex // held by Observe and whoever saves or replaces
	cfg      Config
	nodes    map[string]*node
	across   *detect.Across
	engine   *detect.Engine // of the cluster
	gatherer *detect.Gatherer
	heard    []detect.Heard
	shared   map[string][]collector.Label // what each node has in common with others, as the schedulers say
	ranks    map[string]collector.Owner   // of which job a pod is, as a scheduler says
	gpus     int
	observed time.Time // when Observe last had nodes, by the clock of the process
	state    State     // that is to be written; nil: nothing new
	kept     time.Time // when that was last made

	keptMoney time.Time                 // when what teams spend was, which is much
	began     time.Time                 // of the first look
	proved    time.Time                 // when clean was added up
	clean     map[rules.ID]float64      // history of all engines, in GPU-weeks
	restored  map[string]*detect.Engine // of nodes that have not been seen since the start
	past      *Past                     // that is being looked at; nil: none
	gone      []string                  // nodes whose engines' memory is to be removed

	spent    spending     // what teams spend on all nodes
	versions versionMoves // which versions have changed

	view  atomic.Pointer[View]
	costs observeCosts
}

// observeCosts is what judging costs.
type observeCosts struct {
	looks   atomic.Uint64
	watched atomic.Int64 // time of the newest look at what is watched, in seconds; 0: there was none
	nanos   atomic.Int64
	last    atomic.Int64
	refused atomic.Uint64
}

// configure starts anew with other settings and keeps what is known.
func (w *watch) configure(cfg Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.engine
	w.cfg = cfg
	w.across = detect.NewAcross(cfg.Detect)
	w.engine = detect.NewEngine(detect.Config{Node: clusterID, Log: cfg.Log, Settings: cfg.Rules, Budget: cfg.Budget, NoHistory: true}, w.across.Detectors())
	if old == nil {
		w.gatherer = detect.NewGatherer(detect.GathererConfig{Cluster: cfg.Detect.Cluster, Log: cfg.Log})
		w.nodes, w.restored = map[string]*node{}, map[string]*detect.Engine{}
		w.view.Store(&View{})
		return
	}
	inherit(old, w.engine, cfg)
	for _, n := range w.nodes {
		if n.engine != nil {
			engine := w.newEngine(n.name)
			inherit(n.engine, engine, cfg)
			n.engine = engine
		}
	}
}

func inherit(from, to *detect.Engine, cfg Config) {
	state, err := from.Save()
	if err == nil {
		err = to.Restore(state)
	}
	if err != nil {
		cfg.Log.Error("Findings begin anew with the new configuration.", "err", err)
	}
}

// newEngine returns an engine for a node that nobody else judges. It keeps no history:
// that is where the snapshots come from.
func (w *watch) newEngine(name string) *detect.Engine {
	return detect.NewEngine(detect.Config{Node: name, Log: w.cfg.Log, Settings: w.cfg.Rules, Budget: w.cfg.Budget, NoHistory: true}, detect.Detectors(w.cfg.Nodes))
}

// Observe judges the newest snapshots of all nodes, one for each, and what the schedulers
// said last, and returns the incidents that opened, changed or resolved. It is called with
// times that do not go back. A node that an agent speaks for is not judged again. Of a
// node that is missing what was found stays until it expires.
func (f *Fleet) Observe(now time.Time, nodes []*collector.Snapshot) []detect.Incident {
	began := time.Now()
	w := &f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(nodes) > 0 {
		w.observed = began
	}
	if w.past != nil { // what is comes after what was
		return nil
	}
	s := w.ask(now)
	w.gather(now, nodes)
	w.spent.take(now, nodes)
	s.Money = w.spent.money(now, w.cfg.Budgets)
	w.judge(now)
	told := w.conclude(now, s)
	w.publish(now)
	if len(nodes) > 0 || !w.cfg.Brought {
		w.costs.watched.Store(now.Unix())
	}
	w.keep(now, len(told) > 0)
	f.tell(told)
	w.costs.looks.Add(1)
	took := time.Since(began)
	w.costs.nanos.Add(int64(took))
	w.costs.last.Store(int64(took))
	return told
}

// conclude makes incidents of what was found on all nodes, and of the queues.
func (w *watch) conclude(now time.Time, s *collector.Snapshot) []detect.Incident {
	w.across.Look(now, w.heard)
	w.engine.Among(w.gpus)
	w.engine.Observe(s)
	w.heard = append(w.heard, detect.Heard{Node: clusterID, Findings: firing(w.engine.View(), nil)})
	return w.gatherer.Gather(now, w.heard)
}

// ask takes what the schedulers said last: the queues, and what nodes have in common.
func (w *watch) ask(now time.Time) *collector.Snapshot {
	s := &collector.Snapshot{Time: now}
	w.shared = map[string][]collector.Label{}
	w.ranks = nil
	for _, of := range w.cfg.Schedulers {
		c := of.Latest()
		if c == nil {
			continue
		}
		if !w.cfg.Aside {
			s.Queues = append(s.Queues, queuesOf(of.Name, c)...)
		}
		if len(c.Ranks) > 0 {
			w.ranks = c.Ranks
		}
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.Name != "" && len(n.Shared) > 0 {
				w.shared[n.Name] = n.Shared
			}
		}
	}
	return s
}

// gather finds each snapshot's node, in the order of their names.
func (w *watch) gather(now time.Time, snapshots []*collector.Snapshot) {
	w.heard = w.heard[:0]
	for _, s := range snapshots {
		name := s.Node.Name
		n := w.nodes[name]
		if name == "" || n == nil && len(w.nodes) >= maxNodes {
			w.costs.refused.Add(1)
			continue
		}
		if n == nil {
			// Not all are saved in the same minute.
			n = &node{name: name, since: now, engine: w.restored[name], saved: now.Add(-spread(name))}
			w.nodes[name] = n
			delete(w.restored, name)
		}
		if n.last != nil {
			w.versions.note(now, n.last, s)
		}
		s = w.complete(s)
		n.seen, n.last = now, s
		if s.Agent != nil {
			n.told = now
		}
		w.heard = append(w.heard, detect.Heard{Node: name, Snapshot: s})
	}
	slices.SortStableFunc(w.heard, func(a, b detect.Heard) int { return cmp.Compare(a.Node, b.Node) })
	w.heard = slices.CompactFunc(w.heard, func(a, b detect.Heard) bool { return a.Node == b.Node })
	w.gpus = 0
	for name, n := range w.nodes {
		switch {
		case now.Sub(n.seen) > nodeGone:
			delete(w.nodes, name)
			w.forget(n)
			continue
		case n.last.Agent != nil && n.engine != nil && now.Sub(n.since) > engineKept:
			w.forget(n)
		}
		w.gpus += len(n.last.GPUs)
	}
	w.prove(now)
	if w.began.IsZero() {
		w.began = now
	}
	if len(w.restored) > 0 && now.Sub(w.began) > nodeGone {
		for name := range w.restored {
			w.gone = append(w.gone, name)
		}
		clear(w.restored)
	}
}

// prove adds up what clean history the engines of all nodes have together.
func (w *watch) prove(now time.Time) {
	if age := now.Sub(w.proved); w.clean != nil && age >= 0 && age < proveEvery {
		return
	}
	w.proved, w.clean = now, map[rules.ID]float64{}
	for _, n := range w.nodes {
		if n.engine != nil {
			n.engine.Clean(w.clean)
		}
	}
}

// forget drops what a node's engine remembers.
func (w *watch) forget(n *node) {
	if n.engine != nil {
		n.engine = nil
		w.gone = append(w.gone, n.name)
	}
}

// spread is a part of an hour that goes by the name.
func spread(name string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return time.Duration(h.Sum32()%3600) * time.Second
}

// judge lets as many workers as there are processors look at the nodes. Each node is its
// own, so the order does not matter.
func (w *watch) judge(now time.Time) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(w.heard)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(w.heard); i = int(next.Add(1)) - 1 {
				w.judgeNode(now, &w.heard[i])
			}
		})
	}
	group.Wait()
}

func (w *watch) judgeNode(now time.Time, h *detect.Heard) {
	n := w.nodes[h.Node]
	s := h.Snapshot
	h.Labels = together(w.shared[h.Node], s.Where)
	if s.Agent != nil {
		findings, left := detect.ToldFindings(s)
		n.refused += uint64(left)
		if w.cfg.Evidence != nil {
			w.cfg.Evidence(s, findings)
		}
		h.Findings = findings
		return
	}
	if n.engine == nil {
		n.engine, n.since, n.young = w.newEngine(h.Node), now, true
	}
	n.engine.Among(w.gpus)
	n.engine.CleanAmong(w.clean)
	if s.Time.After(n.engine.View().Time) {
		n.dirty = len(n.engine.Observe(s)) > 0 || n.dirty
	}
	h.Young = n.young && now.Sub(n.since) < engineNew
	h.Findings = firing(n.engine.View(), h.Findings[:0])
}

// together are labels of two sources, each said once.
func together(a, b []collector.Label) []collector.Label {
	if len(a) == 0 {
		return b
	}
	out := slices.Clone(a)
	for _, l := range b {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// firing are the findings of a view that fire and that people are told of.
func firing(v *detect.View, into []detect.Finding) []detect.Finding {
	for i := range v.Findings {
		if f := &v.Findings[i]; f.State == detect.Firing && f.Suppressed == "" {
			into = append(into, *f)
		}
	}
	return into
}

// Watch looks every half minute at what the schedulers said, as long as nobody brings
// snapshots of nodes, until ctx ends.
func (f *Fleet) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.watch.mu.Lock()
			quiet := time.Since(f.watch.observed) > 3*lookEvery
			f.watch.mu.Unlock()
			if quiet {
				f.Observe(now, nil)
			}
		}
	}
}

// lookEvery is how often the detectors look at what the schedulers said last.
const lookEvery = 30 * time.Second

// say logs what a person should hear of.
func (f *Fleet) say(in *detect.Incident) {
	log := f.cfg.Load().Log
	if len(in.Members) == 0 {
		return
	}
	m := &in.Members[0]
	if in.State == detect.Firing {
		log.Warn("Incident: "+m.Title(), "incident", in.ID, "rule", in.Rule, "severity", in.Severity, "node", m.Node, "subject", m.Subject.String(), "cause", in.Cause,
			"findings", len(in.Members)+in.Unlisted, "nodes", max(in.Nodes, 1), "common", in.Common, "since", m.Since, "seen", m.Evidence.Seen, "do", m.Action())
		return
	}
	log.Info("The incident is over.", "incident", in.ID, "rule", in.Rule, "subject", m.Subject.String(), "cause", in.Cause, "why", m.Ended)
}

// View is what is known of the cluster. It is never changed: readers may keep it.
type View struct {
	Time      time.Time
	Simulated bool
	Findings  []detect.Finding  // those that fire, then those of the last day; the worst first
	Incidents []detect.Incident // open, then of the last day; the worst first
	Nodes     []NodeView        // the worst first
	Standings []detect.Standing // how often each rule was told of in the last week

	snapshots map[string]*collector.Snapshot
}

// Snapshot returns the newest snapshot of a node, or nil.
func (v *View) Snapshot(node string) *collector.Snapshot { return v.snapshots[node] }

// NodeView is one node.
type NodeView struct {
	Node     string          `json:"node"`
	State    string          `json:"state"` // NodeJudged, NodeTold, NodeSilent
	GPUs     int             `json:"gpus"`
	Model    string          `json:"model,omitempty"`
	Driver   string          `json:"driver,omitempty"`
	Findings int             `json:"findings"`
	Worst    *rules.Severity `json:"worst,omitempty"` // nil: none fires
	Seen     time.Time       `json:"seen"`
}

// Watched returns the time of the newest look at what is watched: the nodes, or the
// schedulers where nobody brings nodes. It is zero before the first.
func (f *Fleet) Watched() time.Time {
	if at := f.watch.costs.watched.Load(); at > 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// View returns the newest view; it is never nil.
func (f *Fleet) View() *View { return f.watch.view.Load() }

// publish makes the view.
func (w *watch) publish(now time.Time) {
	g := w.gatherer.View()
	v := &View{Time: now, Findings: g.Findings, Incidents: g.Incidents, Standings: g.Standings, Nodes: make([]NodeView, 0, len(w.nodes)), snapshots: make(map[string]*collector.Snapshot, len(w.nodes))}
	type sum struct {
		n     int
		worst rules.Severity
	}
	by := map[string]sum{}
	for i := range g.Findings {
		if m := &g.Findings[i]; m.State == detect.Firing {
			by[m.Node] = sum{by[m.Node].n + 1, max(by[m.Node].worst, m.Severity)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		row := NodeView{Node: name, State: n.state(now), GPUs: len(n.last.GPUs), Seen: n.seen}
		for _, version := range n.last.Node.Versions {
			if version.Component == "driver" {
				row.Driver = version.Value
			}
		}
		if len(n.last.GPUs) > 0 {
			row.Model = n.last.GPUs[0].Model
		}
		if s := by[name]; s.n > 0 {
			row.Findings, row.Worst = s.n, &s.worst
		}
		v.snapshots[name] = n.last
		v.Simulated = v.Simulated || n.last.Simulated
		v.Nodes = append(v.Nodes, row)
	}
	slices.SortStableFunc(v.Nodes, func(a, b NodeView) int {
		return cmp.Or(cmp.Compare(urgency(&b), urgency(&a)), cmp.Compare(b.Findings, a.Findings))
	})
	w.view.Store(v)
}

func urgency(n *NodeView) int {
	switch {
	case n.Worst != nil:
		return 2 + int(*n.Worst)
	case n.State == NodeSilent:
		return 1
	}
	return 0
}

// Who judges a node.
const (
	NodeJudged = "judged" // the role
	NodeTold   = "told"   // its agent
	NodeSilent = "silent" // nobody: nothing is heard of it
)

func (n *node) state(now time.Time) string {
	switch {
	case now.Sub(n.seen) > 3*lookEvery:
		return NodeSilent
	case n.last.Agent != nil:
		return NodeTold
	}
	return NodeJudged
}
