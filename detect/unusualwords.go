package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// since is when the first of the readings that take part left its habit.
func (st *unusualGPU) since() time.Time {
	var first time.Time
	for i := range st.readings {
		if r := &st.readings[i]; r.takesPart() && (first.IsZero() || r.since.Before(first)) {
			first = r.since
		}
	}
	return first
}

// young reports whether the strongest reading has too little history to be sure.
func (st *unusualGPU) young() bool {
	strongest := st.strongest()
	return len(strongest) == 0 || strongest[0].habit.young()
}

// strongest returns the readings that take part, the strongest first.
func (st *unusualGPU) strongest() []*fusedReading {
	var out []*fusedReading
	for i := range st.readings {
		if st.readings[i].takesPart() {
			out = append(out, &st.readings[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *fusedReading) int { return cmp.Compare(b.nats, a.nats) })
	return out
}

// evidence says what has changed, the strongest first.
func (st *unusualGPU) evidence() Evidence {
	const most = 4
	var said []string
	var told [kinds]bool
	for _, r := range st.strongest() {
		if len(said) == most {
			break
		}
		if told[r.kind] {
			continue
		}
		told[r.kind] = true
		said = append(said, st.words(r))
	}
	want := fusedLimit
	e := Evidence{
		Seen:     capital(strings.Join(said, ", ")) + ", since " + clock(st.since()),
		Expected: "what is usual for this workload on this GPU", Observed: st.fused.nats, Want: &want,
		Confidence: Likely,
		Why: fmt.Sprintf("%s nats of readings that do not depend on each other, over %s; a healthy GPU comes to %s in less than one week of nine",
			significant(st.fused.nats, 3), span(fuseWindow), significant(want, 3)),
	}
	if st.young() {
		e.Confidence = Young
		e.Why += "; less than a day of history"
	}
	return e
}

// words says what one reading is and usually is.
func (st *unusualGPU) words(r *fusedReading) string {
	for i := range st.readings {
		if r != &st.readings[i] {
			continue
		}
		k := unusualKinds[i]
		return fmt.Sprintf("%s %s (usually %s)", k.say, k.unit(r.lately), k.unit(r.usual))
	}
	return ""
}
