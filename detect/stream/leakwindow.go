package stream

import "math"

// What makes a trend a leak. Each is a threshold, and the score is the least of the
// ratios to them: a leak has to pass all.
const (
	leakZ       = 3.5  // Mann–Kendall, for windows of 12 blocks, where 4.5 is the most there can be
	leakLongZ   = 4    // for longer ones
	leakSpread  = 12   // rise, in median absolute residuals
	leakEffect  = 0.08 // rise, as a share of the level: less is of no practical interest
	leakQuarter = 0.35 // rise from each quarter of the window to the next, in its fair share
	leakLate    = 0.7  // slope of the second half, in that of the whole
	leakEbbs    = 0.9  // of the slope of the first half: what is surely below will level off
	leakSure    = 3    // standard errors of each slope
	leakUsual   = 1.5  // rise, in the mean of what windows rise or fall
	leakCame    = 1.2  // rise, in the largest that came and went

	leakNearly      = 0.85 // score from which a rise is remembered, to see whether it goes again
	leakMemory      = 576  // windows of the first level that the mean is over: two days
	leakLeastMemory = 100  // windows of any level
	leakForget      = 7 * 86400
)

// leakWindow is what the windows of one length learned of the series.
type leakWindow struct {
	usual    float32 // mean of what they rose or fell
	weight   uint16  // how many it is of
	came     float32 // the largest rise that came and went; half of it is forgotten in a week
	cameAt   int64   // second of its last halving
	pending  float32 // the largest rise that has not gone yet, 0 for none
	halfBack float32 // below this level it has
	ebbs     bool    // what rises in it will level off
}

func (w *leakWindow) restart() { w.pending, w.ebbs = 0, false }

// judge returns the score of a trend that ends at the given second.
func (w *leakWindow) judge(t Trend, ts []int, ys []float64, second int64, young bool, scratch *trendScratch) float64 {
	w.settle(t.Level, second)
	w.ebbs = false
	rise := t.Rise()
	if !(rise > 0) || young {
		return 0
	}
	z := leakZ
	if t.N > leakWidths[0] {
		z = leakLongZ
	}
	start := t.Level - rise
	s := t.Z / z
	s = min(s, over(rise, leakSpread*t.Spread))
	s = min(s, over(rise, leakEffect*max(math.Abs(t.Level), math.Abs(start))))
	s = min(s, over(rise, leakUsual*float64(w.usual)))
	s = min(s, over(leastQuarter(ys, scratch), leakQuarter*rise/4))
	if s < 0.5 { // the rest costs time and can only take away
		return max(s, 0)
	}
	half := len(ys) / 2
	early, late := newTrend(ts[:half], ys[:half], scratch), newTrend(ts[half:], ys[half:], scratch)
	w.ebbs = late.Slope+float64(leakSure*late.slopeError()) < float64(leakEbbs*(early.Slope-float64(leakSure*early.slopeError())))
	s = min(s, over(late.Slope, leakLate*t.Slope))
	if s >= leakNearly && rise > float64(w.pending) {
		w.pending, w.halfBack = float32(rise), float32(t.Level-float64(rise/2))
	}
	return max(min(s, over(rise, leakCame*float64(w.came))), 0)
}

// settle finds out whether the pending rise has gone, and forgets.
func (w *leakWindow) settle(level float64, second int64) {
	if age := second - w.cameAt; age < 0 || age > 64*leakForget {
		w.cameAt = second
		if age > 0 {
			w.came = 0
		}
	}
	for ; second-w.cameAt >= leakForget; w.cameAt += leakForget {
		w.came /= 2
	}
	if w.pending > 0 && level < float64(w.halfBack) {
		w.came, w.pending = max(w.came, w.pending), 0
	}
}

// learn takes a window into the mean. A leak makes itself usual only slowly: one that
// moves more than twice the mean counts as twice, and the mean begins as if nothing
// had moved for as many blocks as the window has.
func (w *leakWindow) learn(t Trend, width, memory int) {
	rise, usual := math.Abs(t.Rise()), float64(w.usual)
	if usual > 0 {
		rise = min(rise, 2*usual)
	}
	w.weight = uint16(min(max(int(w.weight), width/6)+1, memory))
	w.usual = float32(usual + (rise-usual)/float64(w.weight))
}

// leastQuarter returns the least that the median of a quarter of the values is above
// that of the quarter before: small where one step, or the beginning, makes the rise.
func leastQuarter(ys []float64, scratch *trendScratch) float64 {
	n, least, before := len(ys), math.Inf(1), 0.0
	for i := range 4 {
		part := scratch.values[:copy(scratch.values[:], ys[i*n/4:(i+1)*n/4])]
		m := medianOf(part)
		if i > 0 {
			least = min(least, m-before)
		}
		before = m
	}
	return least
}

// over is a / b, large where b is nothing to speak of.
func over(a, b float64) float64 {
	const most = 1e6
	if !(b > 0) {
		b = math.SmallestNonzeroFloat64
	}
	return max(-most, min(a/b, most))
}
