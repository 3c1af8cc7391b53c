package detect

import (
	"encoding/json"
	"fmt"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule suspect_monitor.
const (
	causeSilentTogether = "silent_together" // half of the GPUs or more stopped to answer in the same minute
	causeSourceStopped  = "source_stopped"  // nothing new comes of any GPU
	causeStandsStill    = "stands_still"    // readings come and never change, the energy used among them
)

const (
	sourceSilent = 5 * time.Minute  // after which a source has stopped
	unusedSilent = 30 * time.Minute // the same where nobody holds a GPU, as while the driver is replaced
	standsStill  = 10 * time.Minute // for how long no reading may change
	bootGrace    = 10 * time.Minute // after which a node has come up, and its jobs with it
)

// booting reports whether the node has booted just now: only what is certain counts.
func booting(s *collector.Snapshot) bool { return !s.Boot.IsZero() && s.Time.Sub(s.Boot) < bootGrace }

// Suspect reports that what looks at the GPUs is to be suspected rather than each of
// them: that half of a node's GPUs break in the same minute is less likely than that
// the driver, whoever asks it, or what the GPUs share is broken. While it fires, the
// findings that follow from it stay silent.
type Suspect struct {
	silences
	state suspectState
	words lostWords
	still map[string]*stillness
	said  [2]Evidence // source_stopped, stands_still
}

// suspectState is what must be remembered beside the silences.
type suspectState struct {
	lostState
	Source string     `json:"source"`         // whom the GPUs come from
	Held   int        `json:"held"`           // GPUs that somebody held when it last told of them
	Hung   bool       `json:"hung,omitempty"` // it waited for the driver since
	Silent lostCounts `json:"silent"`         // those that fell silent together, as last known
}

// stillness is since when a GPU's readings have not changed.
type stillness struct {
	at, since                time.Time
	energy, power, heat, use float64
}

// NewSuspect returns the detector of rule suspect_monitor.
func NewSuspect() *Suspect {
	return &Suspect{silences: newSilences(), still: map[string]*stillness{}}
}

// Rule returns suspect_monitor.
func (d *Suspect) Rule() *rules.Rule { return rules.Get(rules.IDSuspectMonitor) }

// Observe judges the node.
func (d *Suspect) Observe(s *collector.Snapshot, report func(Observation)) {
	if s.Node.Name == "" {
		return
	}
	page := s.GPUPage()
	asked := s.Node.Has(metric.GPUsSeen)
	switch {
	case page != nil:
		d.state.Source = page.Source
	case d.state.Source == "" && asked:
		d.state.Source = "nvml"
	}
	src := d.source(s)
	if src != nil && src.Paused {
		d.state.Silent = lostCounts{}
	}
	if n, answers := held(s); answers && (page != nil || asked) {
		d.state.Hung, d.state.Held = false, n
	}
	about := Subject{"node", s.Node.Name}
	report(d.silentTogether(s, about, asked && page == nil))
	report(d.sourceStopped(s, about, src, asked || page != nil))
	report(d.standsStill(s, about))
}

// source returns the state of whom the GPUs come from, nil if it is not known.
func (d *Suspect) source(s *collector.Snapshot) *collector.SourceState {
	for i := range s.Sources {
		if s.Sources[i].Name == d.state.Source {
			return &s.Sources[i]
		}
	}
	return nil
}

// held returns how many GPUs somebody holds, and whether any answers.
func held(s *collector.Snapshot) (n int, answers bool) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		answers = answers || g.Answers()
		if len(g.Owners) > 0 || g.Value(metric.ProcessCount) > 0 {
			n++
		}
	}
	return n, answers
}

// silentTogether judges GPUs that stopped to answer in the same minute. While the
// driver is not asked any more, what was last known of them holds.
func (d *Suspect) silentTogether(s *collector.Snapshot, about Subject, asked bool) Observation {
	o := Observation{Subject: about, Cause: causeSilentTogether, Severity: rules.Page}
	if asked {
		answering := d.listen(s)
		d.state.Silent = lostCounts{}
		if n, since := d.atOnce(s); n > 0 {
			d.state.Silent = lostCounts{Listed: int(s.Node.Value(metric.GPUsSeen)), Known: len(s.GPUs), Answering: answering, Together: n, Since: since}
		}
	}
	if d.state.Silent.Together > 0 {
		o.Score, o.At, o.Evidence = 1, d.state.Silent.Since, d.words.say(d.state.Silent, saySilentTogether)
	}
	return o
}

func saySilentTogether(c lostCounts) Evidence {
	e := Evidence{
		Title:    fmt.Sprintf("%s stopped answering together", someOf(c.Together, c.Known)),
		Seen:     fmt.Sprintf("the driver has not answered for %s since %s; it lists %d, and %d answer", someOf(c.Together, c.Known), clock(c.Since), c.Listed, c.Answering),
		Expected: "answers, as before", Observed: float64(c.Together), Confidence: Certain,
		Why: "all in the same minute: rather the driver, who asks it, or what they share, than each of the GPUs",
		Action: "Run `nvidia-smi` and `gpuvigil doctor` on the node: if GPUs are missing there too, look in the kernel log for what happened to the driver and to what they share " +
			"(power, a PCIe switch, the baseboard), drain the node and power-cycle it; if only gpuvigil misses them, restart it.",
	}
	if c.Answering == 0 && c.Together == c.Known {
		e.Title = "No GPU of the node answers"
		e.Seen = fmt.Sprintf("the driver has answered for none of %d GPUs since %s; it lists %s", c.Known, clock(c.Since), count(c.Listed, "GPU", "GPUs"))
	}
	return e
}

