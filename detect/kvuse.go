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
	Minutes int       `json:"minutes"`
	Running float64   `json:"running"`
	Used    float64   `json:"used"`
	Square  float64   `json:"square"` // variance of the requests
	Cross   float64   `json:"cross"`  // covariance with the use
	Minute  kvChanges `json:"minute"`
}

// kvChanges is how use and requests vary together from one minute to the next. What
// leaks while the traffic of the day rises shows in the slow changes of both as if it
// were the traffic's; in these it does not.
type kvChanges struct {
	Minutes int     `json:"minutes"`
	Running float64 `json:"running"` // what they lately were
	Used    float64 `json:"used"`
	Square  float64 `json:"square"` // of what they changed against that
	Cross   float64 `json:"cross"`
	Own     float64 `json:"own"` // square of the use's changes
}

// end takes the minute that is over and returns what is held beside that of its
// requests, NaN while it is not known what they take, and what is free. Of a cache that
// is full it is the least that is held, and nothing is learned: how much more it would
// hold does not show. What may be a leak is learned from only slowly.
func (k *kvUse) end(suspected bool) (held, free float64) {
	used, running := k.used.take(), k.running.take()
	if math.IsNaN(used) || math.IsNaN(running) {
		return math.NaN(), math.NaN()
	}
	if used < kvFull {
		k.learned.add(used, running, suspected)
	}
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
	l.Minute.add(used, running)
}

// each is what a request takes of the cache: none where their number never changes. The
// changes from minute to minute tell it, where there are enough of them.
func (l *kvLearned) each() float64 {
	if each, sure := l.Minute.each(); sure {
		return each
	}
	if !(l.Square > 0) {
		return 0
	}
	return max(0, min(l.Cross/l.Square, 1))
}

func (c *kvChanges) add(used, running float64) {
	if c.Minutes == 0 {
		c.Used, c.Running = used, running
	}
	c.Minutes = min(c.Minutes+1, kvMemory)
	rate := 1 / float64(c.Minutes)
	du, dr := used-c.Used, running-c.Running
	c.Used += float64(kvLately * du)
	c.Running += float64(kvLately * dr)
	c.Square += float64(rate * (dr*dr - c.Square))
	c.Cross += float64(rate * (dr*du - c.Cross))
	c.Own += float64(rate * (du*du - c.Own))
}

// each is the slope, and whether its standard error is small.
func (c *kvChanges) each() (slope float64, sure bool) {
	if c.Minutes < kvYoung || !(c.Square > 0) || !(c.Cross > 0) {
		return 0, false
	}
	slope = c.Cross / c.Square
	rest := max(0, c.Own-float64(slope*c.Cross))
	return min(slope, 1), math.Sqrt(rest/(float64(c.Minutes)*c.Square)) <= kvSure*slope
}
