package detect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule network_port.
const (
	causePortDown   = "down"   // it was up and is not any more
	causePortFlaps  = "flaps"  // its link goes down again and again
	causePortErrors = "errors" // far more errors than usual
)

const (
	portUsed      = 5 * time.Minute // for how long a port must have been up to be missed
	portFlaps     = 3               // losses of the link in an hour
	minPortErrors = 20              // in an hour
)

// Port reports ports of InfiniBand and RoCE adapters that are down although they were
// up, that lose their link again and again, or have errors. A port that was never up
// may not have a cable, and one that was disabled was so on purpose.
type Port struct {
	ports map[portKey]*port
}

type portKey struct {
	device string
	number int
}

// port is what is known of one port.
type port struct {
	Device string               `json:"device"`
	Number int                  `json:"port"`
	Seen   time.Time            `json:"seen"`          // the newest reading
	Up     time.Duration        `json:"up"`            // for how long it has been up, up to portUsed
	Down   time.Time            `json:"down,omitzero"` // since when it is down
	Losses [portFlaps]time.Time `json:"losses"`        // of the link, the newest first
	Lost   float64              `json:"lost"`          // losses, as last counted; negative: not told yet
	Errors tally                `json:"errors"`

	subject Subject
	words   riseWords
	said    [3]said
}

// NewPort returns the detector of rule network_port.
func NewPort() *Port { return &Port{ports: map[portKey]*port{}} }

// Rule returns network_port.
func (d *Port) Rule() *rules.Rule { return rules.Get(rules.IDNetworkPort) }

// Observe judges each port.
func (d *Port) Observe(s *collector.Snapshot, report func(Observation)) {
	fresh := false
	for i := range s.Interfaces {
		n := &s.Interfaces[i]
		p := d.port(n, s.Time)
		if at := n.SampledAt(metric.Slow); p != nil && at.After(p.Seen) {
			lasted := min(at.Sub(p.Seen), sampleGap)
			p.Seen, fresh = at, true
			p.read(n, lasted)
		}
	}
	if fresh && !booting(s) {
		d.judge(s)
	}
	for i := range s.Interfaces {
		n := &s.Interfaces[i]
		p := d.ports[portKey{n.Device, n.Port}]
		if p == nil {
			continue
		}
		for k := range p.said {
			if p.said[k].told {
				o := p.said[k].o
				o.Subject = p.subject
				report(o)
			}
		}
	}
}

func (d *Port) port(n *collector.Interface, now time.Time) *port {
	key := portKey{n.Device, n.Port}
	p := d.ports[key]
	if p == nil && roomIn(d.ports, func(p *port) bool { return now.Sub(p.Seen) > habitsKept }) {
		p = &port{Device: n.Device, Number: n.Port, Lost: -1}
		p.name()
		d.ports[key] = p
	}
	return p
}

func (p *port) name() {
	p.subject = Subject{"interface", p.Device + "/" + strconv.Itoa(p.Number)}
	p.words = riseWords{
		fmt.Sprintf("Network port %s has errors", p.subject.ID), "errors of port " + p.subject.ID,
		"Clean or replace the cable and its transceivers; look at the errors of the switch's port.",
	}
	nameCauses(p.said[:], causePortDown, causePortFlaps, causePortErrors)
}

// read takes up new readings, which stand for the time since the ones before.
func (p *port) read(n *collector.Interface, lasted time.Duration) {
	p.Errors.add(p.Seen, n.Value(metric.InterfaceErrors))
	if lost := n.Value(metric.InterfaceLinkDowned); !math.IsNaN(lost) {
		if p.Lost >= 0 {
			for k := min(lost-p.Lost, portFlaps); k >= 1; k-- {
				copy(p.Losses[1:], p.Losses[:])
				p.Losses[0] = p.Seen
			}
		}
		p.Lost = lost
	}
	up := n.Value(metric.InterfaceUp)
	switch {
	case up > 0:
		p.Up, p.Down = min(p.Up+lasted, portUsed), time.Time{}
	case n.PhysicalState == "Disabled":
		p.Up, p.Down = 0, time.Time{} // on purpose: it is not missed any more
	case up == 0 && p.Down.IsZero():
		p.Down = p.Seen
	}
	p.said[0].told = !math.IsNaN(up)
}

