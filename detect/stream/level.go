package stream

import (
	"math"
	"time"
)

// A statistic looks at one side of one aspect of a series. The first ones come in
// pairs: even numbers look above, odd ones below.
const (
	fastResidual  = 2 * iota // the sample and the mean of the last minutes
	slowResidual             // the sample and the mean of the last hours
	shortShift               // means over shorter and longer times
	middleShift              //
	longShift                //
	sustained                // the least sample of some minutes and the level of a day
	longSustained            // the same for an hour or more
	beyond                   // the sample and the ends of what has been seen
	repeated                 // how often there have been such residuals lately
	seasonal                 // the sample and what is usual at this time of day or week
	pairedEnd                // the pairs end here
)

const (
	seasonalMean    = pairedEnd + iota // the same over some samples, both sides
	change                             // the sample and the one before, both sides
	quiet                              // how much calmer the series is than usual
	stuck                              // for how long a value away from the lower end has not changed at all
	afterLast                          // how rare the level is after the last one
	atHour                             // how rare the level is at this hour
	levelStatistics                    // the number of them
)

// absent is the value of a statistic that cannot be told.
const absent = -math.MaxFloat64

// levelLaw has the parameters of a Level, chosen together and once for all
// readings.
//
// Memories are in samples of a series with one sample in five minutes. One that is
// sampled every h seconds has (300/h)^pace times as many: between the same number of
// samples (0) and the same time (1), because faster series show both faster and longer
// events.
type levelLaw struct {
	pace float64

	fast, slow           float64 // memory of the means that residuals are taken to
	short, long          [3]float64
	base                 float64    // memory of the level of a day
	windows              [2]float64 // of sustained and longSustained
	calm, usual          float64    // memory of the deviation now, and as it usually is
	ends                 float64    // memory of the lowest and highest value
	burst, repeats       float64    // memory of how much evidence there has been, of all and of slowResidual
	seasonal             float64    // memory of seasonalMean
	spread               float64    // part of the usual deviation that is added to a slot's own
	tail                 tailLaw
	weights              [levelStatistics]float64
	others               float64 // weight of all statistics but the strongest
	calibrated           float64 // weight of the calibrated evidence; the rest is the plain one's
	second               float64 // weight of the weaker of the two, now and lately
	burstMost            float64 // most that one sample adds to what has been lately
	halfLife             float64 // samples after which what was learned counts half
	young, grown         float64 // nats per e-fold of missing history, and the samples of a full one
	effect, effectNats   float64 // a change smaller than this part of the level loses evidence, up to so many nats
	repeat, repeatMemory float64 // nats per e-fold of earlier alarms, which are remembered for so many samples
	finer, coarser       float64 // nats per e-fold of the time between samples, below and above five minutes
	finest, faster       float64 // seconds: the shortest time between samples that finer was learned from; nats per e-fold below
	far, wider           float64 // what is so many spans beyond the ends is strange; what stays so widens them by so many at a time
	held                 uint8   // strange samples in a row that teach nothing
	open                 float64 // weight of what is learned in an alarm
	worse                float64 // an open alarm is raised again when the evidence has grown by this factor
	threshold            float64 // nats
}

const (
	levelSilence = time.Hour // an alarm is one for so long, and while its evidence stays
	levelYoung   = 60        // samples without any alarm at the start
	levelStays   = 0.9       // of the threshold: below, an alarm ends with its silence
	levelGap     = 6         // steps without a sample after which the recent past is forgotten
	evidenceMost = 12        // nats of one residual that count for repeated
	levelUnit    = 300       // seconds: the step that memories are stated for
	weekAfter    = 8 * 24 * time.Hour
)