// sourceStopped judges whether anything new comes of the GPUs. One that was told not to
// look is silent on purpose. Whether the node is dead or only who looks at it, nobody
// knows: where the driver hangs under somebody's work, somebody is woken.
func (d *Suspect) sourceStopped(s *collector.Snapshot, about Subject, src *collector.SourceState, tells bool) Observation {
	o := Observation{Subject: about, Cause: causeSourceStopped, Severity: rules.Ticket}
	if src == nil || !src.Expected || src.Paused || src.Last.IsZero() || tells || d.state.Silent.Together > 0 || booting(s) {
		d.said[0] = Evidence{}
		return o
	}
	d.state.Hung = d.state.Hung || src.Hung
	patience := sourceSilent
	if d.state.Held == 0 {
		patience = unusedSilent
	}
	o.Score, o.At = s.Time.Sub(src.Last).Seconds()/max(patience, 3*src.Interval).Seconds(), src.Last
	if o.Score < 1 {
		return o
	}
	if d.state.Hung && d.state.Held > 0 {
		o.Severity = rules.Page
	}
	if d.said[0].Seen == "" {
		d.said[0] = saySourceStopped(src.Name, src.Last, &d.state)
	}
	o.Evidence = d.said[0]
	return o
}

func saySourceStopped(source string, last time.Time, state *suspectState) Evidence {
	e := Evidence{
		Title:    "Nothing is known of the node's GPUs any more",
		Seen:     fmt.Sprintf("source %s has given nothing new since %s; somebody held %s then", source, clock(last), count(state.Held, "GPU", "GPUs")),
		Expected: "new readings every few seconds", Observed: float64(state.Held), Confidence: Certain, Why: "faults of these GPUs go unseen meanwhile",
		Action: "Run `nvidia-smi` and `gpuvigil doctor` on the node: if nvidia-smi fails too, drain the node and look in the kernel log for the driver; else restart what does not answer.",
	}
	if state.Hung {
		e.Title = "The driver hangs: nothing is known of the node's GPUs"
	}
	return e
}

// standsStill judges whether readings that come are real: a GPU that draws power uses
// energy. Those of one GPU may stand still for a reason of its own.
func (d *Suspect) standsStill(s *collector.Snapshot, about Subject) Observation {
	o := Observation{Subject: about, Cause: causeStandsStill, Severity: rules.Ticket}
	n, busy := 0, false
	var since time.Time
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if st := d.look(g); st != nil && st.at.Sub(st.since) >= standsStill {
			n++
			since = later(since, st.since)
			busy = busy || st.use >= 0.95
		}
	}
	if n < 2 || 2*n < len(s.GPUs) {
		d.said[1] = Evidence{}
		return o
	}
	if busy {
		o.Severity = rules.Page // it looks like a hang of each of them
	}
	o.Score, o.At = 1, since
	if e := &d.said[1]; e.Seen == "" || e.Observed != float64(n) {
		*e = Evidence{
			Title:    "The readings of the node's GPUs stand still",
			Seen:     fmt.Sprintf("power, temperature, utilization and energy of %s have not changed at all since %s", someOf(n, len(s.GPUs)), clock(since)),
			Expected: "energy that grows while power is drawn", Observed: float64(n), Confidence: Certain, Why: "the energy counter contradicts the power",
			Action: "Run `nvidia-smi` on the node twice: if its readings change, restart gpuvigil; if they do not, the driver is stuck: drain the node and reboot it.",
		}
	}
	o.Evidence = d.said[1]
	return o
}

// look takes up a GPU's readings; nil if they cannot stand still.
func (d *Suspect) look(g *collector.GPU) *stillness {
	at, energy, power := g.SampledAt(metric.Fast), g.Value(metric.Energy), g.Value(metric.PowerDraw)
	heat, use := g.Value(metric.Temperature), g.Value(metric.Utilization)
	st := d.still[g.UUID]
	if !g.Answers() || !(energy > 0) || !(power > 0) {
		delete(d.still, g.UUID)
		return nil
	}
	if st == nil {
		if len(d.still) >= maxFaultyGPUs {
			return nil
		}
		st = &stillness{}
		d.still[g.UUID] = st
	}
	same := func(a, b float64) bool { return a == b || a != a && b != b }
	if gap := at.Sub(st.at); gap > sampleGap || energy != st.energy || power != st.power || !same(heat, st.heat) || !same(use, st.use) {
		*st = stillness{since: at, energy: energy, power: power, heat: heat, use: use}
	}
	st.at = at
	return st
}

// Shift moves since when GPUs do not answer and readings stand still.
func (d *Suspect) Shift(by time.Duration) {
	d.shift(by)
	shift(by, &d.state.Silent.Since)
	d.said = [2]Evidence{} // they name times
	for _, st := range d.still {
		shift(by, &st.at, &st.since)
	}
}

// Save returns since when GPUs do not answer, and who tells of them.
func (d *Suspect) Save() ([]byte, error) {
	d.state.lostState = d.save()
	return json.Marshal(d.state)
}

// Restore takes up what Save returned.
func (d *Suspect) Restore(data []byte) error {
	var s suspectState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	d.restore(s.lostState)
	s.lostState, d.state = lostState{}, s
	return nil
}
