package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// LostConfig is what the detector of lost GPUs can be told. Zero fields take the
// defaults.
type LostConfig struct {
	Together time.Duration // GPUs that fall silent within it fall silent at once; 1 min
}

// The causes of rule gpu_lost.
const (
	causeGone          = "gone"           // the driver no longer answers for a GPU that was seen
	causeHung          = "hung"           // a driver call on it does not return
	causeGivenAway     = "given_away"     // another kernel driver has it, as for a virtual machine
	causeRemoved       = "removed"        // it was taken off the PCI bus while nobody used it
	causeAllSilent     = "all_silent"     // no GPU answers, and all fell silent at once
	causeNeverAnswered = "never_answered" // the driver lists GPUs that nobody has seen
	causeNotListed     = "not_listed"     // the page that the GPUs come from lists others and no longer this one
)

// Lost reports GPUs that the driver has stopped to answer for, or never did, and
// those on which its calls hang. It judges only while the driver answers otherwise: one that is being replaced, or
// was let go of, says nothing about its GPUs.
//
// GPUs that all fall silent at once are one finding about the node: that eight
// GPUs break in the same minute is less likely than that the driver, or whoever
// asks it, is broken.
type Lost struct {
	cfg      LostConfig
	gpus     map[string]*silence // by uuid
	answered time.Time           // when any GPU last did
	node     [2]lostWords        // all_silent, never_answered
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

type lostCounts struct {
	Listed, Known, Answering int // by the driver, ever since boot, now
	Why, Bound               string
	Since                    time.Time
	Exporter                 string // whose page they are from, if they are
}

// NewLost returns the detector of rule gpu_lost.
func NewLost(cfg LostConfig) *Lost {
	if cfg.Together <= 0 {
		cfg.Together = time.Minute
	}
	return &Lost{cfg: cfg, gpus: map[string]*silence{}, seen: map[string]bool{}}
}

// Rule returns gpu_lost.
func (d *Lost) Rule() *rules.Rule { return rules.Get(rules.IDGPULost) }

// Observe judges each GPU that was seen, and the node.
func (d *Lost) Observe(s *collector.Snapshot, report func(Observation)) {
	if page := s.GPUPage(); page != nil {
		d.onPage(s, page, report)
		return
	}
	if !s.Node.Has(metric.GPUsSeen) {
		return // nobody has asked the driver just now
	}
	c := lostCounts{Listed: int(s.Node.Value(metric.GPUsSeen)), Known: len(s.GPUs), Answering: d.listen(s)}
	atOnce := d.atOnce(s, c)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.gpus[g.UUID]
		why := d.why(g, l)
		c.Why, c.Bound = why, g.Bound
		for _, cause := range []string{causeGone, causeHung, causeGivenAway, causeRemoved} {
			o := Observation{Subject: gpuSubject(g.UUID), Cause: cause, Severity: urgency(cause), GPU: g, Owner: l.Owner}
			if !l.Since.IsZero() && cause == why && !(atOnce && d.withOthers(l) && !onPurpose(why)) {
				o.Score, c.Since = 1, l.Since
				o.Evidence = l.words.say(c, saySilent)
			}
			report(o)
		}
	}
	c.Why, c.Bound = "", ""
	if s.Node.Name == "" {
		return
	}
	about := func(cause string, severity rules.Severity, words *lostWords, holds bool, say func(lostCounts) Evidence) {
		o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: cause, Severity: severity}
		if holds {
			o.Score, o.Evidence = 1, words.say(c, say)
		}
		report(o)
	}
	c.Since = d.answered
	about(causeAllSilent, rules.Page, &d.node[0], atOnce, sayAllSilent)
	c.Since = time.Time{}
	// Nothing was lost while somebody used it, so nobody is woken.
	about(causeNeverAnswered, rules.Ticket, &d.node[1], c.Listed > c.Known, sayNeverAnswered)
}

// onPage judges GPUs that come from an exporter's page. A page that cannot be had is
// about the page; one that leaves out a GPU which it had may be of an exporter that was
// told to, so nobody is woken.
func (d *Lost) onPage(s *collector.Snapshot, page *collector.Page, report func(Observation)) {
	c := lostCounts{Known: len(s.GPUs), Answering: d.listen(s), Exporter: page.Exporter}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.gpus[g.UUID]
		o := Observation{Subject: gpuSubject(g.UUID), Cause: causeNotListed, Severity: rules.Ticket, GPU: g, Owner: l.Owner}
		if !l.Since.IsZero() && c.Answering > 0 {
			o.Score, c.Since = 1, l.Since
			o.Evidence = l.words.say(c, sayNotListed)
		}
		report(o)
	}
}

