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

// The causes of rule nvlink.
const (
	causeLinksDown      = "links_down"      // fewer links are up than were, or than the peers have
	causeFabricHealth   = "fabric_health"   // the driver calls the GPU's access to the fabric unhealthy or limited
	causeRecoveryFailed = "recovery_failed" // a link went to recovery and did not come back
	causeLinkErrors     = "link_errors"     // far more errors than usual
)

const (
	minLinkErrors  = 20        // in an hour
	recoveryKept   = time.Hour // after a recovery that failed
	fabricHealthy  = 1         // of metric.FabricHealth
	fabricLimited  = 3
	failedRecovery = 3 // place in metric.NVLink5Fault
)

// NVLink reports links between GPUs that are down or have errors, and a fabric that the
// driver calls unhealthy. Links that are down on all GPUs of a model, and never were up
// since the driver was loaded, are not there or were switched off.
type NVLink struct {
	gpus map[string]*gpuLinks // by uuid
}

// gpuLinks is what is known of one GPU's links.
type gpuLinks struct {
	Seen   time.Time `json:"seen"`             // the newest reading
	Most   float64   `json:"most"`             // links that were up at once since the driver was loaded
	Since  time.Time `json:"since,omitzero"`   // when the first of those that are down went down
	Errors tally     `json:"errors"`           // that had to be repaired by sending again
	Failed float64   `json:"failed"`           // recoveries, as last counted; negative: not told yet
	Lost   float64   `json:"lost,omitempty"`   // of them, those that are told
	LostAt time.Time `json:"lost_at,omitzero"` // the newest
	Boot   string    `json:"boot_id,omitempty"`

	model string
	up    float64
	mig   bool
	said  [4]said
}

// NewNVLink returns the detector of rule nvlink.
func NewNVLink() *NVLink { return &NVLink{gpus: map[string]*gpuLinks{}} }

// Rule returns nvlink.
func (d *NVLink) Rule() *rules.Rule { return rules.Get(rules.IDNVLink) }

