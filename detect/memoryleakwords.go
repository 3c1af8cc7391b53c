package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/rules"
)

// What a growth like a leak is worth in nats. On 120 days of 138 real series of GPU duty, GPU
// memory and pod memory that do not leak, at most 0.12 of them a week score 1, and what
// scores 0.8 does so for 0.6 hours, exponentially distributed up to 2.6: after an hour a third
// is left, at most.
const (
	leakNats    = 2.1
	leakPerHour = 1
	leakMost    = 12
)

// leakSurprise is how unlikely it is, in nats, that a reading which does not leak grows for
// so long as if it did.
func leakSurprise(lasted time.Duration) float64 {
	return min(leakNats+leakPerHour*lasted.Hours(), leakMost)
}

// surprise is that of a reading's growth, 0 if there is none.
func (w *leakSeries) surprise(now time.Time) float64 {
	if w.since.IsZero() {
		return 0
	}
	return leakSurprise(now.Sub(w.since))
}

func (d *MemoryLeak) tell(s *collector.Snapshot, w *leakSeries, report func(Observation)) {
	g := w.leak.Growth()
	o := Observation{Subject: w.subject, Cause: w.of.Cause, Score: g.Score, Owner: w.of.Owner, GPU: s.GPUByUUID(w.of.UUID)}
	if o.GPU != nil && o.Owner.Kind == "" {
		o.Owner = holder(o.GPU)
	}
	if g.Score >= 1 && d.now.Sub(w.since) < leakLasts {
		o.Score = 0.9 // a false one is over by then
	}
	soonest, likely, latest := g.Until(w.limit, d.now.Add(-d.moved))
	if o.Score >= 1 && !w.matters(likely, d.now) {
		o.Score = 0.9
	}
	if o.Score >= 1 {
		o.At, o.Surprise = g.At.Add(d.moved-g.Over), w.surprise(d.now)
		o.Severity = rules.Info
		if likely < leakSoon {
			o.Severity = rules.Ticket
		}
		if d.now.Sub(w.toldAt) >= time.Minute || w.told.Seen == "" {
			w.told, w.toldAt = d.evidence(s, w, g, soonest, likely, latest), d.now
		}
		o.Evidence = w.told
	}
	report(o)
}

func (d *MemoryLeak) evidence(s *collector.Snapshot, w *leakSeries, g stream.Growth, soonest, likely, latest time.Duration) Evidence {
	began := g.At.Add(d.moved - g.Over)
	what, title, unit := w.words(s)
	level := w.level
	if w.of.Cause == kvCache {
		level = g.Level // what is beside the requests is an estimate, which a minute may throw far off
	}
	seen := fmt.Sprintf("%s grows by %s an hour since %s (from %s to %s)", what, unit(3600*g.PerSecond), timeOf(began, d.now), unit(g.Level-g.Rise), unit(level))
	seen += w.ends(soonest, likely, latest)
	want := g.Level - g.Rise
	ev := Evidence{
		Title: title, Seen: seen, Expected: "no steady growth of " + percentOf(0.08) + " or more, from about " + unit(want),
		Observed: level, Want: &want, Confidence: Likely,
		Why: fmt.Sprintf("a trend over %s (Mann–Kendall z %s), for %s", span(g.Over), significant(g.Z, 2), span(d.now.Sub(w.since))),
	}
	if w.of.Cause == openFiles {
		ev.Action = "See what it opens and does not close (ls -l /proc/PID/fd, as its user), and restart the workload before the limit: at it nothing can be opened any more, no connection either."
	}
	if w.surprise(d.now) >= 6.9 { // less than one in a thousand a week
		ev.Confidence = VerySure
	}
	return ev
}

// ends says when there is no more to take.
func (w *leakSeries) ends(soonest, likely, latest time.Duration) string {
	files, full := w.of.Cause == openFiles, "full"
	if files {
		full = fmt.Sprintf("at its limit of %.0f", w.limit)
	}
	switch {
	case math.IsNaN(w.limit) && files:
		return "; it has no limit"
	case math.IsNaN(w.limit):
		return "; when it is full is not known"
	case likely > 365*24*time.Hour:
		return ", not " + full + " within a year"
	case likely <= 0:
		return ", " + full + " now"
	}
	return ", " + full + " in " + rangeOf(soonest, likely, latest)
}