// listen notes which GPUs answer and returns how many do.
func (d *Lost) listen(s *collector.Snapshot) int {
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

// atOnce reports whether no GPU answers and at least two of them fell silent
// together without the driver telling of each that it is lost.
func (d *Lost) atOnce(s *collector.Snapshot, c lostCounts) bool {
	if c.Answering > 0 {
		return false
	}
	together, unexplained := 0, false
	for i := range s.GPUs {
		if l := d.gpus[s.GPUs[i].UUID]; d.withOthers(l) && !onPurpose(d.why(&s.GPUs[i], l)) {
			together++
			unexplained = unexplained || !d.toldLost(&s.GPUs[i], l)
		}
	}
	return together >= 2 && unexplained
}

// why is the cause for which the GPU does not answer, as far as the PCI bus tells. A
// GPU that falls off the bus keeps its device and its driver there. Only one that
// nobody uses can be taken off on purpose.
func (d *Lost) why(g *collector.GPU, l *silence) string {
	switch {
	case l.Cause != causeGone:
		return l.Cause
	case g.GivenAway():
		return causeGivenAway
	case g.Bound == collector.NoDevice && !l.Held && !d.toldLost(g, l):
		return causeRemoved
	}
	return causeGone
}

func onPurpose(cause string) bool { return cause == causeGivenAway || cause == causeRemoved }

// urgency is who must know. That a GPU was removed on purpose cannot be proven, so it
// stays work for somebody, and wakes nobody.
func urgency(cause string) rules.Severity {
	switch cause {
	case causeGivenAway:
		return rules.Info
	case causeRemoved:
		return rules.Ticket
	}
	return rules.Page
}

// withOthers reports whether a GPU fell silent about when the last one did.
func (d *Lost) withOthers(l *silence) bool { return !l.Since.Before(d.answered.Add(-d.cfg.Together)) }

func (d *Lost) toldLost(g *collector.GPU, l *silence) bool {
	return slices.ContainsFunc(g.Xids, func(x collector.XidCount) bool {
		return rules.Lost(x.Code) && !x.Last.Before(l.Since.Add(-d.cfg.Together))
	})
}

// say makes the evidence anew only if it would say something else.
func (w *lostWords) say(c lostCounts, say func(lostCounts) Evidence) Evidence {
	if w.evidence.Seen == "" || w.counts != c {
		w.counts, w.evidence = c, say(c)
	}
	return w.evidence
}

func saySilent(c lostCounts) Evidence {
	e := Evidence{
		Seen:     "the driver has not answered for it since " + clock(c.Since),
		Expected: "an answer, as before", Observed: float64(c.Known - c.Answering), Confidence: Certain, Why: "the driver answers for the others",
	}
	switch c.Why {
	case causeHung:
		e.Title = "GPU hangs in the driver"
		e.Seen = "a driver call on it has not returned since " + clock(c.Since)
		e.Action = "Look in the kernel log for the GPU; drain the node, and reset the GPU or, if that hangs too, power-cycle the node."
	case causeGivenAway:
		e.Title = "GPU given to another driver"
		e.Seen = fmt.Sprintf("the kernel driver %s has had it since about %s", c.Bound, clock(c.Since))
		e.Why = "told by the PCI bus"
		e.Action = "Nothing, if it was passed on to a virtual machine on purpose; to have it back, unbind it there and bind it to the driver nvidia."
	case causeRemoved:
		e.Title = "GPU removed from the PCI bus"
		e.Seen = fmt.Sprintf("its device has not been on the PCI bus since about %s; nobody used it, and the driver told of no error", clock(c.Since))
		e.Confidence, e.Why = Likely, "as nvidia-smi drain leaves it; a slot that lost its power may look the same"
		e.Action = "Nothing, if it was drained on purpose; else rescan the bus (echo 1 > /sys/bus/pci/rescan), and power-cycle the node if it stays away."
	}
	if c.Answering == 0 && !onPurpose(c.Why) {
		e.Why = "the driver answers, and for no GPU"
	}
	e.Seen += fmt.Sprintf("; it lists %s, and %d of %d answer", count(c.Listed, "GPU", "GPUs"), c.Answering, c.Known)
	return e
}

func sayNotListed(c lostCounts) Evidence {
	return Evidence{
		Title:    "GPU not on the exporter's page any more",
		Seen:     fmt.Sprintf("the page of %s has not listed it since %s; it lists %d of %d GPUs", c.Exporter, clock(c.Since), c.Answering, c.Known),
		Expected: "every GPU that it listed before", Observed: float64(c.Known - c.Answering), Confidence: Likely,
		Why:    "the page lists the others; the driver was not asked",
		Action: "Run `nvidia-smi` on the node: if the GPU is missing there too, drain the node and power-cycle it; else look at which GPUs the exporter was told to watch.",
	}
}

func sayAllSilent(c lostCounts) Evidence {
	since := "since the agent started"
	if !c.Since.IsZero() {
		since = "since " + clock(c.Since)
	}
	return Evidence{
		Title:    "No GPU of the node answers",
		Seen:     fmt.Sprintf("the driver has answered for none of %d GPUs %s; it lists %s", c.Known, since, count(c.Listed, "GPU", "GPUs")),
		Expected: "answers, as before", Observed: float64(c.Known), Confidence: Certain,
		Why: "all at once: rather the driver, or what asks it, than each of the GPUs",
		Action: "Run `nvidia-smi` and `gpuvigil doctor` on the node: if both find no GPU, look in the kernel log for what happened to the driver, drain the node and reboot it; " +
			"if only gpuvigil finds none, restart it.",
	}
}

func sayNeverAnswered(c lostCounts) Evidence {
	n := c.Listed - c.Known
	return Evidence{
		Title:    "GPU never answered",
		Seen:     fmt.Sprintf("the driver lists %s, and has never answered for %d of them", count(c.Listed, "GPU", "GPUs"), n),
		Expected: "an answer for each that it lists", Observed: float64(n), Confidence: Certain, Why: "told by the driver, for which the other GPUs may work",
		Action: "Run `gpuvigil doctor` on the node: it says whether this user may open every GPU; if so, look in the kernel log for the GPU, and power-cycle the node.",
	}
}

// Shift moves since when GPUs do not answer.
func (d *Lost) Shift(by time.Duration) {
	shift(by, &d.answered)
	for _, l := range d.gpus {
		shift(by, &l.Since)
	}
}

type lostState struct {
	Version  int                 `json:"version"`
	Answered time.Time           `json:"answered"`
	GPUs     map[string]*silence `json:"gpus"`
}

// Save returns since when GPUs do not answer.
func (d *Lost) Save() ([]byte, error) { return json.Marshal(lostState{1, d.answered, d.gpus}) }

// Restore takes up what Save returned.
func (d *Lost) Restore(data []byte) error {
	var s lostState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
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
	return nil
}
