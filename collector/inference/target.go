package inference

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// target is a Target with what is known of it.
type target struct {
	Target
	page  *page.Page
	shown string // its name, or the URL without user info and query
	book  *book
	work  demand.Work
	known []collector.Endpoint
	found *found // nil: it is configured

	failing  bool      // as it was logged last
	strange  time.Time // since when not all of its GPUs are on this node; zero: they are
	accused  bool      // that is logged
	reason   string    // of the last try; empty: it was good
	duration time.Duration
	good     time.Time // when a page was understood last
	bytes    int64     // of that page
	output   collector.Readings
}

// read replaces what is known of the target.
func (t *target) read(ctx context.Context, snap *collector.Snapshot) error {
	begun := time.Now()
	n, err := t.look(ctx)
	now := time.Now()
	t.duration = now.Sub(begun)
	t.output = collector.NewReadings(metric.Target)
	if err != nil {
		t.reason = page.Reason(err)
		t.down(now)
		return fmt.Errorf("read the metrics of %s: %w", t.shown, err)
	}
	t.reason, t.good, t.bytes = "", now, n
	t.known = t.book.settle(t.shown, t.GPUs, now)
	t.measure(snap, now)
	return nil
}

// look reads the target's page into the book.
func (t *target) look(ctx context.Context) (int64, error) {
	resp, err := t.page.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return t.book.read(resp.Body)
}

// measure puts the tokens of all models beside what the GPUs have drawn.
func (t *target) measure(snap *collector.Snapshot, now time.Time) {
	o := demand.Output{At: now, Tokens: t.book.tokens, Joules: math.NaN()}
	told := false
	for _, s := range t.book.models {
		if v := s.generated(); !math.IsNaN(v) {
			o.Tokens, told = o.Tokens+v, true
		}
	}
	if !told {
		o.Tokens = math.NaN()
	}
	if snap != nil {
		o.Joules, o.Drawn = demand.Joules(snap.GPUs, t.GPUs)
	}
	t.work.Add(o)
	gpus := len(t.GPUs)
	if len(t.strangers(snap)) > 0 {
		gpus = 0 // on how many it runs is not known
	}
	t.work.Set(t.output, gpus)
}

// strangers returns those of the target's GPUs that no source lists.
func (t *target) strangers(snap *collector.Snapshot) []string {
	if snap == nil {
		return t.GPUs
	}
	return slices.DeleteFunc(slices.Clone(t.GPUs), func(uuid string) bool {
		return slices.ContainsFunc(snap.GPUs, func(g collector.GPU) bool { return g.UUID == uuid }) ||
			slices.ContainsFunc(snap.Instances, func(m collector.Instance) bool { return m.MIGUUID == uuid })
	})
}

// down keeps the target's names and says that it does not answer. Numbers of an
// earlier page would pass for those of now.
func (t *target) down(now time.Time) {
	if len(t.known) == 0 {
		t.known = []collector.Endpoint{{URL: t.shown, Engine: t.Engine, Model: t.Model, GPUs: t.GPUs}}
	}
	down := make([]collector.Endpoint, len(t.known))
	for i, e := range t.known {
		e.Readings, e.Histograms = collector.NewReadings(metric.Endpoint), nil
		e.Set(metric.EndpointUp, 0)
		e.Stamp(metric.Fast, now)
		down[i] = e
	}
	t.known = down
}

// health says how well the target can be read.
func (t *target) health(now time.Time) collector.Target {
	r := t.output
	r.Set(metric.TargetUp, 1)
	if t.reason != "" {
		r.Set(metric.TargetUp, 0)
		r.SetAt(metric.TargetFailing, metric.TargetReasons.Index(t.reason), 1)
	}
	r.Set(metric.TargetDuration, t.duration.Seconds())
	if !t.good.IsZero() {
		r.Set(metric.TargetAge, max(0, now.Sub(t.good).Seconds()))
		r.Set(metric.TargetBytes, float64(t.bytes))
	}
	r.Stamp(metric.Fast, now)
	return collector.Target{URL: t.shown, Discovered: t.found != nil, Readings: r}
}
