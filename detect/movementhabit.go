package detect

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

const (
	maxClasses    = 128
	classesKept   = 30 * 24 * time.Hour
	hoursHalfLife = 30 * 24 * time.Hour
	rareQuantile  = 0.999              // of the hours' totals
	hoursKnown    = 20                 // whole hours before there is a habit
	newFor        = 7 * 24 * time.Hour // a network is new for so long after the first connection to it
	networksKept  = 30 * 24 * time.Hour
	maxKnown      = 256 // networks of a class
	quietHours    = 24  // after so many hours of habit what has added up is over
	suspectHours  = 24  // unusual hours, while there is a new network, that together make what is rare
	minuteLayout  = "2006-01-02 15:04 UTC"
)

// movedClass is what is usual of a class of workloads. Amounts of its histograms are in
// gigabytes, which they resolve best. Its exported fields survive a restart.
type movedClass struct {
	First    time.Time                     `json:"first"`
	Seen     time.Time                     `json:"seen"`
	Hours    [directions]*stream.Histogram `json:"hours"`   // totals of an owner's whole hours
	Totals   *stream.Histogram             `json:"totals"`  // egress of all its owners in whole hours
	Egress   hourSum                       `json:"egress"`  // of all its owners, in this hour
	Mean     float64                       `json:"mean"`    // of those, in gigabytes
	Present  bool                          `json:"present"` // an owner was there in this hour
	Sum      float64                       `json:"sum"`     // of what went out above habit, in bytes
	Since    time.Time                     `json:"since"`   // that it adds up
	Quiet    int                           `json:"quiet"`   // hours of habit in a row
	Networks []knownNetwork                `json:"networks"`

	now    [movedReadings]flowMean
	moves  [movedReadings]bool     // what was ever above 0 since the agent began
	leader *mover                  // sent the most of its owners
	limits [directions + 1]float64 // of an owner's hours, and of what adds up; 0: to be found
	odd    oddMovement
	told   Evidence
	toldAt time.Time
}

// knownNetwork is a public network that the class has had connections to. Where they are
// counted and not told, as in a recording, one more than ever is taken for a new one.
type knownNetwork struct {
	Network netip.Prefix `json:"network"`
	Number  int          `json:"number,omitempty"`
	First   time.Time    `json:"first"`
	Last    time.Time    `json:"last"`
}

// oddMovement is what was last unlike the class's habit.
type oddMovement struct {
	reading               int
	mean, score, surprise float64
	until                 time.Time
	told                  Evidence
}

func (u *oddMovement) amount() string {
	switch u.reading {
	case perToken:
		return significant(u.mean/1e3, 3) + " kB"
	case perGPUSecond:
		return significant(u.mean/1e6, 3) + " MB"
	}
	return significant(u.mean/1e6, 3) + " MB/s"
}

type flowMean struct {
	sum   float64
	count int
}

func (t *flowMean) add(x float64) { t.sum, t.count = t.sum+x, t.count+1 }

// hourSum adds up what was moved in an hour of the clock.
type hourSum struct {
	Hour    int64   `json:"hour"` // since the epoch; 0: none
	Bytes   float64 `json:"bytes"`
	Partial bool    `json:"partial,omitempty"` // it was not watched from its beginning
	spoiled bool    // there was a finding in it
}

// add takes up bytes. It returns the total of the hour before when that is over and was
// watched from its beginning.
func (m *hourSum) add(at time.Time, bytes float64) (whole float64, ok bool) {
	whole, ok = m.roll(at)
	m.Bytes += bytes
	return whole, ok
}

func (m *hourSum) roll(at time.Time) (whole float64, ok bool) {
	h := hour(at)
	if h <= m.Hour {
		return 0, false
	}
	whole, ok = m.Bytes, m.Hour > 0 && !m.Partial && h == m.Hour+1
	*m = hourSum{Hour: h, Partial: m.Hour == 0 || h != m.Hour+1, spoiled: m.spoiled}
	return whole, ok
}

// lastHour adds up what was moved in the last 60 minutes.
type lastHour struct {
	Minute int64       `json:"minute"` // the newest, since the epoch
	Bytes  [60]float64 `json:"bytes"`  // of minute n at n modulo 60
}

func minuteOf(t time.Time) int64 { return max(t.Unix()/60, 0) }

func (l *lastHour) slide(minute int64) {
	if minute-l.Minute >= int64(len(l.Bytes)) || minute < l.Minute-int64(len(l.Bytes)) {
		l.Bytes, l.Minute = [60]float64{}, minute
	}
	for ; l.Minute < minute; l.Minute++ {
		l.Bytes[(l.Minute+1)%60] = 0
	}
}

func (l *lastHour) add(at time.Time, bytes float64) {
	l.slide(minuteOf(at))
	l.Bytes[minuteOf(at)%60] += bytes
}

