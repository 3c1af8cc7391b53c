package collector

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// composer merges what the sources know into snapshots, one after the other. It
// belongs to one goroutine.
type composer struct {
	node     string
	tiers    [metric.Tiers]time.Duration
	log      *slog.Logger
	rows     map[metric.Entity][]*metric.Def
	gpus     fleet
	faults   faults
	known    *Known    // from an earlier agent, until the boot time is there
	versions []Version // the last of each component
	last     time.Time // of the snapshot before
	held     bool      // the wall clock is behind last
}

func newComposer(cfg SamplerConfig) composer {
	c := composer{node: cfg.Node, tiers: cfg.Tiers, log: cfg.Log, rows: make(map[metric.Entity][]*metric.Def)}
	for _, e := range []metric.Entity{metric.Node, metric.GPU, metric.Instance, metric.Process, metric.Endpoint} {
		c.rows[e] = metric.Of(e)
	}
	return c
}

// input is one source's part with what tells old readings from new ones.
type input struct {
	*Part
	source   int
	now      time.Time                   // the present in the part's own time
	interval [metric.Tiers]time.Duration // between two readings of a tier
	fresh    bool                        // the part as a whole is not too old
}

// snapshot composes the snapshot of the given time from what each source knows.
func (c *composer) snapshot(now time.Time, views []view) *Snapshot {
	s := &Snapshot{Time: c.clock(now)}
	inputs := make([]input, 0, len(views))
	for i, v := range views {
		s.Sources = append(s.Sources, v.sourceState(s.Time))
		s.Events = append(s.Events, signed(v.events, v.state.Name)...)
		if v.part != nil {
			inputs = append(inputs, c.input(i, v))
		}
	}
	for _, in := range inputs {
		if !in.Boot.IsZero() {
			s.Boot = in.Boot
		}
		s.Simulated = s.Simulated || in.Simulated
	}
	c.recall(s.Boot)
	s.Node = c.mergeNodes(inputs)
	s.Events = c.versionEvents(s.Node.Versions, s.Time, s.Events)
	s.GPUs, s.Events = c.gpus.merge(inputs, c.rows[metric.GPU], s.Events)
	if n := len(c.gpus.list); n > 0 {
		s.Node.Set(metric.GPUsExpected, float64(n))
	}
	c.settleFaults(s, inputs)
	c.mergeLists(s, inputs)
	for i := range s.Events {
		if s.Events[i].Time.IsZero() {
			s.Events[i].Time = s.Time
		}
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return s
}

// clock returns the snapshot's time, which does not go back: detectors measure by
// it. While the wall clock is behind, the time stands still.
func (c *composer) clock(now time.Time) time.Time {
	if !now.Before(c.last) {
		c.last, c.held = now, false
		return now
	}
	if !c.held {
		c.held = true
		c.log.Warn("the clock went back: snapshots keep the time that they had until it has caught up",
			"clock", now, "snapshot", c.last, "behind", c.last.Sub(now))
	}
	return c.last
}

func (v view) sourceState(now time.Time) SourceState {
	st := v.state
	if v.sinceOK >= 0 {
		st.Last = now.Add(-v.sinceOK)
	}
	return st
}

func (c *composer) input(source int, v view) input {
	in := input{Part: v.part, source: source, now: v.part.Time.Add(v.age)}
	for t, d := range c.tiers {
		in.interval[t] = max(d, v.interval)
	}
	in.fresh = v.age <= 3*in.interval[metric.Fast]
	return in
}

func (c *composer) mergeNodes(inputs []input) Node {
	n := Node{Name: c.node, Readings: NewReadings(metric.Node)}
	for _, in := range inputs {
		if c.node == "" && in.Node.Name != "" {
			n.Name = in.Node.Name
		}
		n.Readings.overlay(in.Node.Readings.Expire(c.rows[metric.Node], in.now, in.interval))
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

	s.Processes = mergeEntities(inputs, c.rows[metric.Process], processes)
	for i := range s.Processes {
		c.gpus.index(s.Processes[i].UUID, &s.Processes[i].GPU)
	}
	slices.SortStableFunc(s.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.PID, b.PID))
	})

	s.Endpoints = mergeEntities(inputs, c.rows[metric.Endpoint], endpoints)
	slices.SortStableFunc(s.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.Model, b.Model))
	})
}
