package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule pcie_link.
const (
	causeNarrow  = "narrow"  // fewer lanes than GPU and slot can do, or the peers have
	causeSlow    = "slow"    // an older generation than that
	causeReplays = "replays" // far more packets sent again than usual
)

const (
	linkJudged   = 10 * time.Minute // of load on a link that is less than it could be
	loadedUse    = 0.5              // utilization at which a link does not rest
	loadedBytes  = 100e6            // likewise, bytes a second
	minReplays   = 20               // in an hour
	minLinkPeers = 3                // GPUs of the same model that all have more, where nobody tells what is possible
)

// PCIe reports links between GPUs and the host that are narrower or slower than they
// could be, and those that send packets again. An idle link steps down to save power, so
// only one that is under load is judged.
type PCIe struct {
	gpus map[string]*pcieLink // by uuid
}

// pcieLink is what is known of one GPU's link. What is 0 is not known.
type pcieLink struct {
	Seen    time.Time     `json:"seen"`           // the newest reading
	Width   float64       `json:"width"`          // under load, as last seen
	Gen     float64       `json:"generation"`     //
	Most    float64       `json:"max_width"`      // that GPU and slot can do
	Newest  float64       `json:"max_generation"` //
	Below   time.Duration `json:"below"`          // for how long under load it has been less than it could be
	Since   time.Time     `json:"since,omitzero"` // when that began
	Replays tally         `json:"replays"`

	model          string
	narrow, slower bool
	said           [3]said // by cause: narrow, slow, replays
}

// NewPCIe returns the detector of rule pcie_link.
func NewPCIe() *PCIe { return &PCIe{gpus: map[string]*pcieLink{}} }

// Rule returns pcie_link.
func (d *PCIe) Rule() *rules.Rule { return rules.Get(rules.IDPCIeLink) }

// Observe judges each GPU that answers.
func (d *PCIe) Observe(s *collector.Snapshot, report func(Observation)) {
	fresh := false
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if l := d.link(g.UUID, s.Time); l != nil {
			before := l.Seen
			if news(g, metric.Slow, &l.Seen) {
				l.read(g, min(l.Seen.Sub(before), sampleGap))
				fresh = true
			}
		}
	}
	if fresh && !booting(s) {
		d.judge(s)
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if l := d.gpus[g.UUID]; l != nil && g.Answers() {
			sayOf(g, l.said[:], report)
		}
	}
}

func (d *PCIe) link(uuid string, now time.Time) *pcieLink {
	l := d.gpus[uuid]
	if l == nil && roomIn(d.gpus, func(l *pcieLink) bool { return now.Sub(l.Seen) > habitsKept }) {
		l = newPCIeLink()
		d.gpus[uuid] = l
	}
	return l
}

func newPCIeLink() *pcieLink {
	l := &pcieLink{}
	l.name()
	return l
}

func (l *pcieLink) name() { nameCauses(l.said[:], causeNarrow, causeSlow, causeReplays) }

// read takes up new readings, which stand for the time since the ones before.
func (l *pcieLink) read(g *collector.GPU, lasted time.Duration) {
	l.model = g.Model
	know(&l.Most, g.Value(metric.PCIeMaxWidth))
	know(&l.Newest, g.Value(metric.PCIeMaxGeneration))
	l.Replays.add(l.Seen, g.Value(metric.PCIeReplays))
	if !loaded(g) {
		return
	}
	know(&l.Width, g.Value(metric.PCIeWidth))
	know(&l.Gen, g.Value(metric.PCIeGeneration))
	if l.narrow || l.slower {
		if l.Since.IsZero() {
			l.Since = l.Seen
		}
		l.Below += lasted
	}
}

// know keeps a reading if there is one.
func know(known *float64, v float64) {
	if v > 0 {
		*known = v
	}
}

// loaded reports whether a GPU works or moves data over its link, so that the link does
// not rest.
func loaded(g *collector.GPU) bool {
	moved := 0.0
	for way := range metric.PCIeThroughput.Width() {
		if v := g.ValueAt(metric.PCIeThroughput, way); v > 0 {
			moved += v
		}
	}
	return g.Value(metric.Utilization) >= loadedUse || moved >= loadedBytes
}

