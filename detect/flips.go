package detect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/rules"
)

// causeFlipped is that what is only statistical changed on most GPUs in the same minute.
const causeFlipped = "flipped_together"

const (
	flipsLeast = 3           // GPUs
	flipsShare = 0.5         // of the node's
	flipsTold  = groupWindow // so long it is said
	clockSet   = time.Second // by as much, or more
)

// flips watches the engine's own findings: if those of most GPUs begin or end in the same
// minute, what they have in common is more likely who looks than the GPUs. It tells in
// the place of rule suspect_monitor, whose detector sees readings and no findings.
type flips struct {
	suspect *watcher // nil if the rule is disabled

	disturbed time.Time // when something last happened to who looks
	how       string
	fresh     map[string]bool // sources, by name

	at       time.Time // when they last flipped; zero: never
	severity rules.Severity
	said     Evidence

	gpus    map[int]bool // scratch: index of those that flipped
	owners  map[collector.Owner]bool
	rules   []string
	begun   int
	started time.Time
}

func newFlips(watchers []*watcher) flips {
	f := flips{fresh: map[string]bool{}, gpus: map[int]bool{}, owners: map[collector.Owner]bool{}}
	for _, w := range watchers {
		if w.rule.ID == rules.IDSuspectMonitor {
			f.suspect = w
		}
	}
	return f
}

func (f *flips) shift(by time.Duration) {
	shift(by, &f.disturbed, &f.at)
	f.said = Evidence{} // it names times
}

// disturb notes what happened to who looks.
func (e *Engine) disturb(s *collector.Snapshot) {
	f := &e.flips
	note := func(format string, args ...any) { f.disturbed, f.how = s.Time, fmt.Sprintf(format, args...) }
	if e.resumed.Equal(s.Time) {
		note("nobody had looked before")
	}
	for i := range s.Sources {
		src := &s.Sources[i]
		before, known := f.fresh[src.Name]
		now := src.Fresh(s.Time)
		if now && known && !before {
			note("source %s told something again", src.Name)
		}
		f.fresh[src.Name] = now
	}
	for i := range s.Events {
		switch ev := &s.Events[i]; {
		case ev.Kind == collector.ChildRestart:
			note("what asks the driver was started again")
		case ev.Kind == collector.VersionEvent && ev.Component == "driver" && ev.From != "":
			note("the driver was replaced")
		}
	}
	if e.step.Abs() >= clockSet {
		note("the clock was set by %s", span(e.step.Abs()))
	}
}

// flip tells of findings that changed together.
func (e *Engine) flip(s *collector.Snapshot) {
	f := &e.flips
	e.disturb(s)
	if f.suspect == nil || s.Node.Name == "" || e.gpus < flipsLeast {
		return
	}
	if e.flipped() {
		f.said = Evidence{}
		f.at = f.started
	}
	o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: causeFlipped, Severity: f.severity}
	if !f.at.IsZero() && e.now.Sub(f.at) < flipsTold {
		o.Score, o.At = 1, f.at
		if f.said.Seen == "" {
			f.said = e.sayFlips()
		}
		o.Evidence = f.said
	}
	e.take(f.suspect, &o)
}

// withholds reports whether a finding is one of those that changed together: it waits until
// it has been said that they did, and tells of itself if it lasts.
func (f *flips) withholds(t *tracked, now time.Time) bool {
	return f.suspect != nil && !f.at.IsZero() && now.Sub(f.at) < flipsTold && t.flipped.Sub(f.at).Abs() <= together
}

// flipped reports whether most GPUs had a statistical finding begin or end within the last
// minute, more than chance would have it. What one job does shows on all of its GPUs in
// the same minute, too: without a reason to suspect who looks they must be of several
// holders and of several rules.
func (e *Engine) flipped() bool {
	f := &e.flips
	clear(f.gpus)
	clear(f.owners)
	f.rules, f.begun, f.started, f.severity = f.rules[:0], 0, e.now, rules.Ticket
	chance, newest := 0.0, false
	for _, w := range e.watchers {
		if !w.statistical {
			continue
		}
		chance += w.record.base() * together.Seconds() / groupWindow.Seconds()
		for _, t := range w.order {
			if t.flipped.IsZero() || e.now.Sub(t.flipped) > together || t.GPUIndex < 0 || f.gpus[t.GPUIndex] {
				continue
			}
			f.gpus[t.GPUIndex], f.owners[t.Owner] = true, true
			newest = newest || t.flipped.Equal(e.now)
			f.severity = max(f.severity, t.Severity)
			if t.flipped.Before(f.started) {
				f.started = t.flipped
			}
			if t.holds {
				f.begun++
			}
			if !slices.Contains(f.rules, string(w.rule.ID)) {
				f.rules = append(f.rules, string(w.rule.ID))
			}
		}
	}
	n := len(f.gpus)
	if !newest || n < flipsLeast || float64(n) < flipsShare*float64(e.gpus) || stream.BinomialSurprise(n, e.gpus, min(chance, 0.5)) < togetherNats {
		return false
	}
	return e.wasDisturbed() || len(f.owners) > 1 && len(f.rules) > 1
}

// wasDisturbed reports whether something happened to who looks just before.
func (e *Engine) wasDisturbed() bool {
	f := &e.flips
	return !f.disturbed.IsZero() && f.started.Sub(f.disturbed) <= groupWindow
}

func (e *Engine) sayFlips() Evidence {
	f, n, want := &e.flips, len(e.flips.gpus), 1.0
	slices.Sort(f.rules)
	ev := Evidence{
		Title: fmt.Sprintf("Findings of %s changed in the same minute", someOf(n, e.gpus)),
		Seen: fmt.Sprintf("findings of %s began on %d and ended on %d of %d GPUs within a minute, at %s",
			strings.Join(f.rules, ", "), f.begun, n-f.begun, e.gpus, clock(f.started)),
		Expected: "each GPU's at its own time", Observed: float64(n), Want: &want, Confidence: Likely,
		Why:    "they are statistical and of several holders and rules: rather what looks at the GPUs has changed than all of them",
		Action: "Look for what changed for all of them: the driver, the clock, who asks. What still holds in a quarter of an hour is told then, each by itself.",
	}
	if e.wasDisturbed() {
		ev.Seen += fmt.Sprintf("; at %s %s", clock(f.disturbed), f.how)
		ev.Why = "they are statistical, and something had happened to what looks at the GPUs: rather that than all of them"
	}
	return ev
}
