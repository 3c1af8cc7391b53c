package stream

import (
	"math"
	"time"
)

const (
	leakLevels = 4 // of blocks: 5 min, 20 min, 80 min and 320 min
	leakFactor = 4
	leakYoung  = 24  // blocks of the first level after a beginning: what starts, grows
	leakDrop   = 0.5 // of the level half an hour before: less is a restart
	// What no sensor reads: it would leave the range of what is remembered.
	leakLargest = 1e36
)

// leakWidths are the lengths of the windows of each level in blocks. With the factor
// between levels they make windows of 1, 2, 4, … and 128 hours.
var leakWidths = [2]int{12, 24}

// Leak finds a reading that grows steadily and does not come back: memory, open
// files, a cache without a limit. It scores the trends of windows of 1 h to 5 days of
// block medians, see [leakWindow]; an alarm is a score of 1.
//
// It ignores what a leak does not do: steps, growth that ebbs, peaks, growth that is
// small or usual for this reading, and growth like one that came and went before. A
// drop to less than half is a restart, after which two hours pass before anything is
// said, as after the first sample. A hole in the samples counts neither way.
//
// Memory and time for a sample are constant.
type Leak struct {
	begun   bool
	since   int64 // number of the block that all began with
	open    block
	levels  [leakLevels]leakLevel
	best    Growth
	scratch trendScratch
}

// leakLevel is the blocks of one length and what their windows learned.
type leakLevel struct {
	ring    blockRing
	growth  Growth // of the best of its windows
	windows [len(leakWidths)]leakWindow
}

// Growth is the evidence behind a score: the line through the window that has it.
type Growth struct {
	Score     float64       // 1 is the threshold
	Z         float64       // of the Mann–Kendall test
	Over      time.Duration // the length of the window
	Rise      float64       // over the window, in the reading's unit
	At        time.Time     // of the window's end, in UTC
	Level     float64       // of the line then
	PerSecond float64       // slope (Theil–Sen)
	Low, High float64       // of the slope, with 95 % confidence
}

// NewLeak returns a detector that has seen nothing.
func NewLeak() *Leak { return &Leak{} }

// Add takes a sample and returns the score at its time. What is not a number and what
// is older than the newest block is ignored; one more than ten minutes older begins
// everything anew, but for what is usual.
func (l *Leak) Add(at time.Time, x float64) (score float64) {
	number, part := blockOf(at.Unix())
	if !(math.Abs(x) <= leakLargest) || l.begun && number == l.open.number-1 {
		return l.best.Score
	}
	switch {
	case !l.begun || number < l.open.number:
		l.Restart()
		l.begun, l.since, l.open = true, number, block{number: number}
	case number > l.open.number:
		l.close(number)
		l.choose(number)
		l.open = block{number: number}
	}
	l.open.add(part, x)
	return l.best.Score
}

// Growth returns the evidence behind the newest score; its score is 0 if there is no
// window with a rise.
func (l *Leak) Growth() Growth { return l.best }

// Until returns how long after now the limit is reached if the growth goes on: at the
// earliest, most likely and at the latest, by the confidence interval of the slope. It
// is 0 if the limit has been reached, and the longest duration where it never is.
func (g Growth) Until(limit float64, now time.Time) (soonest, likely, latest time.Duration) {
	f := func(slope float64) time.Duration {
		switch seconds := (limit-g.Level)/slope - now.Sub(g.At).Seconds(); {
		case limit <= g.Level:
			return 0
		case !(slope > 0) || !(seconds < 1<<33): // nearly 272 years
			return math.MaxInt64
		default:
			return time.Duration(max(seconds, 0) * float64(time.Second))
		}
	}
	return f(g.High), f(g.PerSecond), f(g.Low)
}

// Restart says that what is measured begins anew, for example as another process. What
// growth is usual stays known.
func (l *Leak) Restart() {
	for k := range l.levels {
		v := &l.levels[k]
		v.ring, v.growth = blockRing{}, Growth{}
		for i := range v.windows {
			v.windows[i].restart()
		}
	}
	l.begun, l.best = false, Growth{}
}

// close ends the open block, and those of the other levels that end with it, as next
// is the block that comes after.
func (l *Leak) close(next int64) {
	y, number := l.open.value(), l.open.number
	if usual := l.levels[0].ring.median(6); usual > 0 && y < leakDrop*usual {
		l.Restart()
		l.begun, l.since = true, number
	}
	young := number-l.since < leakYoung
	for k := range l.levels {
		v := &l.levels[k]
		v.ring.push(number, y)
		v.judge(k, young, &l.scratch)
		up, nextUp := floorBy(number, leakFactor), floorBy(next, leakFactor)
		if up == nextUp {
			break
		}
		y = v.ring.median(int(number-up*leakFactor) + 1)
		number, next = up, nextUp
	}
}

// choose takes the best of the levels whose newest block is no more than three before
// the one that the samples have come to.
func (l *Leak) choose(number int64) {
	l.best = Growth{}
	for k := range l.levels {
		v := &l.levels[k]
		if number-v.ring.newest > 4 {
			v.growth = Growth{}
		}
		if v.growth.Score > l.best.Score {
			l.best = v.growth
		}
		number = floorBy(number, leakFactor)
	}
	if l.ebbs(l.best.Over) {
		l.best.Score = min(l.best.Score, leakNearly)
	}
}

// ebbs reports whether a rise over so long slows down, as what fills up does. In a short
// window it looks straight; in those of up to four times the length it does not.
func (l *Leak) ebbs(over time.Duration) bool {
	for k := range l.levels {
		for i, width := range leakWidths {
			length := time.Duration(int64(width)*blocksOf(k)) * time.Second
			if length >= over && length <= leakFactor*over && l.levels[k].windows[i].ebbs {
				return true
			}
		}
	}
	return false
}

// floorBy divides and rounds down.
func floorBy(n, by int64) int64 {
	q := n / by
	if n%by < 0 {
		q--
	}
	return q
}

// blocksOf returns how long a block of level k is in seconds.
func blocksOf(k int) int64 { return blockSeconds << (2 * k) }

// judge scores the windows that end with the newest block of level k.
func (v *leakLevel) judge(k int, young bool, scratch *trendScratch) {
	v.growth = Growth{}
	for i, width := range leakWidths {
		var ts [maxTrend]int
		var ys [maxTrend]float64
		n := v.ring.gather(width, &ts, &ys)
		if 4*n < 3*width {
			continue
		}
		t := newTrend(ts[:n], ys[:n], scratch)
		seconds := blocksOf(k)
		end := (v.ring.newest + 1) * seconds
		s := v.windows[i].judge(t, ts[:n], ys[:n], end, young, scratch)
		v.windows[i].learn(t, width, max(leakMemory>>(2*k), leakLeastMemory))
		if s > v.growth.Score {
			per := float64(seconds)
			v.growth = Growth{Score: s, Z: t.Z, Over: time.Duration(int64(width)*seconds) * time.Second, Rise: t.Rise(),
				At: time.Unix(end, 0).UTC(), Level: t.Level + float64(t.Slope*(float64(width-1-t.Last)+0.5)),
				PerSecond: t.Slope / per, Low: t.Low / per, High: t.High / per}
		}
	}
}