// judge compares each link with what it could do and with the links of its peers.
func (d *PCIe) judge(s *collector.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.gpus[g.UUID]
		if l == nil || !g.Answers() {
			continue
		}
		lanes, generation, peers := d.expected(s, g.UUID, l)
		l.said[2].rise(&l.Replays, peers, minReplays, &replayWords)
		if l.Width == 0 && l.Gen == 0 || lanes == 0 && generation == 0 {
			continue // nobody tells, or it has never been under load
		}
		l.narrow, l.slower = l.Width > 0 && l.Width < lanes, l.Gen > 0 && l.Gen < generation
		if !l.narrow && !l.slower {
			l.Below, l.Since = 0, time.Time{}
		}
		score := l.Below.Seconds() / linkJudged.Seconds()
		l.compare(0, l.narrow, score, l.Width, lanes)
		l.compare(1, l.slower, score, l.Gen, generation)
	}
}

// expected is what a link should be: what GPU and slot can do together, or where nobody
// tells that, what all peers of the same model have under load. Slots that differ by
// design tell so.
func (d *PCIe) expected(s *collector.Snapshot, uuid string, l *pcieLink) (lanes, generation float64, peers tallyPeers) {
	n := 0
	wide, fast := math.Inf(1), math.Inf(1) // the least of the peers
	for i := range s.GPUs {
		p := d.gpus[s.GPUs[i].UUID]
		if p == nil || p.model != l.model {
			continue
		}
		peers.add(&p.Replays)
		if s.GPUs[i].UUID != uuid && p.Width > 0 && p.Gen > 0 {
			n++
			wide, fast = min(wide, p.Width), min(fast, p.Gen)
		}
	}
	if lanes, generation = l.Most, l.Newest; n >= minLinkPeers {
		if lanes == 0 {
			lanes = wide
		}
		if generation == 0 {
			generation = fast
		}
	}
	return lanes, generation, peers
}

// compare notes how far one side of the link is less than it should be.
func (l *pcieLink) compare(at int, less bool, score, is, want float64) {
	if !less {
		l.said[at].set(0, rules.Ticket, 0, nil)
		return
	}
	l.said[at].o.At = l.Since
	l.said[at].set(score, rules.Ticket, is+1000*want, func() Evidence {
		expected := want // so that it costs nothing while nothing is said
		e := Evidence{
			Observed: is, Want: &expected, Confidence: Certain, Why: "GPU and slot can do more",
			Action: "When the node is next idle, power-cycle it; if the link stays so, seat the board anew and look at the riser and the firmware.",
		}
		if at == 0 && l.Most == 0 || at == 1 && l.Newest == 0 {
			e.Confidence, e.Why = Likely, "all GPUs of the same model on this node have more"
		}
		if at == 0 {
			e.Title = "PCIe link of the GPU is too narrow"
			e.Seen = fmt.Sprintf("PCIe link of %d lanes under load since %s", int(is), clock(l.Since))
			e.Expected = fmt.Sprintf("%d lanes", int(want))
		} else {
			e.Title = "PCIe link of the GPU is too slow"
			e.Seen = fmt.Sprintf("PCIe link of generation %d under load since %s", int(is), clock(l.Since))
			e.Expected = fmt.Sprintf("generation %d", int(want))
		}
		return e
	})
}

var replayWords = riseWords{
	"PCIe link of the GPU loses packets", "PCIe packets sent again",
	"Watch whether the GPU falls off the bus; when the node is next idle, seat the board anew, and look at riser and cables.",
}

// Shift moves when readings were taken.
func (d *PCIe) Shift(by time.Duration) {
	for _, l := range d.gpus {
		shift(by, &l.Seen, &l.Since)
		l.Replays.shift(by)
		forget(l.said[:])
	}
}

// Save returns how long links have been less than they could be, and their replays.
func (d *PCIe) Save() ([]byte, error) { return json.Marshal(gpusState[pcieLink]{1, d.gpus}) }

// Restore takes up what Save returned.
func (d *PCIe) Restore(data []byte) error {
	gpus, err := restoreGPUs[pcieLink](data)
	if err != nil {
		return err
	}
	d.gpus = gpus
	return nil
}