func (l *lastHour) total(now time.Time) float64 {
	l.slide(minuteOf(now))
	sum := 0.0
	for _, b := range l.Bytes {
		sum += b
	}
	return sum
}

func newMovedClass(now time.Time) *movedClass {
	c := &movedClass{First: now, Totals: stream.NewHistogram(hoursHalfLife)}
	for i := range c.Hours {
		c.Hours[i] = stream.NewHistogram(hoursHalfLife)
	}
	return c
}

// class returns what is usual of a class; nil if there is no room.
func (d *Movement) class(k class, now time.Time) *movedClass {
	c := d.classes[k]
	if c == nil {
		if !room(d.classes, maxClasses, classesKept, func(c *movedClass) time.Time { return c.Seen }, now) {
			return nil
		}
		c = newMovedClass(now)
		d.classes[k] = c
	}
	c.Seen = now
	return c
}

// mature reports whether the class was watched for long enough to know what is new.
func (c *movedClass) mature(now time.Time) bool { return now.Sub(c.First) >= habitMature }

// connect notes the public networks that an owner holds connections to.
func (c *movedClass) connect(w *collector.Workload, at time.Time) {
	public := w.ValueAt(metric.WorkloadRemotes, 1)
	if !(public > 0) {
		return
	}
	if len(w.Networks) == 0 {
		for i := range int(min(public, maxKnown)) {
			c.know(knownNetwork{Number: i + 1, First: at, Last: at})
		}
	}
	for _, n := range w.Networks {
		c.know(knownNetwork{Network: n, First: at, Last: at})
	}
}

func (c *movedClass) know(n knownNetwork) {
	oldest, at := 0, n.Last
	for i := range c.Networks {
		k := &c.Networks[i]
		if k.Network == n.Network && k.Number == n.Number {
			k.Last = later(k.Last, at)
			return
		}
		if k.Last.Before(c.Networks[oldest].Last) {
			oldest = i
		}
	}
	if len(c.Networks) >= maxKnown {
		c.Networks = slices.Delete(c.Networks, oldest, oldest+1)
	}
	c.Networks = append(c.Networks, n)
}

// newNetworks returns how many networks are new to the class.
func (c *movedClass) newNetworks(now time.Time) int {
	n := 0
	for i := range c.Networks {
		if c.isNew(&c.Networks[i], now) {
			n++
		}
	}
	return n
}

func (c *movedClass) isNew(k *knownNetwork, now time.Time) bool {
	return k.First.Sub(c.First) >= habitMature && now.Sub(k.First) < newFor
}

// newest returns when the class was first connected to the newest of the new networks.
func (c *movedClass) newest(now time.Time) (at time.Time) {
	for i := range c.Networks {
		if k := &c.Networks[i]; c.isNew(k, now) {
			at = later(at, k.First)
		}
	}
	return at
}

// learnHour lets an owner's whole hour count.
func (c *movedClass) learnHour(direction int, at time.Time, bytes float64, spoiled bool) {
	if spoiled {
		return
	}
	weight := 1.0
	if r := rare(c.Hours[direction]); r > 0 && bytes > r*giga && c.newNetworks(at) > 0 {
		weight = suspectWeight(c.Hours[direction])
	}
	c.Hours[direction].Add(at, bytes/giga, weight)
	c.limits = [directions + 1]float64{}
}

// rare returns what an hour's total exceeds one time in a thousand, in gigabytes; where
// fewer hours are known, what the largest of them would be of a thousand. Zero if too
// few are known.
func rare(h *stream.Histogram) float64 {
	n := h.Weight()
	if n < hoursKnown {
		return 0
	}
	return h.Quantile(rareQuantile) * math.Pow(max(1, 1000/n), 1./tailPower)
}

// suspectWeight is how much an unusual hour teaches while there is a new network: what
// goes on must not become the habit, by which it is judged, before it has been told of.
// Only so many such hours together weigh as much as what is above the quantile of rare,
// however few hours are known.
func suspectWeight(h *stream.Histogram) float64 {
	return (1 - rareQuantile) * h.Weight() / suspectHours
}

func limitOf(h *stream.Histogram) float64 {
	if r := rare(h); r > 0 {
		return max(leastMoved, timesUsual*r*giga)
	}
	return 0
}

// hourLimit returns how many bytes of an hour are too many; 0 if it is not known.
func (c *movedClass) hourLimit(direction int) float64 {
	if c.limits[direction] == 0 {
		c.limits[direction] = limitOf(c.Hours[direction])
	}
	return c.limits[direction]
}

// slowLimit is the same of what adds up over hours.
func (c *movedClass) slowLimit() float64 {
	if c.limits[directions] == 0 {
		c.limits[directions] = limitOf(c.Totals)
	}
	return c.limits[directions]
}

