package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// levelVersion is written before the state of a Level. A change of what is stored, or
// of how it is to be read, has another one; then a Level starts young.
const levelVersion = 1

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// ErrVersion means that a state is of another version of the program.
	ErrVersion = errors.New("state of another version")
	// ErrDamaged means that a state is cut off or does not match its checksum.
	ErrDamaged = errors.New("damaged state")
)

// MarshalBinary returns the state, little-endian, with its version before and a CRC-32C
// behind it.
func (l *Level) MarshalBinary() ([]byte, error) {
	b := []byte{levelVersion, 0}
	if l.season.week != nil {
		b[1] = 1
	}
	var err error
	for _, field := range l.fields() {
		if b, err = binary.Append(b, binary.LittleEndian, field); err != nil {
			return nil, fmt.Errorf("stream: level: %w", err)
		}
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

// UnmarshalBinary replaces l by a state that MarshalBinary wrote. On ErrVersion and
// ErrDamaged l is as it was.
func (l *Level) UnmarshalBinary(b []byte) error {
	switch {
	case len(b) < 6:
		return fmt.Errorf("stream: level: %w: %d bytes", ErrDamaged, len(b))
	case b[0] != levelVersion:
		return fmt.Errorf("stream: level: %w: %d, this one writes %d", ErrVersion, b[0], levelVersion)
	}
	end := len(b) - 4
	if checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return fmt.Errorf("stream: level: %w: the checksum does not match", ErrDamaged)
	}
	var read Level
	if b[1] != 0 {
		read.season.growWeek()
	}
	b = b[2:end]
	for _, field := range read.fields() {
		n, err := binary.Decode(b, binary.LittleEndian, field)
		if err != nil {
			return fmt.Errorf("stream: level: %w: cut off", ErrDamaged)
		}
		b = b[n:]
	}
	if len(b) != 0 {
		return fmt.Errorf("stream: level: %w: %d bytes too many", ErrDamaged, len(b))
	}
	if !read.sound() {
		return fmt.Errorf("stream: level: %w: impossible values", ErrDamaged)
	}
	*l = read
	return nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// fields returns pointers to all that is stored, in the order that it is stored in.
func (l *Level) fields() []any {
	f := []any{
		&l.samples, &l.first, &l.last, &l.x, &l.step, &l.scale, &l.fast, &l.slow, &l.short, &l.long, &l.base, &l.window,
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
	return f
}

func (t *Tail) fields(f []any) []any {
	return append(f, &t.counts, &t.base, &t.high, &t.shift, &t.total)
}

func (u *usualTime) fields(f []any) []any { return append(f, &u.mean, &u.deviation, &u.visits) }

// sound tells whether what is used as an index may be.
func (l *Level) sound() bool {
	ok := l.contexts.last < contextLevels && l.strongest < levelStatistics && l.unit >= tailUnit && l.unit < 2*tailUnit
	for i := range l.windows {
		ok = ok && l.windows[i].at < extremeBlocks
	}
	for i := range l.tails {
		ok = ok && l.tails[i].sound()
	}
	return ok && l.now.sound() && l.lately.sound()
}

func (t *Tail) sound() bool { return t.high < tailBins && t.shift <= tailShift && t.base >= 0 }
