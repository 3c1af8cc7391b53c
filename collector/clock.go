package collector

import (
	"log/slog"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

const (
	// smallStep is how far the wall clock may be set without anybody being told. So
	// little is corrected now and then, and a time that stands still or runs ahead
	// for a moment hurts no detector.
	smallStep = 5 * time.Second

	// stepGrace is for how long after a step a source may still hand over what it
	// had dated before.
	stepGrace = time.Minute
)

// clock gives snapshots their time. It follows the wall clock, and tells by how
// much that was set from how much time has passed by the monotonic one.
type clock struct {
	log   *slog.Logger
	last  time.Time     // of the snapshot before
	held  bool          // the wall clock is a little behind last
	step  time.Duration // the newest, while something dated before it may come
	since time.Duration // how long ago it was
}

// tick returns the time of the next snapshot, and by how much the clock was set
// since the one before. After a small step back the time stands still until the
// clock has caught up.
func (c *clock) tick(wall time.Time, elapsed time.Duration) (at time.Time, step time.Duration) {
	if c.since += elapsed; c.since > stepGrace {
		c.step = 0
	}
	if c.last.IsZero() {
		c.last = wall
		return wall, 0
	}
	step = wall.Sub(c.last) - elapsed
	switch {
	case step.Abs() > smallStep:
		c.log.Warn("the clock was set: everything that is remembered moves with it, and durations stay as they are",
			"by", step, "to", wall, "from", c.last.Add(elapsed))
		c.step, c.since, c.held = step, 0, false
		c.last = wall
		return wall, step
	case !wall.Before(c.last):
		c.last, c.held = wall, false
		return wall, 0
	}
	if !c.held {
		c.held = true
		c.log.Warn("the clock went back a little: snapshots keep the time that they had until it has caught up",
			"clock", wall, "snapshot", c.last)
	}
	return c.last, 0
}

// stale returns what must be added to a time that a source has just told, to bring
// it to the clock of today: it may have been read before the clock was set.
func (c *clock) stale(t time.Time) time.Duration {
	if c.step != 0 && c.last.Sub(t.Add(c.step)).Abs() < c.last.Sub(t).Abs() {
		return c.step
	}
	return 0
}

// delivery is the part that a source had in the snapshot before.
type delivery struct {
	part  *Part
	shift time.Duration // from the clock that the part was dated by to that of today
}

// shift returns what must be added to the times in a source's part.
func (c *composer) shift(source int, v view, step time.Duration) time.Duration {
	for len(c.deliveries) <= source {
		c.deliveries = append(c.deliveries, delivery{})
	}
	d := &c.deliveries[source]
	if d.part == v.part {
		d.shift += step
	} else {
		*d = delivery{v.part, c.clock.stale(v.part.Time.Add(v.age))}
	}
	return d.shift
}

// present is the snapshot's present as far as the source knows it.
func (in input) present() time.Time { return in.now.Add(in.shift) }

// current returns the readings without what is too old, stamped by the clock of
// today.
func (in input) current(r Readings, rows []*metric.Def) Readings {
	r = r.Expire(rows, in.now, in.interval)
	if in.shift == 0 {
		return r
	}
	for t, at := range r.at {
		if !at.IsZero() {
			r.at[t] = at.Add(in.shift)
		}
	}
	return r
}

// shift moves what is remembered of GPUs with the clock.
func (f *fleet) shift(by time.Duration) {
	for _, g := range f.list {
		if !g.fast.IsZero() {
			g.fast = g.fast.Add(by)
		}
		for i := range g.xids {
			g.xids[i].latest = g.xids[i].latest.Add(by)
		}
		for i := range g.told {
			for _, at := range []*time.Time{&g.told[i].last, &g.told[i].since} {
				if !at.IsZero() {
					*at = at.Add(by)
				}
			}
		}
	}
}

// shift moves what is remembered of errors with the clock.
func (f *faults) shift(by time.Duration) {
	for _, e := range f.list {
		e.Time, e.seen = e.Time.Add(by), e.seen.Add(by)
	}
	f.sxids = slices.Clone(f.sxids) // snapshots share the list
	for i := range f.sxids {
		f.sxids[i].Last = f.sxids[i].Last.Add(by)
	}
}
