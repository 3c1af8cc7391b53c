package promql

import (
	"hash/maphash"
	"maps"
	"math"
	"strings"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
)

// tracked is a series.
type tracked struct {
	series *series.Series // nil: the assembler does not want it
	target *target        // nil: nothing says what it was scraped from
	last   int64          // time of its newest sample
	ended  bool
}

// target is what is scraped at once: all of its series have the same times.
type target struct {
	newest, before int64 // time of the newest sample now, and at the end of the round before
	gap            int64 // between two samples of a series, the longest of those that have new ones
	fresh          int64 // the same of this round, so far
}

func newKept(a *series.Assembler) kept {
	return kept{assembler: a, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, series: map[[2]uint64]*tracked{}, targets: map[string]*target{}}
}

// tooNew is by how much a sample may be of later than the round.
const tooNew = time.Minute

// take hands a series' newest sample on. An engine writes the labels of a series the
// same way each time, so they are read once.
func (k *kept) take(now time.Time, labels []byte, newest point, before int64) {
	if newest.at > now.Add(tooNew).UnixMilli() {
		return
	}
	hash := [2]uint64{maphash.Bytes(k.seeds[0], labels), maphash.Bytes(k.seeds[1], labels)}
	t := k.series[hash]
	if t == nil {
		var err error
		if k.labels, err = labelsOf(labels, k.labels); err != nil {
			k.err = page.Failing("syntax", "the labels of a series cannot be read: %w", err)
			return
		}
		t = &tracked{series: k.assembler.Series(k.labels), last: never}
		if t.series != nil {
			t.target = k.target()
		}
		k.series[hash] = t
	}
	if newest.at <= t.last {
		return
	}
	gap := newest.at - max(before, t.last)
	known := max(before, t.last) != never
	t.last, t.ended = newest.at, false
	if p := t.target; p != nil {
		p.newest = max(p.newest, newest.at)
		if known {
			p.fresh = max(p.fresh, gap)
		}
	}
	k.assembler.Add(t.series, time.UnixMilli(newest.at), newest.value)
}

// ofTarget are the labels that tell targets, and who scraped them, apart.
var ofTarget = []string{"job", "instance", "cluster", "prometheus", "prometheus_replica", "__replica__"}

// target returns the target of the series whose labels were read last; nil if it was
// not scraped but made, and ends in its own way.
func (k *kept) target() *target {
	var key strings.Builder
	for i, name := range ofTarget {
		n := key.Len()
		for _, l := range k.labels {
			if l.Name == name {
				key.WriteString(l.Value)
			}
		}
		if key.Len() == n && i < 2 {
			return nil
		}
		key.WriteByte(0xff)
	}
	t := k.targets[key.String()]
	if t == nil {
		t = &target{newest: never, before: never}
		k.targets[key.String()] = t
	}
	return t
}

// staleMarker is the NaN by which Prometheus says that a series has ended. No range
// selector shows it.
const staleMarker = 0x7ff0000000000002

// conclude ends a round. If all of it was answered, series have ended that two scrapes of
// their target did not have: one scrape less may be how another replica of Prometheus
// saw the rest.
func (k *kept) conclude(now time.Time, lookback time.Duration, complete bool) {
	from := now.Add(-lookback).UnixMilli()
	for _, t := range k.targets {
		if t.fresh > 0 {
			t.gap, t.fresh = t.fresh, 0
		}
	}
	for hash, t := range k.series {
		switch p := t.target; {
		case t.last < from:
			delete(k.series, hash)
		case complete && p != nil && !t.ended && p.before != never && p.gap > 0 && p.before-t.last >= p.gap*3/2:
			t.ended = true
			k.ended++
			k.assembler.Add(t.series, time.UnixMilli(p.before), math.Float64frombits(staleMarker))
		}
	}
	maps.DeleteFunc(k.targets, func(_ string, t *target) bool { return t.newest < from })
	for _, t := range k.targets {
		t.before = t.newest
	}
}

// retry forgets the series that were not wanted: of some the node is known later.
func (k *kept) retry() {
	maps.DeleteFunc(k.series, func(_ [2]uint64, t *tracked) bool { return t.series == nil })
}