// Level tells how unusual each sample of one series is, whatever the series is: it
// learns from the series alone, in one pass, and has no settings.
//
// Some twenty statistics look for values, shifts, sustained levels, repeated bursts,
// frozen values and levels at the wrong time. Each knows its own history as a Tail, and so
// speaks in nats: -ln of the probability of something as large. The strongest and a part
// of the others make the evidence of the sample, which again is held against its own
// history (the anomaly likelihood of Ahmad, Lavin, Purdy and Agha 2017, Unsupervised
// real-time anomaly detection for streaming data, section 3.2, with a Tail in place of
// their normal distribution), at once and as a mean of the last minutes.
//
// The zero Level is ready to use.
type Level struct {
	samples      uint32
	first, last  int64 // Unix nanoseconds
	x            float64
	step         float64 // seconds between samples
	scale        float64 // of memories: (levelUnit/step)^pace
	pace         levelPace
	fresh        float64 // reciprocal of the number of samples, with this one
	fast, slow   float64
	short, long  [3]float64
	base         float64
	calm, usual  float64
	low, high    float64
	seasonalMean float64
	repeats      [2]float64
	burst        float64
	alarms       float64
	still        uint32
	strange      uint8 // strange samples in a row, this one included
	windows      [2]extremes
	contexts     contexts
	season       season
	tails        [levelStatistics]Tail
	now, lately  Tail
	unit         float64 // weight of a new sample; grows from tailUnit to its double
	carry        float64
	silentUntil  int64
	raised       float64 // evidence of the open alarm
	open         bool
	evidence     float64
	strongest    uint8
}

// values are those of all statistics for one sample.
type values [levelStatistics]float64

// Add takes the next sample and returns its score: 1 and above is an alarm by the
// detector's own threshold, which is raised once for an event and again only if it gets
// worse. A sample that is not a finite number, or no newer than the last, is
// ignored and scores 0.
func (l *Level) Add(at time.Time, x float64) (score float64) {
	if !(math.Abs(x) <= 1e150) { // squares stay finite
		return 0
	}
	if l.samples == 0 {
		l.begin(at, x)
		return 0
	}
	if l.last == unbegun {
		l.join(at, x)
		return 0
	}
	elapsed := time.Duration(at.UnixNano() - l.last).Seconds()
	if elapsed <= 0 {
		return 0
	}
	l.keepPace(elapsed)
	if elapsed > levelGap*l.step {
		l.resume(x)
	}
	if l.misbegun(x) {
		l.begin(at, x)
		return 0
	}
	var v values
	l.observe(at, x, l.trusted(x), &v)
	sum := l.sum(&v)
	l.evidence = l.judge(sum, x)
	l.learn(sum, &v)
	l.last, l.x = at.UnixNano(), x
	l.samples++
	if l.samples <= levelYoung {
		return 0
	}
	return l.decide(at)
}

// Evidence returns how unlikely the last sample was, in nats, whether it was an alarm or
// part of one; below zero where it was usual.
func (l *Level) Evidence() float64 { return l.evidence }

// Usual returns the level that the series has had lately, about a day long.
func (l *Level) Usual() float64 { return l.base }

// Open tells whether the last sample belongs to an alarm that was raised.
func (l *Level) Open() bool { return l.open }

func (l *Level) begin(at time.Time, x float64) {
	now := at.UnixNano()
	*l = Level{samples: 1, first: now, last: now, x: x, fast: x, slow: x, base: x, low: x, high: x, scale: 1, unit: tailUnit}
	l.pace.set(l)
	for i := range l.short {
		l.short[i], l.long[i] = x, x
	}
}

// resume forgets the recent past after a hole: nobody knows what it was.
func (l *Level) resume(x float64) {
	l.fast, l.x, l.still = x, x, 0
	l.windows = [2]extremes{}
}