// words says what a reading is, and how its values are written.
func (w *leakSeries) words(s *collector.Snapshot) (what, title string, unit func(float64) string) {
	whose := ""
	if w.of.Owner.Kind != "" {
		whose = " of " + w.of.Owner.Kind + " " + w.of.Owner.ID
	}
	switch w.of.Cause {
	case kvCache:
		return "KV cache of " + nameOf(w.of.Endpoint) + " beside that of its running requests", "KV cache leaks", func(x float64) string { return significant(100*x, 2) + " %" }
	case openFiles:
		return "open files of a process" + whose, "Open files leak", func(x float64) string { return significant(x, 3) + " files" }
	case hostMemory:
		return "host memory (anon and shmem)" + whose, "Host memory leaks", gibibytes
	}
	what = "GPU memory" + whose
	if g := s.GPUByUUID(w.of.UUID); g != nil {
		what += fmt.Sprintf(" on GPU %d", g.Index)
	}
	if w.of.MIG != "" {
		what += " instance " + w.of.MIG
	}
	return what, "GPU memory leaks", gibibytes
}

func nameOf(e collector.EndpointKey) string {
	if e.Model != "" {
		return e.Model
	}
	return e.URL
}

// timeOf writes a time of the last day without its date.
func timeOf(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.UTC().Format("15:04") + " UTC"
	}
	return t.UTC().Format("Jan 2 15:04") + " UTC"
}

func isInstance(mig string, gi, ci int) bool {
	a, b, ok := strings.Cut(mig, "/")
	x, err := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return ok && err == nil && err2 == nil && x == gi && y == ci
}

// Shift moves when readings were taken; the trends keep a clock of their own.
func (d *MemoryLeak) Shift(by time.Duration) {
	d.moved += by
	shift(by, &d.now)
	for uuid, at := range d.lists {
		d.lists[uuid] = at.Add(by)
	}
	for _, w := range d.order {
		shift(by, &w.made, &w.known, &w.at, &w.since, &w.last, &w.toldAt)
		w.minute.shift(by)
		w.told = Evidence{} // it names times
	}
}

type memoryLeakMemory struct {
	Version int           `json:"version"`
	Moved   time.Duration `json:"moved,omitempty"`
	Series  []leakMemory  `json:"series"`
}

type leakMemory struct {
	leakOf
	First processID `json:"first,omitzero"`
	Known time.Time `json:"known,omitzero"`
	At    time.Time `json:"at"`
	Since time.Time `json:"since,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	From  float64   `json:"from,omitempty"`
	Level float64   `json:"level"`
	KV    kvLearned `json:"kv,omitzero"`
	Leak  []byte    `json:"leak"`
}

// Save returns the trend of each reading, 1.6 KiB each.
func (d *MemoryLeak) Save() ([]byte, error) {
	m := memoryLeakMemory{Version: 1, Moved: d.moved, Series: []leakMemory{}}
	for _, w := range d.order {
		packed, err := w.leak.MarshalBinary()
		if err != nil {
			return nil, err
		}
		m.Series = append(m.Series, leakMemory{w.of, w.first, w.known, w.at, w.since, w.last, w.from, w.level, w.kv.learned, packed})
	}
	return json.Marshal(m)
}

// Restore takes up what Save returned.
func (d *MemoryLeak) Restore(data []byte) error {
	var m memoryLeakMemory
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	n := NewMemoryLeak()
	n.moved = m.Moved
	for _, k := range m.Series[:min(len(m.Series), leakSeriesMost)] {
		w := newLeakSeries(k.leakOf)
		if err := w.leak.UnmarshalBinary(k.Leak); err != nil {
			return fmt.Errorf("its memory of %s of %s is damaged: %w", k.Cause, w.subject, err)
		}
		w.first, w.oldest, w.known, w.at, w.since, w.last, w.from, w.level = k.First, k.First, k.Known, k.At, k.Since, k.Last, k.From, k.Level
		w.kv.learned = k.KV
		w.kv.learned.Minutes = max(0, min(k.KV.Minutes, kvMemory))
		if w.subject.ID == "" || n.series[w.of] != nil {
			continue
		}
		n.series[w.of] = w
		n.order = append(n.order, w)
	}
	*d = *n
	return nil
}