func (d *Port) judge(s *collector.Snapshot) {
	up := 0
	for i := range s.Interfaces {
		if s.Interfaces[i].Value(metric.InterfaceUp) > 0 {
			up++
		}
	}
	for i := range s.Interfaces {
		n := &s.Interfaces[i]
		if p := d.ports[portKey{n.Device, n.Port}]; p != nil {
			if p.said[0].told {
				p.down(n, up, len(s.Interfaces))
			}
			p.flaps()
			p.said[2].rise(&p.Errors, d.peers(s, n), minPortErrors, &p.words)
		}
	}
}

// peers is the last hour of all ports with the same kind of link.
func (d *Port) peers(s *collector.Snapshot, of *collector.Interface) (sum tallyPeers) {
	for i := range s.Interfaces {
		n := &s.Interfaces[i]
		if p := d.ports[portKey{n.Device, n.Port}]; p != nil && n.LinkLayer == of.LinkLayer {
			sum.add(&p.Errors)
		}
	}
	return sum
}

func (p *port) down(n *collector.Interface, up, all int) {
	if p.Down.IsZero() || p.Up < portUsed {
		p.said[0].set(0, rules.Ticket, 0, nil)
		return
	}
	p.said[0].o.At = p.Down
	p.said[0].set(1, rules.Ticket, float64(up), func() Evidence {
		return Evidence{
			Title:    fmt.Sprintf("Network port %s is down", p.subject.ID),
			Seen:     fmt.Sprintf("port %s (%s) has been %s, %s, since %s; %d of %d ports of the node are up", p.subject.ID, n.LinkLayer, n.State, n.PhysicalState, clock(p.Down), up, all),
			Expected: "active, as before", Observed: 0, Confidence: Certain, Why: "reported by the adapter",
			Action: "Look at the port of the switch and the cable; keep jobs that use several nodes off this one until it is up.",
		}
	})
}

func (p *port) flaps() {
	if p.Lost < 0 {
		return
	}
	score := 0.0
	if oldest := p.Losses[portFlaps-1]; !oldest.IsZero() && p.Seen.Sub(oldest) <= time.Hour {
		score = 1
	}
	p.said[1].set(score, rules.Ticket, p.Lost, func() Evidence {
		return Evidence{
			Title:    fmt.Sprintf("Network port %s loses its link again and again", p.subject.ID),
			Seen:     fmt.Sprintf("port %s lost its link %d times since %s, the last time at %s", p.subject.ID, portFlaps, clock(p.Losses[portFlaps-1]), clock(p.Losses[0])),
			Expected: "a link that stays up", Observed: portFlaps, Confidence: Certain, Why: "counted by the adapter",
			Action: "Clean or replace the cable and its transceivers; look at the errors of the switch's port.",
		}
	})
}

// Shift moves when readings were taken.
func (d *Port) Shift(by time.Duration) {
	for _, p := range d.ports {
		shift(by, &p.Seen, &p.Down)
		shiftAll(by, p.Losses[:])
		p.Errors.shift(by)
		forget(p.said[:])
	}
}

type portState struct {
	Version int     `json:"version"`
	Ports   []*port `json:"ports"` // by name
}

// Save returns which ports were up, and their errors.
func (d *Port) Save() ([]byte, error) {
	s := portState{Version: 1}
	for _, p := range d.ports {
		s.Ports = append(s.Ports, p)
	}
	slices.SortFunc(s.Ports, func(a, b *port) int { return cmp.Or(cmp.Compare(a.Device, b.Device), a.Number-b.Number) })
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *Port) Restore(data []byte) error {
	var s portState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	d.ports = map[portKey]*port{}
	for _, p := range s.Ports {
		if p != nil {
			p.name()
			d.ports[portKey{p.Device, p.Number}] = p
		}
	}
	return nil
}