// budget is what all owners of the class may send in an hour, in gigabytes, before it adds
// up: the 95th percentile, and twice the mean, so that a habit of bursts does not.
func (c *movedClass) budget() float64 { return max(c.Totals.Quantile(0.95), 2*c.Mean) }

// addUp takes up the class's hour when it is over. What went out above the budget is
// summed, as stream.CUSUM does. Hours without an owner say nothing.
func (c *movedClass) addUp(now time.Time) {
	before, present := c.Egress.Hour, c.Present
	total, ok := c.Egress.roll(now)
	if c.Egress.Hour == before {
		return
	}
	if c.Present = false; !ok || !present {
		return
	}
	weight := 1.0
	if c.Totals.Weight() >= hoursKnown {
		budget := c.budget() * giga
		if c.Quiet++; total > budget {
			if c.Quiet = 0; c.Sum == 0 {
				c.Since = now.Add(-time.Hour)
			}
			if c.newNetworks(now) > 0 {
				weight = suspectWeight(c.Totals)
			}
		}
		c.Sum = max(0, min(c.Sum+total-budget, 2*c.slowLimit()))
		if c.Quiet >= quietHours {
			c.Sum = 0
		}
	}
	c.Totals.Add(now, total/giga, weight)
	c.Mean += weight * (total/giga - c.Mean) / max(1, c.Totals.Weight())
	c.limits = [directions + 1]float64{}
}

// aNewNetwork returns how likely it is that a healthy class has a new network at a time,
// by how many it had since it was known: that of now is among them.
func (c *movedClass) aNewNetwork(now time.Time, within time.Duration) float64 {
	watched := max(now.Sub(c.First)-habitMature, habitMature)
	seen := 0
	for i := range c.Networks {
		if c.Networks[i].First.Sub(c.First) >= habitMature {
			seen++
		}
	}
	return min(1, float64(seen)*within.Hours()/watched.Hours())
}

func (c *movedClass) hourSurprise(direction int, bytes float64, now time.Time) float64 {
	r := rare(c.Hours[direction]) * giga
	return surpriseOf(hoursPerWeek * beyond(bytes, r, 0.001) * c.aNewNetwork(now, newFor))
}

func (c *movedClass) slowSurprise(now time.Time) float64 {
	excess := (rare(c.Totals) - c.Totals.Quantile(0.95)) / math.Log(50) // from one in 20 to one in 1,000
	return surpriseOf(crossings(c.Sum/giga, c.budget(), c.Mean, excess) * c.aNewNetwork(now, newFor))
}

func gigabytes(b float64) string { return significant(b/giga, 3) + " GB" }

func (c *movedClass) hourEvidence(w *collector.Workload, direction int, total, limit, surprise float64, now time.Time) Evidence {
	verb, title := "received", "Large download from a new network"
	if direction == egress {
		verb, title = "sent", "Large upload to a new network"
	}
	e := c.evidence(w, total, limit, surprise, now)
	e.Title = title
	e.Seen = fmt.Sprintf("%s %s within an hour; %s", verb, gigabytes(total), c.sawNew(now))
	return e
}

func (c *movedClass) slowEvidence(w *collector.Workload, limit, surprise float64, now time.Time) Evidence {
	e := c.evidence(w, c.Sum, limit, surprise, now)
	e.Title = "Slow upload to a new network"
	e.Seen = fmt.Sprintf("sent %s more than its habit since %s, never much in an hour; %s", gigabytes(c.Sum), c.Since.UTC().Format(minuteLayout), c.sawNew(now))
	return e
}

func (c *movedClass) sawNew(now time.Time) string {
	return fmt.Sprintf("connected to %s that it was never connected to before %s",
		count(c.newNetworks(now), "public network", "public networks"), c.newest(now).UTC().Format(minuteLayout))
}

func (c *movedClass) evidence(w *collector.Workload, observed, limit, surprise float64, now time.Time) Evidence {
	known := now.Sub(c.First)
	e := Evidence{Observed: observed, Want: &limit, Confidence: confidenceOf(surprise),
		Expected: fmt.Sprintf("at most %s, or known networks only", gigabytes(limit)),
		Why:      fmt.Sprintf("against %s of this kind of workload; %s", span(known), chance(surprise))}
	if known < newFor {
		e.Confidence = Young
	}
	if named := c.addresses(w, now); named != "" {
		e.Why += "; now connected to " + named
	}
	return e
}

// addresses names a few of the addresses in new networks. The snapshot has them only if
// the configuration allows it.
func (c *movedClass) addresses(w *collector.Workload, now time.Time) string {
	var named []string
	for _, a := range w.Remotes {
		for i := range c.Networks {
			if k := &c.Networks[i]; c.isNew(k, now) && k.Network.IsValid() && k.Network.Contains(a) && len(named) < 3 {
				named = append(named, a.String())
			}
		}
	}
	return strings.Join(named, ", ")
}
