package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// IsolationConfig is what the detector of isolation can be told.
type IsolationConfig struct {
	Controlled bool // the pool is one on which what is not kept apart is a ticket; else information, or nothing
}

// The causes of rule isolation.
const (
	privileged       = "privileged"
	sensitiveBeside  = "sensitive_beside"
	mpsAcross        = "mps_across_owners"
	isolationChanged = "isolation_changed"
)

const (
	mostPostures = 512
	changeTold   = time.Hour // for which a changed setting is told
)

// Isolation watches what keeps workloads apart: the privileges of those on GPUs, whose
// data is beside whose, and the settings of the hardware.
type Isolation struct {
	cfg      IsolationConfig
	listedAt time.Time
	postures []*posture
	settings map[setting]*settingState
}

// setting is one of the hardware, of the node or of a GPU.
type setting struct{ name, uuid string }

type settingState struct {
	On      bool      `json:"on"`
	Changed time.Time `json:"changed,omitzero"`

	told Evidence // of that change; empty until it was told
}

// posture is one condition on one subject.
type posture struct {
	subject Subject
	cause   string
	owner   collector.Owner
	gpu     string // uuid, if it is about one
	told    Evidence
	holds   bool
	ended   time.Time
}

// NewIsolation returns the detector of rule isolation.
func NewIsolation(cfg IsolationConfig) *Isolation {
	return &Isolation{cfg: cfg, settings: map[setting]*settingState{}}
}

// Rule returns isolation.
func (d *Isolation) Rule() *rules.Rule { return rules.Get(rules.IDIsolation) }

// Observe looks at each new list of processes, and at the settings of the hardware.
func (d *Isolation) Observe(s *collector.Snapshot, report func(Observation)) {
	d.watchSettings(s, report)
	newest := time.Time{}
	for i := range s.GPUs {
		newest = later(newest, s.GPUs[i].SampledAt(metric.Processes))
	}
	if !newest.Equal(d.listedAt) {
		d.listedAt = newest
		d.look(s)
	}
	severity := rules.Info
	if d.cfg.Controlled {
		severity = rules.Ticket
	}
	for _, p := range d.postures {
		o := Observation{Subject: p.subject, Cause: p.cause, Owner: p.owner, Severity: severity}
		if p.gpu != "" {
			o.GPU = s.GPUByUUID(p.gpu)
		}
		if p.holds {
			o.Score, o.Evidence = 1, p.told
		}
		report(o)
	}
}

// look judges a list of processes.
func (d *Isolation) look(s *collector.Snapshot) {
	for _, p := range d.postures {
		if p.holds {
			p.ended = s.Time
		}
		p.holds = false
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Owner == (collector.Owner{}) || p.Service() {
			continue
		}
		if p.Privileged && d.cfg.Controlled {
			d.found(subjectOfOwner(s, p.Owner), privileged, p.Owner, p.UUID, func() Evidence { return privilegedEvidence(p) })
		}
		for j := range s.Processes[:i] {
			if q := &s.Processes[j]; q.UUID == p.UUID && q.MIG == p.MIG && q.Owner != p.Owner && q.Owner != (collector.Owner{}) && !q.Service() {
				d.beside(s, q, p)
			}
		}
	}
	d.postures = slices.DeleteFunc(d.postures, func(p *posture) bool { return !p.holds && s.Time.Sub(p.ended) > goneAfter })
}

// beside judges two owners' processes on one GPU or instance.
func (d *Isolation) beside(s *collector.Snapshot, a, b *collector.Process) {
	if x, y := sensitivityOf(s, a.Owner), sensitivityOf(s, b.Owner); x != "" && y != "" && x != y {
		d.found(gpuSubject(a.UUID), sensitiveBeside, b.Owner, a.UUID, func() Evidence {
			return posturing(fmt.Sprintf("Data of classes %s and %s on one GPU", x, y),
				fmt.Sprintf("%s (%s) and %s (%s) on one GPU", ownerWords(a.Owner), x, ownerWords(b.Owner), y),
				"data of one class on a GPU, or an instance of its own for each", "Move one of them to another GPU or MIG instance.", 2)
		})
	}
	if a.Value(metric.ProcessMPS) == 1 && b.Value(metric.ProcessMPS) == 1 && d.cfg.Controlled {
		d.found(gpuSubject(a.UUID), mpsAcross, b.Owner, a.UUID, func() Evidence {
			return posturing("MPS shared by two owners", fmt.Sprintf("%s and %s are clients of MPS on one GPU", ownerWords(a.Owner), ownerWords(b.Owner)),
				"one owner for each MPS server: its clients fail together", "Give each owner a MIG instance or an MPS server of its own.", 2)
		})
	}
}

