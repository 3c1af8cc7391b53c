package detect

import (
	"encoding/json"
	"fmt"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule gpu_lost.
const (
	causeGone          = "gone"           // the driver no longer answers for a GPU that was seen
	causeHung          = "hung"           // a driver call on it does not return
	causeGivenAway     = "given_away"     // another kernel driver has it, as for a virtual machine
	causeRemoved       = "removed"        // it was taken off the PCI bus while nobody used it
	causeNeverAnswered = "never_answered" // the driver lists GPUs that nobody has seen
	causeNotBack       = "not_back"       // it was there before the node booted, and is not on the bus any more
	causeNotListed     = "not_listed"     // the page that the GPUs come from lists others and no longer this one
)

// Lost reports GPUs that the driver has stopped to answer for, or never did, and
// those on which its calls hang. It judges only while the driver answers otherwise: one
// that is being replaced, or was let go of, says nothing about its GPUs. GPUs that all
// fall silent at once are told by Suspect.
type Lost struct {
	silences
	node [2]lostWords // never_answered, not_back
}

// NewLost returns the detector of rule gpu_lost.
func NewLost() *Lost { return &Lost{silences: newSilences()} }

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
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.gpus[g.UUID]
		why := d.why(g, l)
		c.Why, c.Bound = why, g.Bound
		for _, cause := range []string{causeGone, causeHung, causeGivenAway, causeRemoved} {
			o := Observation{Subject: gpuSubject(g.UUID), Cause: cause, Severity: urgency(cause), GPU: g, Owner: l.Owner}
			if !l.Since.IsZero() && cause == why {
				o.Score, c.Since = 1, l.Since
				o.Evidence = l.words.say(c, saySilent)
			}
			report(o)
		}
	}
	if s.Node.Name == "" {
		return
	}
	c.Why, c.Bound, c.Since = "", "", time.Time{}
	// Nothing was lost while somebody used it, so nobody is woken.
	about := func(cause string, words *lostWords, holds bool, say func(lostCounts) Evidence) {
		o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: cause, Severity: rules.Ticket}
		if holds {
			o.Score, o.Evidence = 1, words.say(c, say)
		}
		report(o)
	}
	about(causeNeverAnswered, &d.node[0], c.Listed > c.Known, sayNeverAnswered)
	c.Before = s.GPUsBefore
	about(causeNotBack, &d.node[1], notBack(s, c), sayNotBack)
}

// notBack reports whether GPUs that were there before the node booted are nowhere now:
// the driver does not list them and, as far as the bus was looked at, it has none that
// belongs to another driver. Those that come up late have time to do so.
func notBack(s *collector.Snapshot, c lostCounts) bool {
	onBus := 0.0
	for i := range metric.PCIGPUs.Width() {
		if v := s.Node.ValueAt(metric.PCIGPUs, i); v > 0 {
			onBus += v
		}
	}
	return !booting(s) && c.Answering > 0 && c.Before > max(c.Known, c.Listed, int(onBus))
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

func sayNeverAnswered(c lostCounts) Evidence {
	n := c.Listed - c.Known
	return Evidence{
		Title:    "GPU never answered",
		Seen:     fmt.Sprintf("the driver lists %s, and has never answered for %d of them", count(c.Listed, "GPU", "GPUs"), n),
		Expected: "an answer for each that it lists", Observed: float64(n), Confidence: Certain, Why: "told by the driver, for which the other GPUs may work",
		Action: "Run `gpuvigil doctor` on the node: it says whether this user may open every GPU; if so, look in the kernel log for the GPU, and power-cycle the node.",
	}
}

func sayNotBack(c lostCounts) Evidence {
	there := max(c.Known, c.Listed)
	return Evidence{
		Title:    "GPU missing since the node booted",
		Seen:     fmt.Sprintf("the node had %s before it booted, and has %d now", count(c.Before, "GPU", "GPUs"), there),
		Expected: "the GPUs of before", Observed: float64(c.Before - there), Confidence: Certain, Why: "neither the driver nor the PCI bus knows of more",
		Action: "If a GPU was taken out on purpose, nothing: the next boot forgets it. Else look in the management controller's log, and power-cycle the node.",
	}
}

// Shift moves since when GPUs do not answer.
func (d *Lost) Shift(by time.Duration) { d.shift(by) }

// Save returns since when GPUs do not answer.
func (d *Lost) Save() ([]byte, error) { return json.Marshal(d.save()) }

// Restore takes up what Save returned.
func (d *Lost) Restore(data []byte) error {
	var s lostState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	d.restore(s)
	return nil
}
