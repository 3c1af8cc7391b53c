package inference

import (
	"math"
	"slices"
	"sort"
	"time"

	"gpuvigil/collector"
)

// maxBuckets bounds a histogram of a page; servers have up to 40.
const maxBuckets = 256

// histogramMeter adds up one histogram over the parts of a server.
type histogramMeter struct {
	meter // only whose source counts
	parts map[string]*histogramPart
	total collector.Histogram
}

// histogramPart is one part's histogram, as it is laid in line by line.
type histogramPart struct {
	read       uint64
	rank       int
	bounds     []float64 // as on the page, with +Inf if it is there
	counts     []float64
	sum, count float64 // NaN: not on the page

	at   time.Time // when it was settled last; zero: never
	last collector.Histogram
}

// lay takes in one line; bound is of a bucket only.
func (m *histogramMeter) lay(read uint64, u use, key []byte, bound, v float64) {
	if !m.better(read, u.rank) || math.IsNaN(v) {
		return
	}
	p := m.parts[string(key)]
	if p == nil {
		if m.parts == nil {
			m.parts = map[string]*histogramPart{}
		}
		p = &histogramPart{}
		m.parts[string(key)] = p
	}
	if p.read != read || p.rank != u.rank {
		p.read, p.rank, p.bounds, p.counts, p.sum, p.count = read, u.rank, p.bounds[:0], p.counts[:0], math.NaN(), math.NaN()
	}
	switch u.kind {
	case ofTotal:
		p.sum = largest(p.sum, u.origin.scaled(v))
	case ofHowMany:
		p.count = largest(p.count, v)
	case ofBucket:
		bound = u.origin.scaled(bound)
		if i := slices.Index(p.bounds, bound); i >= 0 {
			p.counts[i] = max(p.counts[i], v) // a rank that repeats it
		} else if len(p.bounds) < maxBuckets {
			p.bounds, p.counts = append(p.bounds, bound), append(p.counts, v)
		}
	}
}

func largest(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return max(a, b)
}

func (p *histogramPart) Len() int           { return len(p.bounds) }
func (p *histogramPart) Less(i, j int) bool { return p.bounds[i] < p.bounds[j] }
func (p *histogramPart) Swap(i, j int) {
	p.bounds[i], p.bounds[j] = p.bounds[j], p.bounds[i]
	p.counts[i], p.counts[j] = p.counts[j], p.counts[i]
}

// read returns the part's histogram; false if its lines make none: counts that
// fall, no buckets at all.
func (p *histogramPart) histogram() (collector.Histogram, bool) {
	if !sort.IsSorted(p) {
		sort.Sort(p)
	}
	n := len(p.bounds)
	if n > 0 && math.IsInf(p.bounds[n-1], 1) {
		p.count = largest(p.count, p.counts[n-1])
		n--
	} else if n > 0 {
		p.count = largest(p.count, p.counts[n-1])
	}
	if n == 0 || math.IsNaN(p.sum) || math.IsInf(p.sum, 0) {
		return collector.Histogram{}, false
	}
	h := collector.Histogram{Bounds: slices.Clone(p.bounds[:n]), Counts: make([]uint64, n+1), Sum: p.sum}
	last := 0.0
	for i, c := range append(p.counts[:n:n], p.count) {
		if math.IsNaN(p.bounds[min(i, n-1)]) || c < last || c > 1<<53 {
			return collector.Histogram{}, false
		}
		h.Counts[i] = uint64(math.Round(c))
		last = c
	}
	return h, true
}

// settle adds what each part has grown by to the total. Parts of one server have
// the same bounds: one that has others begins the total anew, as its server is
// another release.
func (m *histogramMeter) settle(read uint64, now time.Time, restarted bool) {
	fresh := false // the total is no longer what was published
	for _, key := range sortedKeys(m.parts) {
		p := m.parts[key]
		if m.meter.read != read || p.read != read || p.rank != m.rank {
			if now.Sub(p.at) > forgetAfter {
				delete(m.parts, key)
			}
			continue
		}
		h, ok := p.histogram()
		if !ok {
			continue
		}
		grown, more := h.Since(p.last)
		if !more || restarted || p.at.IsZero() {
			grown = h
		}
		p.last, p.at = h, now
		if !slices.Equal(m.total.Bounds, grown.Bounds) {
			m.total, fresh = collector.Histogram{Bounds: grown.Bounds, Counts: make([]uint64, len(grown.Counts))}, true
		}
		if !fresh {
			m.total.Counts, fresh = slices.Clone(m.total.Counts), true
		}
		for i, n := range grown.Counts {
			m.total.Counts[i] += n
		}
		m.total.Sum += grown.Sum
	}
}

func sortedKeys(parts map[string]*histogramPart) []string {
	keys := make([]string, 0, len(parts))
	for k := range parts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
