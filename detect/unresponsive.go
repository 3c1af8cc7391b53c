package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule driver_unresponsive.
const (
	causeSlowCalls = "slow_calls" // calls into the driver take so long that a GPU is sampled less often
	causeRestarts  = "restarts"   // what asks the driver had to be restarted again and again
	causeFabric    = "fabric"     // GPUs wait to join the NVLink fabric
)

const (
	slowedFor     = 10 * time.Minute
	slowedBy      = 4 // times as long an interval as configured
	tooManyStarts = 3 // in an hour
	fabricWait    = 10 * time.Minute
	fabricDone    = 3 // of metric.FabricState
)

// Unresponsive reports a driver that answers, but slowly, only after restarts, or
// without the fabric manager that it needs. GPUs that hang or do not answer are told by
// Lost and Suspect.
type Unresponsive struct {
	state unresponsiveState
	said  [2]said // restarts, fabric
}

type unresponsiveState struct {
	Version int                      `json:"version"`
	Starts  [tooManyStarts]time.Time `json:"starts"`          // of the child after it failed, the newest first
	Reason  string                   `json:"reason"`          // of the newest
	Fabric  time.Time                `json:"fabric,omitzero"` // since when GPUs wait for the fabric
	Slow    map[string]*slowGPU      `json:"slow"`            // by uuid
}

// slowGPU is a GPU that is, or was, sampled less often than it should be.
type slowGPU struct {
	Since time.Time `json:"since,omitzero"`
	Seen  time.Time `json:"seen"`
	said  [1]said
}

// NewUnresponsive returns the detector of rule driver_unresponsive.
func NewUnresponsive() *Unresponsive {
	d := &Unresponsive{state: unresponsiveState{Version: 1, Slow: map[string]*slowGPU{}}}
	nameCauses(d.said[:], causeRestarts, causeFabric)
	return d
}

// Rule returns driver_unresponsive.
func (d *Unresponsive) Rule() *rules.Rule { return rules.Get(rules.IDUnresponsive) }

// Observe judges each GPU, and the node.
func (d *Unresponsive) Observe(s *collector.Snapshot, report func(Observation)) {
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == collector.ChildRestart {
			d.restarted(ev)
		}
	}
	if s.Node.Name == "" || booting(s) {
		return
	}
	for i := range s.GPUs {
		d.judge(s, &s.GPUs[i], report)
	}
	d.restarts(s)
	d.fabric(s)
	for i := range d.said {
		if d.said[i].told {
			o := d.said[i].o
			o.Subject = Subject{"node", s.Node.Name}
			report(o)
		}
	}
}

// restarted takes up a restart that was not wanted.
func (d *Unresponsive) restarted(ev *collector.Event) {
	reason, _, _ := strings.Cut(ev.Text, ":")
	words := map[string]string{
		"exited": "it ended by itself", "init_hung": "the driver's initialisation hung", "all_gpus_hung": "no GPU answered any more", "bad_frame": "it sent nonsense",
	}[reason]
	if words == "" {
		return
	}
	copy(d.state.Starts[1:], d.state.Starts[:])
	d.state.Starts[0], d.state.Reason = ev.Time, words
}

// judge judges how slowly the driver answers for one GPU.
func (d *Unresponsive) judge(s *collector.Snapshot, g *collector.GPU, report func(Observation)) {
	slowdown := 0.0
	for t := range metric.GPUSlowdown.Width() {
		slowdown = max(slowdown, g.ValueAt(metric.GPUSlowdown, t))
	}
	if !g.Answers() || math.IsNaN(slowdown) {
		return
	}
	v := d.state.Slow[g.UUID]
	if v == nil {
		if slowdown < slowedBy || !roomIn(d.state.Slow, func(v *slowGPU) bool { return s.Time.Sub(v.Seen) > habitsKept }) {
			return
		}
		v = &slowGPU{}
		nameCauses(v.said[:], causeSlowCalls)
		d.state.Slow[g.UUID] = v
	}
	if v.Seen = s.Time; slowdown < slowedBy {
		v.Since = time.Time{}
		v.said[0].set(0, rules.Ticket, 0, nil)
	} else {
		v.lasts(s.Time, slowdown)
	}
	sayOf(g, v.said[:], report)
}

