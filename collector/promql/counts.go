package promql

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// counts are what asking has cost. They are read while it goes on.
type counts struct {
	outcomes               [outcomes]atomic.Uint64
	nanos                  atomic.Int64 // of all queries
	bytes, samples, series atomic.Uint64
	warnings, ended        atomic.Uint64
	up                     atomic.Bool
	round                  atomic.Int64 // nanoseconds that the last round took
	last                   atomic.Int64 // time that it was of, in milliseconds; 0: none was answered

	mu       sync.Mutex
	failures map[string]uint64
	names    map[string]int // that there are, by source
}

// outcome is how a query ended.
type outcome uint8

const (
	answered outcome = iota
	partial
	failed
	outcomes
)

func (c *counts) query(a answer, err error, took time.Duration) {
	c.nanos.Add(int64(took))
	c.samples.Add(uint64(a.samples))
	c.warnings.Add(uint64(len(a.warnings)))
	switch {
	case err != nil:
		c.outcomes[failed].Add(1)
		c.mu.Lock()
		c.failures[page.Reason(err)]++
		c.mu.Unlock()
	case a.incomplete():
		c.outcomes[partial].Add(1)
	default:
		c.outcomes[answered].Add(1)
	}
}

func (c *counts) found(names map[string]int) {
	c.mu.Lock()
	c.names = names
	c.mu.Unlock()
}

// concluded counts a round that had an answer.
func (c *counts) concluded(of time.Time, took time.Duration, series int) {
	c.up.Store(true)
	c.last.Store(of.UnixMilli())
	c.round.Store(int64(took))
	c.series.Store(uint64(series))
}

// Tell adds what asking has cost to a page of metrics.
func (r *Reader) Tell(add func(d *metric.Def, v float64, labels ...string)) {
	c := &r.counts
	up := 0.0
	if c.up.Load() {
		up = 1
	}
	add(metric.PromQLUp, up)
	for o := range c.outcomes {
		add(metric.PromQLQueries, float64(c.outcomes[o].Load()), metric.QueryOutcome.Values[o])
	}
	add(metric.PromQLSeconds, time.Duration(c.nanos.Load()).Seconds())
	add(metric.PromQLBytes, float64(c.bytes.Load()))
	add(metric.PromQLSamples, float64(c.samples.Load()))
	add(metric.PromQLWarnings, float64(c.warnings.Load()))
	add(metric.PromQLEnded, float64(c.ended.Load()))
	if last := c.last.Load(); last != 0 {
		add(metric.PromQLLast, float64(last)/1e3)
		add(metric.PromQLRound, time.Duration(c.round.Load()).Seconds())
		add(metric.PromQLSeries, float64(c.series.Load()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, reason := range slices.Sorted(maps.Keys(c.failures)) {
		add(metric.PromQLFailures, float64(c.failures[reason]), reason)
	}
	for _, source := range slices.Sorted(maps.Keys(c.names)) {
		add(metric.PromQLNames, float64(c.names[source]), source)
	}
}
