package stream

import "math"

const extremeBlocks = 6

// extremes knows the smallest and the largest value of a sliding window, which moves
// on by a sixth at a time: "at least so much for so long" as a statistic.
type extremes struct {
	low, high [extremeBlocks]float32
	samples   uint16 // in the newest block
	at        uint8  // the newest block
	full      bool

	least, most float32 // of all blocks but the newest
}

// add takes a value, for a window of blocks of so many samples, and returns the window's
// extremes; they mean nothing until the window has been filled once.
func (e *extremes) add(v, block float64) (low, high float64, ok bool) {
	x := float32(v)
	if e.samples == 0 {
		e.low[e.at], e.high[e.at] = x, x
	} else {
		if x < e.low[e.at] {
			e.low[e.at] = x
		}
		if x > e.high[e.at] {
			e.high[e.at] = x
		}
	}
	e.samples++
	l, h := e.low[e.at], e.high[e.at]
	if e.least < l {
		l = e.least
	}
	if e.most > h {
		h = e.most
	}
	ok = e.full || e.at == extremeBlocks-1
	if float64(e.samples) >= block {
		e.samples = 0
		if e.at++; e.at == extremeBlocks {
			e.at, e.full = 0, true
		}
		e.settle()
	}
	return float64(l), float64(h), ok
}

// settle finds the extremes of the blocks that do not change any more. It is needed when
// another block is the newest.
func (e *extremes) settle() {
	e.least, e.most = float32(math.Inf(1)), float32(math.Inf(-1))
	for i := range extremeBlocks {
		if i != int(e.at) {
			e.least, e.most = min(e.least, e.low[i]), max(e.most, e.high[i])
		}
	}
}
