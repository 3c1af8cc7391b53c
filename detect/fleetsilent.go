package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// fleetSilent is rule suspect_monitor for nodes of which nothing is heard any more. A node
// that nobody used may have been taken away.
type fleetSilent struct {
	cluster string
	nodes   map[string]*silentNode
	now     time.Time
	resumed time.Time // since when there have been looks without a long pause
	heard   int
}

// silentNode is a node on which somebody held a GPU when it was last heard of.
type silentNode struct {
	Last time.Time `json:"last"`
	Held int       `json:"held"` // GPUs
}

func newFleetSilent(cluster string) *fleetSilent {
	return &fleetSilent{cluster: cluster, nodes: map[string]*silentNode{}}
}

func (d *fleetSilent) Rule() *rules.Rule { return rules.Get(rules.IDSuspectMonitor) }

func (d *fleetSilent) look(now time.Time, heard []Heard) {
	if now.Sub(d.now) > longPause {
		d.resumed = now
	}
	d.now, d.heard = now, 0
	for i := range heard {
		s := heard[i].Snapshot
		if s == nil {
			continue
		}
		d.heard++
		n := d.nodes[heard[i].Node]
		if n == nil {
			n = &silentNode{}
			d.nodes[heard[i].Node] = n
		}
		n.Last, n.Held = now, 0
		if gpus, answers := held(s); answers {
			n.Held = gpus
		}
	}
	maps.DeleteFunc(d.nodes, func(_ string, n *silentNode) bool { return now.Sub(n.Last) > nodeKept })
}

// Observe reports each node, or all of them as one where many are silent.
func (d *fleetSilent) Observe(_ *collector.Snapshot, report func(Observation)) {
	names := slices.Sorted(maps.Keys(d.nodes))
	var silent []string
	all := Observation{Subject: Subject{"cluster", d.cluster}, Cause: causeSourceStopped, Severity: rules.Page}
	for _, name := range names {
		if n := d.nodes[name]; n.Held > 0 && d.silence(n) >= sourceSilent {
			silent = append(silent, name)
			if all.At.IsZero() || n.Last.Before(all.At) {
				all.At = n.Last
			}
		}
	}
	many := len(silent) >= flipNodes && float64(len(silent)) >= flipShare*float64(d.heard+len(silent))
	if many {
		all.Score, all.Evidence = 1, d.sayMany(silent)
	}
	report(all)
	for _, name := range names {
		n := d.nodes[name]
		o := Observation{Subject: Subject{"node", name}, Cause: causeSourceStopped, Severity: rules.Ticket, Node: name}
		if n.Held > 0 && !many {
			o.Score, o.At = d.silence(n).Seconds()/sourceSilent.Seconds(), n.Last
		}
		if o.Score >= 1 {
			o.Evidence = Evidence{
				Title:    "Nothing is heard of the node any more",
				Seen:     fmt.Sprintf("no sample of it has come since %s; somebody held %s then", clock(n.Last), count(n.Held, "GPU", "GPUs")),
				Expected: "samples as often as they are scraped", Observed: float64(n.Held), Confidence: Certain, Why: "faults of these GPUs go unseen meanwhile",
				Action: "See whether the node answers. If it does, look at its exporter and at what scrapes it; if not, drain it and power-cycle it.",
			}
		}
		report(o)
	}
}

// silence is for how long a node could have been heard of and was not.
func (d *fleetSilent) silence(n *silentNode) time.Duration {
	return d.now.Sub(later(n.Last, d.resumed))
}

func (d *fleetSilent) sayMany(silent []string) Evidence {
	nodes := d.heard + len(silent)
	return Evidence{
		Title:    fmt.Sprintf("Nothing is heard of %d of %d nodes any more", len(silent), nodes),
		Seen:     fmt.Sprintf("no sample of %s has come for %s: %s", count(len(silent), "node", "nodes"), span(sourceSilent), listed(silent)),
		Expected: "samples as often as they are scraped", Observed: float64(len(silent)), Confidence: Certain,
		Why:    "so many at once: rather what scrapes them, or what they share, than each of the nodes",
		Action: "See whether one of the nodes answers. If it does, look at what scrapes them; if not, at what they share: network, power.",
	}
}

type fleetSilentState struct {
	Version int                    `json:"version"`
	Nodes   map[string]*silentNode `json:"nodes"`
}

// Save returns when nodes were last heard of.
func (d *fleetSilent) Save() ([]byte, error) { return json.Marshal(fleetSilentState{1, d.nodes}) }

// Restore takes up what Save returned.
func (d *fleetSilent) Restore(data []byte) error {
	var s fleetSilentState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	clear(d.nodes)
	for name, n := range s.Nodes {
		if n != nil {
			d.nodes[name] = n
		}
	}
	return nil
}
