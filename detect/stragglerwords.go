package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// tell reports the job, with the GPU that is the odd one out, as long as it is slow. The
// job is the subject: what slows it down explains that it is slow.
func (d *Straggler) tell(s *collector.Snapshot, group *peerGroup, p *pace, i int, score float64, report func(Observation)) {
	o := Observation{Subject: OwnerSubject(group.owner), Cause: stragglerSoftware, Owner: group.owner}
	other := stragglerHardware
	g := s.GPUByUUID(group.members[i])
	if o.Score = min(score, float64(group.slow)/stragglerFor); o.Score >= 1 && g != nil {
		d.remember(g.UUID, group.owner, s.Time)
		why := d.hardware(group, g, s.Time)
		if len(why) > 0 {
			o.Cause, other = stragglerHardware, stragglerSoftware
		}
		// A false one needs a false odd one, too; how independent the two are is not known.
		o.Surprise = nats(&p.Rise, &paceLaw)
		o.Severity, o.GPU, o.Evidence = rules.Ticket, g, d.evidence(group, p, g, i, why)
	}
	report(o)
	report(Observation{Subject: o.Subject, Cause: other, Owner: group.owner})
}

// hardware lists what speaks for a fault of the GPU itself.
func (d *Straggler) hardware(group *peerGroup, g *collector.GPU, now time.Time) (why []string) {
	m := d.gpus[g.UUID]
	clock := group.median(d, func(m *stragglerGPU) float64 { return m.value[sigClock] })
	if x := m.value[sigClock]; x < clockLag*clock {
		why = append(why, fmt.Sprintf("its SM clock is %.0f MHz, its peers' %.0f MHz", x/1e6, clock/1e6))
	}
	if t := group.median(d, func(m *stragglerGPU) float64 { return m.temperature }); m.temperature > t+hotterPeer {
		why = append(why, fmt.Sprintf("it is at %s, its peers at %s", celsius(m.temperature), celsius(t)))
	}
	if m.holds {
		why = append(why, "the hardware holds its clocks down")
	}
	if g.Value(metric.RemapPending) > 0 || g.Value(metric.RemapFailed) > 0 || g.ValueAt(metric.ECCErrors, uncorrected) > 0 {
		why = append(why, "it has uncorrected memory errors or rows to remap")
	}
	if w, most := g.Value(metric.PCIeWidth), g.Value(metric.PCIeMaxWidth); w < most {
		why = append(why, fmt.Sprintf("its PCIe link has %.0f of %.0f lanes", w, most))
	}
	for _, j := range d.slowed[g.UUID] {
		if j.Owner != group.owner && now.Sub(j.At) < stragglerRecalls {
			why = append(why, fmt.Sprintf("it slowed down %s %s, too, %s ago", j.Owner.Kind, j.Owner.ID, span(now.Sub(j.At))))
			break
		}
	}
	return why
}

const uncorrected = 1 // of metric.ECCType

func (d *Straggler) evidence(group *peerGroup, p *pace, g *collector.GPU, i int, why []string) Evidence {
	k, _ := group.odd[i].worst(p.Lag)
	own := d.gpus[g.UUID].value[k]
	others := group.median(d, func(m *stragglerGPU) float64 { return m.value[k] })
	want := others
	ev := Evidence{
		Title: d.named(g) + " slows its job down, the software or its data are suspected",
		Seen: fmt.Sprintf("a %s of %s %s takes %s, %s more than usual, for %d min; of its %d GPUs here %s is the odd one out: %s %s, the others about %s",
			p.unit(), group.owner.Kind, group.owner.ID, seconds(p.now), percentOf(p.slower()), group.slow,
			len(group.members), d.named(g), signalNames[k], signalValue(k, own), signalValue(k, others)),
		Expected:   "the same relation to its peers as before, and about " + seconds(p.usual()) + " for a " + p.unit(),
		Observed:   own,
		Want:       &want,
		Confidence: sureOf(nats(&p.Rise, &paceLaw)),
		Why:        "nothing speaks for the hardware: no lower clock, heat, memory error or PCIe link, and no other job that it slowed down",
		Action:     "Look at what this rank does otherwise: its data, its host's CPU and storage, its share of the work.",
	}
	if len(why) > 0 {
		ev.Title = d.named(g) + " slows its job down, its hardware is suspected"
		ev.Why = strings.Join(why, "; ")
		ev.Action = "Take the GPU out of the job, run the vendor's diagnostics on it, and see whether the next job on it is slow, too."
	}
	return ev
}

