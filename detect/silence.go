package detect

import (
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// together is the time within which GPUs that fall silent do so at once.
const together = time.Minute

// silences are since when the node's GPUs do not answer.
type silences struct {
	gpus     map[string]*silence // by uuid
	answered time.Time           // when any GPU last did
	seen     map[string]bool     // scratch
}

// silence is since when a GPU does not answer.
type silence struct {
	Since time.Time       `json:"since,omitzero"`  // zero while it answers
	Owner collector.Owner `json:"owner,omitzero"`  // who held it when it last answered
	Held  bool            `json:"held,omitempty"`  // somebody, known or not, held it when it last answered
	Cause string          `json:"cause,omitempty"` // gone or hung: as it began

	words lostWords
}

// lostWords are evidence, and what it was made of.
type lostWords struct {
	counts   lostCounts
	evidence Evidence
}

// lostCounts are what words about GPUs that do not answer are made of.
type lostCounts struct {
	Listed, Known, Answering int // by the driver, ever since boot, now
	Together, Before         int // that fell silent at once; before the node booted
	Why, Bound               string
	Since                    time.Time
	Exporter                 string // whose page they are from, if they are
}

// say makes the evidence anew only if it would say something else.
func (w *lostWords) say(c lostCounts, say func(lostCounts) Evidence) Evidence {
	if w.evidence.Seen == "" || w.counts != c {
		w.counts, w.evidence = c, say(c)
	}
	return w.evidence
}

func newSilences() silences {
	return silences{gpus: map[string]*silence{}, seen: map[string]bool{}}
}

// listen notes which GPUs answer and returns how many do.
func (d *silences) listen(s *collector.Snapshot) int {
	answering := 0
	clear(d.seen)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		d.seen[g.UUID] = true
		l := d.gpus[g.UUID]
		if l == nil {
			l = &silence{}
			d.gpus[g.UUID] = l
		}
		switch {
		case g.Answers():
			answering++
			l.Since, l.Owner = time.Time{}, holder(g)
			l.Held = len(g.Owners) > 0 || g.Value(metric.ProcessCount) > 0
		case l.Since.IsZero():
			l.Since, l.Cause = s.Time, causeGone
			if g.Present {
				l.Cause = causeHung
			}
		}
	}
	for uuid := range d.gpus {
		if !d.seen[uuid] {
			delete(d.gpus, uuid)
		}
	}
	if answering > 0 {
		d.answered = s.Time
	}
	return answering
}

// atOnce returns how many GPUs fell silent at once, and the first of them when: none,
// unless they are two at least and half of the node's, and the driver has not told of
// each that it is lost.
func (d *silences) atOnce(s *collector.Snapshot) (gpus int, since time.Time) {
	for i := range s.GPUs {
		first := d.gpus[s.GPUs[i].UUID].Since
		if first.IsZero() {
			continue
		}
		n, unexplained := 0, false
		for k := range s.GPUs {
			g := &s.GPUs[k]
			l := d.gpus[g.UUID]
			if wait := l.Since.Sub(first); l.Since.IsZero() || wait < 0 || wait > together || onPurpose(d.why(g, l)) {
				continue
			}
			n++
			unexplained = unexplained || !toldLost(g, l)
		}
		if unexplained && n > gpus {
			gpus, since = n, first
		}
	}
	if gpus < 2 || 2*gpus < len(s.GPUs) {
		return 0, time.Time{}
	}
	return gpus, since
}

// why is the cause for which the GPU does not answer, as far as the PCI bus tells. A
// GPU that falls off the bus keeps its device and its driver there. Only one that
// nobody uses can be taken off on purpose.
func (d *silences) why(g *collector.GPU, l *silence) string {
	switch {
	case l.Cause != causeGone:
		return l.Cause
	case g.GivenAway():
		return causeGivenAway
	case g.Bound == collector.NoDevice && !l.Held && !toldLost(g, l):
		return causeRemoved
	}
	return causeGone
}

func onPurpose(cause string) bool { return cause == causeGivenAway || cause == causeRemoved }

// toldLost reports whether the driver has told that the GPU is lost.
func toldLost(g *collector.GPU, l *silence) bool {
	return slices.ContainsFunc(g.Xids, func(x collector.XidCount) bool {
		return rules.Lost(x.Code) && !x.Last.Before(l.Since.Add(-together))
	})
}

func (d *silences) shift(by time.Duration) {
	shift(by, &d.answered)
	for _, l := range d.gpus {
		shift(by, &l.Since)
	}
}

// lostState is what a detector of GPUs that do not answer remembers.
type lostState struct {
	Version  int                 `json:"version"`
	Answered time.Time           `json:"answered"`
	GPUs     map[string]*silence `json:"gpus"`
}

func (d *silences) save() lostState { return lostState{1, d.answered, d.gpus} }

func (d *silences) restore(s lostState) {
	d.answered, d.gpus = s.Answered, map[string]*silence{}
	for uuid, l := range s.GPUs {
		if l == nil {
			continue
		}
		if l.Cause != causeHung {
			l.Cause = causeGone
		}
		d.gpus[uuid] = l
	}
}

// someOf writes "3 of 8 GPUs".
func someOf(n, all int) string { return fmt.Sprintf("%d of %s", n, count(all, "GPU", "GPUs")) }
