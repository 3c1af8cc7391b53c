package detect

import "math"

// kvUse tells what of a KV cache's use is that of the requests that run: the slope of
// the use over their number.
type kvUse struct {
	used, running meanOf
	learned       kvLearned
}

// kvLearned is what is known of use and requests: their means, and how they vary
// together.
type kvLearned struct {
	Minutes int     `json:"minutes"`
	Running float64 `json:"running"`
	Used    float64 `json:"used"`
	Square  float64 `json:"square"` // variance of the requests
	Cross   float64 `json:"cross"`  // covariance with the use
}

// end takes the minute that is over and returns what is held beside that of its
// requests, NaN while it is not known what they take, and what is free. What may be a
// leak is learned from only slowly.
func (k *kvUse) end(suspected bool) (held, free float64) {
	used, running := k.used.take(), k.running.take()
	if math.IsNaN(used) || math.IsNaN(running) {
		return math.NaN(), math.NaN()
	}
	k.learned.add(used, running, suspected)
	if k.learned.Minutes < kvYoung {
		return math.NaN(), math.NaN()
	}
	return used - k.learned.each()*running, 1 - used
}

func (l *kvLearned) add(used, running float64, suspected bool) {
	l.Minutes = min(l.Minutes+1, kvMemory)
	rate := 1 / float64(l.Minutes)
	if suspected {
		rate *= kvHold
	}
	du, dr := used-l.Used, running-l.Running
	l.Used += rate * du
	l.Running += rate * dr
	l.Square = (1 - rate) * (l.Square + rate*dr*dr)
	l.Cross = (1 - rate) * (l.Cross + rate*dr*du)
}

// each is what a request takes of the cache: none where their number never changes.
func (l *kvLearned) each() float64 {
	if !(l.Square > 0) {
		return 0
	}
	return max(0, min(l.Cross/l.Square, 1))
}
