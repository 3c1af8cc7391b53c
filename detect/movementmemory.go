package detect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
)

type movementMemory struct {
	Version int               `json:"version"`
	Habits  *habits           `json:"habits"`
	Movers  []*mover          `json:"movers"`
	Classes []movedClassState `json:"classes"`
	Ports   rate              `json:"ports"`
}

type movedClassState struct {
	Class class `json:"class"`
	movedClass
}

// Save returns what owners moved in the last hour, and what is usual of each class.
func (d *Movement) Save() ([]byte, error) {
	m := movementMemory{Version: 1, Habits: d.habits, Ports: d.ports}
	for _, v := range d.movers {
		m.Movers = append(m.Movers, v)
	}
	slices.SortFunc(m.Movers, func(a, b *mover) int {
		return cmp.Or(cmp.Compare(a.Owner.String(), b.Owner.String()), cmp.Compare(a.Owner.Team, b.Owner.Team))
	})
	for k, c := range d.classes {
		m.Classes = append(m.Classes, movedClassState{k, *c})
	}
	slices.SortFunc(m.Classes, func(a, b movedClassState) int {
		return habitKey{Class: a.Class}.compare(habitKey{Class: b.Class})
	})
	return json.Marshal(m)
}

// Restore takes up what Save returned.
func (d *Movement) Restore(data []byte) error {
	m := movementMemory{Habits: newHabits()}
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	classes := map[class]*movedClass{}
	for _, c := range m.Classes {
		if c.Totals == nil || slices.Contains(c.Hours[:], nil) || len(c.Networks) > maxKnown {
			return fmt.Errorf("its memory of %s %s is not complete", c.Class.Kind, c.Class.Name)
		}
		classes[c.Class] = &c.movedClass
	}
	movers := map[collector.Owner]*mover{}
	for _, v := range m.Movers {
		if v == nil {
			return fmt.Errorf("its memory of %d owners is not complete", len(m.Movers))
		}
		movers[v.Owner] = v
	}
	d.habits, d.movers, d.classes, d.ports = m.Habits, movers, classes, m.Ports
	return nil
}

// Shift moves what owners moved. Hours in which the clock was set are of no length that
// is known, so they do not count.
func (d *Movement) Shift(by time.Duration) {
	shift(by, &d.now)
	d.habits.shift(by)
	d.ports.shift(by)
	for _, m := range d.movers {
		shift(by, &m.First, &m.At)
		shiftAll(by, m.toldAt[:])
		m.Tokens.shift(by)
		for i := range m.Flows {
			m.Flows[i].shift(by)
		}
		for i := range directions {
			m.Last[i].shift(by)
			m.Hours[i] = hourSum{}
		}
	}
	for _, c := range d.classes {
		shift(by, &c.First, &c.Seen, &c.Since, &c.odd.until, &c.toldAt)
		c.Egress = hourSum{}
		c.Totals.Shift(by)
		for _, h := range c.Hours {
			h.Shift(by)
		}
		for i := range c.Networks {
			shift(by, &c.Networks[i].First, &c.Networks[i].Last)
		}
	}
}

func (l *lastHour) shift(by time.Duration) {
	minutes := int64(by.Round(time.Minute).Minutes())
	old := *l
	l.Minute = max(l.Minute+minutes, 0)
	for back := range int64(len(l.Bytes)) {
		if n := old.Minute - back; n >= 0 && l.Minute >= back {
			l.Bytes[(l.Minute-back)%60] = old.Bytes[n%60]
		}
	}
}