// Observe judges each GPU that answers.
func (d *NVLink) Observe(s *collector.Snapshot, report func(Observation)) {
	fresh := false
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.links(g.UUID, s.Time)
		if l == nil {
			continue
		}
		if !g.Present {
			l.Most = 0 // the driver may come back with other links, as it was told to
		}
		if news(g, metric.Slow, &l.Seen) {
			l.read(s, g)
			fresh = true
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

func (d *NVLink) links(uuid string, now time.Time) *gpuLinks {
	l := d.gpus[uuid]
	if l == nil && roomIn(d.gpus, func(l *gpuLinks) bool { return now.Sub(l.Seen) > habitsKept }) {
		l = &gpuLinks{Failed: -1}
		l.name()
		d.gpus[uuid] = l
	}
	return l
}

func (l *gpuLinks) name() {
	l.up = math.NaN()
	nameCauses(l.said[:], causeLinksDown, causeFabricHealth, causeRecoveryFailed, causeLinkErrors)
}

// read takes up new readings.
func (l *gpuLinks) read(s *collector.Snapshot, g *collector.GPU) {
	l.model, l.up, l.mig = g.Model, g.Value(metric.NVLinksUp), g.MIG
	if l.Boot != s.BootID {
		l.Most, l.Failed, l.Boot = 0, -1, s.BootID
	}
	if l.up > l.Most {
		l.Most = l.up
	}
	l.Errors.add(l.Seen, repeats(g))
	l.recoveries(g)
}

// repeats is how many errors made a link of the GPU send again or train anew. Symbols
// that forward error correction mends are none, and a driver counts thousands of them.
func repeats(g *collector.GPU) float64 {
	sum, any := 0.0, false
	add := func(d *metric.Def, at ...int) {
		for _, i := range at {
			if v := g.ValueAt(d, i); v >= 0 {
				sum, any = sum+v, true
			}
		}
	}
	add(metric.NVLinkErrors, 1, 2, 3, 4) // crc_data, replay, recovery, ecc_data
	add(metric.NVLink5Errors, 0, 2)      // effective, link_recovery
	if !any {
		return math.NaN()
	}
	return sum
}

// recoveries judges whether a link did not come back.
func (l *gpuLinks) recoveries(g *collector.GPU) {
	failed := g.ValueAt(metric.NVLink5Errors, failedRecovery)
	if math.IsNaN(failed) {
		l.said[2].told = false
		return
	}
	if l.Failed >= 0 && failed > l.Failed {
		if l.Seen.Sub(l.LostAt) > recoveryKept {
			l.Lost = 0
		}
		l.Lost, l.LostAt = l.Lost+failed-l.Failed, l.Seen
	}
	l.Failed = failed
	score := 0.0
	if !l.LostAt.IsZero() && l.Seen.Sub(l.LostAt) <= recoveryKept {
		score = l.Lost
	}
	l.said[2].set(score, rules.Ticket, l.Lost, func() Evidence {
		return Evidence{
			Title: "NVLink did not recover", Seen: fmt.Sprintf("%s, the last at %s", count(int(l.Lost), "NVLink went to recovery and did not come back", "NVLinks went to recovery and did not come back"), clock(l.LostAt)),
			Expected: "links that recover", Observed: l.Lost, Confidence: Certain, Why: "reported by the driver", Action: resetFabric,
		}
	})
}

const resetFabric = "Drain the node, reset the GPUs of the fabric together, and look at cables and the fabric manager's log; if it comes back, have the board repaired."

// judge compares the links with what was, and with the peers.
func (d *NVLink) judge(s *collector.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		l := d.gpus[g.UUID]
		if l == nil || !g.Answers() {
			continue
		}
		usual, peers := d.peers(s, g.UUID, l)
		l.down(usual)
		l.fabric(g)
		l.said[3].rise(&l.Errors, peers, minLinkErrors, &linkErrorWords)
	}
}

// peers returns how many links all others of the model have up, if they are three at
// least and have equally many, and the errors of all. Of boards that bridges join in
// pairs, some have none.
func (d *NVLink) peers(s *collector.Snapshot, uuid string, l *gpuLinks) (up float64, sum tallyPeers) {
	n, alike := 0, true
	for i := range s.GPUs {
		p := d.gpus[s.GPUs[i].UUID]
		if p == nil || p.model != l.model {
			continue
		}
		sum.add(&p.Errors)
		if s.GPUs[i].UUID == uuid || p.mig || math.IsNaN(p.up) {
			continue
		}
		alike = n == 0 || alike && p.up == up
		up, n = p.up, n+1
	}
	if n < minLinkPeers || !alike {
		up = 0
	}
	return up, sum
}

// down judges the links that are down. With MIG on a GPU has none up.
func (l *gpuLinks) down(usual float64) {
	if math.IsNaN(l.up) {
		l.said[0].told = false
		return
	}
	want := max(l.Most, usual)
	if l.mig || l.up >= want {
		l.Since = time.Time{}
		l.said[0].set(0, rules.Ticket, 0, nil)
		return
	}
	if l.Since.IsZero() {
		l.Since = l.Seen
	}
	l.said[0].o.At = l.Since
	l.said[0].set(1, rules.Ticket, l.up+1000*want, func() Evidence {
		expected := want // so that it costs nothing while nothing is said
		e := Evidence{
			Title: "NVLinks of the GPU are down", Seen: fmt.Sprintf("%d of %d NVLinks are up since %s", int(l.up), int(want), clock(l.Since)),
			Expected: "all that were up", Observed: l.up, Want: &expected, Confidence: Certain, Why: "reported by the driver", Action: resetFabric,
		}
		if usual > l.Most {
			e.Expected, e.Why = "as many as the other GPUs of the model have", "reported by the driver"
		}
		return e
	})
}

// fabric judges what the driver says of the GPU's access to the fabric.
func (l *gpuLinks) fabric(g *collector.GPU) {
	v := g.Value(metric.FabricHealth)
	if math.IsNaN(v) {
		l.said[1].told = false
		return
	}
	score := 0.0
	if v > fabricHealthy {
		score = 1
	}
	l.said[1].set(score, rules.Ticket, v, func() Evidence {
		e := Evidence{
			Title: "GPU's access to the NVLink fabric is unhealthy", Seen: "the driver calls the GPU's access to the NVLink fabric unhealthy", Expected: "healthy",
			Observed: v, Confidence: Certain, Why: "reported by the driver", Action: resetFabric,
		}
		if v == fabricLimited {
			e.Title = "GPU's access to the NVLink fabric is limited"
			e.Seen = "the driver calls the GPU's access to the NVLink fabric limited: it works with less bandwidth or fewer peers"
		}
		return e
	})
}

var linkErrorWords = riseWords{
	"NVLinks of the GPU have errors", "errors on its NVLinks",
	"Look at the fabric manager's log and the cables; when the node is next idle, reset the GPUs of the fabric together.",
}

// Shift moves when readings were taken.
func (d *NVLink) Shift(by time.Duration) {
	for _, l := range d.gpus {
		shift(by, &l.Seen, &l.Since, &l.LostAt)
		l.Errors.shift(by)
		forget(l.said[:])
	}
}

// Save returns how many links were up, and their errors.
func (d *NVLink) Save() ([]byte, error) { return json.Marshal(gpusState[gpuLinks]{1, d.gpus}) }

// Restore takes up what Save returned.
func (d *NVLink) Restore(data []byte) error {
	gpus, err := restoreGPUs[gpuLinks](data)
	if err != nil {
		return err
	}
	d.gpus = gpus
	return nil
}
