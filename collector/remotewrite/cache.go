package remotewrite

import "gpuvigil/collector/series"

// entry is what is known of the labels behind a key.
type entry struct {
	reason string         // why the series is not taken; empty: it is
	labels []series.Label // until the assembler has taken it
	series *series.Series // nil: the assembler has not
	again  uint64         // the cut at which it is asked for again
}

// unwanted stands for all series of which nothing is made. They are most of what a
// Prometheus has, and cost their key only.
var unwanted = &entry{}

// cache knows the series of the last requests. What is in none for long is forgotten with
// the older of two generations.
type cache struct {
	now, before map[key]*entry
	limit       int // of a generation
}

func newCache(limit int) cache {
	return cache{now: map[key]*entry{}, limit: limit}
}

func (c *cache) get(k key) *entry {
	e := c.now[k]
	if e == nil {
		if e = c.before[k]; e != nil {
			delete(c.before, k)
			c.put(k, e)
		}
	}
	return e
}

func (c *cache) put(k key, e *entry) {
	if len(c.now) >= c.limit {
		c.turn()
	}
	c.now[k] = e
}

// turn begins a new generation.
func (c *cache) turn() {
	c.before, c.now = c.now, make(map[key]*entry, len(c.now))
}
