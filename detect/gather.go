package detect

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const (
	maxGathered          = 20_000           // findings of all nodes
	maxGatheredIncidents = 2_048            // open and of the last day
	maxMembers           = 1_024            // of one incident
	missingFor           = time.Minute      // a finding that a node no longer tells of is over after it
	nodeKept             = 24 * time.Hour   // without a word of it, after which nothing is known of a node
	nodeKnown            = 15 * time.Minute // of looking at a node, before what it begins to tell is news
)

// GathererConfig is what a Gatherer can be told. The zero value works.
type GathererConfig struct {
	Cluster string       // its name: a part of the incidents' IDs
	Log     *slog.Logger // nil: nothing is logged
}

// Heard is what is known of one node at one look: by its agent, or by the engine that
// judges it here.
type Heard struct {
	Node     string
	Snapshot *collector.Snapshot // of the node; nil for what is no node
	Findings []Finding           // those that fire count; what is not here is over
	Young    bool                // who judges it has just begun: what it does not say may still be so
	Labels   []collector.Label   // what the node has in common with others, perhaps: its rack
}

// Gatherer makes incidents of the findings of many nodes: one for each cause, however many
// nodes it shows on. Like an engine it knows no time but that of what it is given. It is
// used from one goroutine; View may be called from any.
type Gatherer struct {
	cfg       GathererConfig
	now       time.Time
	turn      uint64
	nodes     map[string]*heardNode
	findings  map[gatherKey]*gathered
	order     []*gathered // as they were first heard
	incidents incidents
	finished  []Finding
	onsets    map[onsetKey]*onsets
	records   map[rules.ID]*record // how often each rule was told of
	flip      *flip                // findings of many nodes that began at once
	changed   bool
	published time.Time // when the incidents in the view were made
	view      atomic.Pointer[View]
	capped    map[rules.ID]*vm.Counter
	jobs      map[Subject]Subject // of which job a pod is, as the newest look has it
	models    map[Subject]string  // which model a GPU that is at its limit serves, likewise
}

// gatherKey identifies a finding among those of all nodes.
type gatherKey struct {
	node string
	rule rules.ID
	key
}

// heardNode is what is remembered of a node.
type heardNode struct {
	Since, Last time.Time // when it was first and last heard of
	turn        uint64
	whole       bool // it is no node, but what is found of several
	pool        string
	versions    []collector.Version
	labels      []collector.Label
}

// gathered is a finding of a node with its place in an incident.
type gathered struct {
	tracked
	source  string    // who told of it last
	first   time.Time // when it was first heard
	news    bool      // its node had been known for long enough then
	missing time.Time // since when its node does not tell of it
	joined  bool
	looks   int // how often it was heard
}

// NewGatherer returns a Gatherer that has heard nothing.
func NewGatherer(cfg GathererConfig) *Gatherer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gatherer{cfg: cfg, nodes: map[string]*heardNode{}, findings: map[gatherKey]*gathered{}, onsets: map[onsetKey]*onsets{}, records: map[rules.ID]*record{}, jobs: map[Subject]Subject{}, models: map[Subject]string{}, capped: map[rules.ID]*vm.Counter{}}
	g.incidents.across = g
	g.view.Store(&View{})
	return g
}

// View returns the newest view, of findings and incidents alone; it is never nil.
func (g *Gatherer) View() *View { return g.view.Load() }

// Gather takes up what is known of each node and returns the incidents that it opened,
// changed or resolved. A node that is missing keeps its findings until they expire.
//
// A finding is told at the second look that has it, so that what many nodes begin to say
// at once is seen as that before anybody is told of a part of it.
func (g *Gatherer) Gather(now time.Time, heard []Heard) []Incident {
	g.now = now
	g.turn++
	clear(g.jobs)
	clear(g.models)
	for i := range heard {
		if s := heard[i].Snapshot; s != nil {
			for _, m := range s.Members {
				g.jobs[ownerSubject(m.Owner)] = ownerSubject(m.Job)
			}
		}
		g.hear(&heard[i])
	}
	g.end()
	g.watchFlip()
	g.join()
	told := g.incidents.settle(now)
	g.describe(told)
	g.publish(len(told) > 0)
	g.forget()
	return told
}

// hear takes up what one node says.
func (g *Gatherer) hear(h *Heard) {
	n := g.nodes[h.Node]
	if n == nil {
		n = &heardNode{Since: g.now}
		g.nodes[h.Node] = n
	}
	n.Last, n.turn, n.labels = g.now, g.turn, h.Labels
	if n.whole = h.Snapshot == nil; !n.whole {
		n.pool, n.versions = PoolOf(h.Snapshot), h.Snapshot.Node.Versions
	}
	for i := range h.Findings {
		f := &h.Findings[i]
		if f.State != Firing {
			continue
		}
		if f.Node == "" {
			f.Node = h.Node
		}
		if f.Rule == rules.IDSaturatedGPU && h.Snapshot != nil {
			g.serves(h.Snapshot, f)
		}
		k := gatherKey{f.Node, f.Rule, key{f.Subject, f.Cause}}
		t := g.findings[k]
		if t == nil {
			if len(g.findings) >= maxGathered {
				g.cap(f.Rule)
				continue
			}
			t = &gathered{first: g.now, news: g.now.Sub(n.Since) >= nodeKnown}
			g.findings[k] = t
			g.order = append(g.order, t)
			g.changed = true
		}
		t.hear(f, h, g)
	}
	if h.Young {
		for _, t := range g.order {
			if t.source == h.Node && t.turn != g.turn {
				t.turn, t.missing = g.turn, time.Time{}
			}
		}
	}
}

