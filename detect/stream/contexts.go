package stream

import "encoding/binary"

const (
	contextLevels = 12 // ten between the usual ends, and one beyond each
	contextHours  = 24
	contextLeast  = 8 // visits to a context before it says anything
)

// contexts counts which level of a reading follows which, and which is had at which
// hour of the day. What never followed is unusual even where the value itself is not
// (Smirnov 2016, CAD: contextual anomaly detector, has contexts of facts instead).
type contexts struct {
	after [contextLevels][contextLevels]uint8
	hour  [contextHours][contextLevels]uint8
	last  uint8
}

// add returns how rare the level is after the last one, and at this hour: -ln of its
// share there.
func (c *contexts) add(level, hour int) (after, atHour float64) {
	after, atHour = count(&c.after[c.last], level), count(&c.hour[hour], level)
	c.last = uint8(level)
	return after, atHour
}

// total adds up a row, four numbers at a time.
func total(row *[contextLevels]uint8) int {
	const bytes, lanes = 0x00ff00ff00ff00ff, 0x0001000100010001
	a, b := binary.LittleEndian.Uint64(row[:8]), uint64(binary.LittleEndian.Uint32(row[8:]))
	sums := a&bytes + a>>8&bytes + b&bytes + b>>8&bytes // each below 1<<11
	return int(sums * lanes >> 48)
}

func count(row *[contextLevels]uint8, level int) float64 {
	sum := total(row)
	rare := 0.0
	if sum > contextLeast {
		rare = ln((float64(sum) + contextLevels/2) / (float64(row[level]) + 0.5))
	}
	if row[level] == 255 { // the row forgets
		for i := range row {
			row[i] >>= 1
		}
	}
	row[level]++
	return rare
}