func privilegedEvidence(p *collector.Process) Evidence {
	seen := fmt.Sprintf("a process of %s on GPU %d has every capability on the node", ownerWords(p.Owner), p.GPU)
	return posturing("Privileged container on a GPU", seen, "a container that was given its GPU and no more", "Take the privilege away; a GPU does not need it.", 1)
}

func posturing(title, seen, expected, action string, observed float64) Evidence {
	want := observed - 1
	return Evidence{Title: title, Seen: seen, Expected: expected, Observed: observed, Want: &want, Confidence: Certain,
		Why: "told by the kernel, the driver and the configuration", Action: action}
}

// found takes up a posture that holds. Its words are made only when it is new.
func (d *Isolation) found(subject Subject, cause string, owner collector.Owner, gpu string, words func() Evidence) {
	i := slices.IndexFunc(d.postures, func(p *posture) bool { return p.subject == subject && p.cause == cause })
	if i < 0 {
		if len(d.postures) >= mostPostures || subject.ID == "" {
			return
		}
		i = len(d.postures)
		d.postures = append(d.postures, &posture{subject: subject, cause: cause, owner: owner, gpu: gpu, told: words()})
	}
	d.postures[i].holds = true
}

// watchSettings compares the settings that keep work apart with those remembered.
func (d *Isolation) watchSettings(s *collector.Snapshot, report func(Observation)) {
	if cc := s.Node.Value(metric.ConfidentialComputing); !math.IsNaN(cc) && s.Node.Name != "" {
		d.watch(s, setting{"confidential computing", ""}, cc == 1, nil, report)
	}
	for i := range s.GPUs {
		if g := &s.GPUs[i]; g.Answers() && g.Has(metric.MIGMode) {
			d.watch(s, setting{"MIG", g.UUID}, g.Value(metric.MIGMode) == 1, g, report)
		}
	}
}

func (d *Isolation) watch(s *collector.Snapshot, key setting, on bool, g *collector.GPU, report func(Observation)) {
	st := d.settings[key]
	if st == nil {
		if len(d.settings) < mostPostures {
			d.settings[key] = &settingState{On: on}
		}
		return
	}
	if st.On != on {
		st.On, st.Changed, st.told = on, s.Time, Evidence{}
	}
	o := Observation{Subject: Subject{"node", s.Node.Name}, Cause: isolationChanged, GPU: g}
	if g != nil {
		o.Subject = gpuSubject(g.UUID)
	}
	if age := s.Time.Sub(st.Changed); !st.Changed.IsZero() && age >= 0 && age < changeTold {
		o.Score, o.At = 1, st.Changed
		if d.cfg.Controlled {
			o.Severity = rules.Ticket
		}
		if st.told.Seen == "" {
			st.told = changedEvidence(key, on, g, st.Changed)
		}
		o.Evidence = st.told
	}
	report(o)
}

func changedEvidence(key setting, on bool, g *collector.GPU, at time.Time) Evidence {
	now, before := "off", "on"
	if on {
		now, before = before, now
	}
	where := "on the node"
	if g != nil {
		where = fmt.Sprintf("of GPU %d", g.Index)
	}
	ev := posturing(strings.ToUpper(key.name[:1])+key.name[1:]+" was turned "+now, fmt.Sprintf("%s %s is %s since %s", key.name, where, now, clock(at)),
		before+", as before", "Check that the change was planned.", 1)
	ev.Why = "reported by the driver"
	return ev
}