func signalValue(k int, x float64) string {
	switch k {
	case sigPower:
		return fmt.Sprintf("%.0f W", x)
	case sigClock:
		return fmt.Sprintf("%.0f MHz", x/1e6)
	}
	return percentOf(x)
}

// remember notes that a GPU slowed a job down.
func (d *Straggler) remember(uuid string, who collector.Owner, now time.Time) {
	jobs := d.slowed[uuid]
	for i := range jobs {
		if jobs[i].Owner == who {
			jobs[i].At = now
			return
		}
	}
	if jobs == nil && !room(d.slowed, stragglerMemory, stragglerRecalls, func(of []slowedJob) time.Time { return of[len(of)-1].At }, now) {
		return
	}
	jobs = append(jobs, slowedJob{who, now})
	d.slowed[uuid] = jobs[max(len(jobs)-4, 0):]
}

// Shift moves when GPUs and jobs were seen.
func (d *Straggler) Shift(by time.Duration) {
	d.minute.shift(by)
	for _, p := range d.paces.of {
		p.shift(by)
	}
	for _, g := range d.groups {
		shift(by, &g.seen)
	}
	for _, m := range d.gpus {
		shift(by, &m.seen, &m.at)
	}
	for _, jobs := range d.slowed {
		for i := range jobs {
			shift(by, &jobs[i].At)
		}
	}
}

type stragglerState struct {
	Version int                    `json:"version"`
	Paces   []paceOf               `json:"paces"`
	Groups  []groupState           `json:"groups"`
	Slowed  map[string][]slowedJob `json:"slowed,omitempty"`
}

type groupState struct {
	Owner   collector.Owner `json:"owner"`
	Members []string        `json:"members"`
	Seen    time.Time       `json:"seen"`
	Slow    int             `json:"slow,omitempty"`
	Odd     []oddness       `json:"odd"`
}

// Save returns each job's pace and what is usual of its GPUs: at most 2 KiB for each of them.
func (d *Straggler) Save() ([]byte, error) {
	m := stragglerState{Version: 1, Paces: d.paces.save(), Groups: []groupState{}, Slowed: d.slowed}
	for _, g := range d.groups {
		m.Groups = append(m.Groups, groupState{g.owner, g.members, g.seen, g.slow, g.odd})
	}
	return json.Marshal(m)
}

// Restore takes up what Save returned.
func (d *Straggler) Restore(data []byte) error {
	var m stragglerState
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	n := NewStraggler()
	for _, k := range m.Groups[:min(len(m.Groups), stragglerGroups)] {
		g := newPeerGroup(k.Owner, k.Members)
		g.seen, g.slow = k.Seen, k.Slow
		if len(k.Odd) != len(k.Members) || slices.ContainsFunc(n.groups, func(o *peerGroup) bool { return o.owner == k.Owner }) {
			return fmt.Errorf("its memory of the GPUs of %s is damaged: it is of %d GPUs, want %d, once", k.Owner, len(k.Odd), len(k.Members))
		}
		g.odd = k.Odd
		n.groups = append(n.groups, g)
	}
	n.paces.restore(m.Paces)
	for uuid, jobs := range m.Slowed {
		if len(jobs) > 0 && len(n.slowed) < stragglerMemory {
			n.slowed[uuid] = jobs[max(len(jobs)-4, 0):]
		}
	}
	*d = *n
	return nil
}
