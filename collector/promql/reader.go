package promql

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
	"gpuvigil/internal/text"
)

// Reader reads an API round by round. Its methods but Tell are used from one goroutine.
type Reader struct {
	cfg    Config
	client *client
	counts counts

	names  []string // that there are and that are understood, in order
	listed time.Time
	groups []*group
	kept   kept

	said string // the trouble that the log has
}

// New returns a reader that has asked nothing yet. It fails if the configuration cannot
// be used.
func New(cfg Config) (*Reader, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	r := &Reader{cfg: cfg}
	r.counts.failures, r.counts.names = map[string]uint64{}, map[string]int{}
	r.kept = newKept(cfg.Assembler)
	var err error
	r.client, err = newClient(&r.cfg, &r.counts)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns the URL that is asked, which holds nothing secret.
func (r *Reader) URL() string { return r.client.shown }

const (
	mostBackOff = 5 * time.Minute
	mostSettle  = 2 * time.Second // for which a scrape may take to be answered for
)

// Run asks each interval until ctx ends, and hands the snapshots to use, by node. While
// nothing is answered nothing is handed on, and it is asked less often.
func (r *Reader) Run(ctx context.Context, use func(now time.Time, snapshots []*collector.Snapshot)) {
	settle := min(r.cfg.Interval/10, mostSettle)
	defer r.client.http.CloseIdleConnections()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := time.Now().Add(-settle).Truncate(r.cfg.Interval)
		snapshots, err := r.Round(ctx, at)
		if ctx.Err() != nil {
			return
		}
		wait := r.cfg.Interval
		if err != nil {
			wait = min(r.cfg.Interval<<min(failures, 10), max(mostBackOff, r.cfg.Interval))
			failures++
		} else {
			failures = 0
			use(at, snapshots)
		}
		next := at.Add(wait + settle)
		if until := time.Until(next); until <= 0 { // it took longer than the interval
			next = time.Now().Add(-settle).Truncate(r.cfg.Interval).Add(r.cfg.Interval + settle)
		}
		tick.Reset(time.Until(next))
	}
}

// maxFailures is with how many failed queries a round ends: a server that is in trouble
// is not asked more.
const maxFailures = 2

// Round asks for what is new up to now, which does not go back, and returns the nodes'
// snapshots. It is an error if nothing is answered.
func (r *Reader) Round(ctx context.Context, now time.Time) ([]*collector.Snapshot, error) {
	began := time.Now()
	round := round{reader: r, now: now}
	round.discover(ctx)
	round.askGroups(ctx)
	round.askCPUs(ctx)
	if round.answered == 0 {
		r.counts.up.Store(false)
		err := round.err
		r.say(fmt.Sprintf("Prometheus does not answer: nothing new is known of any node. %s", page.Reason(err)), err)
		return nil, fmt.Errorf("ask %s: %w", r.client.shown, err)
	}
	r.kept.conclude(now, r.cfg.Lookback, round.err == nil && !round.partial)
	r.counts.ended.Store(r.kept.ended)
	r.counts.concluded(now, time.Since(began), round.series)
	switch {
	case round.err != nil:
		r.say("Some of what Prometheus was asked for is not answered: those metrics grow old. "+page.Reason(round.err), round.err)
	case round.partial:
		r.say("What Prometheus answers may be incomplete: it says so itself. "+round.warning, nil)
	default:
		r.say("", nil)
	}
	return r.cfg.Assembler.Snapshots(now), nil
}

// say logs trouble once, and that it is over.
func (r *Reader) say(trouble string, err error) {
	if trouble == r.said {
		return
	}
	r.said = trouble
	switch {
	case trouble == "":
		r.cfg.Log.Info("Prometheus answers fully again.", "url", r.client.shown)
	case err != nil:
		r.cfg.Log.Error(trouble, "url", r.client.shown, "err", err)
	default:
		r.cfg.Log.Warn(trouble, "url", r.client.shown)
	}
}

// round is one round of questions.
type round struct {
	reader *Reader
	now    time.Time

	answered, failed int
	series           int
	partial          bool
	warning          string
	err              error // the last
}

// over reports whether no more is asked.
func (o *round) over(ctx context.Context) bool { return o.failed >= maxFailures || ctx.Err() != nil }

// note takes in how a question ended.
func (o *round) note(a answer, err error) {
	if err != nil {
		o.failed++
		o.err = err
		return
	}
	o.answered++
	o.series += a.series
	if a.incomplete() {
		o.partial = true
		if len(a.warnings) > 0 {
			o.warning = text.Clean(a.warnings[0], 200)
		}
	}
}

// discover lists the names that there are, now and then, and as long as there are none.
func (o *round) discover(ctx context.Context) {
	r := o.reader
	if since := o.now.Sub(r.listed); len(r.names) > 0 && since >= 0 && since < r.cfg.Discover {
		return
	}
	all, err := r.client.names(ctx, o.now, max(r.cfg.Lookback, r.cfg.Discover))
	o.note(answer{}, err)
	if err != nil {
		return
	}
	first := r.listed.IsZero()
	r.listed = o.now
	r.kept.retry()
	counts := map[string]int{}
	var names []string
	for _, n := range all {
		if source := r.cfg.Assembler.Source(n); source != "" {
			names = append(names, n)
			counts[source]++
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if !first && slices.Equal(names, r.names) {
		return
	}
	r.names = names
	r.counts.found(counts)
	asked := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == cpuSeconds || n == cpuCount })
	r.groups = plan(r.groups, asked, r.cfg.Assembler.Source)
	if r.cfg.Found != nil {
		r.cfg.Found(names)
	}
}

// askGroups asks for each group's samples. One that is too large is halved.
func (o *round) askGroups(ctx context.Context) {
	r := o.reader
	var next, behind []*group
	for _, g := range r.groups {
		if o.over(ctx) {
			next = append(next, g)
			continue
		}
		r.kept.err = nil
		a, err := r.client.ask(ctx, r.cfg.expr(g, o.window(g)), o.now, func(labels []byte, newest point, before int64) { r.kept.take(o.now, labels, newest, before) })
		if err == nil {
			err = r.kept.err
		}
		o.note(a, err)
		switch {
		case err == nil:
			g.until = o.now
			next = append(next, g)
		case page.Reason(err) == tooLarge || page.Reason(err) == "timeout":
			if halves := g.halves(); halves != nil {
				behind = append(behind, halves...)
				continue
			}
			behind = append(behind, g)
		default:
			behind = append(behind, g)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("A query is not answered.", "names", strings.Join(g.names, ","), "err", err)
		}
	}
	r.groups = append(next, behind...) // what failed does not keep the rest from being asked
}

// window is how far back the group's samples are wanted. What came in late for the round
// before is asked for again.
func (o *round) window(g *group) time.Duration {
	cfg := &o.reader.cfg
	if g.until.IsZero() {
		return cfg.Lookback
	}
	return min(cfg.Lookback, max(0, o.now.Sub(g.until))+max(cfg.Interval, 30*time.Second))
}

// kept is what is known of the series from round to round.
type kept struct {
	assembler *series.Assembler
	seeds     [2]maphash.Seed
	series    map[[2]uint64]*tracked // by the hashes of its labels as they are written
	targets   map[string]*target
	labels    []series.Label
	ended     uint64
	err       error // of labels that cannot be read
}
