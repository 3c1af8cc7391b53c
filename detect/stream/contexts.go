package stream

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

func count(row *[contextLevels]uint8, level int) float64 {
	sum := 0
	for _, n := range row {
		sum += int(n)
	}
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