// observe brings the values of all statistics up to date with a sample, of which the
// means are taught only what is known to be true.
func (l *Level) observe(at time.Time, x, known float64, v *values) {
	l.fresh = 1 / (float64(l.samples) + 1)
	pair := func(k int, above float64) { v[k], v[k+1] = above, -above }
	move := func(mean *float64, x, part float64) { approach(mean, x, part, l.fresh) }
	p := &l.pace

	pair(fastResidual, x-l.fast)
	pair(slowResidual, x-l.slow)
	v[change] = math.Abs(x - l.x)
	deviation := math.Abs(known - l.slow)
	move(&l.calm, deviation, p.calm)
	move(&l.usual, deviation, p.usual)
	v[quiet] = absent
	if l.calm > 0 {
		v[quiet] = l.usual / l.calm
	}
	recent := l.slow
	move(&l.fast, known, p.fast)
	move(&l.slow, known, p.slow)
	for i := range l.short {
		move(&l.short[i], known, p.short[i])
		move(&l.long[i], known, p.long[i])
		pair(shortShift+2*i, l.short[i]-l.long[i])
	}
	for i := range l.windows {
		k := sustained + 2*i
		v[k], v[k+1] = absent, absent
		if low, high, ok := l.windows[i].add(x, p.block[i]); ok {
			v[k], v[k+1] = low-l.base, l.base-high
		}
	}
	move(&l.base, known, p.base)
	l.observeSeason(at, x, known, recent, v)
	l.observeLevels(at, x, known, v)
	v[repeated], v[repeated+1] = l.repeats[0], l.repeats[1]
}

func (l *Level) observeSeason(at time.Time, x, known, recent float64, v *values) {
	v[seasonal], v[seasonal+1], v[seasonalMean] = absent, absent, absent
	if time.Duration(at.UnixNano()-l.first) >= weekAfter {
		l.season.growWeek()
	}
	usual, deviation, ok := l.season.expected(at, known, recent, l.fresh)
	if spread := deviation + float64(law.spread*l.usual); ok && spread > 0 {
		z := (x - usual) / spread
		v[seasonal], v[seasonal+1] = z, -z
		approach(&l.seasonalMean, (known-usual)/spread, l.pace.seasonal, l.fresh)
		v[seasonalMean] = math.Abs(l.seasonalMean)
	}
}

// observeLevels looks at the reading in tenths of the span that it has lately had.
func (l *Level) observeLevels(at time.Time, x, known float64, v *values) {
	span := l.high - l.low
	level := 0
	if span > 0 {
		level = int(max(-1, min(float64((x-l.low)/span*(contextLevels-2)), contextLevels-2))) + 1
	}
	v[beyond], v[beyond+1] = x-l.high, l.low-x
	memory := l.pace.ends
	l.low = min(known, l.low+(known-l.low)/memory)
	l.high = max(known, l.high+(known-l.high)/memory)
	v[afterLast], v[atHour] = l.contexts.add(level, int(floorMod(floorDiv(at.Unix(), 3600), 24)))
	if x > l.low+float64(0.05*span) {
		if x == l.x {
			l.still++
		} else {
			l.still = 0
		}
	}
	v[stuck] = float64(l.still)
}

// sum returns the evidence of all statistics, the strongest in full.
func (l *Level) sum(v *values) float64 {
	all, most := 0.0, 0.0
	take := func(k int) (e float64) {
		if t, x := &l.tails[k], v[k]; x > 0 && !t.usual(x) {
			e = float64(t.surprise(x, l.unit, &law.tail) * law.weights[k])
			all += e
			if e > most {
				most, l.strongest = e, uint8(k)
			}
		}
		return e
	}
	for k := 0; k < pairedEnd; k += 2 {
		switch k {
		case repeated:
			take(k)
			take(k + 1)
		case slowResidual:
			up := v.positive(k)
			e := [2]float64{}
			e[up] = take(k + up)
			for i := range e {
				approach(&l.repeats[i], min(e[i], evidenceMost), l.pace.repeats, l.fresh)
			}
		default:
			take(k + v.positive(k))
		}
	}
	for k := pairedEnd; k < levelStatistics; k++ {
		take(k)
	}
	return most + float64(law.others*(all-most))
}

