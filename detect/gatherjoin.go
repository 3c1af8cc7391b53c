package detect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/rules"
)

const (
	togetherMost  = time.Hour      // for which findings that begin one after the other are one event
	rolloutPause  = 2 * time.Hour  // a roll-out goes on as long as a node moves within it
	rolloutMost   = 48 * time.Hour // and is another one after it
	chanceAllowed = 0.1            // of findings of a kind that begin in ten minutes by chance: more, and that two do says nothing
	onsetsMemory  = 7 * 24 * time.Hour
	onsetsKept    = 28 * 24 * time.Hour
	idHour        = time.Hour // to which an incident's beginning counts in its ID
)

type onsetKey struct {
	rule  rules.ID
	cause string
}

// onsets is how often findings of a kind begin in the whole fleet, those of one event
// counted once, with forgetting.
type onsets struct {
	First, At time.Time
	Events    float64
}

func (o *onsets) add(now time.Time) {
	if o.First.IsZero() {
		o.First, o.At = now, now
	}
	o.Events = o.Events*o.keep(now) + 1
	o.At = later(o.At, now)
}

func (o *onsets) keep(now time.Time) float64 {
	return math.Exp2(-max(now.Sub(o.At), 0).Hours() / onsetsMemory.Hours())
}

// expected is how many begin within ten minutes by chance. A day of one is taken for
// known from the start.
func (o *onsets) expected(now time.Time) float64 {
	events, watched := 0.0, 0.0
	if o != nil {
		events = o.Events * o.keep(now)
		watched = onsetsMemory.Hours() / math.Ln2 * (1 - math.Exp2(-max(now.Sub(o.First), 0).Hours()/onsetsMemory.Hours()))
	}
	return (events + 1) / (watched + contextDay.Hours()) * groupWindow.Hours()
}

// join puts what was heard twice into incidents: the worst first, then what began first,
// so that the order in which nodes are heard of does not matter.
func (g *Gatherer) join() {
	var fresh []*gathered
	for _, t := range g.order {
		if !t.joined && t.State == Firing && t.looks > 1 && t.missing.IsZero() {
			fresh = append(fresh, t)
		}
	}
	slices.SortFunc(fresh, func(a, b *gathered) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.ID, b.Subject.ID), cmp.Compare(a.Cause, b.Cause))
	})
	for _, t := range fresh {
		t.joined = true
		g.changed = true
		g.count(t.Rule)
		g.incidents.join(&t.tracked, g.now)
	}
}

// count notes that a finding of a rule was told. Rules that the book does not have are
// those of newer agents: they have no place of their own.
func (g *Gatherer) count(id rules.ID) {
	if rules.Get(id) == nil {
		return
	}
	if g.records[id] == nil {
		g.records[id] = &record{}
	}
	g.records[id].fired(g.now, false)
}

// of returns the incident that a finding belongs to, or nil: that of the fault it follows
// from, of the same node, of the same work, of the same event.
func (g *Gatherer) of(t *tracked) *incident {
	if in := g.flip.takes(t, g.now); in != nil {
		return in
	}
	chance := g.onsets[onsetKey{t.Rule, t.Cause}].expected(g.now)
	for _, belongs := range [...]func(*incident, *tracked) bool{
		g.explains, (*incident).ofNode, g.ofWork,
		func(in *incident, t *tracked) bool { return in.ofEvent(t) && g.beyondChance(t, chance) },
	} {
		for _, in := range slices.Backward(g.incidents.all) {
			if in.Members[0].Simulated == t.Simulated && belongs(in, t) { // what is made up never speaks for what is real
				return in
			}
		}
	}
	g.opened(t)
	return nil
}

// opened counts one more event of the finding's kind.
func (g *Gatherer) opened(t *tracked) {
	k := onsetKey{t.Rule, t.Cause}
	o := g.onsets[k]
	if o == nil {
		o = &onsets{}
		g.onsets[k] = o
	}
	o.add(g.now)
}

// beyondChance reports whether findings of this kind are so rare that two of them at once
// have one cause, or so many of them began at once.
func (g *Gatherer) beyondChance(t *tracked, chance float64) bool {
	if chance <= chanceAllowed {
		return true
	}
	seen := map[string]bool{}
	for _, o := range g.order {
		if o.Rule == t.Rule && o.Cause == t.Cause && near(o.Since, t.Since) {
			seen[o.Node] = true
		}
	}
	n := max(len(g.nodes), len(seen))
	return len(seen) > 1 && stream.BinomialSurprise(len(seen), n, min(chance/float64(n), 1)) >= togetherNats
}

// explains reports whether the finding is about a job that a fault of the incident
// stopped on another node, or the other way round.
func (g *Gatherer) explains(in *incident, t *tracked) bool {
	return slices.ContainsFunc(in.Members, func(f Finding) bool {
		return f.State == Firing && (g.stops(&f, &t.Finding) || g.stops(&t.Finding, &f))
	})
}

