//go:build linux && cgo

package nvml

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// worker is the only goroutine that talks to the GPU in one slot of NVML's list,
// and to its MIG instances, so that never two calls are in flight on a GPU. Only the
// survey, which asks for two GPUs at once, talks to it while it holds the worker.
type worker struct {
	*session
	actor
	caller
	slot int
	log  *slog.Logger

	// The slot.
	attached   time.Time // when it was last looked at
	generation uint64
	retry      time.Time   // not before, while there is no GPU
	missing    nvml.Return // why there is none, as it was last logged

	// The GPU in it.
	gpu       *collector.GPU // nil: none that answers
	subject                  // of the GPU
	handle    nvml.Device
	instances []*instance
	processes []collector.Process
	partial   bool              // not every instance could be read
	paths     map[string]string // to other GPUs, by uuid: the level; empty if the driver cannot tell
	xidless   bool              // it does not tell of Xid errors
	eventsOf  uint64            // generation of the set of events that it was registered with
	suspect   bool              // something said that the handle may be dead
	silent    bool              // no call of the last fast tier had an answer
	seen      uint64            // see sample.seen
	last      [metric.Tiers]time.Time
	paces     [metric.Tiers]pace
	bands     bands.GPU
	load      load
	linked    growth
	links     []*link
	migMode   [2]bool // now, and after the next reset
	migKnown  bool    // the GPU has such a mode

	entries      []nvml.FieldValue // of the batch under way
	fields, gpms []*call
}

func newWorker(s *session, slot int) *worker {
	return &worker{session: s, actor: newActor(), caller: caller{account: s.account}, slot: slot, log: s.log.With("slot", slot)}
}

// round samples what is due.
func (w *worker) round(ctx context.Context, now time.Time) {
	if w.mustAttach(now) {
		w.attach(now)
	}
	if w.gpu != nil && w.mustWatch() {
		w.watchXids(now)
	}
	for t := range metric.Tiers {
		if w.gpu != nil && ctx.Err() == nil && w.dueTier(t, now) {
			w.sample(ctx, t, now)
			w.publish()
		}
	}
	if w.gpu != nil && w.learned {
		w.learned = false
		w.gpu.Unsupported = w.unsupported()
		if w.xidless {
			w.gpu.Unsupported = append(w.gpu.Unsupported, metric.XidErrors)
		}
		if len(w.gpu.Unsupported) > 0 {
			w.log.Info("the GPU does not support some metrics; they are absent", "gpu", w.gpu.UUID, "metrics", names(w.gpu.Unsupported))
		}
		w.publish()
	}
}

// dueTier leaves half a fast tick of room, so that a timer that fires early does
// not cost a slower tier a whole tick.
func (w *worker) dueTier(t metric.Tier, now time.Time) bool {
	return now.Sub(w.last[t]) >= w.interval(t)-w.cfg.Tiers[metric.Fast]/2
}

// sample asks everything of one tier. Its readings that get no answer are absent
// until the next time.
func (w *worker) sample(ctx context.Context, t metric.Tier, now time.Time) {
	w.last[t] = now
	before := w.spent
	if w.seen == 0 {
		w.seen = uint64(now.Add(-w.cfg.Tiers[metric.Processes]).UnixMicro())
	}
	s := sample{readings: without(w.gpu.Readings, metric.GPU, t), before: w.gpu.Readings, seen: w.seen, pcie: &w.subject.gpm.pcie}
	good := w.ask(ctx, &w.subject, t, nobody, &s, now)
	if t == metric.Fast {
		w.silent = !good
		w.suspect = w.suspect || !good
	}
	w.sampleInstances(ctx, t, &s, now)
	if w.gpu == nil {
		return
	}
	w.derive(t, &s, now)
	if w.gpu == nil {
		return
	}
	w.seen = s.seen
	w.adapt(t, w.spent-before, &s)
	w.count(s.dropped)
	s.readings.Stamp(t, now)
	w.gpu.Readings = s.readings
}

// sampleInstances asks the same of the GPU's MIG instances, and on the way
// gathers the processes of them all: a GPU in MIG mode does not list its own to
// just anybody.
func (w *worker) sampleInstances(ctx context.Context, t metric.Tier, s *sample, now time.Time) {
	if w.gpu == nil {
		return
	}
	var processes []collector.Process
	complete := s.procs.known()
	if w.gpu.MIG {
		complete = !w.partial
	} else if complete {
		processes = w.processesOf(s, collector.Process{GPU: w.gpu.Index, UUID: w.gpu.UUID}, now)
	}
	for _, in := range w.instances {
		own := sample{readings: without(in.Readings, metric.Instance, t), before: in.Readings}
		w.ask(ctx, &in.subject, t, in.GI, &own, now)
		if w.gpu == nil {
			return
		}
		if own.procs.known() {
			processes = append(processes, w.processesOf(&own, collector.Process{GPU: in.GPU, UUID: in.UUID, MIG: in.id()}, now)...)
			put(&own, metric.MIGProcesses, 0, len(own.procs.memory))
		} else {
			complete = false
		}
		own.readings.Stamp(t, now)
		in.Readings = own.readings
		s.dropped = append(s.dropped, own.dropped...)
	}
	if t == metric.Processes {
		w.processes = processes
		if complete {
			s.countProcesses(processes)
			s.leaveOver(w.load.take(), processes)
		}
	}
}

// count adds to the values that cannot be. What was published is not changed.
func (w *worker) count(dropped []*metric.Def) {
	if len(dropped) == 0 {
		return
	}
	counts := maps.Clone(w.gpu.Dropped)
	if counts == nil {
		counts = map[*metric.Def]uint64{}
	}
	for _, d := range dropped {
		counts[d]++
	}
	w.gpu.Dropped = counts
}

// publish shows what is known now to the composer.
func (w *worker) publish() {
	if w.gpu == nil {
		return
	}
	v := &view{gpu: *w.gpu, processes: w.processes}
	for _, in := range w.instances {
		v.instances = append(v.instances, in.Instance)
	}
	for _, l := range w.links {
		v.links = append(v.links, l.Link)
	}
	w.fleet.publish(w.gpu.UUID, w.slot, v)
}

// without returns a copy of the readings that lacks those of one tier.
func without(r collector.Readings, e metric.Entity, t metric.Tier) collector.Readings {
	r = r.Clone()
	for _, d := range metric.All() {
		if d.Entity != e || d.Tier != t {
			continue
		}
		for i := range d.Width() {
			r.SetAt(d, i, math.NaN())
		}
	}
	return r
}