// positive returns which of a pair of statistics may be above zero, 0 for the first. Of
// repeated both may be.
func (v *values) positive(k int) int { return int(math.Float64bits(v[k]) >> 63) }

// judge holds a sum of evidence against those of the past, now and lately, and returns
// the evidence that counts.
func (l *Level) judge(sum, x float64) float64 {
	approach(&l.burst, min(sum, law.burstMost), l.pace.burst, l.fresh)
	now := mix(law.calibrated, l.now.surprise(sum, l.unit, &law.tail), sum)
	lately := mix(law.calibrated, l.lately.surprise(l.burst, l.unit, &law.tail), l.burst)
	e := max(now+float64(law.second*lately), lately+float64(law.second*now))

	n := float64(l.samples)
	if grown := float64(law.grown * l.scale); n < grown {
		e += float64(law.young * ln(grown/n))
	}
	e -= float64(law.repeat * ln(1+l.alarms))
	l.alarms *= l.pace.fade
	return e + l.pace.coarse - l.slight(x)
}

func mix(part, a, b float64) float64 { return float64(part*a) + float64((1-part)*b) }

// slight returns the nats that a change loses because it is small beside the level:
// what is unlikely need not matter.
func (l *Level) slight(x float64) float64 {
	level := float64(law.effect * math.Abs(l.base))
	effect := max(math.Abs(x-l.base), math.Abs(l.short[0]-l.base), math.Abs(x-l.x))
	switch {
	case level <= effect:
		return 0
	case effect <= 0:
		return law.effectNats
	}
	return min(law.effectNats, ln(level/effect))
}

// learn lets the sample count. In an alarm it counts less, so that what is wrong is not
// soon the new usual.
func (l *Level) learn(sum float64, v *values) {
	l.carry += l.unit
	if l.samples > levelYoung && (l.open || l.evidence >= law.threshold) {
		l.carry -= float64((1 - law.open) * l.unit)
	}
	weight := uint32(l.carry)
	l.carry -= float64(weight)
	settle := l.samples%64 == 0 || l.samples < 100 || l.samples < 2000 && l.samples%16 == 0
	if l.samples > 10 {
		l.count(weight, v)
		for k := range l.tails {
			if !settle {
				break
			}
			l.tails[k].settle()
		}
	}
	if l.samples > 30 {
		l.now.add(sum, weight)
		l.lately.add(l.burst, weight)
		if settle {
			l.now.settle()
			l.lately.settle()
		}
	}
	if l.unit *= 1 + math.Ln2/law.halfLife; l.unit >= 2*tailUnit {
		l.unit /= 2
		for k := range l.tails {
			l.tails[k].forget()
		}
		l.now.forget()
		l.lately.forget()
	}
}

// count lets the values of all statistics count so much.
func (l *Level) count(weight uint32, v *values) {
	single := func(k int) {
		if v[k] != absent {
			l.tails[k].add(v[k], weight)
		}
	}
	for k := 0; k < pairedEnd; k += 2 {
		switch {
		case k == repeated:
			single(k)
			single(k + 1)
		case v[k] != absent:
			up := k + v.positive(k)
			l.tails[up].add(v[up], weight)
			l.tails[up^1].below(weight)
		}
	}
	for k := pairedEnd; k < levelStatistics; k++ {
		single(k)
	}
}

// decide turns evidence into a score. Within an alarm the score stays below 1, unless
// the evidence has grown much since it was raised.
func (l *Level) decide(at time.Time) float64 {
	score := l.evidence / law.threshold
	now := at.UnixNano()
	if now < l.silentUntil {
		if score > levelStays {
			l.silentUntil = now + int64(levelSilence)
		}
		l.open = true
		if l.evidence > float64(law.worse*l.raised) {
			l.raised = l.evidence
			return score
		}
		return min(score, 0.5)
	}
	l.open = false
	if score >= 1 {
		l.raised = l.evidence
		l.alarms++
		l.silentUntil = now + int64(levelSilence)
		l.open = true
	}
	return max(score, 0)
}
