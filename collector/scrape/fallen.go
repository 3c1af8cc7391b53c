package scrape

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// way is how a page tells of Xid errors.
type way uint8

const (
	byLast   way = iota // a gauge with the code that fell last, which never goes back
	byWindow            // a gauge with how many fell within the last minutes, by code
	byTotal             // a counter by code
)

// fallen is one such number on a page.
type fallen struct {
	way   way
	gi    int // GPU instance that it is told of; -1: the whole GPU
	code  int // of byLast: the value
	value float64
	at    time.Time // when it fell last, if the page tells
}

type fallKey struct {
	way  way
	gi   int
	code int
}

// past is what is kept of one GPU between pages.
type past struct {
	last    map[int]int // code of byLast, by GPU instance
	before  map[fallKey]float64
	counts  []collector.XidCount
	dropped map[*metric.Def]uint64
}

const (
	maxCodes  = 128         // of one GPU
	maxCode   = 100_000     // none is so high
	maxAtOnce = 1000        // errors of one code between two pages that are believed
	exported  = time.Minute // how old an exporter's values may be: dcgm-exporter looks every 30 s
)

func newPast() *past { return &past{last: map[int]int{}, before: map[fallKey]float64{}} }

// fell finds what has fallen since the page before. What a first page shows may be
// from long ago: nobody is told of it.
func (f *past) fell(now time.Time, told []fallen, first bool) (fell map[int]time.Time) {
	fell = map[int]time.Time{}
	by := map[int]way{}
	// Who counts knows of more than who remembers the last one.
	slices.SortStableFunc(told, func(a, b fallen) int { return cmp.Compare(b.way, a.way) })
	for _, t := range told {
		var more float64
		switch {
		case t.code < 0 || t.code > maxCode:
			continue
		case t.way == byLast:
			if t.code != f.last[t.gi] && t.code != 0 {
				more = 1
			}
			if len(f.last) <= maxInstances {
				f.last[t.gi] = t.code
			}
		default:
			k := fallKey{t.way, t.gi, t.code}
			before, known := f.before[k]
			if !known && len(f.before) >= maxCodes {
				continue
			}
			if t.value < before && t.way == byTotal {
				before = 0 // it began anew
			}
			more = t.value - before
			f.before[k] = t.value
		}
		if first || !(more > 0) || t.code == 0 {
			continue
		}
		at := now
		if age := now.Sub(t.at); !t.at.IsZero() && age >= 0 && age < time.Hour {
			at = t.at
		}
		if w, seen := by[t.code]; !seen || w == t.way { // else another name tells of the same
			f.count(t.code, min(more, maxAtOnce), at)
			by[t.code] = t.way
		}
		fell[t.code] = at
	}
	// A code that is not on the page any more has not fallen again when it comes back
	// with the number that it had; one of a window has.
	for k := range f.before {
		if k.way == byWindow && !slices.ContainsFunc(told, func(t fallen) bool { return t.way == byWindow && t.gi == k.gi && t.code == k.code }) {
			delete(f.before, k)
		}
	}
	return fell
}

func (f *past) count(code int, n float64, at time.Time) {
	f.counts = slices.Clone(f.counts) // the old ones are in a part that was handed out
	i := slices.IndexFunc(f.counts, func(x collector.XidCount) bool { return x.Code == code })
	if i < 0 {
		i = len(f.counts)
		f.counts = append(f.counts, collector.XidCount{Code: code})
	}
	f.counts[i].Count += uint64(n)
	f.counts[i].Last = at
}

// drop adds the values that one page's GPU has dropped to those before.
func (f *past) drop(more map[*metric.Def]uint64) map[*metric.Def]uint64 {
	if len(more) > 0 {
		all := maps.Clone(f.dropped)
		if all == nil {
			all = map[*metric.Def]uint64{}
		}
		for d, n := range more {
			all[d] += n
		}
		f.dropped = all
	}
	return f.dropped
}
