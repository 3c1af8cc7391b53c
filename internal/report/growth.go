package report

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/internal/metric"
)

// before is how far before its beginning a report looks for where a counter stood:
// an agent leaves a series out that has not changed for an hour.
const before = time.Hour + 5*time.Minute

// chunk is how many steps are asked for at once.
const chunk = 200

// span is one step of a report: what was sampled after from and not after to.
type span struct{ from, to time.Time }

// spans divides a time into hours or days of UTC; the first and the last may be parts.
func spans(since, until time.Time, step time.Duration) []span {
	var out []span
	for at := since; at.Before(until); {
		to := stepEnd(at, step, until)
		out = append(out, span{at, to})
		at = to
	}
	return out
}

// stepEnd returns where the step ends that something is in.
func stepEnd(at time.Time, step time.Duration, until time.Time) time.Time {
	to := at.UTC().Truncate(step).Add(step)
	if to.After(until) {
		return until
	}
	return to
}

// series is the values of one set of labels, by step; NaN where there is none.
type series struct {
	labels model.Metric
	values []float64
}

// table asks for one value of each set of labels in each step. over aggregates the
// samples of a series within the step, across the series of the same labels.
func (a *api) table(ctx context.Context, across, over string, d *metric.Def, by []string, steps []span) (map[model.Fingerprint]*series, error) {
	out := map[model.Fingerprint]*series{}
	for at := 0; at < len(steps); {
		width := steps[at].to.Sub(steps[at].from)
		end := at + 1
		for end < len(steps) && end-at < chunk && steps[end].to.Sub(steps[end].from) == width {
			end++
		}
		expr := fmt.Sprintf("%s by (%s) (%s(%s[%s]))", across, strings.Join(by, ", "), over, a.of(d), window(width))
		m, err := a.span(ctx, expr, steps[at].to, steps[end-1].to, width)
		if err != nil {
			return nil, err
		}
		for _, stream := range m {
			id := stream.Metric.Fingerprint()
			if out[id] == nil {
				out[id] = &series{labels: stream.Metric, values: slices.Repeat([]float64{math.NaN()}, len(steps))}
			}
			for _, p := range stream.Values {
				i := at + int(math.Round(float64(p.Timestamp.Time().Sub(steps[at].to))/float64(width)))
				if i < at || i >= end {
					return nil, fmt.Errorf("ask %s for %s: it answers for %s, which was not asked for", a.base.Redacted(), expr, p.Timestamp.Time().UTC().Format(time.RFC3339))
				}
				out[id].values[i] = float64(p.Value)
			}
		}
		at = end
	}
	return out, nil
}

// window writes a length of time as PromQL does.
func window(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// grown is by how much a counter grew in each step, in whole units.
type grown struct {
	labels  model.Metric
	by      []int64
	seen    []bool // in the step, or in one before
	sampled []bool // in the step
	before  bool   // there was a sample before the first step
}

// growth returns by how much each counter grew in each step. Where a counter stood at
// the end of one step it begins the next, so that steps sum to the whole and nothing
// is extrapolated; what two databases scraped of the same agent counts once. A counter
// that appears begins with its first sample, for which agents hold it still. One that
// fell began at zero in between: its samples are read one by one then.
func (a *api) growth(ctx context.Context, d *metric.Def, unit float64, by []string, steps []span) ([]grown, error) {
	base, err := a.table(ctx, "max", "last_over_time", d, by, []span{{steps[0].from.Add(-before), steps[0].from}})
	if err != nil {
		return nil, err
	}
	last, err := a.table(ctx, "max", "last_over_time", d, by, steps)
	if err != nil {
		return nil, err
	}
	least, err := a.table(ctx, "min", "min_over_time", d, by, steps)
	if err != nil {
		return nil, err
	}
	resets, err := a.table(ctx, "sum", "resets", d, by, steps)
	if err != nil {
		return nil, err
	}
	var out []grown
	for id, s := range last {
		g := grown{labels: s.labels, by: make([]int64, len(steps)), seen: make([]bool, len(steps)), sampled: make([]bool, len(steps))}
		at := standing{}
		if b := base[id]; b != nil {
			g.before = true
			at.see(whole(b.values[0], unit))
		}
		for i, v := range s.values {
			switch {
			case math.IsNaN(v):
			case v < 0 || v*unit > math.MaxInt64/2:
				return nil, fmt.Errorf("ask %s for %s: %v is no value that it can have", a.base.Redacted(), d.Name, v)
			case value(resets[id], i) > 0 || at.known && whole(v, unit) < at.value:
				if g.by[i], err = a.replay(ctx, d, unit, by, s.labels, steps[i], &at); err != nil {
					return nil, err
				}
			default:
				if !at.known {
					at.see(whole(value(least[id], i), unit))
				}
				g.by[i] = at.see(whole(v, unit))
			}
			g.seen[i], g.sampled[i] = at.known, !math.IsNaN(v)
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b grown) int { return strings.Compare(a.labels.String(), b.labels.String()) })
	return out, nil
}

func value(s *series, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s.values[i]
}

func whole(v, unit float64) int64 { return int64(math.Round(v * unit)) }

// standing is where a counter stands.
type standing struct {
	value int64
	known bool
}

// see takes the next sample and returns by how much the counter grew.
func (s *standing) see(v int64) int64 {
	old := *s
	*s = standing{v, true}
	switch {
	case !old.known:
		return 0
	case v < old.value:
		return v
	}
	return v - old.value
}

// replay follows a counter sample by sample. Series that overlap are the same counter
// as several scraped it: the one that saw most counts. Others follow each other.
func (a *api) replay(ctx context.Context, d *metric.Def, unit float64, by []string, labels model.Metric, step span, at *standing) (int64, error) {
	var account []string
	for _, name := range by {
		account = append(account, name+"="+strconv.Quote(string(labels[model.LabelName(name)])))
	}
	m, err := a.samples(ctx, fmt.Sprintf("%s[%s]", a.of(d, account...), window(step.to.Sub(step.from))), step.to)
	if err != nil {
		return 0, err
	}
	return follow(m, unit, at), nil
}

// follow returns by how much the counter of these series grew since where it stood.
func follow(m []*model.SampleStream, unit float64, at *standing) (total int64) {
	m = slices.DeleteFunc(m, func(s *model.SampleStream) bool { return len(s.Values) == 0 })
	slices.SortFunc(m, func(a, b *model.SampleStream) int { return cmp.Compare(a.Values[0].Timestamp, b.Values[0].Timestamp) })
	for len(m) > 0 {
		most, end, next := int64(-1), model.Time(math.MinInt64), *at
		n := 0
		for ; n < len(m) && (n == 0 || m[n].Values[0].Timestamp <= end); n++ {
			here, sum := *at, int64(0)
			for _, p := range m[n].Values {
				sum += here.see(whole(float64(p.Value), unit))
			}
			if final := m[n].Values[len(m[n].Values)-1].Timestamp; final > end {
				end, next = final, here
			}
			most = max(most, sum)
		}
		total, *at, m = total+most, next, m[n:]
	}
	return total
}
