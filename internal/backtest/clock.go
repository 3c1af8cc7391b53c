package backtest

import (
	"fmt"
	"strings"
	"time"
)

// Disorder says where the times of a file do not go forward.
type Disorder struct {
	File          string
	Back, Line    int // rows that are earlier than the row before, and the line of the first
	Lost          int // rows that have a value and no score for it
	Repeats, Same int // rows of the time of the row before, and the line of the first
}

// String says it for people.
func (d Disorder) String() string {
	var says []string
	if d.Back > 0 {
		says = append(says, fmt.Sprintf("%s:%d: the time goes back here, in %s of the file, and %s no score for it", d.File, d.Line, some(d.Back, "row", "rows"), some(d.Lost, "row has", "rows have")))
	}
	if d.Repeats > 0 {
		says = append(says, fmt.Sprintf("%s:%d: this row has the time of the row before, like %s of the file: only the first of them is judged", d.File, d.Same, some(d.Repeats, "row", "rows")))
	}
	return strings.Join(says, "\n")
}

const (
	// settled is how many rows in order make a time line of their own: fewer are stray.
	settled = 5
	// jumbled is the share of rows of which the file is in no order at all.
	jumbled = 0.1
)

// clock follows the times of one file and gives its detector a time that never goes
// back. A row that is earlier than one before does not count. Where several in order
// follow it, the clock of the file was set, and they count from there on.
type clock struct {
	Disorder
	rows   int
	before time.Time // of the row before, whether it counted or not
	last   time.Time // of the newest row that counted
	offset time.Duration
	hole   struct { // the longest on this time line
		from time.Time
		long time.Duration
	}
	back struct { // the rows that do not count
		first, last time.Time
		rows        int
	}
}

// note takes down the place of a row in the file.
func (c *clock) note(r row) {
	switch {
	case c.rows == 0:
	case r.at.Before(c.before):
		if c.Back++; c.Back == 1 {
			c.Line = r.line
		}
	case r.at.Equal(c.before):
		if c.Repeats++; c.Repeats == 1 {
			c.Same = r.line
		}
	}
	c.rows++
	c.before = r.at
}

// take reports whether the row counts.
func (c *clock) take(at time.Time) bool {
	if c.last.IsZero() {
		c.last = at
		return true
	}
	if at.Before(c.last) {
		return c.turnBack(at)
	}
	if c.seen(at).Unix() > furthest {
		return false
	}
	if d := at.Sub(c.last); d > c.hole.long {
		c.hole.from, c.hole.long = c.last, d
	}
	c.last, c.back.rows = at, 0
	return true
}

// turnBack takes a row that is earlier than what counted, and begins a new time line
// with the last of enough in order.
func (c *clock) turnBack(at time.Time) bool {
	b := &c.back
	switch {
	case b.rows == 0 || at.Before(b.last):
		b.first, b.last, b.rows = at, at, 1
	case at.After(b.last):
		b.last = at
		b.rows++
	}
	if b.rows < settled {
		return false
	}
	offset := c.offset + c.passed()
	if at.Add(offset).Unix() > furthest {
		return false
	}
	c.offset, c.last, b.rows = offset, at, 0
	c.hole.from, c.hole.long = time.Time{}, 0
	return true
}

// passed is what the rows that went back are later for the detector than in the file.
//
// If they lie in a hole, the clock was ahead for a while and is right again: whole weeks
// keep the hour of the week what it was. Else it was set back, and no time has passed.
func (c *clock) passed() time.Duration {
	const week = 7 * 24 * time.Hour
	b := &c.back
	behind := c.last.Sub(b.first)
	if b.first.After(c.hole.from) && b.first.Before(c.hole.from.Add(c.hole.long)) {
		return (behind/week + 1) * week
	}
	return behind + b.last.Sub(b.first)/(settled-1)
}

// seen is the time of a row for the detector.
func (c *clock) seen(at time.Time) time.Time { return at.Add(c.offset) }

// order refuses a file whose rows are in no order of time.
func (c *clock) order() error {
	if c.Back > 1 && float64(c.Back) > jumbled*float64(c.rows) {
		return fmt.Errorf("%s:%d: %d of %d rows are earlier than the row before, this is the first: sort the file by its times", c.File, c.Line, c.Back, c.rows)
	}
	if c.rows > 1 && c.Repeats == c.rows-1 {
		return fmt.Errorf("%s:%d: all %d rows have one time: give each its own", c.File, c.Same, c.rows)
	}
	return nil
}
