package inference

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

// forgetAfter is how long what is no longer on a page is remembered. It comes back
// as what it was, and not as new.
const forgetAfter = 10 * time.Minute

// served is what is kept of one model of a target between its pages. While a page
// is read its numbers are only laid in; settle makes them count once the page is
// whole.
type served struct {
	engine     *engine
	model      string
	at         time.Time // of the newest page that it was on
	read       uint64    // that page's number
	gauges     []meter
	more       []meter
	less, over []meter
	counters   []meter
	sums       []meters
	histograms []histogramMeter
	window     demand.Window
}

// meters are those of a sum.
type meters struct{ seconds, count meter }

// meter adds up one signal over the parts of a server: engines, replicas, handles.
type meter struct {
	read  uint64 // page of rank
	rank  int    // best source of that page
	parts map[string]*part
	total []float64 // of a counter, for each column of its row; NaN: not told
}

// part is one part's number.
type part struct {
	read   uint64 // page that laid it in
	rank   int
	column int
	value  float64
	at     time.Time // when it was settled last; zero: never
	last   float64   // its value then
}

func newServed(e *engine, model string) *served {
	return &served{
		engine: e, model: model, gauges: make([]meter, len(e.gauges)), more: make([]meter, len(e.gauges)), less: make([]meter, len(e.gauges)), over: make([]meter, len(e.gauges)),
		counters: make([]meter, len(e.counters)), sums: make([]meters, len(e.sums)), histograms: make([]histogramMeter, len(e.histograms)),
	}
}

// better reports whether a sample of the rank counts on the page; a better one
// than those before makes them void.
func (m *meter) better(read uint64, rank int) bool {
	if m.read != read {
		m.read, m.rank = read, rank
	}
	m.rank = min(m.rank, rank)
	return rank == m.rank
}

// lay takes in a sample. Samples of one part are one fact: the largest counts.
func (m *meter) lay(read uint64, rank, column int, key []byte, v float64) {
	if !m.better(read, rank) || math.IsNaN(v) {
		return
	}
	p := m.parts[string(key)]
	if p == nil {
		if m.parts == nil {
			m.parts = map[string]*part{}
		}
		p = &part{}
		m.parts[string(key)] = p
	}
	if p.read == read && p.rank == rank {
		v = max(v, p.value)
	}
	p.read, p.rank, p.column, p.value = read, rank, column, v
}

// has reports whether the part is on the page and counts.
func (m *meter) has(p *part, read uint64) bool {
	return m.read == read && p.read == read && p.rank == m.rank
}

// gauge combines the parts that are on the page; NaN if there are none. The order
// of the parts does not matter but for rounding, so it is fixed.
func (m *meter) gauge(read uint64, combine func(a, b float64) float64) float64 {
	if m.read != read {
		return math.NaN()
	}
	var values []float64
	for _, p := range m.parts {
		if m.has(p, read) {
			values = append(values, p.value)
		}
	}
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	v := values[0]
	for _, x := range values[1:] {
		v = combine(v, x)
	}
	return v
}

// settle adds what each part has grown by to the total of its column. A part that
// shows less than before, or all of them after a restart, has begun anew.
func (m *meter) settle(read uint64, now time.Time, columns int, restarted bool) {
	if m.read != read && m.total == nil {
		return
	}
	if m.total == nil {
		m.total = make([]float64, columns)
		for i := range m.total {
			m.total[i] = math.NaN()
		}
	}
	for key, p := range m.parts {
		if !m.has(p, read) || p.column < 0 || p.value < 0 {
			if now.Sub(p.at) > forgetAfter {
				delete(m.parts, key)
			}
			continue
		}
		grown := p.value - p.last
		if grown < 0 || restarted || p.at.IsZero() {
			grown = p.value
		}
		p.last, p.at = p.value, now
		if t := &m.total[p.column]; math.IsNaN(*t) {
			*t = grown
		} else {
			*t += grown
		}
	}
}

// told returns a column's total; NaN while the signal has not been on a page.
func (m *meter) told(column int) float64 {
	if m.total == nil {
		return math.NaN()
	}
	return m.total[column]
}

// settle makes the page count that was laid in, and returns what it says.
func (s *served) settle(read uint64, now time.Time, restarted bool) (collector.Readings, []collector.Histogram) {
	s.read, s.at = read, now
	r := collector.NewReadings(metric.Endpoint)
	s.settleGauges(r, read)
	for i := range s.counters {
		c := &s.engine.counters[i]
		s.counters[i].settle(read, now, c.row.Width(), restarted)
		for column := range c.row.Width() {
			if v := s.counters[i].told(column); c.row.Plausible(v) {
				r.SetAt(c.row, column, v+zeroIfUnknown(r.ValueAt(c.row, column)))
			}
		}
	}
	for i := range s.sums {
		s.sums[i].seconds.settle(read, now, 1, restarted)
		s.sums[i].count.settle(read, now, 1, restarted)
	}
	var histograms []collector.Histogram
	for i := range s.histograms {
		s.histograms[i].settle(read, now, restarted)
		if h := s.histograms[i].total; len(h.Counts) > 0 {
			h.Row = s.engine.histograms[i].row
			histograms = append(histograms, h)
		}
	}
	slices.SortFunc(histograms, func(a, b collector.Histogram) int { return cmp.Compare(a.Row.Name, b.Row.Name) })
	if restarted {
		s.window.Forget()
	}
	s.window.Add(s.page(r, histograms, now))
	s.window.Set(r)
	r.Set(metric.EndpointUp, 1)
	r.Stamp(metric.Fast, now)
	return r, histograms
}

func (s *served) settleGauges(r collector.Readings, read uint64) {
	for i := range s.gauges {
		g := &s.engine.gauges[i]
		v := s.gauges[i].gauge(read, g.combine)
		if g.more != nil {
			v += zeroIfUnknown(s.more[i].gauge(read, func(a, b float64) float64 { return a + b }))
		}
		if g.less != nil {
			v = max(0, v-s.less[i].gauge(read, g.combine))
		}
		if g.over != nil {
			v /= s.over[i].gauge(read, g.combine)
		}
		if g.row.Plausible(v) && !r.Has(g.row) {
			r.Set(g.row, v)
		}
	}
}

// page is what the window keeps of what the page says.
func (s *served) page(r collector.Readings, histograms []collector.Histogram, now time.Time) demand.Page {
	p := demand.Page{
		At: now, Running: r.Value(metric.RequestsRunning), Waiting: r.Value(metric.RequestsWaiting), KV: r.Value(metric.KVCacheUsage),
		Generated: r.Value(metric.GeneratedTokens), Ended: math.NaN(), Queue: demand.Unknown(), Duration: demand.Unknown(),
	}
	for i, outcome := range metric.Outcomes.Values {
		if v := r.ValueAt(metric.Requests, i); !math.IsNaN(v) && outcome != rejected {
			p.Ended = v + zeroIfUnknown(p.Ended)
		}
	}
	for i := range s.sums {
		told := demand.Sum{Seconds: s.sums[i].seconds.told(0), Count: s.sums[i].count.told(0)}
		switch s.engine.sums[i].of {
		case metric.QueueTimeMean:
			p.Queue = told
		case metric.RequestDurationMean:
			p.Duration = told
		}
	}
	for _, h := range histograms {
		told := demand.Sum{Seconds: h.Sum, Count: float64(h.Count())}
		switch h.Row {
		case metric.QueueTime:
			p.Queue, p.QueueTimes = told, h
		case metric.RequestDuration:
			p.Duration = told
		}
	}
	return p
}

func zeroIfUnknown(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}