// work is what stops as a whole: of a pod that is a rank of a job the job.
func (g *Gatherer) work(s Subject) Subject {
	if job, ok := g.jobs[s]; ok {
		return job
	}
	return s
}

// stops reports whether a finding is the cause of another one, which is about its owner.
func (g *Gatherer) stops(cause, f *Finding) bool {
	r := rules.Get(f.Rule)
	return r != nil && cause.Severity >= rules.Ticket && cause.Owner.Kind != "" &&
		(g.work(ownerSubject(cause.Owner)) == g.work(f.Subject) || r.Work && cause.Owner == f.Owner) &&
		slices.Contains(r.HiddenBy, cause.Rule) && !f.Since.Before(cause.Since.Add(-groupWindow))
}

// ofNode is what an engine groups on one node: findings of one rule and cause, and chains
// on one part of the node.
func (in *incident) ofNode(t *tracked) bool {
	return slices.ContainsFunc(in.Members, func(f Finding) bool {
		if f.Node != t.Node {
			return false
		}
		close := near(t.Since, f.Since) || near(t.Since, f.Fired)
		if f.Rule == t.Rule && f.Cause == t.Cause {
			return f.State == Firing || close
		}
		chained, _ := rules.Chained(t.Rule, t.Cause, f.Rule, f.Cause)
		return chained && close && samePart(&f, &t.Finding)
	})
}

// ofWork reports whether the same job, or another replica of the same model, already is in
// the incident for the same reason.
func (g *Gatherer) ofWork(in *incident, t *tracked) bool {
	if in.State != Firing {
		return false
	}
	model := g.modelOf(&t.Finding)
	return slices.ContainsFunc(in.Members, func(f Finding) bool {
		switch {
		case f.State != Firing:
			return false
		case model != "" && g.modelOf(&f) == model:
			return sameReason(in, t) || allReplicas(&f, &t.Finding)
		}
		return sameReason(in, t) && t.Owner.Kind != "" && g.work(ownerSubject(f.Owner)) == g.work(ownerSubject(t.Owner))
	})
}

func sameReason(in *incident, t *tracked) bool { return in.Rule == t.Rule && in.Cause == t.Cause }

// allReplicas reports whether one of the findings is of all replicas of a model, and the
// other of one of them.
func allReplicas(a, b *Finding) bool {
	queues := func(f *Finding) bool { return f.Rule == rules.IDQueueing || f.Rule == rules.IDSaturatedGPU }
	return queues(a) && queues(b) && (a.Cause == causeAllReplicas || b.Cause == causeAllReplicas)
}

// serves notes which model is served on the GPU that a finding is about.
func (g *Gatherer) serves(s *collector.Snapshot, f *Finding) {
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; f.Subject.Kind == "gpu" && e.Model != "" && slices.Contains(e.GPUs, f.Subject.ID) {
			g.models[f.Subject] = e.Engine + "/" + e.Model
		}
	}
}

// modelOf is engine and model of an endpoint, of all replicas of one, and of a GPU that is
// at its limit; empty for anything else.
func (g *Gatherer) modelOf(f *Finding) string {
	switch {
	case f.Subject.Kind == "service":
		return f.Subject.ID
	case f.Rule == rules.IDSaturatedGPU:
		return g.models[f.Subject]
	}
	return modelOf(f.Subject)
}

// modelOf is engine and model of an endpoint, empty for anything else.
func modelOf(s Subject) string {
	if s.Kind != "endpoint" {
		return ""
	}
	_, model, _ := strings.Cut(s.ID, "#")
	if !strings.Contains(model, "/") {
		return ""
	}
	return model
}

// ofEvent reports whether findings of one rule and cause began together on several nodes.
// Versions change one node after the other.
func (in *incident) ofEvent(t *tracked) bool {
	pause, most := groupWindow, togetherMost
	if t.Rule == rules.IDVersionChanged {
		pause, most = rolloutPause, rolloutMost
	}
	return in.Rule == t.Rule && in.Cause == t.Cause && t.Since.Sub(in.lastSince).Abs() <= pause && t.Since.Sub(in.Opened) <= most
}

// headsAcross reports whether a finding is what tells most of the incident.
func headsAcross(t *tracked, in *incident) bool {
	r := rules.Get(in.Rule)
	return r != nil && slices.Contains(r.HiddenBy, t.Rule) || t.Cause == causeAllReplicas && allReplicas(&t.Finding, &in.Members[0])
}

// id names an incident by what it began with and the hour in which that began, so that
// two replicas that see the same call it the same, and so does one that was restarted
// without its state.
func (g *Gatherer) id(t *tracked) string {
	for began := t.Since.UTC().Truncate(idHour); ; began = began.Add(time.Second) {
		sum := sha256.Sum256([]byte(strings.Join([]string{g.cfg.Cluster, t.Node, string(t.Rule), t.Cause, t.Subject.String(), began.Format(time.RFC3339)}, "\x00")))
		id := hex.EncodeToString(sum[:8])
		if !slices.ContainsFunc(g.incidents.all, func(in *incident) bool { return in.ID == id }) {
			return id
		}
	}
}
