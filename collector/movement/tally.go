package movement

import (
	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// column is one column of a row of workloads.
type column struct {
	row *metric.Def
	at  int
}

// counterKey is one counter of the kernel that adds to a column: of a control group
// and device, of a namespace and interface, of a GPU.
type counterKey struct {
	column
	of string
}

// mark is what a counter was, and when.
type mark struct {
	value uint64
	round uint64
}

// tally adds up the counters of one owner as they come, restart and go. The sums
// never fall.
type tally struct {
	seen uint64 // the round in which the owner was last seen
	sums map[column]float64
	last map[counterKey]mark
	told map[column]bool // in this round
}

// maxCounters bounds what is remembered of one owner; what comes after is not
// counted.
const maxCounters = 16384

func newTally() *tally {
	return &tally{sums: map[column]float64{}, last: map[counterKey]mark{}, told: map[column]bool{}}
}

// begin starts a round.
func (t *tally) begin(round uint64) {
	t.seen = round
	clear(t.told)
}

// add takes a counter into its column. Its first value counts for nothing, and so
// does one below the last: nobody knows what came before.
func (t *tally) add(row *metric.Def, at int, of string, value uint64) {
	c := column{row, at}
	if _, settled := t.told[c]; !settled {
		t.told[c] = true
	}
	k := counterKey{c, of}
	before, known := t.last[k]
	switch {
	case known && value > before.value:
		t.sums[c] += float64(value - before.value)
	case !known && len(t.last) >= maxCounters:
		return
	}
	t.last[k] = mark{value, t.seen}
}

// addExclusive takes a counter that others may have moved while it was not looked
// at: it counts only from one sample to the next.
func (t *tally) addExclusive(row *metric.Def, at int, of string, value uint64) {
	k := counterKey{column{row, at}, of}
	if m, known := t.last[k]; known && m.round+1 < t.seen {
		delete(t.last, k)
	}
	t.add(row, at, of, value)
}

// tell says whether the row is known in this round, whatever is added to it. What is
// unknown of one group is unknown of the owner.
func (t *tally) tell(row *metric.Def, known bool) {
	for at := range row.Width() {
		c := column{row, at}
		before, settled := t.told[c]
		t.told[c] = known && (before || !settled)
	}
}

// untell forgets what this round has told of the row.
func (t *tally) untell(row *metric.Def) {
	for at := range row.Width() {
		delete(t.told, column{row, at})
	}
}

// report writes the sums of this round's columns.
func (t *tally) report(r collector.Readings) {
	for c, known := range t.told {
		if known {
			r.SetAt(c.row, c.at, t.sums[c]*scale[c.row])
		}
	}
}

// scale is what the kernel's unit is in that of a row.
var scale = map[*metric.Def]float64{
	metric.WorkloadBlockBytes:       1,
	metric.WorkloadNetworkBytes:     1,
	metric.WorkloadNetworkFileBytes: 1,
	metric.WorkloadPCIeBytes:        1,
	metric.WorkloadNVLinkBytes:      1,
	metric.WorkloadOOMKills:         1,
	metric.WorkloadCPUSeconds:       1e-9,
	metric.WorkloadCPUThrottled:     1e-9,
	metric.WorkloadPressure:         1e-6,
}

// forget drops counters that were not seen for long.
func (t *tally) forget(round uint64) {
	for k, m := range t.last {
		if round-m.round > keepRounds {
			delete(t.last, k)
		}
	}
}
