package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// maxUnseen is how much of a GPU's time may be in no sample before it is said: what is
// scraped slowly, and what accounts that appear are held still for, is less.
const maxUnseen = 10 * time.Minute

// gpuSeen is what the samples of one GPU's accounts have.
type gpuSeen struct {
	uuid        string
	first, last int // steps with samples
	before      bool
	sampled     []bool
	booked      int64
}

// gaps adds the time of GPUs that no counter has. For each GPU they grow by the time
// that passes, whatever it is: what they grew by less is of no sample. A GPU begins
// with its first one.
func gaps(q *query, a *cost.Answer, spent []grown) error {
	seen := map[string]*gpuSeen{}
	for _, s := range spent {
		uuid := string(s.labels["uuid"])
		g := seen[uuid]
		if g == nil {
			g = &gpuSeen{uuid: uuid, first: len(q.steps), sampled: make([]bool, len(q.steps))}
			seen[uuid] = g
		}
		g.before = g.before || s.before
		for i, sampled := range s.sampled {
			g.booked += s.by[i]
			if sampled {
				g.first, g.last, g.sampled[i] = min(g.first, i), max(g.last, i), true
			}
		}
	}
	times := sampleTimes{}
	sums := map[cost.Gap]cost.Gap{}
	for _, g := range seen {
		if g.first == len(q.steps) {
			continue
		}
		begin, end, err := times.of(q, g)
		if err != nil {
			return err
		}
		node := cmp.Or(q.nodes[q.instances[g.uuid]], q.instances[g.uuid], g.uuid)
		missing, err := g.missing(q, times, begin, end)
		if err != nil {
			return err
		}
		for _, gap := range missing {
			k := cost.Gap{Node: node, From: gap.From, To: gap.To}
			have := cmp.Or(sums[k], k)
			have.GPUs, have.Time = have.GPUs+1, have.Time+gap.Time
			sums[k] = have
		}
	}
	for _, gap := range sums {
		a.Gaps = append(a.Gaps, gap)
	}
	slices.SortFunc(a.Gaps, func(a, b cost.Gap) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), a.From.Compare(b.From), a.To.Compare(b.To))
	})
	return nil
}

// missing returns what is missing of the GPU's time between its samples, and after them.
func (g *gpuSeen) missing(q *query, times sampleTimes, begin, end time.Time) (out []cost.Gap, err error) {
	if hole := end.Sub(begin) - time.Duration(g.booked); hole > maxUnseen {
		gap := cost.Gap{From: begin, To: end, Time: int64(hole)}
		if first, last := g.unsampled(); first > 0 { // it is known better
			if _, gap.From, err = times.in(q, first-1, g.uuid); err != nil {
				return nil, err
			}
			if gap.To, _, err = times.in(q, last+1, g.uuid); err != nil {
				return nil, err
			}
		}
		out = append(out, gap)
	}
	if until := q.steps[len(q.steps)-1].to; until.Sub(end) > maxUnseen {
		out = append(out, cost.Gap{From: end, To: until, Time: int64(until.Sub(end))})
	}
	return out, nil
}

// unsampled returns the first and the last step without samples between those with
// samples; 0: there is none.
func (g *gpuSeen) unsampled() (first, last int) {
	for i := g.first; i < g.last; i++ {
		if !g.sampled[i] {
			first, last = cmp.Or(first, i), i
		}
	}
	return first, last
}

// sampleTimes are the first and the last sample of each GPU in those steps that were
// asked for.
type sampleTimes map[int]map[string][2]time.Time

// of returns when the GPU's time begins, with the report or with its first sample, and
// when its last sample was taken.
func (t sampleTimes) of(q *query, g *gpuSeen) (begin, end time.Time, err error) {
	if _, end, err = t.in(q, g.last, g.uuid); err != nil || g.before {
		return q.steps[0].from, end, err
	}
	begin, _, err = t.in(q, g.first, g.uuid)
	return begin, end, err
}

// in returns the first and the last sample of a GPU in a step that has some. Of one that
// is too lonely for the database to tell its time, all of the step is taken for known.
func (t sampleTimes) in(q *query, i int, uuid string) (first, last time.Time, err error) {
	known, err := t.ask(q, i)
	if at, has := known[uuid]; has {
		return at[0], at[1], err
	}
	return q.steps[i].from, q.steps[i].to, err
}

func (t sampleTimes) ask(q *query, i int) (map[string][2]time.Time, error) {
	if in, has := t[i]; has {
		return in, nil
	}
	step := q.steps[i]
	every := max(time.Minute, step.to.Sub(step.from)/288).Truncate(time.Second) // never beyond the five minutes that a sample is seen for
	m, err := q.api.span(q.ctx, "max by (uuid) (timestamp("+q.api.of(metric.OwnerSeconds)+"))", step.from, step.to.Add(every), every)
	if err != nil {
		return nil, err
	}
	t[i] = map[string][2]time.Time{}
	for _, stream := range m {
		uuid := string(stream.Metric["uuid"])
		in, known := t[i][uuid]
		for _, p := range stream.Values {
			at := time.UnixMilli(int64(float64(p.Value) * 1e3)).UTC().Truncate(time.Second)
			if !at.After(step.from) || at.After(step.to) {
				continue
			}
			if !known {
				in[0], known = at, true
			}
			in[1] = at
			t[i][uuid] = in
		}
	}
	return t[i], nil
}

// saysGap says what is missing of a node.
func saysGap(g cost.Gap) string {
	gpus := "1 GPU"
	if g.GPUs > 1 {
		gpus = fmt.Sprintf("%d GPUs", g.GPUs)
	}
	return fmt.Sprintf("%s: %s GPU-hours of %s between %s and %s are in no sample",
		text.Clean(g.Node, maxKey), hours(g.Time), gpus, g.From.UTC().Format(minute), g.To.UTC().Format(minute))
}

// saysGaps says what is missing, a line for each.
func saysGaps(list []cost.Gap) (out []string) {
	for _, g := range list {
		out = append(out, "MISSING: "+saysGap(g)+": nothing is known of them, and they are in no line.")
	}
	return out
}

// missing stands for the state of time that is in no sample.
const missing = "missing"

// gapCells is a line of a CSV for what is missing of a node.
func gapCells(g cost.Gap) []string {
	cells := numbers(missing, "", cost.Amounts{Time: g.Time})
	cells[2], cells[4] = "", "" // its price is as little known as the rest
	return cells
}

// refuseGaps refuses to close a month of which time is missing, but of the nodes that
// are accepted: those that are named, and those of which at least as much was missing
// when it was closed.
func refuseGaps(found, known []cost.Gap, accept []string) error {
	missed := func(list []cost.Gap, node string) (sum time.Duration) {
		for _, g := range list {
			if g.Node == node {
				sum += time.Duration(g.Time)
			}
		}
		return sum
	}
	var said, flags []string
	for _, g := range found {
		node := text.Clean(g.Node, maxKey) // as it was said
		if slices.Contains(accept, node) || missed(known, g.Node) > 0 && missed(found, g.Node) <= missed(known, g.Node)+maxUnseen {
			continue
		}
		said = append(said, saysGap(g))
		if flag := "--accept-gap=" + node; !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if len(said) == 0 {
		return nil
	}
	return fmt.Errorf("time is missing from the month: %s: bring back the samples; or, where the node left for good or they are lost, close the month without them, with %s",
		strings.Join(said, "; "), strings.Join(flags, " "))
}
