package stream

const extremeBlocks = 6

// extremes knows the smallest and the largest value of a sliding window, which moves
// on by a sixth at a time: "at least so much for so long" as a statistic.
type extremes struct {
	low, high [extremeBlocks]float32
	samples   uint16 // in the newest block
	at        uint8  // the newest block
	full      bool
}

// add takes a value, for a window of so many samples, and returns the window's
// extremes; they mean nothing until the window has been filled once.
func (e *extremes) add(v float64, window float64) (low, high float64, ok bool) {
	x := float32(v)
	if e.samples == 0 {
		e.low[e.at], e.high[e.at] = x, x
	} else {
		e.low[e.at], e.high[e.at] = min(e.low[e.at], x), max(e.high[e.at], x)
	}
	e.samples++
	l, h := e.low[0], e.high[0]
	for i := 1; i < extremeBlocks; i++ {
		l, h = min(l, e.low[i]), max(h, e.high[i])
	}
	ok = e.full || e.at == extremeBlocks-1
	if float64(e.samples) >= min(window/extremeBlocks-0.5, 60_000) {
		e.samples = 0
		if e.at++; e.at == extremeBlocks {
			e.at, e.full = 0, true
		}
	}
	return float64(l), float64(h), ok
}