func (v *slowGPU) lasts(now time.Time, slowdown float64) {
	if v.Since.IsZero() {
		v.Since = now
	}
	v.said[0].o.At = v.Since
	v.said[0].set(now.Sub(v.Since).Seconds()/slowedFor.Seconds(), rules.Ticket, slowdown, func() Evidence {
		return Evidence{
			Title: "The driver answers slowly for the GPU", Seen: fmt.Sprintf("calls into the driver take so long that the GPU is sampled %d times less often than configured, since %s", int(slowdown), clock(v.Since)),
			Expected: "an answer within a small part of the interval", Observed: slowdown, Confidence: Certain, Why: "measured by gpuvigil",
			Action: "Look in the kernel log for the GPU, and for what else asks the driver all the time; if it gets worse, drain the node and reset the GPU.",
		}
	})
}

func (d *Unresponsive) restarts(s *collector.Snapshot) {
	oldest := d.state.Starts[tooManyStarts-1]
	score := 0.0
	if !oldest.IsZero() && s.Time.Sub(oldest) <= time.Hour {
		score = 1
	}
	d.said[0].set(score, rules.Ticket, float64(d.state.Starts[0].Unix()), func() Evidence {
		return Evidence{
			Title:    "What asks the driver had to be restarted again and again",
			Seen:     fmt.Sprintf("the process that asks the driver was restarted %d times since %s; the last time at %s because %s", tooManyStarts, clock(oldest), clock(d.state.Starts[0]), d.state.Reason),
			Expected: "no restart", Observed: tooManyStarts, Confidence: Certain, Why: "counted by gpuvigil",
			Action: "Run `nvidia-smi` on the node: if it is slow or fails too, look in the kernel log for the driver, drain the node and reboot it; else report this, with the agent's log.",
		}
	})
}

// fabric judges whether GPUs wait for the NVLink fabric, without which no work starts
// on them. That is the fabric manager's to set up, which must run in the driver's version.
func (d *Unresponsive) fabric(s *collector.Snapshot) {
	waiting, told := 0, false
	for i := range s.GPUs {
		v := s.GPUs[i].Value(metric.FabricState)
		told = told || v >= 0
		if v > 0 && v < fabricDone {
			waiting++
		}
	}
	if d.said[1].told = told; !told {
		return
	}
	if waiting == 0 {
		d.state.Fabric = time.Time{}
		d.said[1].set(0, rules.Ticket, 0, nil)
		return
	}
	if d.state.Fabric.IsZero() {
		d.state.Fabric = s.Time
	}
	d.said[1].o.At = d.state.Fabric
	d.said[1].set(s.Time.Sub(d.state.Fabric).Seconds()/fabricWait.Seconds(), rules.Ticket, float64(waiting), func() Evidence {
		e := Evidence{
			Title: "GPUs wait for the NVLink fabric", Seen: fmt.Sprintf("%s %s to join the NVLink fabric since %s", someOf(waiting, len(s.GPUs)), plural(waiting, "waits", "wait"), clock(d.state.Fabric)),
			Expected: "GPUs that have joined it a few minutes after the start", Observed: float64(waiting), Confidence: Certain, Why: "reported by the driver",
			Action: "Look whether the fabric manager runs (`systemctl status nvidia-fabricmanager`) and at its log; start it, in the version of the driver.",
		}
		driver, manager := version(s, "driver"), version(s, "fabric_manager")
		same := strings.HasPrefix(manager, driver) || strings.HasPrefix(driver, manager)
		if manager != "" && driver != "" && !same {
			e.Seen += fmt.Sprintf("; the fabric manager is of version %s, the driver of %s", manager, driver)
			e.Action = "Install the fabric manager in the version of the driver and start it."
		}
		return e
	})
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// version is that of a component of the node, empty if it is not known.
func version(s *collector.Snapshot, component string) string {
	for _, v := range s.Node.Versions {
		if v.Component == component {
			return v.Value
		}
	}
	return ""
}

// Shift moves since when the driver is slow.
func (d *Unresponsive) Shift(by time.Duration) {
	shiftAll(by, d.state.Starts[:])
	shift(by, &d.state.Fabric)
	forget(d.said[:])
	for _, v := range d.state.Slow {
		shift(by, &v.Since, &v.Seen)
		forget(v.said[:])
	}
}

// Save returns since when the driver is slow, and how often it had to be asked anew.
func (d *Unresponsive) Save() ([]byte, error) { return json.Marshal(d.state) }

// Restore takes up what Save returned.
func (d *Unresponsive) Restore(data []byte) error {
	s := unresponsiveState{Slow: map[string]*slowGPU{}}
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	maps.DeleteFunc(s.Slow, func(_ string, v *slowGPU) bool { return v == nil })
	for _, v := range s.Slow {
		nameCauses(v.said[:], causeSlowCalls)
	}
	d.state = s
	return nil
}