// hear takes up a finding as it is now. Its severity never falls, and the evidence that
// an agent gave is not taken back because it could not be asked again.
func (t *gathered) hear(f *Finding, h *Heard, g *Gatherer) {
	severity, evidence := t.Severity, t.Evidence
	worded := t.looks > 0 && toldOnly(&f.Evidence) && !toldOnly(&evidence)
	news := t.joined && toldOnly(&evidence) && !toldOnly(&f.Evidence)
	before := t.Before
	t.Finding = *f
	if worded {
		t.Evidence, t.Before = evidence, before
	}
	if t.Severity < severity {
		t.Severity = severity
	}
	t.worse = t.joined && (t.Severity > severity || news)
	if t.turn != g.turn {
		t.looks++
	}
	t.source, t.turn, t.missing = h.Node, g.turn, time.Time{}
	if t.worse {
		g.incidents.touch(&t.tracked, g.now)
	}
}

// toldOnly reports whether the evidence is made of an agent's numbers alone.
func toldOnly(e *Evidence) bool { return e.Why == toldWhy }

// end resolves what the nodes no longer say, and what has not been heard of for long.
func (g *Gatherer) end() {
	kept := g.order[:0]
	for _, t := range g.order {
		n := g.nodes[t.source]
		switch {
		case t.turn == g.turn:
		case n != nil && n.turn == g.turn && t.missing.IsZero():
			t.missing = g.now
		case n != nil && n.turn == g.turn && g.now.Sub(t.missing) >= missingFor:
			g.resolve(t, "cleared")
		case g.now.Sub(t.LastSeen) > expiry(t.Rule) && (n == nil || n.turn != g.turn):
			g.resolve(t, "expired")
		}
		if t.State == Firing {
			kept = append(kept, t)
		}
	}
	clear(g.order[len(kept):])
	g.order = kept
}

// expiry is for how long a finding stands of which nothing is heard any more.
func expiry(id rules.ID) time.Duration {
	if r := rules.Get(id); r != nil {
		return max(3*r.Hold, minExpiry)
	}
	return minExpiry
}

func (g *Gatherer) resolve(t *gathered, why string) {
	t.State, t.Resolved, t.Ended, t.ended = Resolved, g.now, why, g.now
	delete(g.findings, gatherKey{t.Node, t.Rule, key{t.Subject, t.Cause}})
	g.changed = true
	if t.joined {
		g.incidents.touch(&t.tracked, g.now)
		g.finished = append(g.finished, t.Finding)
	}
}

// cap counts a finding for which there is no room.
func (g *Gatherer) cap(id rules.ID) {
	if rules.Get(id) == nil {
		id = "other" // a label of another process
	}
	c := g.capped[id]
	if c == nil {
		c = vm.GetOrCreateCounter(metric.FindingsCapped.Series(string(id)))
		g.capped[id] = c
	}
	c.Inc()
}

// standings tells how often each rule was told of in the last seven days.
func (g *Gatherer) standings() []Standing {
	var out []Standing
	for _, id := range slices.Sorted(maps.Keys(g.records)) {
		if n := g.records[id].firedSince(epochDay(g.now) - lastWeek + 1); n > 0 {
			out = append(out, Standing{Rule: id, Fired: n})
		}
	}
	return out
}

// forget drops nodes of which nothing has been heard for long.
func (g *Gatherer) forget() {
	for name, n := range g.nodes {
		if g.now.Sub(n.Last) > nodeKept {
			delete(g.nodes, name)
		}
	}
	for k, o := range g.onsets {
		if g.now.Sub(o.At) > onsetsKept {
			delete(g.onsets, k)
		}
	}
}

// publish makes the view.
func (g *Gatherer) publish(told bool) {
	v := &View{Time: g.now, Standings: g.standings()}
	drop := max(len(g.finished)-maxFinished, 0)
	for drop < len(g.finished) && g.now.Sub(g.finished[drop].Resolved) >= keepResolved {
		drop++
	}
	g.finished = slices.Delete(g.finished, 0, drop)
	for _, t := range g.order {
		v.Findings = append(v.Findings, t.Finding)
		if in := t.incident; in != nil && t.member >= 0 {
			in.Members[t.member] = t.Finding
		}
	}
	v.Findings = append(v.Findings, g.finished...)
	slices.SortStableFunc(v.Findings, byUrgency)
	old := g.view.Load()
	if !told && !g.changed && g.now.Sub(g.published) < refresh {
		v.Incidents = old.Incidents
	} else {
		for _, in := range slices.Backward(g.incidents.all) {
			v.Incidents = append(v.Incidents, in.export())
		}
		g.describe(v.Incidents)
		slices.SortStableFunc(v.Incidents, func(a, b Incident) int {
			return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(b.Severity, a.Severity), b.Opened.Compare(a.Opened))
		})
		g.changed, g.published = false, g.now
	}
	g.view.Store(v)
}
