// Package remotewrite receives what Prometheus, or who speaks like it, sends by remote
// write, in version 1 or 2 of the protocol, and has snapshots of nodes made of it.
//
// Requests are read and kept as they come. At each cut, an interval after the last one,
// an assembler is given all samples up to an instant that is already some seconds ago, in
// the order of their time: what came late within this grace counts as if it had not, a
// page of which one half has come yet is not torn, and two receivers of the same samples
// make the same snapshots.
package remotewrite

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// Limits bound a request and what is kept of all. Of one that is zero the default counts.
type Limits struct {
	Body       int64 // bytes as they are sent; 8 MiB
	Decoded    int   // bytes of a request, uncompressed; 32 MiB
	Series     int   // of a request; 50,000
	Samples    int   // of a request; 500,000
	Symbols    int   // of a request of version 2; 500,000
	Concurrent int   // requests that are read at once; 4
	Pending    int   // samples that wait for their cut; 8,000,000
	Known      int   // series whose labels need not be read again; 4,000,000
}

func (l *Limits) complete() {
	if l.Body <= 0 {
		l.Body = 8 << 20
	}
	for n, def := range map[*int]int{&l.Decoded: 32 << 20, &l.Series: 50_000, &l.Samples: 500_000, &l.Symbols: 500_000,
		&l.Concurrent: 4, &l.Pending: 8_000_000, &l.Known: 4_000_000} {
		if *n <= 0 {
			*n = def
		}
	}
}

// Config is what a Receiver needs. Interval, Grace, Keep, Assembler and Log are required.
type Config struct {
	Interval  time.Duration // between cuts
	Grace     time.Duration // for so long samples are waited for
	Keep      time.Duration // samples that were taken longer ago say nothing any more
	Limits    Limits
	Assembler Assembler

	// Own is a label of what is sent by who receives here: a database that sends on all
	// that it has would otherwise have it judge its own findings. Zero: there is none.
	Own series.Label

	Log *slog.Logger
}

// maxAhead is how far a sender's clock may go before ours.
const maxAhead = time.Minute

// Receiver takes requests from any number of goroutines.
type Receiver struct {
	cfg   Config
	seeds seeds
	names map[string]bool // of metrics that something is made of
	slots chan struct{}   // one for each request that is read
	pool  sync.Pool

	mu      sync.Mutex
	cache   cache
	pending []waiting // in the order in which they came
	last    int64     // the last cut, in milliseconds since 1970
	tally   Tally

	// These are the cutting goroutine's.
	due  []waiting
	cuts uint64
}

// waiting is a sample that waits for its cut.
type waiting struct {
	of *entry
	sample
}

// New returns a receiver that has received nothing.
func New(cfg Config) *Receiver {
	cfg.Limits.complete()
	r := &Receiver{cfg: cfg, seeds: newSeeds(), names: map[string]bool{}, slots: make(chan struct{}, cfg.Limits.Concurrent), cache: newCache(cfg.Limits.Known)}
	for _, name := range cfg.Assembler.Metrics() {
		r.names[name] = true
	}
	r.pool.New = func() any { return &buffers{} }
	r.tally.Refused = map[string]uint64{}
	return r
}

// errFull is told to senders that are to come again.
var errFull = errors.New("more samples wait than are kept: they are sent faster than they are worked off")

// taken is what has become of a request's samples.
type taken struct {
	samples int    // taken, or of no interest
	reason  string // why others were not, one of those there are; empty: all were
}

