package series

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// ahead is by how much a sample may be of later than now: clocks differ.
const ahead = time.Minute

// Snapshots returns a snapshot of each node with GPUs, inference servers or an agent,
// by name, as of now, which is not before the samples so far. A node from which nothing
// has come for the lookback is left out. A page of which nothing new has come is not read
// again: its readings grow old.
func (a *Assembler) Snapshots(now time.Time) []*collector.Snapshot {
	from := now.Add(-a.cfg.Lookback).UnixMilli()
	if now.Sub(a.swept) >= a.cfg.Lookback || now.Before(a.swept) {
		a.sweep(now)
		a.swept = now
	}
	if a.cluster.read(from) || a.aliases.changed {
		a.move()
	}
	a.tally.nodes = [nodeStates]int{}
	a.tally.gpus = 0
	var out []*collector.Snapshot
	nodes := slices.SortedFunc(maps.Values(a.nodes), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	nodes = slices.DeleteFunc(nodes, func(n *node) bool { return !a.mine(n) })
	for _, n := range nodes { // all, before it is known which GPU is where
		for _, s := range n.slots {
			a.read(n, s, now, from)
		}
	}
	for _, n := range nodes {
		if snap := a.snapshot(n, now, from); snap != nil {
			out = append(out, snap)
		}
	}
	a.tally.publish(a)
	return out
}

// read reads what is new of the slot's page.
func (a *Assembler) read(n *node, s *slot, now time.Time, from int64) {
	p := s.elect(a.cfg.Failover)
	if p == nil || p.newest <= s.seen {
		return
	}
	newest := p.freshest(now.Add(ahead).UnixMilli(), from, &a.tally)
	s.seen = p.newest
	if newest == never {
		s.err = "its series have ended"
		return
	}
	at := time.UnixMilli(newest).UTC()
	if s.reader == nil {
		s.reader = a.newReader(n, s)
	}
	s.reader.begin(at)
	err := a.feed(p, s.reader, from)
	var part *collector.Part
	if err == nil {
		part, err = s.reader.end(at)
	}
	if err != nil {
		a.tally.unreadable(s.kind, page.Reason(err))
		s.err = err.Error()
		return
	}
	s.err = ""
	a.settle(n, part, at)
	s.part = part
}

// feed gives the reader the samples of the page that stand.
func (a *Assembler) feed(p *target, r reader, from int64) error {
	for _, set := range p.sets {
		expanded := false
		for _, s := range set.series {
			if !s.live(from) {
				continue
			}
			if !expanded {
				a.expand(set)
			}
			if err := r.sample(s.name.text, a.labels, s.value, expanded); err != nil {
				return err
			}
			expanded = true
		}
	}
	return nil
}

// expand writes the set's labels to a.labels.
func (a *Assembler) expand(s *set) {
	a.labels, a.text = a.labels[:0], a.text[:0]
	for i, v := range s.values {
		begin := len(a.text)
		a.text = append(a.text, v.Value()...)
		a.labels = append(a.labels, exposition.Label{Name: s.schema.names[i], Value: a.text[begin:len(a.text):len(a.text)]})
	}
}

// elect returns the page that is read: the one before until another is newer by more
// than the failover.
func (s *slot) elect(failover time.Duration) *target {
	if len(s.targets) == 1 {
		s.elected = s.targets[0]
		return s.elected
	}
	newest := int64(never)
	for _, p := range s.targets {
		newest = max(newest, p.newest)
	}
	if newest == never {
		return nil
	}
	silent := func(p *target) bool { return p.newest < newest-failover.Milliseconds() }
	if s.elected != nil && !silent(s.elected) {
		return s.elected
	}
	s.elected = nil
	for _, p := range s.targets {
		if !silent(p) && (s.elected == nil || p.key.compare(s.elected.key) < 0) {
			s.elected = p
		}
	}
	return s.elected
}

func (k targetKey) compare(o targetKey) int {
	return cmp.Or(cmp.Compare(k.replica, o.replica), cmp.Compare(k.job, o.job), cmp.Compare(k.instance, o.instance))
}

// freshest returns the time of the newest sample that stands, and drops samples of the
// future, which would keep out all that follow.
func (p *target) freshest(until, from int64, t *tally) int64 {
	newest := int64(never)
	p.newest = never
	for _, set := range p.sets {
		for _, s := range set.series {
			if s.at > until {
				s.at = never
				t.samples[future]++
				continue
			}
			p.newest = max(p.newest, s.at)
			if s.live(from) {
				newest = max(newest, s.at)
			}
		}
	}
	return newest
}

// sources are the names of the sources in snapshots, in their order.
var sources = [kinds]string{"node_exporter", "gpu_exporter", "inference", "agent", "kube_state_metrics"}

// snapshot composes the node's snapshot; nil if there is nothing to say.
func (a *Assembler) snapshot(n *node, now time.Time, from int64) *collector.Snapshot {
	latest, spoken, newest := a.latest(n, from)
	if n.mixer == nil {
		if latest[ofGPUs].Part == nil && latest[ofServer].Part == nil && latest[ofAgent].Part == nil {
			a.tally.nodes[other]++
			return nil
		}
		held := a.cfg.Lookback / 3 // a mixer holds readings for three intervals
		n.mixer = collector.NewMixer(collector.SamplerConfig{Node: n.name, Tiers: [metric.Tiers]time.Duration{held, held, held, held}, Log: a.cfg.Log})
	}
	if newest < from {
		a.tally.nodes[silent]++
		a.say(n, true, time.UnixMilli(newest))
		return nil
	}
	a.say(n, false, now)
	snap := n.mixer.Snapshot(now, latest[:])
	a.leaveOut(n, snap)
	snap.Members, snap.Where = a.cluster.members(snap), a.cluster.where(n)
	if spoken != nil {
		spoken.reader.(*agentReader).tell(snap, spoken.elected.key.instance)
		a.tally.nodes[withAgent]++
	} else {
		a.tally.nodes[fromExporters]++
	}
	a.tally.gpus += len(snap.GPUs)
	n.last = snap
	return snap
}

// latest returns what each source knows of the node, the slot of its agent if it has one
// that lives, and the time of the newest sample. What an agent says stands alone: it looks at
// the same devices, and more closely.
func (a *Assembler) latest(n *node, from int64) (latest [kinds]collector.Latest, agent *slot, newest int64) {
	newest = never
	for k := range latest {
		latest[k].Source = sources[k]
	}
	for _, s := range n.slots {
		if s.part != nil {
			at := s.part.Time.UnixMilli()
			newest = max(newest, at)
			if s.kind == ofAgent && at >= from {
				agent = s
			}
		}
		if s.kind != ofServer {
			latest[s.kind].Part, latest[s.kind].Err = s.part, s.err
		}
	}
	latest[ofServer].Part = n.joinServers(from)
	if agent != nil {
		latest[ofNode], latest[ofGPUs] = collector.Latest{Source: sources[ofNode]}, collector.Latest{Source: sources[ofGPUs]}
		if len(latest[ofAgent].Part.Endpoints) > 0 {
			latest[ofServer].Part = nil
		}
	} else {
		latest[ofCluster].Part = a.cluster.part(n)
	}
	return latest, agent, newest
}

// joinServers returns one part of all the node's inference servers.
func (n *node) joinServers(from int64) *collector.Part {
	var joined *collector.Part
	for _, s := range n.slots {
		if s.kind != ofServer || s.part == nil || s.part.Time.UnixMilli() < from {
			continue
		}
		if joined == nil {
			joined = &collector.Part{}
		}
		if s.part.Time.After(joined.Time) {
			joined.Time = s.part.Time
		}
		joined.Endpoints = append(joined.Endpoints, s.part.Endpoints...)
		joined.Targets = append(joined.Targets, s.part.Targets...)
	}
	if joined != nil && n.servers != nil && joined.Time.Equal(n.servers.Time) && len(joined.Endpoints) == len(n.servers.Endpoints) {
		return n.servers
	}
	n.servers = joined
	return joined
}

// say logs that nothing comes from the node any more, and that something does again.
func (a *Assembler) say(n *node, silent bool, at time.Time) {
	if silent == n.silent {
		return
	}
	n.silent = silent
	if silent {
		a.cfg.Log.Warn("Nothing has come from a node for the lookback: it is left out until something does. Is it down, or not scraped any more?", "node", n.name, "last", at.UTC())
	} else {
		a.cfg.Log.Info("Samples come from a node again.", "node", n.name)
	}
}

// sweep forgets the series that have had no sample for long, and what is left empty.
func (a *Assembler) sweep(now time.Time) {
	from := now.Add(-a.cfg.Forget).UnixMilli()
	old := func(s *set) bool {
		for _, one := range s.series {
			if one.at >= from {
				return false
			}
		}
		a.index.drop(s)
		return true
	}
	for _, n := range a.nodes {
		for _, s := range n.slots {
			for _, p := range s.targets {
				p.sets = slices.DeleteFunc(p.sets, old)
			}
		}
	}
	a.cluster.sets = slices.DeleteFunc(a.cluster.sets, old)
	a.clean()
	maps.DeleteFunc(a.claims, func(_ string, c claim) bool { return c.at < from })
	a.relearn()
}

// relearn finds the nodes of the instances anew: an address may have been given to
// another one.
func (a *Assembler) relearn() {
	before := a.aliases
	a.aliases = newAliases()
	a.aliases.others = before.others
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		for _, s := range a.nodes[name].slots {
			for _, p := range s.targets {
				for _, set := range p.sets {
					if told := a.told(set); told != "" {
						a.aliases.learn(set.value("instance"), told)
					}
				}
			}
		}
	}
	a.aliases.changed = before.changed || !maps.Equal(before.nodes, a.aliases.nodes)
}
