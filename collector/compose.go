package collector

import (
	"cmp"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// composer merges what the sources know into snapshots, one after the other. It
// belongs to one goroutine.
type composer struct {
	node       string
	tiers      [metric.Tiers]time.Duration
	rows       map[metric.Entity][]*metric.Def
	gpus       fleet
	faults     faults
	known      *Known    // from an earlier agent, until the boot time is there
	gpusBefore int       // see Snapshot
	versions   []Version // the last of each component
	clock      clock
	deliveries []delivery // by source
}

func newComposer(cfg SamplerConfig) composer {
	c := composer{node: cfg.Node, tiers: cfg.Tiers, clock: clock{log: cfg.Log}, rows: make(map[metric.Entity][]*metric.Def)}
	for _, e := range []metric.Entity{metric.Node, metric.GPU, metric.Instance, metric.Link, metric.Process, metric.Endpoint, metric.Target, metric.Workload, metric.Interface} {
		c.rows[e] = metric.Of(e)
	}
	return c
}

// input is one source's part with what tells old readings from new ones.
type input struct {
	*Part
	source   int
	now      time.Time                   // the present in the part's own time
	shift    time.Duration               // from the part's own time to the snapshot's
	interval [metric.Tiers]time.Duration // between two readings of a tier
	fresh    bool                        // the part as a whole is not too old
	slow     map[string]*GPU             // by uuid, those that the source samples less often than it should
}

// snapshot composes the snapshot of the given time from what each source knows.
// Nothing but the time itself tells how much of it has passed since the one before.
func (c *composer) snapshot(now time.Time, views []view) *Snapshot {
	return c.snapshotAfter(max(0, now.Sub(c.clock.last)), now, views)
}

// snapshotAfter composes a snapshot when so much time has passed since the one
// before and the wall clock shows now.
func (c *composer) snapshotAfter(elapsed time.Duration, now time.Time, views []view) *Snapshot {
	s := &Snapshot{}
	if s.Time, s.Step = c.clock.tick(now, elapsed); s.Step != 0 {
		c.gpus.shift(s.Step)
		c.faults.shift(s.Step)
	}
	inputs := make([]input, 0, len(views))
	for i, v := range views {
		s.Sources = append(s.Sources, v.sourceState(s.Time))
		s.Events = append(s.Events, signed(v.events, v.state.Name)...)
		if v.part != nil {
			inputs = append(inputs, c.input(i, v, s.Step))
		}
	}
	for _, in := range inputs {
		if !in.Boot.IsZero() {
			s.Boot = in.Boot
		}
		if in.BootID != "" {
			s.BootID = in.BootID
		}
		s.Simulated = s.Simulated || in.Simulated
	}
	c.recall(s.Boot, s.BootID)
	s.GPUsBefore = c.gpusBefore
	s.Node = c.mergeNodes(inputs)
	s.Events = c.versionEvents(s.Node.Versions, s.Time, s.Events)
	for i := range s.Events {
		ev := &s.Events[i]
		if ev.Time.IsZero() {
			ev.Time = s.Time
		} else {
			ev.Time = ev.Time.Add(c.clock.stale(ev.Time))
		}
	}
	s.GPUs, s.Events = c.gpus.merge(inputs, c.rows[metric.GPU], s.Events, c.clock.stale)
	if n := len(c.gpus.list); n > 0 {
		s.Node.Set(metric.GPUsExpected, float64(n))
	}
	c.settleFaults(s, inputs)
	c.mergeLists(s, inputs)
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return s
}

func (v view) sourceState(now time.Time) SourceState {
	st := v.state
	if v.sinceOK >= 0 {
		st.Last = now.Add(-v.sinceOK)
	}
	return st
}

func (c *composer) input(source int, v view, step time.Duration) input {
	in := input{Part: v.part, source: source, now: v.part.Time.Add(v.age), shift: c.shift(source, v, step)}
	for t, d := range c.tiers {
		in.interval[t] = max(d, v.interval)
	}
	for i := range v.part.GPUs {
		if g := &v.part.GPUs[i]; slowed(g) {
			if in.slow == nil {
				in.slow = map[string]*GPU{}
			}
			in.slow[g.UUID] = g
		}
	}
	in.fresh = v.age <= 3*in.interval[metric.Fast]
	return in
}

// slowed reports whether a tier of the GPU has a longer interval than it should.
func slowed(g *GPU) bool {
	for t := range metric.Tiers {
		if g.ValueAt(metric.GPUSlowdown, int(t)) > 1 {
			return true
		}
	}
	return false
}

// of returns the input with the intervals at which the GPU is really sampled, so
// that a reading is held until the next one is due.
func (in input) of(uuid string) input {
	if g := in.slow[uuid]; g != nil {
		for t := range metric.Tiers {
			if v := g.ValueAt(metric.GPUSlowdown, int(t)); v > 1 {
				in.interval[t] = time.Duration(float64(in.interval[t]) * min(v, metric.MaxSlowdown))
			}
		}
	}
	return in
}

func (c *composer) mergeNodes(inputs []input) Node {
	n := Node{Name: c.node, Readings: NewReadings(metric.Node)}
	for _, in := range inputs {
		if c.node == "" && in.Node.Name != "" {
			n.Name = in.Node.Name
		}
		n.Readings.overlay(in.current(in.Node.Readings, c.rows[metric.Node]))
		if in.now.Sub(in.Time) <= 3*in.interval[metric.Inventory] {
			n.Versions = overVersions(n.Versions, in.Node.Versions)
		}
	}
	slices.SortFunc(n.Versions, func(a, b Version) int { return cmp.Compare(a.Component, b.Component) })
	return n
}

// overVersions puts the versions of src into dst, in the place of those of the
// same component.
func overVersions(dst, src []Version) []Version {
	for _, v := range src {
		i := slices.IndexFunc(dst, func(o Version) bool { return o.Component == v.Component })
		if i < 0 {
			dst = append(dst, v)
			continue
		}
		dst[i] = v
	}
	return dst
}

func (c *composer) mergeLists(s *Snapshot, inputs []input) {
	s.Instances = mergeEntities(inputs, c.rows[metric.Instance], instances)
	for i := range s.Instances {
		c.gpus.index(s.Instances[i].UUID, &s.Instances[i].GPU)
	}
	slices.SortStableFunc(s.Instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI))
	})

	s.Links = mergeEntities(inputs, c.rows[metric.Link], links)
	for i := range s.Links {
		c.gpus.index(s.Links[i].UUID, &s.Links[i].GPU)
	}
	slices.SortStableFunc(s.Links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Number, b.Number))
	})

	s.Interfaces = mergeEntities(inputs, c.rows[metric.Interface], interfaces)
	slices.SortStableFunc(s.Interfaces, func(a, b Interface) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Port, b.Port))
	})

	s.Processes = mergeEntities(inputs, c.rows[metric.Process], processes)
	for i := range s.Processes {
		c.gpus.index(s.Processes[i].UUID, &s.Processes[i].GPU)
	}
	slices.SortStableFunc(s.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.PID, b.PID))
	})

	s.Endpoints = mergeEntities(inputs, c.rows[metric.Endpoint], endpoints)
	slices.SortStableFunc(s.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Model, b.Model))
	})
	s.Targets = mergeEntities(inputs, c.rows[metric.Target], targets)
	slices.SortStableFunc(s.Targets, func(a, b Target) int { return cmp.Compare(a.URL, b.URL) })

	s.Workloads = mergeEntities(inputs, c.rows[metric.Workload], workloads)
	slices.SortStableFunc(s.Workloads, func(a, b Workload) int { return compareOwners(a.Owner, b.Owner) })

	for _, in := range inputs {
		if in.fresh {
			s.Pages = append(s.Pages, in.Pages...)
		}
		if in.Inventory != nil && in.now.Sub(in.Inventory.At) <= 3*in.interval[metric.Inventory] {
			s.Inventory = in.Inventory
		}
	}
	own(s, inputs)
}
