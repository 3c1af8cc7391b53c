package scrape

import (
	"math"
	"strings"
)

// names says which generations the page's names are of.
func (c *dcgm) names() string {
	var all []string
	for gen, name := range genNames {
		if name != "" && c.seen[gen] {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "of every release"
	}
	return strings.Join(all, " and ")
}

// blanks are the numbers that DCGM writes for what it cannot tell: the first of each is
// "blank", the few above it are not found, not supported, not permitted. Those of NVML
// stand alone.
var blanks = [...]struct{ from, to float64 }{
	{1<<31 - 16, 1<<31 - 1}, {1 << 47, 1<<47 + 16}, {1<<32 - 1, 1<<32 - 1}, {1<<63 - 2048, 1 << 63}, {1<<64 - 2048, 1 << 64},
}

// blank reports whether the value says that there is none.
func blank(v float64) bool {
	for _, b := range blanks {
		if v >= b.from && v <= b.to {
			return true
		}
	}
	return math.IsNaN(v) || math.IsInf(v, 0)
}

// The units of utilization.
const (
	unitPercent = "percent"
	unitRatio   = "ratio"
	unitUnclear = "unclear"
)

// unit says in which unit the page tells utilization. before is what the pages before
// it have proved. A value above 1 proves percent, which has no fractions; one between
// 0 and 1 a ratio.
func (c *dcgm) unit(before string) string {
	doubt := false
	proof := before
	for _, d := range c.devices {
		for _, u := range d.unclear {
			doubt = true
			switch {
			case u.value > 1 && u.value <= 100:
				proof = unitPercent
			case u.value > 0 && u.value < 1:
				proof = unitRatio
			}
		}
	}
	switch {
	case !doubt && (c.seen[gen48] || c.seen[gen1]):
		return unitPercent
	case !doubt:
		return ""
	case proof == unitPercent || proof == unitRatio:
		return proof
	case c.base:
		return unitRatio // these units came together
	case c.seen[gen48]:
		return unitPercent
	}
	return unitUnclear
}

// resolve lays the doubtful values in. Where the unit is unclear 0 is 0, and 1 could be
// all or next to nothing.
func (c *dcgm) resolve(unit string) {
	for _, d := range c.devices {
		for _, u := range d.unclear {
			switch v := u.value; {
			case unit == unitPercent:
				d.lay(u.row, 0, u.rank, v/100)
			case unit == unitRatio, v == 0:
				d.lay(u.row, 0, u.rank, v)
			}
		}
	}
}