// take keeps the samples of a batch for their cut.
func (r *Receiver) take(b *batch, now time.Time) (t taken, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending)+len(b.samples) > r.cfg.Limits.Pending {
		return t, errFull
	}
	oldest, newest := now.Add(-r.cfg.Keep).UnixMilli(), now.Add(maxAhead).UnixMilli()
	for i := range b.series {
		s := &b.series[i]
		samples := b.samples[s.from:s.to]
		e := r.cache.get(s.key)
		if e == nil {
			e = r.meet(b, s)
		}
		switch {
		case e == unwanted:
			r.tally.Unwanted += uint64(len(samples))
			t.samples += len(samples)
			continue
		case e.reason != "":
			r.tally.Refused[e.reason] += uint64(len(samples))
			t.reason = e.reason
			continue
		}
		for _, v := range samples {
			switch {
			case v.at > newest:
				r.tally.Ahead++
				continue
			case v.at < oldest:
				r.tally.Old++
				continue
			case v.at <= r.last:
				r.tally.Late++
			}
			r.pending = append(r.pending, waiting{e, v})
			t.samples++
		}
	}
	r.tally.Samples += uint64(len(b.samples))
	r.tally.Series += uint64(len(b.series))
	r.tally.Histograms += uint64(b.histograms)
	r.tally.Exemplars += uint64(b.exemplars)
	return t, nil
}

// meet makes the entry of a series that is new.
func (r *Receiver) meet(b *batch, s *one) *entry {
	labels, reason := b.labels(s)
	e := &entry{reason: reason}
	if reason == "" {
		name := labels[slices.IndexFunc(labels, func(l series.Label) bool { return l.Name == nameLabel })].Value
		if e.labels = labels; !r.names[name] || slices.Contains(labels, r.cfg.Own) {
			e = unwanted
		}
	}
	r.cache.put(s.key, e)
	return e
}

// Run cuts until ctx ends, and hands each cut on.
func (r *Receiver) Run(ctx context.Context, use func(at time.Time, snapshots []*collector.Snapshot)) {
	at := time.Now().Truncate(r.cfg.Interval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		at = at.Add(r.cfg.Interval)
		if behind := time.Since(at.Add(r.cfg.Grace)); behind > 2*r.cfg.Interval {
			r.cfg.Log.Warn("Cuts take longer than their interval, so that some are left out.", "behind", behind)
			at = time.Now().Add(-r.cfg.Grace).Truncate(r.cfg.Interval)
		}
		timer.Reset(time.Until(at.Add(r.cfg.Grace)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		use(at, r.Cut(at))
	}
}

// generation is how many cuts a generation of the cache lasts, and after how many one asks
// again for a series that the assembler did not want.
const generation = 40

// Cut gives the assembler all samples up to the instant, and returns its snapshots. It is
// called from one goroutine, with instants that grow.
func (r *Receiver) Cut(at time.Time) []*collector.Snapshot {
	began := time.Now()
	r.cuts++
	r.mu.Lock()
	r.due = r.due[:0]
	rest := r.pending[:0]
	for _, w := range r.pending {
		if w.at <= at.UnixMilli() {
			r.due = append(r.due, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(r.pending[len(rest):])
	r.pending, r.last = rest, at.UnixMilli()
	if r.cuts%generation == 0 {
		r.cache.turn()
	}
	r.tally.Cuts++
	r.mu.Unlock()

	slices.SortStableFunc(r.due, func(a, b waiting) int { return cmp.Compare(a.at, b.at) })
	lost := 0
	for i := range r.due {
		w := &r.due[i]
		if !r.resolve(w.of) {
			lost++
			continue
		}
		r.cfg.Assembler.Add(w.of.series, time.UnixMilli(w.at), w.value)
	}
	clear(r.due)
	snapshots := r.cfg.Assembler.Snapshots(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Unplaced += uint64(lost)
	r.tally.Took = time.Since(began)
	return snapshots
}

// resolve asks the assembler for the series, unless it has refused it lately.
func (r *Receiver) resolve(e *entry) bool {
	if e.series == nil && e.again <= r.cuts {
		if e.series = r.cfg.Assembler.Series(e.labels); e.series == nil {
			e.again = r.cuts + generation
			return false
		}
		e.labels = nil
	}
	return e.series != nil
}
