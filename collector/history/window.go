package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// Window is the samples of some steps.
type Window struct {
	span        Span
	first, last int64 // steps
	all         []*line
	read, kept  int
}

// From and To are the times of the first and the last snapshots of the window.
func (w *Window) From() time.Time { return w.span.at(w.first) }

// To is described at From.
func (w *Window) To() time.Time { return w.span.at(w.last) }

// line is one series' samples, the last of each step.
type line struct {
	labels []series.Label
	points []point
	step   int64 // of the last one
	mixed  bool  // they are not in the order of time
	next   int   // that was not replayed yet
}

type point struct {
	ms int64
	v  float64
}

// add takes in one sample of a line of the window.
func (w *Window) add(l *line, p point) {
	w.read++
	step := w.span.number(p.ms)
	if step < w.first || step > w.last {
		return
	}
	if n := len(l.points); n > 0 {
		switch newest := &l.points[n-1]; {
		case p.ms < newest.ms:
			l.mixed = true
		case step == l.step:
			*newest = p
			return
		}
	}
	l.step = step
	l.points = append(l.points, p)
	w.kept++
}

// replay feeds the assembler step by step.
func (w *Window) replay(ctx context.Context, a *series.Assembler, stats *Stats, observe func(time.Time, []*collector.Snapshot) error) error {
	handles := make([]*series.Series, 0, len(w.all))
	lines := w.all[:0]
	for _, l := range w.all {
		h := a.Series(l.labels)
		if h == nil {
			continue
		}
		if l.mixed {
			slices.SortStableFunc(l.points, func(x, y point) int { return cmp.Compare(x.ms, y.ms) })
		}
		handles, lines = append(handles, h), append(lines, l)
	}
	for step := w.first; step <= w.last; step++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := w.span.at(step)
		until := now.UnixMilli()
		for i, l := range lines {
			for ; l.next < len(l.points) && l.points[l.next].ms <= until; l.next++ {
				a.Add(handles[i], time.UnixMilli(l.points[l.next].ms), l.points[l.next].v)
			}
		}
		if stats.From.IsZero() {
			stats.From = now
		}
		stats.To = now
		stats.Rounds++
		if err := observe(now, a.Snapshots(now)); err != nil {
			return err
		}
	}
	stats.Samples += w.read
	stats.Kept += w.kept
	return nil
}
