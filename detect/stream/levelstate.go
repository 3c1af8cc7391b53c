package stream

import (
	"encoding/binary"
	"fmt"
)

const (
	levelName    = "gvLV"
	levelVersion = 2
	levelOldest  = 1       // has no strange samples
	levelSize    = 4 << 10 // bytes of a record without the week, about
)

// MarshalBinary packs all that the detector remembers, into 3.8 KiB, or 5.8 KiB once it
// knows the hours of the week.
func (l *Level) MarshalBinary() ([]byte, error) {
	w := newRecord(levelName, levelVersion, levelSize)
	w.bool(l.season.week != nil)
	var err error
	for _, field := range l.fields(levelVersion) {
		if w.b, err = binary.Append(w.b, binary.LittleEndian, field); err != nil {
			return nil, fmt.Errorf("pack the state of a level: %w", err)
		}
	}
	return w.finish(), nil
}

// UnmarshalBinary takes up what MarshalBinary packed; from then on the detector does
// what the other would have done. What is damaged, or of another version, is an error
// and leaves the detector as it was.
func (l *Level) UnmarshalBinary(data []byte) error {
	r, err := openRecord(data, levelName, levelOldest, levelVersion)
	if err != nil {
		return err
	}
	var n Level
	if r.bool() {
		n.season.growWeek()
	}
	for _, field := range n.fields(r.version) {
		if size := binary.Size(field); r.short || len(r.b) < size {
			r.short = true
		} else if _, err := binary.Decode(r.take(size), binary.LittleEndian, field); err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
	}
	if err := r.finish(); err != nil {
		return err
	}
	if !n.sound() {
		return fmt.Errorf("%w: it has values that cannot be", errRecord)
	}
	n.pace.set(&n)
	for i := range n.windows {
		n.windows[i].settle()
	}
	*l = n
	return nil
}

// fields returns pointers to all that a version stores, in the order that it is stored in.
func (l *Level) fields(version uint8) []any {
	f := []any{
		&l.samples, &l.first, &l.last, &l.x, &l.step, &l.scale, &l.fast, &l.slow, &l.short, &l.long, &l.base,
		&l.calm, &l.usual, &l.low, &l.high, &l.seasonalMean, &l.repeats, &l.burst, &l.alarms, &l.still,
		&l.unit, &l.carry, &l.silentUntil, &l.raised, &l.open, &l.evidence, &l.strongest,
		&l.contexts.after, &l.contexts.hour, &l.contexts.last,
		&l.season.visit, &l.season.samples, &l.season.sum, &l.season.off, &l.season.dayGain, &l.season.weekGain,
	}
	for i := range l.windows {
		w := &l.windows[i]
		f = append(f, &w.low, &w.high, &w.samples, &w.at, &w.full)
	}
	for i := range l.tails {
		f = l.tails[i].fields(f)
	}
	f = l.lately.fields(l.now.fields(f))
	for i := range l.season.day {
		f = l.season.day[i].fields(f)
	}
	if l.season.week != nil {
		for i := range l.season.week {
			f = l.season.week[i].fields(f)
		}
	}
	if version > levelOldest {
		f = append(f, &l.strange)
	}
	return f
}

func (t *Tail) fields(f []any) []any {
	return append(f, &t.counts, &t.base, &t.high, &t.shift, &t.total)
}

func (u *usualTime) fields(f []any) []any { return append(f, &u.mean, &u.deviation, &u.visits) }

// sound tells whether what is used as an index may be.
func (l *Level) sound() bool {
	ok := l.contexts.last < contextLevels && l.strongest < levelStatistics
	ok = ok && (l.samples == 0 && l.unit == 0 || l.unit >= tailUnit && l.unit < 2*tailUnit)
	for i := range l.windows {
		ok = ok && l.windows[i].at < extremeBlocks
	}
	for i := range l.tails {
		ok = ok && l.tails[i].sound()
	}
	return ok && l.now.sound() && l.lately.sound()
}

func (t *Tail) sound() bool { return t.high < tailBins && t.shift <= tailShift && t.base >= 0 }
